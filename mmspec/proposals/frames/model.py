"""A drafting model of frames whose codes are independent given its backbone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor

from mmspec.errors import DraftError
from mmspec.prefix import Frame, Prefix
from mmspec.proposals.base import Drafter, Outlook, Pick
from mmspec.proposals.frames.drafted import DraftedFrames
from mmspec.target import Target

if TYPE_CHECKING:
    from mmspec.engine.frames.choosing import FramePick


@dataclass
class FrameModelDrafter(Drafter):
    """Drafts with a model of the same order of codes, one frame at a time.

    Args:
        model: the drafting model, conditioned on the same input, its prompt read. Its positions
            are the prefix's.
        first_row: its raw rows `[1, R, V]` behind the prompt.
    """

    model: Target
    first_row: Tensor
    name: str = "model"
    cost_prior: float = 0.5
    conditioning: str = "own"

    def __post_init__(self) -> None:
        self._is_full = False

    @property
    def note(self) -> str | None:
        """That its own context was too short for the output, if it was."""
        if not self._is_full:
            return None
        return f"drafter {self.name} stopped at its own limit of {self.model.capacity} frames"

    def outlook(self, prefix: Prefix) -> Outlook:
        """As many frames as its context still holds."""
        room = max(0, self.model.capacity - len(prefix))
        self._is_full |= room == 0
        return Outlook("model", 0.7, 0.8, room)

    def propose(self, prefix: Prefix, limit: int, pick: Pick) -> DraftedFrames:
        """Catch up with the committed prefix, then draft up to `limit` frames.

        Raises:
            DraftError: the model has broken down.
        """
        draw = cast("FramePick", pick)
        rows = self._behind(prefix)
        frames: list[Frame] = []
        distributions: list[Tensor] = []
        while True:
            frame, distribution = draw(rows, len(frames))
            frames.append(frame)
            distributions += [] if distribution is None else [distribution]
            if len(frames) >= limit or self.model.state.length >= self.model.capacity:
                break
            rows = self.model.score([frame], keep=1)[0]  # type: ignore[list-item]
        if bool(torch.isnan(rows).any()):
            raise DraftError("the drafting model's logits are NaN")
        return DraftedFrames(tuple(frames), torch.stack(distributions) if distributions else None)

    def commit(self, prefix: Prefix, agreed: int) -> None:
        """Forget what was drafted beyond the agreement."""
        state = self.model.state
        state.commit(min(state.length, agreed))

    @property
    def forwards(self) -> int:
        """Forward passes of the drafting model."""
        return self.model.forwards

    def close(self) -> None:
        """Release the drafting model's state."""
        self.model.close()

    def _behind(self, prefix: Prefix) -> Tensor:
        """Rows behind the prefix. At least one frame is fed, else there are none."""
        state = self.model.state
        if len(prefix) == prefix.prompt_length:
            return self.first_row[-1]
        if state.length == len(prefix):
            state.rollback(state.length - 1)
        return self.model.score(prefix.ids[state.length :], keep=1)[-1]

"""A drafting model whose frames are chains: a smaller backbone with a depth decoder of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor

from mmspec.engine.frames import FramePick
from mmspec.errors import DraftError
from mmspec.modalities.speech.depth import Chain
from mmspec.modalities.speech.draft import ModelDraft
from mmspec.prefix import Frame, Prefix
from mmspec.proposals.base import Pick
from mmspec.proposals.frames import DraftedFrames, FrameModelDrafter


@dataclass
class DepthDrafter(FrameModelDrafter):
    """Drafts with a model, one frame at a time, and the codes of a frame one by one.

    Args:
        model: the drafting model, conditioned on the same input, its prompt read. Its positions
            are the prefix's. It has a `depth` chain, and the `hidden` states that this stands
            behind, the prompt's in `first_hidden`.
        first_row: its raw rows `[1, 1, V]` behind the prompt.
    """

    def propose(self, prefix: Prefix, limit: int, pick: Pick) -> DraftedFrames:
        """Catch up with the committed prefix, then draft up to `limit` frames.

        Raises:
            DraftError: the model has broken down.
        """
        draw, model = cast(Any, pick), cast(Any, self.model)
        row = self._behind(prefix)
        read = len(prefix) > prefix.prompt_length
        hidden = model.hidden[-1] if read else model.first_hidden
        before = prefix.ids[-1] if len(prefix) else None
        frames: list[Frame] = []
        distributions: list[Tensor] = []
        while True:
            if bool(torch.isnan(row).any()):
                raise DraftError("the drafting model's logits are NaN")
            self.depth.begin(len(frames), hidden, before)
            before, distribution = self._drawn(draw, row, len(frames))
            frames.append(before)
            distributions += [] if distribution is None else [distribution]
            if len(frames) >= limit or model.state.length >= model.capacity:
                break
            row, hidden = model.score([before], keep=1)[0], model.hidden[-1]
        if not distributions:
            return DraftedFrames(tuple(frames))
        return DraftedFrames(tuple(frames), torch.stack(distributions), draft_rest=self._rest)

    @property
    def depth_forwards(self) -> int:
        """Passes of the drafting model's own depth decoder."""
        return self.depth.passes

    @property
    def depth(self) -> Chain:
        """The drafting model's own; it counts its passes."""
        return cast(Any, self.model).depth

    def _drawn(self, draw: FramePick, row: Tensor, frame_idx: int) -> tuple[Frame, Tensor | None]:
        """A frame and the distributions `[K, V]` that its codes were drawn from."""
        code, distribution = draw.first(row)
        codes: Frame = (code,)
        distributions = [distribution]
        while len(codes) < cast(Any, self.model).codebooks:
            code, distribution = draw.code(self.depth.rest(frame_idx, codes), len(codes))
            codes, distributions = (*codes, code), [*distributions, distribution]
        draw.done(codes)
        drawn = [distribution for distribution in distributions if distribution is not None]
        return codes, torch.stack(drawn) if drawn else None

    def _rest(self, frame_idx: int, codes: Frame) -> Tensor:
        """The distribution `[V]` behind other codes of a drafted frame."""
        return self.depth.rest(frame_idx, codes).double().softmax(-1)


class DepthDraft(ModelDraft):
    """A smaller model of frames in depth, on the same text."""

    drafts = DepthDrafter

"""Heads on the target's own hidden state: the frames behind the next one, all at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, cast

import torch
from torch import Tensor

from mmspec.prefix import Frame, Prefix
from mmspec.proposals.base import Drafter, Outlook, Pick, fit_vocabulary
from mmspec.proposals.frames.drafted import DraftedFrames

if TYPE_CHECKING:
    from mmspec.engine.frames.choosing import FramePick

Heads = Callable[[Tensor], Tensor]
"""A hidden state `[D]` to rows `[offsets, K, V]`: the frames behind the one it decides."""


class Watched(Protocol):
    """A target whose final hidden states can be looked at.

    Attributes:
        hidden: `[m, D]`, behind the frames that it read last.
        hidden_from: position of the first of these frames.
        vocab_size: ids of a codebook, marks included.
    """

    hidden: Tensor
    hidden_from: int
    vocab_size: int


class HeadsDrafter(Drafter):
    """Drafts as many frames as there are heads, without a pass of any decoder.

    Args:
        target: whose hidden states are looked at.
        heads: trained on them.
        offsets: how many frames they give.
    """

    name = "heads"
    cost_prior = 0.02
    conditioning = "shared"

    def __init__(self, target: Watched, heads: Heads, offsets: int) -> None:
        self._target, self._heads, self._offsets = target, heads, offsets

    def outlook(self, prefix: Prefix) -> Outlook:
        """All heads, once a frame has been decided that the state is behind of."""
        available = self._offsets if self._place(prefix) is not None else 0
        return Outlook("heads", 0.6, 0.6, available)

    def propose(self, prefix: Prefix, limit: int, pick: Pick) -> DraftedFrames:
        """Up to `limit` frames, one per head."""
        place = self._place(prefix)
        if place is None:
            return DraftedFrames()
        draw = cast("FramePick", pick)
        frames: list[Frame] = []
        distributions: list[Tensor] = []
        for rows in self._heads(self._target.hidden[place])[:limit]:
            frame, distribution = draw(fit_vocabulary(rows, self._target.vocab_size), len(frames))
            frames.append(frame)
            distributions += [] if distribution is None else [distribution]
        return DraftedFrames(tuple(frames), torch.stack(distributions) if distributions else None)

    def _place(self, prefix: Prefix) -> int | None:
        """Row of the state that decided the last committed frame, which was not fed yet."""
        place = len(prefix) - 2 - self._target.hidden_from
        return place if 0 <= place < len(self._target.hidden) else None

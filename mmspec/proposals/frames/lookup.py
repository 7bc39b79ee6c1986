"""Lookup over frames: what followed the last time that frames ended like this.

A voice repeats itself: the same sounds in the same words. So what it has said before, in earlier
utterances, is looked up as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mmspec.prefix import Prefix
from mmspec.proposals.base import Pick
from mmspec.proposals.frames.drafted import DraftedFrames
from mmspec.proposals.runs import RunDrafter, RunIndex


class FrameIndex(RunIndex):
    """What followed runs of frames.

    Args:
        longest: frames of the longest run to look up.
        shortest: of the shortest to trust.
        codebooks: how many of a frame's codes have to be the same, from the first on; None: all.
    """

    def __init__(self, longest: int = 6, shortest: int = 2, codebooks: int | None = None) -> None:
        super().__init__(longest, shortest)
        self.codebooks = codebooks

    def _key(self, tokens: Sequence[Any]) -> tuple[Any, ...]:
        return tuple(frame[: self.codebooks] for frame in tokens)


class LookupDrafter(RunDrafter):
    """Proposes the continuation of the longest run known, of this output before earlier ones.

    Args:
        earlier: indices of what the voice has said before, the first one to know a run is asked.
        own: settings of the index of this output.

    Example:
        >>> import torch
        >>> from mmspec.prefix import FramePrefix
        >>> said = FrameIndex(longest=2, shortest=1)
        >>> said.add([(1, 1), (2, 2), (3, 3)])
        >>> prefix = FramePrefix([(9, 9), (2, 2)], 9, torch.device("cpu"), codebooks=2)
        >>> LookupDrafter([said]).propose(prefix, 4, pick=None).ids
        ((3, 3),)
    """

    name = "lookup"

    def __init__(self, earlier: Sequence[RunIndex] = (), own: RunIndex | None = None) -> None:
        super().__init__(FrameIndex() if own is None else own, earlier)

    def propose(self, prefix: Prefix, limit: int, pick: Pick | None) -> DraftedFrames:
        """Up to `limit` frames that followed."""
        _, place = self._find(prefix)
        if place is None:
            return DraftedFrames()
        frames, start = place
        return DraftedFrames(tuple(frames[start : start + limit]))

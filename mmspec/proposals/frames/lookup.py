"""Lookup over frames: what followed the last time that frames ended like this.

A voice repeats itself: the same sounds in the same words. So what it has said before, in earlier
utterances, is looked up as well.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from mmspec.prefix import Frame, Prefix
from mmspec.proposals.base import Drafter, Outlook, Pick
from mmspec.proposals.frames.drafted import DraftedFrames

Place = tuple[Sequence[Frame], int]
"""A sequence, and where in it something goes on."""


class FrameIndex:
    """What followed runs of frames, in sequences that are complete.

    Args:
        longest: frames of the longest run to look up.
        shortest: of the shortest to trust.
        codebooks: how many of a frame's codes have to be the same, from the first on; None: all.
    """

    def __init__(self, longest: int = 6, shortest: int = 2, codebooks: int | None = None) -> None:
        if not 1 <= shortest <= longest:
            raise ValueError(f"runs of {shortest}..{longest} frames: need 1 <= shortest <= longest")
        self.sizes = range(longest, shortest - 1, -1)
        self.codebooks = codebooks
        self._continues_at: dict[tuple[Frame, ...], Place] = {}

    def add(self, frames: Sequence[Frame], done: int = 0) -> None:
        """Note what follows every run that ends before the last frame, from frame `done` on."""
        for end in range(max(1, done), len(frames)):
            for size in self.sizes:
                if size <= end:
                    self._continues_at[self._key(frames[end - size : end])] = frames, end

    def find(self, frames: Sequence[Frame]) -> tuple[int, Place | None]:
        """(length of the longest known run that the frames end with, where it went on)."""
        for size in self.sizes:
            place = self._continues_at.get(self._key(frames[-size:]))
            if place is not None and size <= len(frames):
                return size, place
        return 0, None

    def _key(self, frames: Sequence[Frame]) -> tuple[Frame, ...]:
        return tuple(frame[: self.codebooks] for frame in frames)


class LookupDrafter(Drafter):
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

    def __init__(self, earlier: Sequence[FrameIndex] = (), own: FrameIndex | None = None) -> None:
        self._own = FrameIndex() if own is None else own
        self._earlier, self._indexed = list(earlier), 0

    def outlook(self, prefix: Prefix) -> Outlook:
        """The longer the run, the better the odds."""
        size, place = self._find(prefix)
        if place is None:
            return Outlook("no match", 0.0, 0.0, 0)
        odds = 1 - 0.6 / size
        return Outlook(f"match {size}", odds, min(0.9, odds + 0.1), len(place[0]) - place[1])

    def propose(self, prefix: Prefix, limit: int, pick: Pick | None) -> DraftedFrames:
        """Up to `limit` frames that followed."""
        _, place = self._find(prefix)
        if place is None:
            return DraftedFrames()
        frames, start = place
        return DraftedFrames(tuple(itertools.islice(frames, start, start + limit)))

    def _find(self, prefix: Prefix) -> tuple[int, Place | None]:
        if self._indexed < len(prefix):
            self._own.add(prefix.ids, self._indexed)
            self._indexed = len(prefix)
        found = [index.find(prefix.ids) for index in (self._own, *self._earlier)]
        return max(found, key=lambda run: run[0])  # the first of equals

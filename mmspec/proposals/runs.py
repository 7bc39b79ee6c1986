"""What followed when a sequence ended like this before: what lookup of every kind shares."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mmspec.prefix import Prefix
from mmspec.proposals.base import Drafter, Outlook

Place = tuple[Sequence[Any], int]
"""A sequence, and where in it something goes on."""


class RunIndex:
    """What followed runs of tokens, in one sequence or several.

    Args:
        longest: tokens of the longest run to look up.
        shortest: of the shortest to trust.
    """

    def __init__(self, longest: int = 6, shortest: int = 2) -> None:
        if not 1 <= shortest <= longest:
            raise ValueError(f"n-gram sizes {shortest}..{longest}: need 1 <= shortest <= longest")
        self.sizes = range(longest, shortest - 1, -1)
        self._continues_at: dict[tuple[Any, ...], Place] = {}

    def add(self, tokens: Sequence[Any], done: int = 0) -> None:
        """Note what follows every run that ends before the last token, from token `done` on."""
        for end in range(max(1, done), len(tokens)):
            for size in self.sizes:
                if size <= end:
                    self._continues_at[self._key(tokens[end - size : end])] = tokens, end

    def find(self, tokens: Sequence[Any]) -> tuple[int, Place | None]:
        """(length of the longest known run that the tokens end with, where it last went on)."""
        for size in self.sizes:
            place = self._continues_at.get(self._key(tokens[-size:]))
            if place is not None and size <= len(tokens):
                return size, place
        return 0, None

    def _key(self, tokens: Sequence[Any]) -> tuple[Any, ...]:
        return tuple(tokens)


class RunDrafter(Drafter):
    """Knows where the longest known run goes on, in this output before earlier ones.

    The index grows by what each round commits, so a round costs the same however long the prefix
    is.

    Args:
        own: the index of this output.
        earlier: indices of what was said before, the first one to know a run is asked.
    """

    def __init__(self, own: RunIndex, earlier: Sequence[RunIndex] = ()) -> None:
        self._own, self._earlier, self._indexed = own, list(earlier), 0

    def outlook(self, prefix: Prefix) -> Outlook:
        """The longer the run, the better the odds."""
        size, place = self._find(prefix)
        if place is None:
            return Outlook("no match", 0.0, 0.0, 0)
        odds = 1 - 0.6 / size
        return Outlook(f"match {size}", odds, min(0.9, odds + 0.1), self._available(place))

    def _available(self, place: Place) -> int:
        """How much could be proposed."""
        return len(place[0]) - place[1]

    def _find(self, prefix: Prefix) -> tuple[int, Place | None]:
        if self._indexed < len(prefix):
            self._own.add(prefix.ids, self._indexed)
            self._indexed = len(prefix)
        found = [index.find(prefix.ids) for index in (self._own, *self._earlier)]
        return max(found, key=lambda run: run[0])  # the first of equals

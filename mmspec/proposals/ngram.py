"""N-gram lookup: what followed the last time that the committed text ended like this."""

from __future__ import annotations

import itertools
from collections.abc import Collection

from mmspec.prefix import Prefix
from mmspec.proposals.base import Drafter, Outlook, Pick, Proposal, deterministic

MOST = 64
"""Units of a loop that are proposed at most: it has no end of its own."""


class NgramDrafter(Drafter):
    """Proposes the continuation of the latest earlier occurrence of the longest matching suffix.

    The index grows by the committed units of each round, so a round costs the same however long
    the prefix is.

    Args:
        longest: longest suffix to look up, in units.
        shortest: shortest suffix to trust.
        never: unit ids that are not proposed and end a proposal (placeholders, prompt marks).
        loops: take what lies between two equal endings for a loop: a proposal that reaches the
            prefix's end goes round.
    """

    name = "ngram"

    def __init__(
        self,
        longest: int = 4,
        shortest: int = 2,
        never: Collection[int] = (),
        *,
        loops: bool = False,
    ) -> None:
        if not 1 <= shortest <= longest:
            raise ValueError(f"n-gram sizes {shortest}..{longest}: need 1 <= shortest <= longest")
        self._sizes = range(longest, shortest - 1, -1)
        self._never, self._loops = frozenset(never), loops
        self._continues_at: dict[tuple[int, ...], int] = {}
        self._indexed = 0

    def outlook(self, prefix: Prefix) -> Outlook:
        """The longer the match, the better the odds."""
        size, start = self._find(prefix)
        if size == 0:
            return Outlook("no match", 0.0, 0.0, 0)
        odds = 1 - 0.6 / size
        available = MOST if self._loops else len(prefix) - start
        return Outlook(f"match {size}", odds, min(0.9, odds + 0.1), available)

    def propose(self, prefix: Prefix, limit: int, pick: Pick) -> Proposal:
        """Up to `limit` units that followed the match."""
        size, start = self._find(prefix)
        found = prefix.ids[start : start + limit] if size else []
        units = itertools.islice(itertools.cycle(found), limit) if self._loops else found
        return deterministic(list(itertools.takewhile(lambda u: u not in self._never, units)))

    def _find(self, prefix: Prefix) -> tuple[int, int]:
        """Length of the longest known suffix and where its continuation starts; (0, 0) if none."""
        self._index(prefix)
        for size in self._sizes:
            start = self._continues_at.get(tuple(prefix.ids[-size:]))
            if start is not None:
                return size, start
        return 0, 0

    def _index(self, prefix: Prefix) -> None:
        """Note what follows every n-gram that ends before the last committed unit."""
        for end in range(max(1, self._indexed), len(prefix)):
            for size in self._sizes:
                if size <= end:
                    self._continues_at[tuple(prefix.ids[end - size : end])] = end
        self._indexed = len(prefix)

"""N-gram lookup: what followed the last time that the committed text ended like this."""

from __future__ import annotations

from collections.abc import Collection

from mmspec.prefix import Prefix
from mmspec.proposals.base import Drafter, Outlook, Pick, Proposal, deterministic


class NgramDrafter(Drafter):
    """Proposes the continuation of the latest earlier occurrence of the longest matching suffix.

    The index grows by the committed units of each round, so a round costs the same however long
    the prefix is.

    Args:
        longest: longest suffix to look up, in units.
        shortest: shortest suffix to trust.
        never: unit ids that are not proposed and end a proposal (placeholders, prompt marks).
    """

    name = "ngram"

    def __init__(self, longest: int = 4, shortest: int = 2, never: Collection[int] = ()) -> None:
        if not 1 <= shortest <= longest:
            raise ValueError(f"n-gram sizes {shortest}..{longest}: need 1 <= shortest <= longest")
        self._sizes = range(longest, shortest - 1, -1)
        self._never = frozenset(never)
        self._continues_at: dict[tuple[int, ...], int] = {}
        self._indexed = 0

    def outlook(self, prefix: Prefix) -> Outlook:
        """The longer the match, the better the odds."""
        size, start = self._find(prefix)
        if size == 0:
            return Outlook("no match", 0.0, 0.0, 0)
        odds = 1 - 0.6 / size
        return Outlook(f"match {size}", odds, min(0.9, odds + 0.1), len(prefix) - start)

    def propose(self, prefix: Prefix, limit: int, pick: Pick) -> Proposal:
        """Up to `limit` units that followed the match."""
        size, start = self._find(prefix)
        units: list[int] = []
        for unit in prefix.ids[start : start + limit] if size else ():
            if unit in self._never:
                break
            units.append(unit)
        return deterministic(units)

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

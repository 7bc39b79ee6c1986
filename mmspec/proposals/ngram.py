"""N-gram lookup: what followed the last time that the committed text ended like this."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence

from mmspec.prefix import Prefix
from mmspec.proposals.base import Pick, Proposal, deterministic
from mmspec.proposals.runs import Place, RunDrafter, RunIndex

MOST = 64
"""Tokens of a loop that are proposed at most: it has no end of its own."""


class NgramDrafter(RunDrafter):
    """Proposes the continuation of the latest earlier occurrence of the longest matching suffix.

    Args:
        longest: longest suffix to look up, in tokens.
        shortest: shortest suffix to trust.
        never: token ids that are not proposed and end a proposal (placeholders, prompt marks).
        loops: take what lies between two equal endings for a loop: a proposal that reaches the
            prefix's end goes round.
        earlier: indices of sequences that were complete before this one began.
    """

    name = "ngram"

    def __init__(
        self,
        longest: int = 4,
        shortest: int = 2,
        never: Collection[int] = (),
        *,
        loops: bool = False,
        earlier: Sequence[RunIndex] = (),
    ) -> None:
        super().__init__(RunIndex(longest, shortest), earlier)
        self._never, self._loops = frozenset(never), loops

    def propose(self, prefix: Prefix, limit: int, pick: Pick) -> Proposal:
        """Up to `limit` tokens that followed the match."""
        _, place = self._find(prefix)
        if place is None:
            return Proposal()
        said, start = place
        found = said[start : start + limit]
        tokens = itertools.islice(itertools.cycle(found), limit) if self._loops else found
        return deterministic(list(itertools.takewhile(lambda u: u not in self._never, tokens)))

    def _available(self, place: Place) -> int:
        return MOST if self._loops else super()._available(place)

"""How far proposals survive: expected by the drafter, corrected by what was seen lately."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from mmspec.proposals.base import Outlook

ROW_PRIOR = 0.06
"""Expected extra cost of one more row in a block, in ordinary steps, where nothing is measured."""

EXPECTED_TOKENS = 64
"""Tokens that an output is expected to have still to come, where there is room for more."""

PRIOR_WEIGHT = 2.0
"""Observations that a drafter's own expectation counts for."""

FADE = 0.9
"""Weight that an observation keeps at each later one: what was seen some ten tokens ago is old."""


@dataclass
class _Rate:
    """A conditional acceptance: a prior expectation and what was seen since."""

    accepted: float = 0.0
    tried: float = 0.0

    def estimate(self, prior: float, hope: float) -> float:
        good = prior * PRIOR_WEIGHT + self.accepted + hope
        return good / (PRIOR_WEIGHT + self.tried + hope)

    def add(self, accepted: int, tried: int) -> None:
        # Old observations fade: what is being said changes, and so does how predictable it is.
        fade = FADE**tried
        self.accepted = self.accepted * fade + accepted
        self.tried = self.tried * fade + tried


@dataclass
class AcceptanceRate:
    """What was seen of proposals, kept apart by the context of their outlooks.

    One may serve many requests: what it has learned is kept.

    Attributes:
        passed: by context, how many tokens went by since something of it could have been proposed
            and another drafter had its turn. A switch counts them; nobody else needs to.

    Example:
        >>> rate = AcceptanceRate()
        >>> outlook = Outlook("aligned", first=0.9, rest=0.95, available=8)
        >>> for _ in range(4):
        ...     rate.observe("aligned", accepted=0, judged=1)
        >>> round(rate.expect(outlook).first, 2)
        0.33
    """

    passed: Counter[str] = field(default_factory=Counter)
    _first: dict[tuple[str, int], _Rate] = field(default_factory=lambda: defaultdict(_Rate))
    _rest: dict[str, _Rate] = field(default_factory=lambda: defaultdict(_Rate))

    def expect(self, outlook: Outlook, hope: float = 0.0) -> Outlook:
        """The outlook, corrected by what was seen in its context.

        Args:
            outlook: the drafter's own; one that was corrected already is returned as it is.
            hope: accepted tokens to be added to what was really seen.
        """
        if outlook.corrected:
            return outlook
        first, *beside = (
            self._first[outlook.context, branches].estimate(prior, hope)
            for branches, prior in enumerate((outlook.first, *outlook.beside), 1)
        )
        rest = self._rest[outlook.context].estimate(outlook.rest, hope)
        scale = rest / outlook.rest if outlook.rest else 1.0
        return replace(
            outlook,
            first=first,
            rest=rest,
            beside=tuple(beside),
            later=tuple(min(1.0, scale * chance) for chance in outlook.later),
            corrected=True,
        )

    def observe(
        self,
        context: str,
        *,
        accepted: int,
        judged: int,
        branches: int = 1,
        branch: int | None = 0,
    ) -> None:
        """Learn from a proposal.

        Args:
            context: of the outlook that it was made with.
            accepted: how many drafted tokens were kept.
            judged: how many in a row the target passed judgement on.
            branches: continuations that were proposed side by side.
            branch: which of them the accepted tokens are from.
        """
        for width in range(1, branches + 1) if judged else ():
            found = accepted > 0 and branch is not None and branch < width
            self._first[context, width].add(found, 1)
        if judged > 1:
            self._rest[context].add(accepted - 1, judged - 1)


def emitted_tokens(outlook: Outlook, branches: int = 1) -> Iterator[float]:
    """Expected tokens of a round with 1, 2, … drafted in a row, recovered or bonus included.

    Example:
        >>> import itertools
        >>> outlook = Outlook("any", first=0.5, rest=0.5, available=9)
        >>> list(itertools.islice(emitted_tokens(outlook), 3))
        [1.5, 1.75, 1.875]
    """
    expected, acceptance_rate = 1.0, (outlook.first, *outlook.beside)[branches - 1]
    for chance in itertools.chain(outlook.later, itertools.repeat(outlook.rest)):
        expected += acceptance_rate
        acceptance_rate *= chance
        yield expected

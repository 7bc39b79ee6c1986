"""Hypothesis drafting: the caller already has a text that is nearly right.

An earlier pass, another recogniser's transcript, a reading of the same page. While it agrees with
the target it is the perfect draft; after a mismatch it has to be lined up again with what was
committed (a word too many, one missing, one different) and goes on from there.
"""

from __future__ import annotations

from collections.abc import Sequence

from mmspec.prefix import Prefix
from mmspec.proposals.base import Drafter, Outlook, Pick, Proposal, deterministic

SETTLED = 2
"""Committed units in a row that must match before the alignment counts as found again."""

SEARCH = 24
"""How far ahead of a mismatch, in hypothesis units, the continuation is looked for."""

PATIENCE = 16
"""Committed units without a settled alignment after which the best guess is taken for good."""


class HypothesisDrafter(Drafter):
    """Proposes a given continuation, realigned after each mismatch.

    Args:
        units: the hypothesis in the target's vocabulary; ends with the stop unit where the
            hypothesis is complete.

    Example:
        >>> import torch
        >>> drafter = HypothesisDrafter([5, 6, 7, 8, 9])
        >>> prefix = Prefix([1], capacity=16, device=torch.device("cpu"))
        >>> drafter.propose(prefix, 2, pick=None).ids
        (5, 6)
        >>> prefix.extend([5, 6, 42])  # 42 where the hypothesis has 7: taken for a substitution
        >>> drafter.commit(prefix, agreed=3)
        >>> drafter.propose(prefix, 4, pick=None).ids
        (8, 9)
    """

    name = "hypothesis"

    def __init__(self, units: Sequence[int]) -> None:
        self._units = list(units)
        self._seen: int | None = None
        self._at = 0  # hypothesis index up to which the alignment is settled
        self._tail: list[int] = []  # units committed since then
        self._next = 0  # best guess where the hypothesis goes on

    def outlook(self, prefix: Prefix) -> Outlook:
        """Nearly sure while aligned; after a mismatch the first unit decides."""
        available = len(self._units) - self._next
        if self._tail:
            return Outlook("realigning", 0.5, 0.9, available)
        return Outlook("aligned", 0.9, 0.95, available)

    def propose(self, prefix: Prefix, limit: int, pick: Pick) -> Proposal:
        """The hypothesis from the aligned position on."""
        if self._seen is None:
            self._seen = len(prefix)
        return deterministic(self._units[self._next : self._next + limit])

    def commit(self, prefix: Prefix, agreed: int) -> None:
        """Follow what was committed through the hypothesis."""
        if self._seen is None:
            self._seen = prefix.prompt_length
        for unit in prefix.ids[self._seen :]:
            self._follow(unit)
        self._seen = len(prefix)
        if self._tail:
            self._realign()
        else:
            self._next = self._at

    def _follow(self, unit: int) -> None:
        settled = not self._tail
        if settled and self._at < len(self._units) and self._units[self._at] == unit:
            self._at += 1
        else:
            self._tail.append(unit)

    def _realign(self) -> None:
        ahead = self._units[self._at : self._at + len(self._tail) + SEARCH]
        position, matched = align(ahead, self._tail)
        self._next = self._at + position
        if matched >= SETTLED or len(self._tail) >= PATIENCE:
            self._at = self._next
            self._tail = []


def align(ahead: Sequence[int], committed: Sequence[int]) -> tuple[int, int]:
    """Where in `ahead` to go on, given that `committed` was decided from its start on.

    Edit distance between `committed` and every prefix of `ahead`; the cheapest prefix wins, a run
    of matches at its end counts for it, and between equals the one of the same length (a
    substitution is the commonest error).

    Returns:
        (units of `ahead` used up, length of the run of matches that ends there).

    Example:
        >>> align([7, 8, 9], [42])  # a substitution, or 42 was missing: the former is likelier
        (1, 0)
        >>> align([7, 8, 9], [8])  # 7 was one too many
        (2, 1)
        >>> align([7, 8, 9], [42, 7])  # 42 was missing
        (1, 1)
    """
    costs = [float(used) for used in range(len(ahead) + 1)]
    runs = [0] * len(costs)
    for done, unit in enumerate(committed, 1):
        new_costs, new_runs = [float(done)], [0]
        for used, candidate in enumerate(ahead, 1):
            same = candidate == unit
            diagonal = costs[used - 1] + (not same)
            cost = min(diagonal, costs[used] + 1, new_costs[-1] + 1)
            new_costs.append(cost)
            new_runs.append(runs[used - 1] + 1 if same and cost == diagonal else 0)
        costs, runs = new_costs, new_runs
    length = len(committed)

    def badness(used: int) -> tuple[float, int]:
        return costs[used] - 0.5 * runs[used], abs(used - length)

    best = min(range(len(costs)), key=badness)
    return best, runs[best]

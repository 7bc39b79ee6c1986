"""What lossy acceptance has cost: the distance from the target's distribution, by step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class DistanceLedger:
    """Distances in total variation, 0 to 1, between the distribution that a step was drawn from and
    the target's distribution behind the same tokens.

    The output's own distribution is as far from the target's as the mean of `total` over all
    outputs that might have come, at most. Where a frame has several judged codes, its distance is
    their sum.

    Attributes:
        by_step: one per emitted step; 0 where it was judged exactly or is the target's own.
        budget: what a request may spend; None: no limit.

    Example:
        >>> spent = DistanceLedger((0.0, 0.25, 0.5), budget=1.0)
        >>> spent.total, spent.largest, spent.steps
        (0.75, 0.5, 2)
    """

    by_step: tuple[float, ...]
    budget: float | None = None

    @property
    def total(self) -> float:
        """What all steps have spent; above 1 it says nothing about the output as a whole."""
        return math.fsum(self.by_step)

    @property
    def largest(self) -> float:
        """The most that one step has spent."""
        return max(self.by_step, default=0.0)

    @property
    def steps(self) -> int:
        """How many steps have spent anything."""
        return sum(distance > 0 for distance in self.by_step)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON, derived figures included."""
        derived = {"total": self.total, "largest": self.largest, "steps": self.steps}
        return {**asdict(self), **derived}


def add_ledgers(ledgers: Sequence[DistanceLedger]) -> DistanceLedger:
    """Of several requests together; their budgets add up, if all have one."""
    budgets = [ledger.budget for ledger in ledgers if ledger.budget is not None]
    return DistanceLedger(
        tuple(distance for ledger in ledgers for distance in ledger.by_step),
        math.fsum(budgets) if len(budgets) == len(ledgers) else None,
    )

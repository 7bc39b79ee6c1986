"""Ratios over pairs: their median, and how far they spread."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Spread:
    """A median with its range.

    Example:
        >>> Spread.of([2.0, 1.0, 4.0, None])
        Spread(median=2.0, low=1.0, high=4.0, count=3)
        >>> print(Spread.of([2.0, 1.0, 4.0]))
        2.00× (1.00-4.00)
        >>> print(Spread.of([]))
        -
    """

    median: float | None
    low: float | None
    high: float | None
    count: int

    @classmethod
    def of(cls, ratios: Iterable[float | None]) -> Spread:
        """Over the ratios that could be taken."""
        known = [ratio for ratio in ratios if ratio is not None]
        if not known:
            return cls(None, None, None, 0)
        return cls(statistics.median(known), min(known), max(known), len(known))

    def __str__(self) -> str:
        if self.median is None:
            return "-"
        return f"{self.median:.2f}× ({self.low:.2f}-{self.high:.2f})"

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self)

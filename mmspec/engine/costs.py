"""What a forward pass costs, learned from the passes that are made anyway."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Collection

from mmspec.proposals.acceptance_rate import ROW_PRIOR

MEMORY = 9
"""Measurements kept per block size."""


def typical(seconds: Collection[float]) -> float:
    """What a pass costs when nothing disturbs it: the lower quartile of its measurements.

    Another process only ever makes a pass slower, so the lower ones are nearer the truth.
    """
    ordered = sorted(seconds)
    return ordered[(len(ordered) - 1) // 4]


class BlockCosts:
    """Seconds of a target forward by block size.

    Example:
        >>> costs = BlockCosts()
        >>> costs.seconds(1) is None
        True
        >>> costs.add(1, 0.010); costs.add(9, 0.012)
        >>> costs.seconds(9), round(costs.seconds(5), 4)
        (0.012, 0.011)
    """

    def __init__(self) -> None:
        self._seen: dict[int, deque[float]] = defaultdict(lambda: deque(maxlen=MEMORY))
        self._first: dict[int, float] = {}  # sizes seen once
        self._settled: dict[int, float] = {}  # typical seconds of sizes seen more than once

    def add(self, rows: int, seconds: float) -> None:
        """Note that a block of `rows` took `seconds`."""
        seen = self._seen[rows]
        seen.append(seconds)
        (self._settled if len(seen) > 1 else self._first)[rows] = typical(seen)

    def seconds(self, rows: int) -> float | None:
        """Expected seconds of a block, None where nothing was measured at all.

        The first pass of a size also pays for preparing its kernels: sizes that were seen more
        than once are believed before those that weren't.
        """
        known = self._settled or self._first
        if rows in known:
            return known[rows]
        below = max((size for size in known if size < rows), default=None)
        above = min((size for size in known if size > rows), default=None)
        if below is not None and above is not None:
            share = (rows - below) / (above - below)
            return known[below] + share * (known[above] - known[below])
        nearest = below if below is not None else above
        if nearest is None:
            return None
        return known[nearest] * (1 + ROW_PRIOR * (rows - 1)) / (1 + ROW_PRIOR * (nearest - 1))

    def relative(self, rows: int) -> float:
        """Cost of a block in ordinary steps, between 1 and its number of rows.

        Few measurements are leavened with the expectation, so that one pass that was disturbed
        doesn't rule its block size out for good.
        """
        expected = 1 + ROW_PRIOR * (rows - 1)
        one, block = self.seconds(1), self.seconds(rows)
        if one is None or block is None:
            return expected
        measured = min(max(block / one, 1.0), float(rows))
        weight = max(1, len(self._seen.get(rows, ())))
        return (expected + weight * measured) / (1 + weight)

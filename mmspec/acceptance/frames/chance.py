"""Where the sampling rules get their randomness: three ways to ask, so that a distribution can be
added up.

A rule that asks for uniform numbers hides which of them lead to the same decision. One that asks
only these questions can be run through every answer instead, which gives its distribution exactly.
"""

from collections.abc import Callable
from typing import Protocol, TypeVar

import torch
from torch import Tensor

from mmspec.acceptance.distributions import draw

T = TypeVar("T")


class Chance(Protocol):
    """What a rule may ask of chance. All answers are independent."""

    def happens(self, probability: float) -> bool:
        """Answers true with this probability."""

    def draw(self, weights: Tensor) -> int:
        """Draws a code with chances in proportion to non-negative float64 weights `[V]`."""

    def first(self, attempt: Callable[[], T | None]) -> T:
        """Repeats an attempt, the same one each time, until it gives something."""


class Coins:
    """Chance from a generator of random numbers.

    Args:
        generator: Where the numbers come from, a generator of the CPU; torch's own if None.

    Example:
        >>> coins = Coins(torch.Generator().manual_seed(0))
        >>> coins.happens(0.0), coins.happens(1.0)
        (False, True)
        >>> coins.draw(torch.tensor([0.0, 3.0, 0.0], dtype=torch.float64))
        1
    """

    def __init__(self, generator: torch.Generator | None = None) -> None:
        self._generator = generator

    def happens(self, probability: float) -> bool:
        """Answers true with this probability."""
        return float(self._uniform()) < probability

    def draw(self, weights: Tensor) -> int:
        """Draws a code with chances in proportion to non-negative float64 weights `[V]`."""
        return int(draw(weights[None], self._uniform().to(weights.device)))

    def first(self, attempt: Callable[[], T | None]) -> T:
        """Repeats an attempt, the same one each time, until it gives something."""
        while True:
            found = attempt()
            if found is not None:
                return found

    def _uniform(self) -> Tensor:
        return torch.rand(1, dtype=torch.float64, generator=self._generator)

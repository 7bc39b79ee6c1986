"""Text steps: one token per step, each given all before it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mmspec.factorizations.base import check_tokens


@dataclass(frozen=True, slots=True)
class TextSteps:
    """Any causal language model's tokens.

    Example:
        >>> steps = TextSteps(vocab_size=10, stop_tokens=frozenset({9}))
        >>> steps.to_grid([3, 4, 9]), steps == TextSteps(10, frozenset({9}))
        ((3, 4, 9), True)
    """

    vocab_size: int
    stop_tokens: frozenset[int] = frozenset()
    reserved: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        if self.vocab_size < 1:
            raise ValueError(f"vocab_size must be positive, got {self.vocab_size}")
        check_tokens("stop_tokens", self.stop_tokens, self.vocab_size)
        check_tokens("reserved", self.reserved, self.vocab_size)

    def to_grid(self, sequence: Sequence[int]) -> tuple[int, ...]:
        """The ids themselves."""
        return tuple(sequence)

    def from_grid(self, grid: Sequence[int]) -> tuple[int, ...]:
        """The ids themselves."""
        return tuple(grid)

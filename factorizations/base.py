"""What every descriptor answers. Descriptors are frozen, hashable values; they hold no tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Descriptor(Protocol):
    """The meaning of a sequence of tokens.

    Attributes:
        vocab_size: how many tokens there are at each step.
        stop_tokens: tokens that end a sequence.
        reserved: tokens that are never drafted: they mark structure that only the caller or the
            prompt may set (placeholders, prompt marks, padding).
    """

    @property
    def vocab_size(self) -> int: ...  # noqa: D102

    @property
    def stop_tokens(self) -> frozenset[int]: ...  # noqa: D102

    @property
    def reserved(self) -> frozenset[int]: ...  # noqa: D102

    def to_grid(self, sequence: Sequence[int]) -> tuple[int, ...]:
        """The integers that parity compares, from the sequence that the model saw."""
        ...

    def from_grid(self, grid: Sequence[int]) -> tuple[int, ...]:
        """The sequence that the model sees, from the grid that the user means."""
        ...


def check_tokens(name: str, tokens: frozenset[int] | Sequence[int], vocab_size: int) -> None:
    """Raise where a token lies outside the vocabulary.

    Raises:
        ValueError: says which.
    """
    for token in tokens:
        if not 0 <= token < vocab_size:
            raise ValueError(f"{name} has token {token}, outside the vocabulary of {vocab_size}")

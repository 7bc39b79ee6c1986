"""What every descriptor answers. Descriptors are frozen, hashable values; they hold no tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Descriptor(Protocol):
    """The meaning of a sequence of units.

    Attributes:
        vocab_size: how many units there are at each step.
        stop_units: units that end a sequence.
        reserved: units that are never drafted: they mark structure that only the caller or the
            prompt may set (placeholders, prompt marks, padding).
    """

    @property
    def vocab_size(self) -> int: ...  # noqa: D102

    @property
    def stop_units(self) -> frozenset[int]: ...  # noqa: D102

    @property
    def reserved(self) -> frozenset[int]: ...  # noqa: D102

    def to_grid(self, sequence: Sequence[int]) -> tuple[int, ...]:
        """The integers that parity compares, from the sequence that the model saw."""
        ...

    def from_grid(self, grid: Sequence[int]) -> tuple[int, ...]:
        """The sequence that the model sees, from the grid that the user means."""
        ...


def check_units(name: str, units: frozenset[int] | Sequence[int], vocab_size: int) -> None:
    """Raise where a unit lies outside the vocabulary.

    Raises:
        ValueError: says which.
    """
    for unit in units:
        if not 0 <= unit < vocab_size:
            raise ValueError(f"{name} has unit {unit}, outside the vocabulary of {vocab_size}")

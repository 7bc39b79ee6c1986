"""A first stream, one code after another, then the other codebooks, each filled in one pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from mmspec.errors import InputError
from mmspec.factorizations.codes import (
    Cell,
    Codebook,
    CodeSteps,
    Grid,
    Order,
    check_codebooks,
)
from mmspec.factorizations.time_major import TimeMajorFrames


@dataclass(frozen=True, slots=True)
class FirstStream(CodeSteps):
    """Chained codebooks, then filled ones: VALL-E (1 and 7), Bark's acoustic codes (2 and 6).

    The model sees the chain, time-major, then one stream per filled codebook. A filling pass sees
    all of time and every codebook before its own. It follows from them, so it is no decision that
    could be drafted.

    Attributes:
        codebooks: one per column.
        chained: how many of them, from the first, the chain goes through.

    Example:
        >>> steps = FirstStream((Codebook(9, codes=8, end=8), Codebook(8, codes=8)), chained=1)
        >>> steps.to_grid([(1, 2, 8), (5, 6)])
        ((1, 5), (2, 6))
        >>> steps.step(2, frames=2).order.value, steps.decisions(frames=2)
        ('filled', 2)
    """

    axes: ClassVar[dict[str, str]] = {
        "frame": "",
        "codebook": "the codebooks behind the first stream are filled in one pass each, not one "
        "code after another",
    }

    codebooks: tuple[Codebook, ...]
    chained: int = 1

    def __post_init__(self) -> None:
        check_codebooks(self.codebooks)
        if not 1 <= self.chained <= len(self.codebooks):
            raise ValueError(
                f"chained must be 1 to {len(self.codebooks)} codebooks, got {self.chained}"
            )
        _ = self.chain  # checks its part of the codebooks

    @property
    def chain(self) -> TimeMajorFrames:
        """The first stream by itself."""
        return TimeMajorFrames(self.codebooks[: self.chained], tuple(range(self.chained)))

    @property
    def stop_codebooks(self) -> tuple[int, ...]:
        """The chain's."""
        return self.chain.stop_codebooks

    def steps(self, frames: int) -> int:
        """One step per chained code, then one per filled codebook."""
        return self.chain.steps(frames) + len(self.codebooks) - self.chained

    def _cells(self, index: int, frames: int) -> tuple[Order, tuple[Cell, ...], tuple[int, ...]]:
        late = index - self.chain.steps(frames)
        if late < 0:
            return self.chain._cells(index, frames)
        return Order.FILLED, tuple(Cell(t, self.chained + late) for t in range(frames)), ()

    def has_ended(self, sequence: Sequence[Sequence[int]]) -> bool:
        """Whether the chain has ended by its end mark."""
        return len(sequence) > 0 and self.chain.has_ended(sequence[0])

    def to_grid(self, sequence: Sequence[Sequence[int]]) -> Grid:
        """The codes, checked; the end mark is left out.

        Raises:
            InputError: streams are missing or not of one length, or a token is no code of its
                place.
        """
        streams = 1 + len(self.codebooks) - self.chained
        if len(sequence) != streams:
            raise InputError(f"expected the chain and {streams - 1} streams, got {len(sequence)}")
        rows = self.chain.to_grid(sequence[0])
        for k, stream in enumerate(sequence[1:], self.chained):
            if len(stream) != len(rows):
                raise InputError(
                    f"codebook {k} has {len(stream)} tokens, the first stream {len(rows)} frames"
                )
        filled = enumerate(sequence[1:], self.chained)
        columns = [[self._code(t, k, token) for t, token in enumerate(ids)] for k, ids in filled]
        return tuple((*row, *(column[t] for column in columns)) for t, row in enumerate(rows))

    def from_grid(
        self, grid: Sequence[Sequence[int]], *, ended: bool = False
    ) -> tuple[tuple[int, ...], ...]:
        """The chain of ids (with the end mark if it ended by that), then the other streams."""
        rows = self._ids(grid)
        chain = self.chain.from_grid([row[: self.chained] for row in grid], ended=ended)
        filled = range(self.chained, len(self.codebooks))
        return (chain, *(tuple(row[k] for row in rows) for k in filled))

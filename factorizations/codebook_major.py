"""Codebook-major streams: codebook 0 over all time, then codebook 1 over all time, one chain."""

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


@dataclass(frozen=True, slots=True)
class CodebookMajorStreams(CodeSteps):
    """A chain that goes through time once per codebook.

    Codebook 0's end mark, where it has one, stands behind its stream and sets the number of frames;
    the other streams are as long and have none.

    Example:
        >>> steps = CodebookMajorStreams((Codebook(9, codes=8, end=8), Codebook(8, codes=8)))
        >>> steps.to_grid([1, 2, 3, 8, 4, 5, 6])
        ((1, 4), (2, 5), (3, 6))
    """

    axes: ClassVar[dict[str, str]] = {
        "frame": "",
        "codebook": "the next codebook of a frame is decided only after all of time is done with "
        "this one",
    }

    codebooks: tuple[Codebook, ...]

    def __post_init__(self) -> None:
        check_codebooks(self.codebooks)

    @property
    def stop_codebooks(self) -> tuple[int, ...]:
        """Codebook 0, where it has an end mark."""
        return () if self.codebooks[0].end is None else (0,)

    def steps(self, frames: int) -> int:
        """One step per code."""
        return frames * len(self.codebooks)

    def _cells(self, index: int, frames: int) -> tuple[Order, tuple[Cell, ...], tuple[int, ...]]:
        codebook, frame = divmod(index, frames)
        return Order.ONE, (Cell(frame, codebook),), ()

    def has_ended(self, sequence: Sequence[int]) -> bool:
        """Whether the end mark stands behind codebook 0's stream."""
        frames, left = divmod(len(sequence) - 1, len(self.codebooks))
        return left == 0 and frames >= 0 and sequence[frames] in self.stop_tokens

    def to_grid(self, sequence: Sequence[int]) -> Grid:
        """The codes, checked; the end mark is left out.

        Raises:
            InputError: the streams are not of one length, or a token is no code of its codebook.
        """
        width = len(self.codebooks)
        chain = list(sequence)
        if self.has_ended(chain):
            del chain[(len(chain) - 1) // width]
        frames, left = divmod(len(chain), width)
        if left:
            raise InputError(f"{len(chain)} codes are no {width} streams of one length")
        return tuple(
            tuple(self._code(t, k, chain[k * frames + t]) for k in range(width))
            for t in range(frames)
        )

    def from_grid(self, grid: Sequence[Sequence[int]], *, ended: bool = False) -> tuple[int, ...]:
        """The chain of ids; with the end mark behind codebook 0's stream if that has ended."""
        self._check_end(ended)
        rows = self._ids(grid)
        first, *rest = ([row[k] for row in rows] for k in range(len(self.codebooks)))
        end = self.stop_tokens if ended else ()
        return (*first, *end, *(token for stream in rest for token in stream))

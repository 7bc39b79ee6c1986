"""Depth frames: one frame per backbone step, and inside it a chain of codebooks."""

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
    check_width,
)


@dataclass(frozen=True, slots=True)
class DepthFrames(CodeSteps):
    """Rows of tokens, one frame each: the backbone decides the first, a depth decoder the rest.

    An end mark may be a code as well (CSM ends by a frame of zeros), so it says something only
    where the whole frame holds it.

    Attributes:
        codebooks: one per token of a frame, in the order of the chain.
        stops: the codebooks that are looked at to see whether a frame ends the sequence. CSM's
            generation looks at all but the last; its codec drops a frame only if all are end marks.

    Example:
        >>> steps = DepthFrames((Codebook(8, codes=8, end=0),) * 3, stops=(0, 1))
        >>> steps.to_grid([(1, 0, 2), (0, 0, 0)])
        ((1, 0, 2),)
        >>> steps.stopping((0, 0, 5)), steps.stopping((0, 5, 0))
        (True, False)
    """

    axes: ClassVar[dict[str, str]] = {"frame": "", "codebook": ""}

    codebooks: tuple[Codebook, ...]
    stops: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        check_codebooks(self.codebooks)
        if self.stops and any(codebook.end is None for codebook in self.codebooks):
            raise ValueError("a frame of end marks needs one in every codebook")
        if sorted(set(self.stops) & set(range(len(self.codebooks)))) != list(self.stops):
            raise ValueError(
                f"stops must name some of {len(self.codebooks)} codebooks, in order: {self.stops}"
            )

    @property
    def stop_codebooks(self) -> tuple[int, ...]:
        """`stops`."""
        return self.stops

    def stopping(self, frame: Sequence[int]) -> bool:
        """Whether nothing comes after this frame of ids."""
        return bool(self.stops) and all(frame[k] == self.codebooks[k].end for k in self.stops)

    def steps(self, frames: int) -> int:
        """One step per frame."""
        return frames

    def _cells(self, index: int, frames: int) -> tuple[Order, tuple[Cell, ...], tuple[int, ...]]:
        return Order.CHAIN, tuple(Cell(index, k) for k in range(len(self.codebooks))), ()

    def whole_frame(self, sequence: Sequence[Sequence[int]], frame: int) -> tuple[int, ...] | None:
        """The codes of a frame, unless it is the one of end marks."""
        if frame >= len(sequence) or tuple(sequence[frame]) == self._end:
            return None
        return tuple(self._code(frame, k, token) for k, token in enumerate(sequence[frame]))

    def has_ended(self, sequence: Sequence[Sequence[int]]) -> bool:
        """Whether its last frame holds nothing but end marks."""
        return len(sequence) > 0 and bool(self.stops) and tuple(sequence[-1]) == self._end

    @property
    def _end(self) -> tuple[int | None, ...]:
        return tuple(codebook.end for codebook in self.codebooks)

    def to_grid(self, sequence: Sequence[Sequence[int]]) -> Grid:
        """The codes, checked; a last frame of nothing but end marks is left out.

        Raises:
            InputError: an incomplete frame, a frame behind one that ends the sequence, or a token
                that is no code.
        """
        check_width(sequence, len(self.codebooks), "frame")
        self._check_last(sequence)
        body = sequence[:-1] if self.has_ended(sequence) else sequence
        return tuple(
            tuple(self._code(t, k, token) for k, token in enumerate(frame))
            for t, frame in enumerate(body)
        )

    def from_grid(
        self, grid: Sequence[Sequence[int]], *, ended: bool = False
    ) -> tuple[tuple[int, ...], ...]:
        """The frames of ids; with a frame of end marks behind them if it ended by that.

        Raises:
            InputError: what is given is no grid of codes, or goes on behind its end.
        """
        self._check_end(ended)
        end = tuple(token for token in self._end if token is not None)
        frames = self._ids(grid)
        if self.has_ended(frames):
            raise InputError(f"frame {len(frames) - 1} is the end, no codes: leave it out")
        sequence = (*frames, *((end,) if ended else ()))
        self._check_last(sequence)
        return sequence

    def _check_last(self, sequence: Sequence[Sequence[int]]) -> None:
        for index, frame in enumerate(sequence[:-1]):
            if self.stopping(frame):
                raise InputError(f"frame {index} ends the sequence, but more frames follow it")

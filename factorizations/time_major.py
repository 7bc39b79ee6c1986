"""Time-major frames: all codes of frame 0, then all of frame 1, one plain chain."""

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

SEVEN_SLOTS = (0, 1, 3, 4, 2, 5, 6)
"""Columns in the order of decisions, for three levels of 1, 2 and 4 codes per frame: the coarse
code, then twice a middle code and the two fine codes below it."""


@dataclass(frozen=True, slots=True)
class TimeMajorFrames(CodeSteps):
    """A chain that goes through a frame slot by slot.

    Levels of different rates are columns of their own: where a level has two codes per frame it
    has two columns, in time order.

    Attributes:
        codebooks: one per column.
        slots: slots[i] is the column that slot i of a frame decides.

    Example:
        >>> steps = TimeMajorFrames.even(codebooks=2, codes=8, end=8)
        >>> steps.to_grid([1, 2, 3, 4])
        ((1, 2), (3, 4))
        >>> steps.from_grid([(1, 2), (3, 4)], ended=True)
        (1, 2, 3, 4, 8)
    """

    axes: ClassVar[dict[str, str]] = {"frame": "", "codebook": ""}

    codebooks: tuple[Codebook, ...]
    slots: tuple[int, ...]

    def __post_init__(self) -> None:
        check_codebooks(self.codebooks)
        if sorted(self.slots) != list(range(len(self.codebooks))):
            raise ValueError(
                f"slots must name each of {len(self.codebooks)} columns once, got {self.slots}"
            )
        if len({codebook.end for codebook in self.codebooks}) > 1:
            raise ValueError("the codebooks of one chain must have the same end mark")

    @classmethod
    def even(cls, codebooks: int, codes: int, *, end: int | None = None) -> TimeMajorFrames:
        """Codebooks of one rate that share their ids, in order."""
        vocab_size = max(codes, 0 if end is None else end + 1)
        column = Codebook(vocab_size, codes, end=end)
        return cls((column,) * codebooks, tuple(range(codebooks)))

    @classmethod
    def seven_slots(
        cls, vocab_size: int, base: int, end: int | None, codes: int = 4096
    ) -> TimeMajorFrames:
        """Three levels of 1, 2 and 4 codes per frame in seven slots, as Orpheus writes SNAC.

        Args:
            vocab_size: ids of the language model.
            base: id of code 0 in slot 0; slot i begins at `base + i * codes`.
            end: the id that ends speech.
            codes: codes per level.
        """
        firsts = {column: base + slot * codes for slot, column in enumerate(SEVEN_SLOTS)}
        columns = (Codebook(vocab_size, codes, firsts[column], end=end) for column in range(7))
        return cls(tuple(columns), SEVEN_SLOTS)

    @property
    def stop_codebooks(self) -> tuple[int, ...]:
        """The column that a frame begins with: no frame is left half done."""
        return () if self.codebooks[0].end is None else self.slots[:1]

    def steps(self, frames: int) -> int:
        """One step per code."""
        return frames * len(self.slots)

    def _cells(self, index: int, frames: int) -> tuple[Order, tuple[Cell, ...], tuple[int, ...]]:
        frame, slot = divmod(index, len(self.slots))
        return Order.ONE, (Cell(frame, self.slots[slot]),), ()

    def whole_frame(self, sequence: Sequence[int], frame: int) -> tuple[int, ...] | None:
        """The codes of a frame, once all its slots are filled."""
        width = len(self.slots)
        tokens = sequence[frame * width : (frame + 1) * width]
        if len(tokens) < width:
            return None
        row = {k: self._code(frame, k, token) for k, token in zip(self.slots, tokens, strict=True)}
        return tuple(row[column] for column in range(width))

    def has_ended(self, sequence: Sequence[int]) -> bool:
        """Whether its last token is the end mark."""
        return len(sequence) % len(self.slots) == 1 % len(self.slots) and self._ends(sequence)

    def _ends(self, sequence: Sequence[int]) -> bool:
        return bool(self.stop_codebooks) and len(sequence) > 0 and sequence[-1] in self.stop_tokens

    def to_grid(self, sequence: Sequence[int]) -> Grid:
        """The codes, checked slot by slot; the end mark is left out.

        Raises:
            InputError: the last frame is incomplete, or a token is no code of its slot.
        """
        body = sequence[:-1] if self._ends(sequence) else sequence
        width = len(self.slots)
        rows = []
        for begin in range(0, len(body), width):
            row = {
                column: self._code(begin // width, column, token)
                for column, token in zip(self.slots, body[begin : begin + width], strict=False)
            }
            if len(row) < width:
                raise InputError(
                    f"{len(body)} tokens are no whole frames of {width}: {len(row)} are left over"
                )
            rows.append(tuple(row[column] for column in range(width)))
        return tuple(rows)

    def from_grid(self, grid: Sequence[Sequence[int]], *, ended: bool = False) -> tuple[int, ...]:
        """The chain of ids; with the end mark behind it if it ended by that."""
        self._check_end(ended)
        chain = [row[column] for row in self._ids(grid) for column in self.slots]
        return (*chain, *(self.stop_tokens if ended else ()))

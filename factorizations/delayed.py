"""Delayed frames: codebook k runs d_k steps late; one step decides a diagonal of the grid.

The model sees rows. Row 0 holds start marks. Step s decides row s + 1: there, codebook k holds its
code of frame s - d_k. Where that frame doesn't exist the row holds a mark instead: it is forced.
"""

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

DIA_DELAYS = (0, *range(8, 16))
"""Dia's delays: the eight finer codebooks are 8 to 15 steps late."""


@dataclass(frozen=True, slots=True)
class DelayedFrames(CodeSteps):
    """Rows of tokens, one per codebook, each codebook late by its own delay.

    Codebook 0's end mark, where it has one, ends the sequence: it stands one frame behind the last
    one, and in every other codebook as late as that codebook is. Padding follows.

    Attributes:
        codebooks: each with a start and a padding mark.
        delays: in steps; the first is 0.

    Example:
        >>> steps = DelayedFrames((Codebook(9, codes=8, start=8, pad=8),) * 2, delays=(0, 1))
        >>> steps.from_grid([(1, 2), (3, 4)])
        ((8, 8), (1, 8), (3, 2), (8, 4))
        >>> steps.step(1, frames=2).decided
        (Cell(frame=1, codebook=0), Cell(frame=0, codebook=1))
        >>> steps.step(0, frames=2).forced, steps.decisions(frames=2)
        ((1,), 4)
    """

    axes: ClassVar[dict[str, str]] = {
        "frame": "",
        "codebook": "the codes of one step are independent given the backbone, one pass draws them "
        "all",
    }

    codebooks: tuple[Codebook, ...]
    delays: tuple[int, ...]

    def __post_init__(self) -> None:
        check_codebooks(self.codebooks)
        if len(self.delays) != len(self.codebooks):
            raise ValueError(f"{len(self.codebooks)} codebooks need as many delays: {self.delays}")
        if self.delays[0] != 0 or min(self.delays) < 0:
            raise ValueError(f"delays count from codebook 0's, which is 0, got {self.delays}")
        if any(codebook.start is None or codebook.pad is None for codebook in self.codebooks):
            raise ValueError("delayed codebooks need a start and a pad mark each")
        if len({codebook.end is None for codebook in self.codebooks}) > 1:
            raise ValueError("either every delayed codebook has an end mark, or none")

    @property
    def stop_codebooks(self) -> tuple[int, ...]:
        """Codebook 0, where it has an end mark: an end elsewhere ends nothing."""
        return () if self.codebooks[0].end is None else (0,)

    def steps(self, frames: int) -> int:
        """One step per frame, and those in which the late codebooks catch up."""
        return frames + max(self.delays)

    def _cells(self, index: int, frames: int) -> tuple[Order, tuple[Cell, ...], tuple[int, ...]]:
        places = [(index - delay, k) for k, delay in enumerate(self.delays)]
        cells = tuple(Cell(frame, k) for frame, k in places if 0 <= frame < frames)
        forced = tuple(k for frame, k in places if not 0 <= frame < frames)
        return Order.INDEPENDENT, cells, forced

    def whole_frame(self, sequence: Sequence[Sequence[int]], frame: int) -> tuple[int, ...] | None:
        """The codes of a frame, once its latest codebook is there; marks are no codes."""
        if frame + 1 + max(self.delays) >= len(sequence):
            return None
        tokens = [sequence[frame + 1 + delay][k] for k, delay in enumerate(self.delays)]
        if tokens[0] in self.codebooks[0].marks.values():
            return None
        return tuple(self._code(frame, k, token) for k, token in enumerate(tokens))

    def has_ended(self, sequence: Sequence[Sequence[int]]) -> bool:
        """Whether codebook 0's end mark stands behind its last code."""
        last = len(sequence) - 1 - max(self.delays)
        return last > 0 and bool(self.stop_codebooks) and sequence[last][0] in self.stop_tokens

    def to_grid(self, sequence: Sequence[Sequence[int]]) -> Grid:
        """The codes, each taken from its own row; the delay is undone once.

        Raises:
            InputError: a mark where a code should be or the other way round, or rows that end
                before the late codebooks have caught up.
        """
        check_width(sequence, len(self.codebooks), "row")
        ended = self.has_ended(sequence)
        frames = len(sequence) - 1 - max(self.delays) - ended
        if frames < 0:
            rows = 1 + max(self.delays)
            raise InputError(f"{len(sequence)} rows are no whole frames: even none takes {rows}")
        for row, tokens in enumerate(sequence):
            for k, token in enumerate(tokens):
                mark = self._mark(row - 1 - self.delays[k], k, frames, ended)
                if mark is not None and token != mark:
                    raise InputError(
                        f"row {row}, codebook {k}: expected the mark {mark}, got {token}"
                    )
        return tuple(
            tuple(self._code(t, k, sequence[1 + t + d][k]) for k, d in enumerate(self.delays))
            for t in range(frames)
        )

    def from_grid(
        self, grid: Sequence[Sequence[int]], *, ended: bool = False
    ) -> tuple[tuple[int, ...], ...]:
        """The rows that the model sees; the delay is applied once.

        Raises:
            InputError: what is given is no grid of codes: rows that are delayed already, say.
        """
        self._check_end(ended)
        ids = self._ids(grid)

        def token(row: int, k: int) -> int:
            frame = row - 1 - self.delays[k]
            mark = self._mark(frame, k, len(ids), ended)
            return ids[frame][k] if mark is None else mark

        rows = range(1 + self.steps(len(ids)) + ended)
        return tuple(tuple(token(row, k) for k in range(len(self.codebooks))) for row in rows)

    def _mark(self, frame: int, k: int, frames: int, ended: bool) -> int | None:
        """What stands in place of a frame's code; None where that frame exists."""
        codebook = self.codebooks[k]
        if frame < 0:
            return codebook.start
        if frame < frames:
            return None
        return codebook.end if ended and frame == frames else codebook.pad

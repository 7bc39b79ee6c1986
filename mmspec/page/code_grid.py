"""The codes of a speech as a grid, a row per codebook, and what decided each of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from mmspec.page.figures import ticks
from mmspec.page.spectrogram import stretch
from mmspec.report.trace import Origin

CELL_PX, HEAD_PX = 10, 28
"""Width of a code, and of the codebook's number before a row."""

STRIP_FRAMES = 100
"""Frames in one strip."""

NUMBERED = 10
"""Every so many frames have their number below."""

MOST_CELLS = 40_000
"""Codes of a text on a page, at most: about a minute of nine codebooks at 86 frames a second."""

SHADES = 32


@dataclass(frozen=True, slots=True)
class CodeCell:
    """One code.

    Attributes:
        frame: from 0, likewise the codebook.
        step: index of the step that decided it; None where none did.
        undecided: why none did: "given", "filled", or "unknown" where nobody says what decided it.
        begins: whether another round decided the code before it in its row.
    """

    code: int
    frame: int
    codebook: int
    step: int | None
    undecided: str = ""
    begins: bool = False


@dataclass(frozen=True, slots=True)
class GridStrip:
    """A stretch of the grid, with the spectrogram above it on the same axis.

    Attributes:
        rows: a row of cells per codebook.
        image: the spectrogram; None where there is none.
        ticks: (pixels, seconds) of the axis; none where frames have no duration.
    """

    rows: tuple[tuple[CodeCell, ...], ...]
    image: str | None
    ticks: tuple[tuple[float, str], ...]

    @property
    def frames(self) -> range:
        """The frames in it."""
        first, last = self.rows[0][0], self.rows[0][-1]
        return range(first.frame, last.frame + 1)

    @property
    def width(self) -> int:
        """Pixels of its cells."""
        return CELL_PX * len(self.frames)

    @property
    def numbers(self) -> list[tuple[int, int]]:
        """(frame, cells that its number may cover) of each number below."""
        return [(frame, min(NUMBERED, self.frames[-1] + 1 - frame)) for frame in self._numbered]

    @property
    def _numbered(self) -> range:
        return self.frames[::NUMBERED]


def code_cells(
    codes: np.ndarray, decided_at: np.ndarray | None, origins: Sequence[Origin], filled: bool
) -> list[list[CodeCell]]:
    """Every code with what decided it, a row per codebook.

    Args:
        codes: `[frames, codebooks]`.
        decided_at: same shape: the step that decided each code, -1 where none did; None: unknown.
        origins: of each step.
        filled: whether codebooks that no step decides are filled by passes of another kind.

    Example:
        >>> bonus = Origin("bonus", None, 0)
        >>> rows = code_cells(np.array([[5, 6]]), np.array([[0, -1]]), [bonus], filled=True)
        >>> [(row[0].code, row[0].step, row[0].undecided) for row in rows]
        [(5, 0, ''), (6, None, 'filled')]
    """
    steps = np.full(codes.shape, -1) if decided_at is None else decided_at
    names = np.full(codes.shape, "unknown" if decided_at is None else "given", dtype=object)
    if filled and decided_at is not None:
        # Frames that the prompt gives are given whole, whatever fills the others.
        names[np.ix_((steps >= 0).any(axis=1), (steps < 0).all(axis=0))] = "filled"
    return [
        list(_row(k, codes[:, k].tolist(), steps[:, k].tolist(), names[:, k].tolist(), origins))
        for k in range(codes.shape[1])
    ]


def _row(
    codebook: int,
    codes: Sequence[int],
    steps: Sequence[int],
    names: Sequence[str],
    origins: Sequence[Origin],
) -> Iterator[CodeCell]:
    before: int | None = None
    for frame, (code, step, name) in enumerate(zip(codes, steps, names, strict=True)):
        if step < 0:
            before = None
            yield CodeCell(code, frame, codebook, None, name)
            continue
        now = origins[step].round_number
        yield CodeCell(code, frame, codebook, step, begins=before not in (None, now))
        before = now


def grid_strips(
    rows: Sequence[Sequence[CodeCell]],
    frame_rate_hz: float | None,
    mel: tuple[np.ndarray, float] | None = None,
) -> tuple[GridStrip, ...]:
    """A grid in strips, as many as a page holds.

    Args:
        rows: as `code_cells` returns them.
        frame_rate_hz: frames per second; None: nobody knows.
        mel: levels and frames per second, as `log_mel` returns them.
    """
    shown = min(len(rows[0]), MOST_CELLS // len(rows)) if rows else 0
    strips = []
    for begin in range(0, shown, STRIP_FRAMES):
        end = min(shown, begin + STRIP_FRAMES)
        image: str | None = None
        marks: tuple[tuple[float, str], ...] = ()
        if frame_rate_hz is not None:
            start_s, end_s = begin / frame_rate_hz, end / frame_rate_hz
            marks = ticks(start_s, end_s, CELL_PX * frame_rate_hz)
            if mel is not None:
                image = stretch(mel, start_s, end_s, CELL_PX * (end - begin), SHADES)
        strips.append(GridStrip(tuple(tuple(row[begin:end]) for row in rows), image, marks))
    return tuple(strips)

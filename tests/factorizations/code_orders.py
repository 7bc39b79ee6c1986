"""Small descriptors of every order, and grids for them."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from hypothesis import strategies as st

from mmspec.factorizations import (
    Codebook,
    CodebookMajorStreams,
    CodeSteps,
    DelayedFrames,
    DepthFrames,
    FirstStream,
    StagedCodes,
    TimeMajorFrames,
)
from tests.factorizations import slow_maps

CODES = 5
BASE, END, START, PAD = 20, 3, 6, 7
SIZES = (1, 2, 3, 7)
KINDS = ("time-major", "seven", "codebook-major", "delayed", "depth", "first")

STAGED = StagedCodes(
    TimeMajorFrames.even(codebooks=1, codes=8, end=8),
    FirstStream(
        (
            Codebook(30, CODES, first=10),
            Codebook(30, CODES, first=10 + CODES),
            Codebook(6, CODES, pad=CODES),
        ),
        chained=2,
    ),
    Fraction(3, 2),
)


def offsets(width: int) -> list[int]:
    return [BASE + k * CODES for k in range(width)]


def steps_of(kind: str, width: int) -> CodeSteps:
    apart = tuple(Codebook(60, CODES, first=first, end=END) for first in offsets(width))
    if kind == "seven":
        return TimeMajorFrames.seven_slots(60, BASE, END, codes=CODES)
    if kind == "time-major":
        return TimeMajorFrames(apart, tuple(range(width)))
    if kind == "codebook-major":
        return CodebookMajorStreams(apart)
    if kind == "first":
        return FirstStream(apart)
    if kind == "delayed":
        book = Codebook(9, CODES, start=START, end=8, pad=PAD)
        return DelayedFrames((book,) * width, tuple(range(width)))
    return DepthFrames((Codebook(9, CODES, end=0),) * width, stops=tuple(range(width)))


def slowly(kind: str, grid: Any, width: int, ended: bool) -> Any:
    """The sequence of a grid, by the slow map."""
    end = [END] if ended else []
    if kind == "seven":
        return slow_maps.seven_slots(grid, BASE, CODES, end)
    if kind == "time-major":
        return slow_maps.time_major(grid, offsets(width), end)
    if kind == "codebook-major":
        return slow_maps.codebook_major(grid, offsets(width), end)
    if kind == "first":
        return slow_maps.first_stream(grid, 1, offsets(width), end)
    if kind == "delayed":
        return slow_maps.delayed(grid, range(width), START, PAD, [8] if ended else [])
    return slow_maps.depth(grid, [0] if ended else [])


def plain(nested: Any) -> Any:
    """Tuples as lists, all the way down."""
    return [plain(part) for part in nested] if isinstance(nested, (list, tuple)) else nested


@st.composite
def grids(draw: st.DrawFn) -> tuple[str, int, list[list[int]]]:
    """(kind, codebooks, grid) with sizes that have caught faults elsewhere."""
    kind = draw(st.sampled_from(KINDS))
    width = 7 if kind == "seven" else draw(st.sampled_from(SIZES))
    frames = draw(st.sampled_from(SIZES))
    codes = st.integers(1 if kind == "depth" else 0, CODES - 1)
    row = st.lists(codes, min_size=width, max_size=width)
    return kind, width, draw(st.lists(row, min_size=frames, max_size=frames))

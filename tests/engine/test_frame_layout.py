"""Forced cells and ends of a layout are those of whole rows, laid out by the descriptor."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mmspec.acceptance.frames import FREE
from mmspec.engine.frames import DelayedLayout, DepthLayout
from mmspec.errors import OptionError
from mmspec.factorizations import DIA_DELAYS, Codebook, DelayedFrames, DepthFrames
from mmspec.prefix import Frame

CODES = 5
START, END, PAD = 6, 7, 8


def delayed(delays: tuple[int, ...], ends: bool) -> DelayedFrames:
    book = Codebook(9, CODES, start=START, end=END if ends else None, pad=PAD)
    return DelayedFrames((book,) * len(delays), delays)


@st.composite
def laid_out(draw: st.DrawFn) -> tuple[DelayedFrames, bool, list[list[int]], int, int, list[Frame]]:
    """(order, whether a mark ends it, grid, rows given, rows drafted, noise for forced cells)."""
    ends = draw(st.booleans())
    late = draw(st.lists(st.integers(int(ends), 5), max_size=4))
    steps = delayed((0, *late), ends)
    width = len(steps.delays)
    codes = st.lists(st.integers(0, CODES - 1), min_size=width, max_size=width)
    grid = draw(st.lists(codes, max_size=7))
    rows = len(steps.from_grid(grid, ended=ends))
    given_rows = draw(st.integers(1, rows))
    drafted = draw(st.integers(0, rows - given_rows))
    junk = st.tuples(*[st.integers(0, 8)] * width)
    noise = draw(st.lists(junk, min_size=drafted, max_size=drafted))
    return steps, ends, grid, given_rows, drafted, noise


def slowly(steps: DelayedFrames, ends: bool, grid: list[list[int]], row: int) -> Frame:
    """A row of the whole sequence, `FREE` where the descriptor says that it is decided."""
    rows = steps.from_grid(grid, ended=ends)
    width = range(len(steps.delays))
    if row >= len(rows):
        return tuple(mark_of(steps, k) for k in width)
    frames = len(grid)
    decided = set()
    if 1 <= row <= steps.steps(frames):
        decided = {cell.codebook for cell in steps.step(row - 1, frames).decided}
    if ends and row == frames + 1:
        decided.add(0)  # the end mark itself is decided
    return tuple(FREE if k in decided else rows[row][k] for k in width)


def mark_of(steps: DelayedFrames, codebook: int) -> int:
    pad = steps.codebooks[codebook].pad
    if pad is None:
        raise ValueError("delayed codebooks have padding")
    return pad


@settings(max_examples=300, deadline=None)
@given(laid_out())
def test_H1_rows_are_forced_where_the_whole_sequence_has_marks(case: Any) -> None:
    steps, ends, grid, start, count, noise = case
    rows = list(steps.from_grid(grid, ended=ends))
    layout = DelayedLayout(steps, None if ends else len(rows))
    drafted = []
    for place, junk in enumerate(noise):
        marks = slowly(steps, ends, grid, start + place)
        cells = zip(rows[start + place], marks, junk, strict=True)
        drafted.append(tuple(code if mark == FREE else other for code, mark, other in cells))
    forced = layout.forced(rows[:start], drafted)
    assert forced == [slowly(steps, ends, grid, row) for row in range(start, start + count + 1)]


@settings(max_examples=200, deadline=None)
@given(laid_out())
def test_only_the_last_row_of_an_ended_sequence_ends_it(case: Any) -> None:
    steps, ends, grid, start, _, _ = case
    rows = list(steps.from_grid(grid, ended=ends))
    layout = DelayedLayout(steps, None if ends else len(rows))
    for length in range(start + 1, len(rows) + 1):
        said = layout.ends(rows[:start], rows[start:length])
        assert said == (ends and length == len(rows))


@pytest.mark.parametrize("start", [1, 5, 12])
def test_as_late_as_dias_codebooks(start: int) -> None:
    steps = delayed(DIA_DELAYS, ends=True)
    grid = [[(3 * t + k) % CODES for k in range(9)] for t in range(10)]
    rows = list(steps.from_grid(grid, ended=True))
    layout = DelayedLayout(steps)
    forced = layout.forced(rows[:start], rows[start:])
    want = [slowly(steps, True, grid, row) for row in range(start, len(rows) + 1)]
    assert forced == want
    assert [layout.ends(rows[:row], rows[row : row + 1]) for row in range(1, len(rows))] == [
        row == len(rows) - 1 for row in range(1, len(rows))
    ]


def test_H4_an_end_mark_in_another_codebook_ends_nothing() -> None:
    layout = DelayedLayout(delayed((0, 1, 2), ends=True))
    rows = [(START,) * 3, (1, START, START), (2, END, START)]
    assert layout.forced(rows, [(3, 1, END)]) == [(FREE,) * 3, (FREE,) * 3]
    for more in ([(1, END, END)], [(1, 2, END)] * 4):
        assert not layout.ends(rows, more)


def test_a_drafted_end_forces_what_is_drafted_behind_it_and_nothing_before() -> None:
    layout = DelayedLayout(delayed((0, 1, 2), ends=True))
    rows = [(START,) * 3, (1, START, START), (2, 1, START)]
    drafted = [(END, 2, 2), (END, 3, 3), (0, 0, 0)]
    assert layout.forced(rows, drafted) == [
        (FREE, FREE, FREE),
        (PAD, END, FREE),
        (PAD, PAD, END),
        (PAD, PAD, PAD),
    ]
    assert layout.forced(rows, drafted[:0]) == [(FREE,) * 3], "it was drafted, not said"


def test_too_few_rows_are_refused() -> None:
    steps = delayed((0, 2, 4), ends=False)
    with pytest.raises(OptionError, match=r"4 rows are too few: delays of \(0, 2, 4\) take 5"):
        DelayedLayout(steps, rows=4)
    layout = DelayedLayout(steps, rows=5)
    assert layout.forced([(START,) * 3], [(0,) * 3] * 3) == [
        (PAD, START, START),
        (PAD, START, START),
        (PAD, PAD, START),
        (PAD, PAD, START),
    ]


def test_no_other_codebook_can_end_in_the_row_that_says_the_end() -> None:
    with pytest.raises(OptionError, match=r"delays of \(0, 3, 0\) with end marks"):
        DelayedLayout(delayed((0, 3, 0), ends=True))
    assert DelayedLayout(delayed((0, 0), ends=True), rows=4).forced([(START, START)], []) == [
        (FREE, FREE)
    ]
    assert DelayedLayout(delayed((0, 0), ends=False)).forced([(START, START)], []) == [(FREE, FREE)]


def test_frames_in_depth_force_nothing_and_end_by_the_codebooks_that_count() -> None:
    steps = DepthFrames((Codebook(8, 8, end=0),) * 3, stops=(0, 1))
    layout = DepthLayout(steps)
    assert layout.forced([(1, 2, 3)], [(0, 0, 0)]) == [(FREE,) * 3] * 2
    assert layout.ends([(1, 2, 3)], [(0, 0, 5)])
    assert not layout.ends([(0, 0, 0)], [(0, 1, 0)])
    endless = DepthLayout(DepthFrames((Codebook(8, 8),) * 3))
    assert not endless.ends([(1, 2, 3)], [(0, 0, 0)])

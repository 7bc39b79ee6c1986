"""What one step of each order decides, what it doesn't, and what may be drafted ahead."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mmspec.errors import OptionError
from mmspec.factorizations import Cell, Order
from tests.factorizations import slow_maps
from tests.factorizations.code_orders import KINDS, SIZES, STAGED, grids, steps_of

ORDERS = {"delayed": Order.INDEPENDENT, "depth": Order.CHAIN}


@settings(max_examples=150, deadline=None, derandomize=True, database=None)
@given(grids(), st.integers(0, 7))
def test_every_cell_is_decided_once_and_in_order(given_grid: Any, prompt: int) -> None:
    kind, width, grid = given_grid
    frames, prompt = len(grid), min(prompt, len(grid))
    steps = steps_of(kind, width)
    every = [steps.step(index, frames, prompt) for index in range(steps.steps(frames))]
    decided = [cell for step in every for cell in step.decided]
    assert decided == slow_maps.order_of_decisions(kind, frames, width, prompt)
    given_cells = {cell for step in every for cell in step.given}
    assert given_cells == {Cell(t, k) for t in range(prompt) for k in range(width)}
    chained = 1 if kind == "first" else width
    assert steps.decisions(frames, prompt) == (frames - prompt) * chained
    for step in every:
        if step.order is not Order.FILLED:
            assert step.order is ORDERS.get(kind, Order.ONE)
        assert len(step.decided) + len(step.given) + len(step.forced) <= max(width, frames)


@pytest.mark.parametrize("frames", SIZES)
@pytest.mark.parametrize("width", SIZES)
def test_forced_places_are_no_decisions(frames: int, width: int) -> None:
    steps = steps_of("delayed", width)
    rows = steps.from_grid([[1] * width] * frames)
    for index in range(steps.steps(frames)):
        step = steps.step(index, frames)
        marks = {k for k in range(width) if rows[index + 1][k] != 1}
        assert set(step.forced) == marks
        assert step.decisions == width - len(marks)
    forced = sum(len(steps.step(i, frames).forced) for i in range(steps.steps(frames)))
    assert forced == width * (width - 1)


@pytest.mark.parametrize("kind", KINDS)
def test_the_frame_axis_may_always_be_drafted(kind: str) -> None:
    steps = steps_of(kind, 7)
    steps.check_axis("frame")
    with pytest.raises(OptionError, match=r"unknown axis 'row': this order has frame, codebook"):
        steps.check_axis("row")


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("codebook-major", r"the codebook axis: the next codebook of a frame is decided only"),
        ("delayed", r"the codebook axis: the codes of one step are independent"),
        ("first", r"the codebook axis: the codebooks behind the first stream are filled"),
    ],
)
def test_an_axis_is_refused_with_its_reason(kind: str, reason: str) -> None:
    with pytest.raises(OptionError, match=reason):
        steps_of(kind, 7).check_axis("codebook")


@pytest.mark.parametrize("kind", ["time-major", "seven", "depth"])
def test_a_chain_may_be_drafted_inside_a_frame(kind: str) -> None:
    steps_of(kind, 7).check_axis("codebook")
    assert not steps_of(kind, 7).axes["codebook"]


def test_stages_follow_each_other() -> None:
    every = [STAGED.step(index, tokens=2) for index in range(STAGED.steps(tokens=2))]
    assert [stage for stage, _ in every] == ["semantic"] * 2 + ["coarse"] * 6 + ["fine"]
    assert [step.decided[0] for _, step in every[2:5]] == [Cell(0, 0), Cell(0, 1), Cell(1, 0)]
    last = every[-1][1]
    assert last.order is Order.FILLED
    assert last.decided == (Cell(0, 2), Cell(1, 2), Cell(2, 2))
    assert STAGED.decisions(tokens=2) == 8
    assert STAGED.vocab_size == 30
    assert STAGED.stop_tokens == {8}
    assert STAGED.reserved == {5}
    STAGED.check_axis("semantic")
    STAGED.check_axis("coarse")
    for axis, reason in (("fine", "filled in one pass"), ("stage", "reads all of it")):
        with pytest.raises(OptionError, match=rf"along the {axis} axis: .*{reason}"):
            STAGED.check_axis(axis)
    with pytest.raises(OptionError, match=r"step 9 doesn't exist: 2 tokens take 9 steps"):
        STAGED.step(9, tokens=2)


def test_stages_that_cant_be() -> None:
    with pytest.raises(ValueError, match=r"one semantic stream, got 3"):
        replace(STAGED, semantic=steps_of("time-major", 3))
    with pytest.raises(ValueError, match=r"acoustic codes must have no end mark"):
        replace(STAGED, acoustic=steps_of("first", 3))
    with pytest.raises(ValueError, match=r"frames_per_token must be a positive Fraction, got 1\.5"):
        replace(STAGED, frames_per_token=1.5)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", KINDS)
def test_steps_that_dont_exist(kind: str) -> None:
    steps = steps_of(kind, 7)
    count = steps.steps(2)
    for index in (-1, count):
        with pytest.raises(OptionError, match=rf"step {index} doesn't exist: 2 frames take"):
            steps.step(index, frames=2)
    with pytest.raises(OptionError, match=r"a prompt of 3 frames doesn't fit a grid of 2 frames"):
        steps.step(0, frames=2, prompt=3)

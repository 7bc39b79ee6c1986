"""Classic faults of codec-token orders, planted in production code and caught.

Every check passes on the real code and raises `Caught` on the mutant that it is named for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from mmspec.errors import InputError
from mmspec.factorizations import (
    Cell,
    Codebook,
    CodeSteps,
    DelayedFrames,
    DepthFrames,
    Order,
    TimeMajorFrames,
)
from tests.factorizations import slow_maps
from tests.factorizations.code_orders import KINDS, SIZES, slowly, steps_of

from .catching import (
    Caught,
    Check,
    Mutant,
    Patch,
    expect,
)
from .catching import test_every_check_catches_something as test_every_check_catches_something
from .catching import test_the_mutant_is_caught as test_the_mutant_is_caught
from .catching import test_the_real_code_passes as test_the_real_code_passes

DELAYED = steps_of("delayed", 3)


def numbered(frames: int, width: int) -> list[list[int]]:
    return [[1 + (3 * t + k) % 4 for k in range(width)] for t in range(frames)]


# The checks.


def padding_is_no_decision() -> None:
    for frames in SIZES:
        for prompt in (0, 1, frames):
            decisions = DELAYED.decisions(frames, prompt)
            expect(decisions == (frames - prompt) * 3, "padding or a prompt was counted")


def rows_are_as_late_as_their_codebooks() -> None:
    for frames in SIZES:
        grid = numbered(frames, 3)
        rows = [list(row) for row in DELAYED.from_grid(grid)]
        expect(rows == slowly("delayed", grid, 3, False), "a code is in another row")


def what_is_delayed_is_not_delayed_again() -> None:
    rows = DELAYED.from_grid(numbered(3, 3))
    try:
        DELAYED.from_grid(rows)
    except InputError:
        return
    raise Caught("rows were delayed twice")


def codes_come_in_the_order_of_decisions() -> None:
    for kind in KINDS:
        grid = numbered(3, 7)
        sequence = steps_of(kind, 7).from_grid(grid)
        nested = [list(part) if isinstance(part, tuple) else part for part in sequence]
        expect(nested == slowly(kind, grid, 7, False), f"{kind}: flattened in another order")


def steps_decide_their_own_cells() -> None:
    for kind in KINDS:
        steps = steps_of(kind, 7)
        decided = [cell for i in range(steps.steps(3)) for cell in steps.step(i, 3).decided]
        expected = slow_maps.order_of_decisions(kind, 3, 7, 0)
        expect(decided == expected, f"{kind}: a step decides another cell")


def marks_are_no_codes() -> None:
    for kind in ("time-major", "delayed"):
        steps = steps_of(kind, 3)
        sequence: Any = [list(row) for row in DELAYED.from_grid(numbered(2, 3))]
        if kind == "time-major":
            sequence = [*steps.from_grid(numbered(2, 3))]
            sequence[1] = 3
        else:
            sequence[2][1] = 8
        try:
            steps.to_grid(sequence)
        except InputError:
            continue
        raise Caught("a mark was made a code")


def frames_are_whole() -> None:
    steps = steps_of("seven", 7)
    try:
        steps.to_grid(steps.from_grid(numbered(2, 7))[:-1])
    except InputError:
        return
    raise Caught("an incomplete frame went through")


def one_mark_among_codes_ends_nothing() -> None:
    steps = steps_of("depth", 3)
    expect(not steps.has_ended([(1, 2, 3), (0, 2, 3)]), "half a frame of end marks ended it")


CHECKS: list[Check] = [
    padding_is_no_decision,
    rows_are_as_late_as_their_codebooks,
    what_is_delayed_is_not_delayed_again,
    codes_come_in_the_order_of_decisions,
    steps_decide_their_own_cells,
    marks_are_no_codes,
    frames_are_whole,
    one_mark_among_codes_ends_nothing,
]


# The mutants.


def padding_counted(patch: Patch) -> None:
    real = DelayedFrames._cells

    def mutant(self: DelayedFrames, index: int, frames: int) -> Any:
        order, cells, forced = real(self, index, frames)
        return order, (*cells, *(Cell(frames, k) for k in forced)), ()

    patch.setattr(DelayedFrames, "_cells", mutant)


def prompt_counted(patch: Patch) -> None:
    real = CodeSteps.step

    def mutant(self: CodeSteps, index: int, frames: int, prompt: int = 0) -> Any:
        return real(self, index, frames)

    patch.setattr(CodeSteps, "step", mutant)


def delays_of_one_frame_less(patch: Patch) -> None:
    real = DelayedFrames._mark

    def mutant(self: DelayedFrames, frame: int, k: int, frames: int, ended: bool) -> Any:
        return real(self, frame + 1 if frame < 0 else frame, k, frames, ended)

    patch.setattr(DelayedFrames, "_mark", mutant)


def delays_applied_twice(patch: Patch) -> None:
    real = DelayedFrames.from_grid

    def mutant(
        self: DelayedFrames, grid: Sequence[Sequence[int]], *, ended: bool = False
    ) -> tuple[tuple[int, ...], ...]:
        twice = replace(self, delays=tuple(2 * delay for delay in self.delays))
        return real(twice, grid, ended=ended)

    patch.setattr(DelayedFrames, "from_grid", mutant)


def diagonal_shifted_by_one(patch: Patch) -> None:
    real = DelayedFrames._cells

    def mutant(self: DelayedFrames, index: int, frames: int) -> Any:
        return real(self, index + 1, frames)

    patch.setattr(DelayedFrames, "_cells", mutant)


def delayed_rows_taken_for_codes(patch: Patch) -> None:
    patch.setattr(Codebook, "id_of", lambda self, code, where="": code + self.first)


def slots_in_column_order(patch: Patch) -> None:
    real = TimeMajorFrames.from_grid

    def mutant(
        self: TimeMajorFrames, grid: Sequence[Sequence[int]], *, ended: bool = False
    ) -> tuple[int, ...]:
        back = [self.slots.index(column) for column in range(len(self.slots))]
        return real(self, [[row[slot] for slot in back] for row in grid], ended=ended)

    patch.setattr(TimeMajorFrames, "from_grid", mutant)


def time_before_codebooks(patch: Patch) -> None:
    def mutant(self: TimeMajorFrames, index: int, frames: int) -> Any:
        column, frame = divmod(index, frames)
        return Order.ONE, (Cell(frame, column),), ()

    patch.setattr(TimeMajorFrames, "_cells", mutant)


def marks_clipped(patch: Patch) -> None:
    def mutant(self: Codebook, token: int, where: str = "") -> int:
        return min(max(token - self.first, 0), self.codes - 1)

    patch.setattr(Codebook, "code_of", mutant)


def last_frame_filled_up(patch: Patch) -> None:
    real = TimeMajorFrames.to_grid

    def mutant(self: TimeMajorFrames, sequence: Sequence[int]) -> Any:
        missing = -len(sequence) % len(self.slots)
        firsts = [self.codebooks[column].first for column in self.slots]
        return real(self, [*sequence, *firsts[len(firsts) - missing :]])

    patch.setattr(TimeMajorFrames, "to_grid", mutant)


def codebook_0_ends_a_frame(patch: Patch) -> None:
    def mutant(self: DepthFrames, sequence: Sequence[Sequence[int]]) -> bool:
        return sequence[-1][0] == self.codebooks[0].end

    patch.setattr(DepthFrames, "has_ended", mutant)


MUTANTS: list[Mutant] = [
    (padding_counted, padding_is_no_decision, "was counted"),
    (prompt_counted, padding_is_no_decision, "was counted"),
    (delays_of_one_frame_less, rows_are_as_late_as_their_codebooks, "in another row"),
    (delays_applied_twice, rows_are_as_late_as_their_codebooks, "in another row"),
    (diagonal_shifted_by_one, steps_decide_their_own_cells, "delayed: a step decides another"),
    (delayed_rows_taken_for_codes, what_is_delayed_is_not_delayed_again, "delayed twice"),
    (slots_in_column_order, codes_come_in_the_order_of_decisions, "seven: flattened"),
    (time_before_codebooks, steps_decide_their_own_cells, "time-major: a step decides another"),
    (marks_clipped, marks_are_no_codes, "made a code"),
    (last_frame_filled_up, frames_are_whole, "an incomplete frame"),
    (codebook_0_ends_a_frame, one_mark_among_codes_ends_nothing, "ended it"),
]

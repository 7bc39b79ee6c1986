"""Faults of approximate acceptance, planted in production code and caught.

Every check passes on the real code and raises `Caught` on the mutant that it is named for.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch

from mmspec.acceptance.frames import grouped
from mmspec.acceptance.frames.chance import Chance
from mmspec.acceptance.frames.grouped import Coarse
from mmspec.acceptance.groups import Groups, similar
from mmspec.engine import Sampling
from mmspec.engine.lossy import LossyLedger
from mmspec.engine.stats import RequestStats
from mmspec.factorizations import Codebook
from mmspec.report.report import Report
from mmspec.report.totals import total
from tests.acceptance.test_grouped import SEEDS, Case, total_variation
from tests.engine.test_approximate import EVERYONE, open_ended, request, sampled, spent_by

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

CASES = [Case(seed, one_hot=hot) for hot in (False, True) for seed in SEEDS]


# The checks.


def groups_have_the_targets_law() -> None:
    for case in CASES:
        found = [0.0] * case.size
        for (_, verdict), chance in case.outcomes().items():
            found[verdict.group] += chance
        want = [0.0] * case.size
        for code, weight in enumerate(case.target.tolist()):
            for group in case.members(code):
                want[group] += weight / len(case.members(code))
        expect(total_variation(found, want) < 1e-12, "a group is too likely")


def the_distance_is_that_of_the_codes() -> None:
    for case in CASES:
        emitted = [0.0] * case.size
        for (_, verdict), chance in case.outcomes().items():
            emitted[verdict.code] += chance
        measured = total_variation(emitted, case.target.tolist())
        expect(abs(measured - case.distance) < 1e-12, "the ledger says another distance")


def forbidden_codes_never_come_out() -> None:
    for case in CASES:
        possible = all(case.target[verdict.code] > 0 for _, verdict in case.outcomes())
        expect(possible, "a code that the target forbids came out")


def every_step_is_paid_for() -> None:
    report, frames = request(sampled(EVERYONE))
    spent = () if report.distance is None else report.distance.by_step
    expect(len(spent) == frames, "steps are missing in the ledger")
    expect(sum(spent) > 1, "nothing was paid for")


def a_budget_holds() -> None:
    for seed in range(3):
        run = open_ended(sampled(EVERYONE, 0.4), seed)
        expect(math.fsum(spent_by(run, len(run.frames))) <= 0.4, "more than the budget was spent")


def sessions_share_a_budget() -> None:
    report, _ = request(sampled(EVERYONE, 3.0), sessions=3)
    spent = math.inf if report.distance is None else report.distance.total
    expect(spent <= 3.0, "a session had a budget of its own")


def approximate_runs_say_so() -> None:
    report, _ = request(sampled(EVERYONE))
    expect(not report.exact, "called exact")
    expect(report.parity == "L3", "another level than L3")


def figures_are_kept_apart() -> None:
    exact, near = request(Sampling(True))[0], request(sampled(EVERYONE))[0]
    for mixed in ([exact, near], [near, exact]):
        try:
            total(mixed)
        except ValueError:
            continue
        raise Caught("exact and approximate figures were added up")


def marks_are_by_themselves() -> None:
    books = [Codebook(6, codes=4, end=3, pad=5)]
    groups = similar(torch.ones(6, 2), 0.5, books)
    alone = all(groups.of(mark).tolist() == [mark] for mark in (3, 5))
    expect(alone, "a mark has company")


CHECKS: list[Check] = [
    groups_have_the_targets_law,
    the_distance_is_that_of_the_codes,
    forbidden_codes_never_come_out,
    every_step_is_paid_for,
    a_budget_holds,
    sessions_share_a_budget,
    approximate_runs_say_so,
    figures_are_kept_apart,
    marks_are_by_themselves,
]


# The faults.


def the_first_owner_is_always_drawn(patch: Patch) -> None:
    right = Coarse.judge

    def judge(self: Coarse, code: int, chance: Chance) -> Any:
        class Lazy:
            def __init__(self) -> None:
                self.asked = False

            def draw(self, weights: torch.Tensor) -> int:
                if self.asked:
                    return chance.draw(weights)
                self.asked = True
                return 0

            def happens(self, probability: float) -> bool:
                return chance.happens(probability)

            def first(self, attempt: Any) -> Any:
                return chance.first(attempt)

        return right(self, code, Lazy())

    patch.setattr(Coarse, "judge", judge)


def the_residual_is_that_of_codes(patch: Patch) -> None:
    def lacking(self: Coarse, group: int, chance: Chance) -> int:
        kept = self._claimed * self._groups.averages(self._kept)
        return chance.draw((self._allowed - kept).clamp(min=0.0))

    right = Coarse.judge

    def judge(self: Coarse, code: int, chance: Chance) -> Any:
        verdict = right(self, code, chance)
        if verdict.kept:
            return verdict
        mine = self._groups.of(verdict.code)
        even = torch.ones(len(mine), dtype=torch.float64)
        return verdict._replace(group=int(mine[chance.draw(even)]))

    patch.setattr(Coarse, "_recovered", lacking)
    patch.setattr(Coarse, "judge", judge)


def codes_come_from_all_of_the_group(patch: Patch) -> None:
    def recovered(self: Coarse, group: int, chance: Chance) -> int:
        members = self._groups.of(group)
        weights = self._allowed[members] * self._groups.parts[members]
        return int(members[chance.draw(weights)])

    patch.setattr(Coarse, "_recovered", recovered)


def codes_are_charged_as_if_judged_exactly(patch: Patch) -> None:
    def distance(self: Coarse) -> float:
        return float((self._allowed - self._claimed).clamp(min=0.0).sum())

    patch.setattr(Coarse, "distance", property(distance))


def forbidden_codes_are_kept_for_their_group(patch: Patch) -> None:
    right = Coarse.__init__

    def begin(self: Coarse, allowed: Any, claimed: Any, groups: Groups) -> None:
        right(self, allowed, claimed, groups)
        ours, theirs = groups.masses(allowed), groups.masses(claimed)
        self._claimed = claimed
        self._kept = torch.where(theirs > 0, ours / theirs, 1.0).clamp(max=1.0)
        self._missing = (ours - theirs).clamp(min=0.0)

    patch.setattr(Coarse, "__init__", begin)


def steps_are_not_counted(patch: Patch) -> None:
    patch.setattr(LossyLedger, "spent", lambda self, emitted: ())


def distances_are_not_counted(patch: Patch) -> None:
    right = grouped

    def free(*given: Any) -> Any:
        decision, spent = right(*given)
        return decision, (0.0,) * len(spent)

    patch.setattr("mmspec.engine.lossy.rules.grouped", free)


def a_budget_is_asked_once_a_round(patch: Patch) -> None:
    right = grouped

    def unlimited(proposal: Any, groups: Any, chance: Any, allowance: float = math.inf) -> Any:
        return right(proposal, groups, chance)

    patch.setattr("mmspec.engine.lossy.rules.grouped", unlimited)


def every_session_begins_anew(patch: Patch) -> None:
    patch.setattr(RequestStats, "left_for", lambda self, sampling: sampling)


def reports_are_exact(patch: Patch) -> None:
    right = RequestStats.report

    def report(self: RequestStats, *given: Any) -> Report:
        return replace(right(self, *given), exact=True, distance=None)

    patch.setattr(RequestStats, "report", report)


def parity_is_that_of_sampling(patch: Patch) -> None:
    patch.setattr(Sampling, "parity", property(lambda self: "L2" if self.sample else "L0"))


def reports_are_mixed(patch: Patch) -> None:
    patch.setattr("mmspec.report.totals.are_mixed", lambda reports: False)


def marks_are_codes_like_others(patch: Patch) -> None:
    patch.setattr(Codebook, "marks", property(lambda self: {}))


MUTANTS: list[Mutant] = [
    (the_first_owner_is_always_drawn, groups_have_the_targets_law, "too likely"),
    (the_residual_is_that_of_codes, groups_have_the_targets_law, "too likely"),
    (codes_come_from_all_of_the_group, the_distance_is_that_of_the_codes, "another distance"),
    (codes_are_charged_as_if_judged_exactly, the_distance_is_that_of_the_codes, "another distance"),
    (forbidden_codes_are_kept_for_their_group, forbidden_codes_never_come_out, "forbids"),
    (steps_are_not_counted, every_step_is_paid_for, "missing in the ledger"),
    (distances_are_not_counted, every_step_is_paid_for, "nothing was paid for"),
    (a_budget_is_asked_once_a_round, a_budget_holds, "more than the budget"),
    (every_session_begins_anew, sessions_share_a_budget, "a budget of its own"),
    (reports_are_exact, approximate_runs_say_so, "called exact"),
    (parity_is_that_of_sampling, approximate_runs_say_so, "another level"),
    (reports_are_mixed, figures_are_kept_apart, "added up"),
    (marks_are_codes_like_others, marks_are_by_themselves, "has company"),
]

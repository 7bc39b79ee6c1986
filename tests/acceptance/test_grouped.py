"""Acceptance by groups: exact for groups, as far from the target's law as it says for codes."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from torch import Tensor

from mmspec.acceptance import frames
from mmspec.acceptance.frames import FREE, FrameDecision, FrameProposal
from mmspec.acceptance.frames.grouped import Coarse, Verdict
from mmspec.acceptance.groups import Approximate, Groups, similar
from mmspec.errors import OptionError
from mmspec.factorizations import Codebook
from mmspec.report.ledger import DistanceLedger, add_ledgers

from .branching import integrated
from .test_frames import KINDS, LIMIT, PATTERNS, Emitted, Model, Toy, pattern, toy

Pairs = Sequence[tuple[int, int]]
SEEDS = range(12)


def law(seed: int, size: int, forbidden: float = 0.0) -> Tensor:
    """A distribution with some codes forbidden, the last one never."""
    rng = np.random.default_rng(seed)
    chances = rng.dirichlet(np.full(size, 0.7))
    chances[:-1][rng.random(size - 1) < forbidden] = 0.0
    return torch.from_numpy(chances / chances.sum())


def some_pairs(seed: int, size: int, share: float = 0.4) -> Pairs:
    rng = np.random.default_rng(seed)
    return [pair for pair in itertools.combinations(range(size), 2) if rng.random() < share]


class Case:
    """Distributions of one code, and everything that comes of a drafted one, drawn from its law."""

    def __init__(self, seed: int, size: int = 5, *, one_hot: bool = False) -> None:
        self.size, self.pairs = size, some_pairs(seed + 70, size)
        self.target = law(seed, size, forbidden=0.3)
        self.draft = law(seed + 500, size, forbidden=0.2)
        if one_hot:
            self.draft = torch.eye(size, dtype=torch.float64)[seed % size]
        self.groups = Groups.of_pairs(size, self.pairs)

    def members(self, group: int) -> list[int]:
        alike = {frozenset(pair) for pair in self.pairs}
        return [c for c in range(self.size) if c == group or frozenset((c, group)) in alike]

    def outcomes(self) -> dict[tuple[int, Verdict], float]:
        """The chance of each (drafted code, verdict)."""
        coarse = Coarse(self.target, self.draft, self.groups)
        found: dict[tuple[int, Verdict], float] = {}
        for code, weight in enumerate(self.draft.tolist()):
            if weight > 0:
                for verdict, chance in integrated(partial(coarse.judge, code)).law.items():
                    found[code, verdict] = weight * chance
        return found

    @property
    def distance(self) -> float:
        return Coarse(self.target, self.draft, self.groups).distance


EVERY_CASE = pytest.mark.parametrize(
    "case", [Case(seed, one_hot=hot) for hot in (False, True) for seed in SEEDS]
)


def total_variation(one: Iterable[float], other: Iterable[float]) -> float:
    return math.fsum(abs(a - b) for a, b in zip(one, other, strict=True)) / 2


@EVERY_CASE
def test_the_group_has_the_targets_law(case: Case) -> None:
    found = [0.0] * case.size
    for (_, verdict), chance in case.outcomes().items():
        found[verdict.group] += chance
    shared = [len(case.members(code)) for code in range(case.size)]
    want = [
        math.fsum(float(case.target[code]) / shared[code] for code in case.members(group))
        for group in range(case.size)
    ]
    assert found == pytest.approx(want, abs=1e-12)
    assert math.fsum(found) == pytest.approx(1.0, abs=1e-12)


@EVERY_CASE
def test_the_distance_is_that_of_the_code_that_comes_out(case: Case) -> None:
    emitted, kept = [0.0] * case.size, [0.0] * case.size
    for (drafted, verdict), chance in case.outcomes().items():
        emitted[verdict.code] += chance
        kept[drafted] += chance * verdict.kept
    target, draft = case.target.tolist(), case.draft.tolist()
    measured = total_variation(emitted, target)
    assert case.distance == pytest.approx(measured, abs=1e-12)
    # No choice in place of the rejected codes comes nearer, given what is kept ...
    floor = math.fsum(max(mine - theirs, 0.0) for mine, theirs in zip(kept, target, strict=True))
    assert measured == pytest.approx(floor, abs=1e-12)
    # ... and nothing is kept for less than it costs, whatever the rule.
    assert sum(kept) <= 1 - total_variation(target, draft) + measured + 1e-12


@EVERY_CASE
def test_every_outcome_is_as_likely_as_the_slow_rule_says(case: Case) -> None:
    want = slow_outcomes(case)
    found = case.outcomes()
    for outcome in {*want, *found}:
        assert found.get(outcome, 0.0) == pytest.approx(want.get(outcome, 0.0), abs=1e-12)


def slow_outcomes(case: Case) -> dict[tuple[int, Verdict], float]:
    """The rule in lists: every code, every group, no tensors."""
    size, allowed = range(case.size), case.target.tolist()
    drafted = case.draft.tolist()
    claimed = [q if p > 0 else 0.0 for p, q in zip(allowed, drafted, strict=True)]
    members = [case.members(group) for group in size]

    def part(chances: Sequence[float], code: int) -> float:
        return chances[code] / len(members[code])

    ours = [math.fsum(part(allowed, code) for code in members[group]) for group in size]
    theirs = [math.fsum(part(claimed, code) for code in members[group]) for group in size]
    missing = [max(a - b, 0.0) for a, b in zip(ours, theirs, strict=True)]
    lacking = [max(a - b, 0.0) for a, b in zip(allowed, claimed, strict=True)]
    found: dict[tuple[int, Verdict], float] = defaultdict(float)
    for code in size:
        for group in members[code]:
            weight, kept = part(drafted, code), 0.0
            if claimed[code] > 0:
                kept = min(1.0, ours[group] / theirs[group])
                found[code, Verdict(True, code, group)] += weight * kept
            for other in size:
                room = math.fsum(part(lacking, c) for c in members[other])
                if missing[other] < 1e-14 or kept > 1 - 1e-14:
                    continue
                for c in members[other]:
                    chance = missing[other] / math.fsum(missing) * part(lacking, c) / room
                    found[code, Verdict(False, c, other)] += weight * (1 - kept) * chance
    return {outcome: chance for outcome, chance in found.items() if chance > 0}


@EVERY_CASE
def test_what_the_target_forbids_never_comes_out(case: Case) -> None:
    for _, verdict in case.outcomes():
        assert case.target[verdict.code] > 0


def test_neighbours_are_kept_where_the_exact_rule_rejects_them() -> None:
    case = Case(0, 4)
    case.target = torch.tensor([0.5, 0.1, 0.3, 0.1], dtype=torch.float64)
    case.draft = torch.tensor([0.1, 0.5, 0.3, 0.1], dtype=torch.float64)
    case.pairs = [(0, 1)]
    case.groups = Groups.of_pairs(4, case.pairs)
    outcomes = case.outcomes()
    assert all(verdict.kept for _, verdict in outcomes)
    assert case.distance == pytest.approx(0.4)
    case.groups, case.pairs = Groups.singletons(4), []
    kept = sum(chance for (_, verdict), chance in case.outcomes().items() if verdict.kept)
    assert kept == pytest.approx(0.6)
    assert case.distance == 0


def test_one_group_of_all_keeps_everything_at_the_distance_of_the_laws() -> None:
    target, draft = law(1, 6), law(2, 6)
    everyone = Groups.of_pairs(6, list(itertools.combinations(range(6), 2)))
    coarse = Coarse(target, draft, everyone)
    assert coarse.distance == pytest.approx(total_variation(target.tolist(), draft.tolist()))
    for code in range(6):
        assert {verdict.kept for verdict in integrated(partial(coarse.judge, code)).law} == {True}


def test_a_draft_with_the_targets_law_costs_nothing() -> None:
    for seed in SEEDS:
        case = Case(seed)
        case.draft = case.target
        assert case.distance == 0
        assert all(verdict.kept for _, verdict in case.outcomes())


# Frames of codes


SOME = {3: ((0, 1),), 2: ((0, 1),)}
LATE = {"one code": pattern("x", "x")}


def groups_of(given: Toy, pairs: Pairs | None = None) -> list[Groups]:
    size = given.target.codes
    listed = SOME[size] if pairs is None else pairs
    return [Groups.of_pairs(size, listed)] * len(given.decided[0])


Outcome = tuple[FrameDecision, tuple[float, ...]]


def outcomes(
    given: Toy, proposal: FrameProposal, groups: Sequence[Groups], allowance: float = math.inf
) -> dict[Outcome, float]:
    return integrated(lambda chance: frames.grouped(proposal, groups, chance, allowance)).law


def law_of(
    given: Toy, groups: Sequence[Groups], allowance: float = math.inf
) -> tuple[Emitted, float, float]:
    """The distribution of the frames that come out; on average, frames kept and distance spent."""
    reached: Emitted = defaultdict(float)
    kept = spent = 0.0
    for drafted, weight in given.sequences(given.draft, (), given.length).items():
        found = outcomes(given, given.proposal(drafted), groups, allowance)
        for (decision, distances), chance in found.items():
            assert len(distances) == decision.accepted + 1
            assert math.fsum(distances) <= allowance
            kept += weight * chance * decision.accepted
            spent += weight * chance * math.fsum(distances)
            begun = (*drafted[: decision.accepted], decision.next_frame)
            for full, rest in given.sequences(given.target, begun, given.length + 1).items():
                reached[full] += weight * chance * rest
    return reached, kept, spent


def away(given: Toy, reached: Emitted) -> float:
    want = given.sequences(given.target, (), given.length + 1)
    return sum(abs(reached.get(f, 0.0) - want.get(f, 0.0)) for f in {*reached, *want}) / 2


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["one frame", "delayed start"])
def test_groups_of_one_are_the_exact_rule(name: str, kind: str) -> None:
    given = toy(name, kind)
    alone = groups_of(given, ())
    for drafted in itertools.islice(given.sequences(given.draft, (), given.length), 0, None, 9):
        proposal = given.proposal(drafted)
        exact = integrated(lambda chance, of=proposal: frames.by_code(of, chance)).law  # type: ignore[misc]
        found = outcomes(given, proposal, alone)
        assert {sum(distances) for _, distances in found} == {0}
        assert {decision for decision, _ in found} == {*exact}
        for (decision, _), chance in found.items():
            assert chance == pytest.approx(exact[decision], abs=1e-12)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *(("delayed start", kind) for kind in KINDS),
        ("one frame", "chain"),
        ("delayed end", "chain"),
    ],
)
def test_the_output_is_no_further_away_than_the_ledger_says(name: str, kind: str) -> None:
    given = toy(name, kind)
    reached, _, spent = law_of(given, groups_of(given))
    assert sum(reached.values()) == pytest.approx(1.0, abs=1e-12)
    assert 1e-3 < away(given, reached) <= spent + 1e-12


def test_of_a_single_code_the_ledger_is_the_distance_of_the_output() -> None:
    for seed in SEEDS:
        given = Toy(Model(seed, 3, False, 0.2), Model(seed + 50, 3, False), LATE["one code"])
        reached, _, spent = law_of(given, groups_of(given))
        assert away(given, reached) == pytest.approx(spent, abs=1e-12)


def test_more_frames_are_kept() -> None:
    given = toy("pairs", codes=2, forbidden=0.0)
    exact = law_of(given, groups_of(given, ()))[1]
    assert law_of(given, groups_of(given))[1] > exact + 0.1


def test_the_output_is_no_further_away_than_the_allowance() -> None:
    given = toy("pairs", codes=2, forbidden=0.0)
    unlimited = law_of(given, groups_of(given))[2]
    for allowance in (0.0, unlimited / 4, unlimited / 2):
        reached, _, spent = law_of(given, groups_of(given), allowance)
        assert away(given, reached) <= min(spent, allowance) + 1e-12
        assert (spent > 0) == (allowance > 0)
        assert away(given, reached) < LIMIT or allowance


def test_forced_cells_cost_nothing_and_are_in_place() -> None:
    """What a toy's proposal holds there is poison."""
    given = toy("delayed start")
    for drafted in list(given.sequences(given.draft, (), 2))[::7]:
        for decision, _ in outcomes(given, given.proposal(drafted), groups_of(given)):
            cells = given.forced[decision.accepted]
            for code, cell in zip(decision.next_frame, cells, strict=True):
                assert cell is None or code == cell
            counted = sum(sum(row) for row in PATTERNS["delayed start"][: decision.accepted])
            assert decision.accepted_codes == counted


def test_each_codebook_has_groups_of_its_own() -> None:
    scores = torch.tensor([[0.7, 0.2, 0.1]] * 2, dtype=torch.float64).log().expand(2, 2, 3)
    given = FrameProposal(scores, torch.tensor([[1, 1]]), torch.full((2, 2), FREE))
    alike, alone = Groups.of_pairs(3, [(0, 1)]), Groups.singletons(3)
    for groups, costs in (([alike, alone], [True, False]), ([alone, alike], [False, True])):
        kept = integrated(lambda chance, of=groups: frames.grouped(given, of, chance)).law  # type: ignore[misc]
        for (decision, spent), _ in kept.items():
            both = decision.accepted == 1
            assert (sum(spent) > 0) == (costs[0] or both or decision.next_frame[0] == 1)


def test_nothing_drafted_is_an_ordinary_step() -> None:
    given = toy("one frame", "chain")
    empty = Toy(given.target, given.draft, given.decided[:1])
    found = outcomes(empty, empty.proposal(()), groups_of(empty))
    want = empty.sequences(empty.target, (), 1)
    for (decision, spent), chance in found.items():
        assert spent == (0.0,)
        assert chance == pytest.approx(want[(decision.next_frame,)], abs=1e-14)


def test_groups_that_do_not_fit_are_refused() -> None:
    given = toy("one frame").proposal(((0, 0, 0),))
    chance = frames.Coins()
    for sizes in ((3, 3), (3, 3, 4)):
        with pytest.raises(ValueError, match=r"groups over .* expected 3 codebooks of 3"):
            frames.grouped(given, [Groups.singletons(size) for size in sizes], chance)


# Groups


def test_groups_are_what_the_cosines_say() -> None:
    table = torch.randn(40, 6, generator=torch.Generator().manual_seed(3))
    for threshold in (-1.0, 0.0, 0.4, 0.9, 1.0):
        groups = similar(table, threshold, [Codebook(40, 40)])
        for code in range(40):
            alike = [
                other
                for other in range(40)
                if other == code
                or float(torch.cosine_similarity(table[code], table[other], dim=0)) > threshold
            ]
            assert groups.of(code).tolist() == alike
        if threshold == 1:
            assert len(groups.codes) == 40


def test_equal_embeddings_are_apart_at_a_threshold_of_1() -> None:
    groups = similar(torch.ones(5, 7), 1.0, [Codebook(5, 5)])
    assert [groups.of(code).tolist() for code in range(5)] == [[0], [1], [2], [3], [4]]


def test_marks_and_other_codebooks_are_never_alike() -> None:
    books = [Codebook(9, codes=4, first=0, end=2, pad=8), Codebook(9, codes=3, first=4, start=7)]
    groups = similar(torch.ones(9, 2), 0.5, books)
    assert [groups.of(code).tolist() for code in range(9)] == [
        [0, 1, 3],
        [0, 1, 3],
        [2],
        [0, 1, 3],
        [4, 5, 6],
        [4, 5, 6],
        [4, 5, 6],
        [7],
        [8],
    ]


def test_many_codes_are_compared_piece_by_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    table = torch.randn(50, 3, generator=torch.Generator().manual_seed(4))
    whole = similar(table, 0.5, [Codebook(50, 48, first=1, pad=0)])
    monkeypatch.setattr("mmspec.acceptance.groups._ROWS", 7)
    pieces = similar(table, 0.5, [Codebook(50, 48, first=1, pad=0)])
    assert torch.equal(whole.middles, pieces.middles)
    assert torch.equal(whole.codes, pieces.codes)


def test_masses_add_up_and_averages_are_means() -> None:
    for seed in SEEDS:
        case = Case(seed, 7)
        masses = case.groups.masses(case.target)
        assert float(masses.sum()) == pytest.approx(1.0, abs=1e-14)
        values = torch.arange(7.0, dtype=torch.float64)
        for code in range(7):
            mean = sum(case.members(code)) / len(case.members(code))
            assert float(case.groups.averages(values)[code]) == pytest.approx(mean)


def test_groups_over_more_or_fewer_ids() -> None:
    groups = Groups.of_pairs(5, [(1, 2)])
    assert groups.over(5) is groups
    assert [groups.over(7).of(code).tolist() for code in (1, 5, 6)] == [[1, 2], [5], [6]]
    assert groups.over(3).of(2).tolist() == [1, 2]
    with pytest.raises(OptionError, match="groups over 5 codes don't fit a target that knows 2"):
        groups.over(2)


def one_way(size: int = 3) -> Groups:
    return Groups(size, torch.tensor([0, 0, 1, 2]), torch.tensor([0, 1, 1, 2]))


def not_its_own() -> Groups:
    return Groups(2, torch.tensor([0, 1]), torch.tensor([1, 0]))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (one_way, "likeness go both ways"),
        (not_its_own, "each code must be in its own"),
        (lambda: Groups.of_pairs(3, [(0, 3)]), r"groups of 3 codes: found \[\[0, 3\]\]"),
        (lambda: similar(torch.ones(3, 2), 1.5, [Codebook(3, 3)]), "threshold .* found 1.5"),
        (lambda: similar(torch.ones(3, 2), math.nan, [Codebook(3, 3)]), "threshold .* found nan"),
        (
            lambda: similar(torch.ones(3), 0.5, [Codebook(3, 3)]),
            r"expected floating point \[V, D\]",
        ),
        (lambda: similar(torch.ones(3, 2).long(), 0.5, [Codebook(3, 3)]), "found torch.int64"),
        (lambda: similar(torch.ones(3, 2), 0.5, [Codebook(9, 9)]), "3 rows, but codes up to 8"),
        (
            lambda: similar(torch.full((3, 2), math.inf), 0.5, [Codebook(3, 3)]),
            "not all of them are numbers",
        ),
        (lambda: Approximate(()), "no groups were given"),
        (lambda: Approximate((Groups.singletons(2),), -0.1), "budget of distance: found -0.1"),
        (lambda: Approximate((Groups.singletons(2),), math.nan), "budget of distance: found nan"),
    ],
)
def test_what_makes_no_groups_is_refused(wrong: object, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        wrong()  # type: ignore[operator]


def test_embeddings_of_zero_are_like_nothing() -> None:
    groups = similar(torch.zeros(3, 2), 0.5, [Codebook(3, 3)])
    assert len(groups.codes) == 3


# The ledger


def test_a_ledger_says_what_was_spent() -> None:
    ledger = DistanceLedger((0.0, 0.25, 0.5), budget=1.0)
    assert ledger.to_dict() == {
        "by_step": (0.0, 0.25, 0.5),
        "budget": 1.0,
        "total": 0.75,
        "largest": 0.5,
        "steps": 2,
    }
    empty = DistanceLedger(())
    assert (empty.total, empty.largest, empty.steps) == (0, 0, 0)


def test_ledgers_add_up() -> None:
    one, other = DistanceLedger((0.5,), 1.0), DistanceLedger((0.0, 0.25), 0.5)
    assert add_ledgers([one, other]) == DistanceLedger((0.5, 0.0, 0.25), 1.5)
    assert add_ledgers([one, replace(other, budget=None)]).budget is None


def test_a_budget_shrinks_by_what_is_spent_and_never_below_0() -> None:
    asked = Approximate((Groups.singletons(2),), 0.5)
    assert asked.behind(0.2).budget == pytest.approx(0.3)
    assert asked.behind(0.7).budget == 0
    assert Approximate(asked.groups).behind(0.7).budget is None

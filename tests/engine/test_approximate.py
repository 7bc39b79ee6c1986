"""Requests that are judged by groups of similar codes: what they spend, and that they say so."""

from __future__ import annotations

import itertools
import json
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from rich.console import Console
from transformers import LogitsProcessorList, StoppingCriteria

from mmspec.acceptance.frames import FREE
from mmspec.acceptance.groups import Approximate, Groups
from mmspec.clock import Clock
from mmspec.engine import BlockCosts, FixedPolicy, Sampling, run_alone
from mmspec.engine.frames import Frames, FrameStops
from mmspec.engine.stats import RequestStats
from mmspec.errors import OptionError
from mmspec.modalities.base.speculative_decoder import SpeculativeDecoder, decode
from mmspec.output.render import overview_table, report_table
from mmspec.prefix import Frame
from mmspec.report.ledger import DistanceLedger
from mmspec.report.report import Report, RoundStats
from mmspec.report.totals import total
from tests import frame_toys, toys
from tests.acceptance.branching import Branching, integrated
from tests.frame_toys import CPU, Case, FrameToy, K, ToyChain, V, case, drafter_for
from tests.proposals.scripted import ScriptedDrafter

PAIRS = [(1, 2), (2, 3)]
"""Alike in every codebook. The marks of every order of the toys are by themselves."""
EVERYONE = list(itertools.combinations(range(1, V), 2))
OPEN, OPEN_LENGTH = case("depth"), 14
"""Frames in depth, cut before anyone says the end: nothing that may come is by itself."""


def groups(pairs: Sequence[tuple[int, int]] = PAIRS, size: int = V) -> Groups:
    return Groups.of_pairs(size, pairs)


def sampled(
    pairs: Sequence[tuple[int, int]] = PAIRS, budget: float | None = None, codebooks: int = K
) -> Sampling:
    return Sampling(True, approximate=Approximate((groups(pairs),) * codebooks, budget))


def spent_by(run: Any, emitted: int) -> tuple[float, ...]:
    """What a session has spent on each of its steps."""
    return run.session._sampler.lossy.spent(emitted)  # type: ignore[no-any-return]


# What was spent, counted again


def recount(given: Case, trace: Sequence[Any]) -> list[float]:
    """From the rounds of a deterministic drafter: a rejected code is never drafted again."""
    frames, counted = list(given.prompt), []
    for done in trace:
        for place, frame in enumerate(done.emitted):
            here = 0.0
            if place < done.judged and laid_out(given, frames, done.proposal[place]):
                here = math.fsum(judged_codes(given, frames, frame, done.proposal[place]))
            counted.append(here)
            frames.append(frame)
    return counted


def laid_out(given: Case, frames: list[Frame], drafted: Frame) -> bool:
    """Whether a drafted frame holds the marks that it must: else it isn't judged at all."""
    pairs = zip(given.slow.forced(frames), drafted, strict=True)
    return all(mark in (FREE, code) for mark, code in pairs)


def judged_codes(given: Case, frames: list[Frame], frame: Frame, drafted: Frame) -> list[float]:
    found = []
    for k, mark in enumerate(given.slow.forced(frames)):
        if mark != FREE:
            continue
        law = given.law.row(frames, k, frame[:k]).double().softmax(-1).tolist()
        found.append(of_one_code(law, drafted[k]))
        if frame[k] != drafted[k]:
            break
    return found


def of_one_code(law: Sequence[float], drafted: int) -> float:
    """The share kept of a code that is always drafted, above what the target gives it."""
    alike = {frozenset(pair) for pair in PAIRS}

    def members(of: int) -> list[int]:
        return [c for c in range(len(law)) if c == of or frozenset((c, of)) in alike]

    mine = members(drafted)
    kept = 0.0
    for group in mine:
        mass = math.fsum(law[code] / len(members(code)) for code in members(group))
        kept += min(1.0, mass * len(mine)) / len(mine)
    return max(kept - law[drafted], 0.0)


@pytest.mark.parametrize(
    ("order", "kind"),
    [
        ("known rows", "garbage"),
        ("known rows", "repeat"),
        ("end mark", "recalling"),
        ("end mark", "garbage"),
        ("depth", "recalling"),
        ("depth", "repeat"),
    ],
)
def test_the_ledger_is_what_a_slow_count_of_the_rounds_says(order: str, kind: str) -> None:
    given, seen = case(order), 0.0
    for seed in range(3):
        torch.manual_seed(seed)
        run = frame_toys.decode(given, kind, 3, sampling=sampled())
        spent = spent_by(run, len(run.frames))
        assert spent == pytest.approx(recount(given, run.tally.trace), abs=1e-9)
        assert len(spent) == len(run.frames)
        seen += sum(spent)
    assert seen > 0


@pytest.mark.parametrize("order", ["end mark", "depth"])
def test_a_copy_of_the_target_is_always_kept_and_costs_nothing(order: str) -> None:
    run = frame_toys.decode(case(order), "copy", 3, sampling=sampled())
    assert run.tally.accepted > 0
    assert run.tally.recovered == 0
    assert set(spent_by(run, len(run.frames))) == {0.0}


def open_ended(sampling: Sampling, seed: int = 0) -> Any:
    torch.manual_seed(seed)
    return frame_toys.decode(OPEN, "wrong", 3, sampling=sampling, max_length=OPEN_LENGTH)


def test_where_all_codes_are_alike_every_draft_is_kept() -> None:
    exact, run = open_ended(Sampling(True)), open_ended(sampled(EVERYONE))
    assert exact.tally.accepted < exact.tally.proposed
    assert run.tally.accepted == run.tally.proposed
    assert run.tally.rounds < exact.tally.rounds
    assert sum(spent_by(run, len(run.frames))) > 1


def test_a_drafter_that_proposes_nothing_costs_nothing() -> None:
    run = frame_toys.decode(case("known rows"), None, sampling=sampled(EVERYONE))
    assert spent_by(run, len(run.frames)) == (0.0,) * len(run.frames)


def test_an_output_cut_inside_a_block_pays_for_what_it_has_only() -> None:
    given = case("known rows")
    for length in range(2, 9):
        run = frame_toys.decode(given, "garbage", 4, sampling=sampled(EVERYONE), max_length=length)
        assert len(run.frames) == length - 1
        assert len(spent_by(run, len(run.frames))) == len(run.frames)


class FailsOnce(StoppingCriteria):
    """Raises at its third call."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, input_ids: Any, scores: Any, **options: Any) -> Any:
        self.calls += 1
        if self.calls == 3:
            raise RuntimeError("not now")
        return torch.zeros(len(input_ids), dtype=torch.bool)


def test_a_round_that_came_to_nothing_is_not_paid_for() -> None:
    torch.manual_seed(0)
    given = case("end mark")
    run = frame_toys.open_session(given, "recalling", 3, sampling=sampled(), criteria=[FailsOnce()])
    with pytest.raises(RuntimeError, match="not now"):
        run.session.run()
    before: Any = run.session.prefix.emitted
    frames: Any = run.session.run()
    assert frames[: len(before)] == before
    assert len(frames) > len(before)
    spent = spent_by(run, len(frames))
    assert spent == pytest.approx(recount(given, run.tally.trace), abs=1e-9)


# Budgets


@pytest.mark.parametrize("budget", [0.0, 0.4, 1.5])
def test_a_budget_is_never_exceeded(budget: float) -> None:
    for seed in range(3):
        run = open_ended(sampled(EVERYONE, budget), seed)
        assert math.fsum(spent_by(run, len(run.frames))) <= budget
        free = open_ended(sampled(EVERYONE), seed)
        assert math.fsum(spent_by(free, len(free.frames))) > budget


@pytest.mark.parametrize("kind", ["wrong", "repeat"])
def test_without_anything_to_spend_the_exact_rules_are_back(kind: str) -> None:
    runs = []
    for sampling in (Sampling(True), sampled(EVERYONE, 0.0)):
        torch.manual_seed(7)
        runs.append(frame_toys.decode(OPEN, kind, 3, sampling=sampling, max_length=OPEN_LENGTH))
    assert runs[0].frames == runs[1].frames
    assert [done.path for done in runs[0].tally.trace] == [r.path for r in runs[1].tally.trace]


# Steps that decide one unit

SMALL = 3
ONE = Approximate((Groups.of_pairs(SMALL, [(0, 1)]),))


@dataclass
class Found:
    """Everything that may come of a session over single tokens."""

    law: dict[tuple[int, ...], float]
    distance: float
    """From the target's own distribution."""
    spent: float
    """On average."""


def integrated_session(approximate: Approximate, gamma: int, tokens: int) -> Found:
    law = toys.toy_law(3, SMALL)
    script = ScriptedDrafter(
        lambda ids, limit: [(len(ids) + offset + ids[-1]) % SMALL for offset in range(limit)]
    )

    def run(chance: Branching) -> tuple[tuple[int, ...], float]:
        opened = toys.open_session(
            law,
            script,
            gamma,
            prompt=(0, 1),
            max_length=2 + tokens,
            sampling=Sampling(True, approximate=approximate),
        )
        opened.session._sampler.lossy._coins = chance  # type: ignore[assignment]
        ids = opened.session.run()
        return tuple(ids), math.fsum(spent_by(opened, len(ids)))

    outputs: dict[tuple[int, ...], float] = defaultdict(float)
    spent = 0.0
    for (ids, paid), weight in integrated(run).law.items():
        outputs[ids] += weight
        spent += weight * paid
    away = 0.0
    for ids in itertools.product(range(SMALL), repeat=tokens):
        own = 1.0
        for at in range(tokens):
            own *= float(law((0, 1, *ids[:at])).double().softmax(-1)[ids[at]])
        away += abs(outputs.get(ids, 0.0) - own) / 2
    return Found(dict(outputs), away, spent)


def test_a_whole_session_is_no_further_away_than_it_has_spent() -> None:
    for gamma in (1, 2):
        found = integrated_session(ONE, gamma, 3)
        assert sum(found.law.values()) == pytest.approx(1.0, abs=1e-12)
        assert 1e-3 < found.distance <= found.spent + 1e-12
    alone = integrated_session(Approximate((Groups.singletons(SMALL),)), 2, 3)
    assert alone.distance < 1e-12
    assert alone.spent == 0


def test_of_one_judged_unit_it_is_exactly_as_far_away_as_it_has_spent() -> None:
    found = integrated_session(ONE, 1, 2)
    assert found.distance == pytest.approx(found.spent, abs=1e-12)
    assert found.spent > 1e-3


def test_a_whole_session_is_no_further_away_than_its_budget() -> None:
    budget = integrated_session(ONE, 2, 3).spent / 2
    found = integrated_session(replace(ONE, budget=budget), 2, 3)
    assert found.distance <= budget + 1e-12


def test_a_tree_is_judged_exactly() -> None:
    law = toys.toy_law(0)
    groups_of_all = Groups.of_pairs(toys.V, list(itertools.combinations(range(toys.V), 2)))
    run = toys.decode(
        law,
        toys.TreeDrafter(law),
        4,
        sampling=Sampling(True, approximate=Approximate((groups_of_all,))),
    )
    assert any(done.branches > 1 for done in run.tally.trace)
    for done, at in zip(run.tally.trace, starts_of(run.tally.trace), strict=True):
        if done.branches > 1:
            spent = spent_by(run, len(run.ids))[at : at + len(done.emitted)]
            assert set(spent) == {0.0}


def starts_of(trace: Sequence[Any]) -> list[int]:
    return [0, *itertools.accumulate(len(done.emitted) for done in trace)][:-1]


# A request and its report


@dataclass
class Opening:
    """A toy as a request opens it."""

    target: FrameToy
    prompt: Sequence[Frame]
    drafter_encoder_runs: int = 0


@dataclass
class Kind:
    """A kind of drafter of the toys."""

    given: Case
    name: str

    def open(self, opening: Opening) -> Any:
        said = frame_toys.ordinary(self.given).frames
        return drafter_for(self.name, self.given, opening.target, said)


def request(sampling: Sampling, sessions: int = 1, kind: str = "wrong") -> tuple[Report, int]:
    """A request of some sessions: its report, and how many frames it has."""
    torch.manual_seed(0)
    given, stats = OPEN, RequestStats(Clock(CPU))
    pair = SpeculativeDecoder(None, Kind(given, kind), FixedPolicy(3), BlockCosts())
    frames = 0
    for _ in range(sessions):
        target = FrameToy(given.law)
        chain = ToyChain(target)
        with pair.session(
            Opening(target, given.prompt),
            target.score(given.prompt, keep=1),
            stats,
            processors=LogitsProcessorList(),
            stops=FrameStops(given.layout, OPEN_LENGTH),
            sampling=sampling,
            step_kind=Frames(K, given.layout, chain),
        ) as session:
            chain.prefix = session.prefix
            frames += len(run_alone(decode(session)))
    return stats.report(sampling, pair.costs), frames


def test_a_report_says_that_it_is_approximate_and_what_was_spent() -> None:
    report, frames = request(sampled(EVERYONE, 5.0))
    assert (report.exact, report.parity) == (False, "L3")
    ledger = report.distance
    assert ledger is not None
    assert len(ledger.by_step) == frames == report.tokens
    assert 0 < ledger.largest <= ledger.total <= 5.0
    data = json.loads(json.dumps(report.to_dict()))
    assert data["exact"] is False
    assert data["distance"]["total"] == pytest.approx(sum(ledger.by_step))
    assert data["distance"]["budget"] == 5.0
    assert len(data["distance"]["by_step"]) == frames
    shown = printed(report_table(report))
    assert "approximate: another distribution than the target's (L3)" in shown
    assert f"{ledger.total:.4f} in total variation, spent on {ledger.steps} of {frames}" in shown
    assert "budget 5" in shown
    assert "exact:" not in shown


def test_a_report_of_an_exact_run_has_no_distance() -> None:
    for sampling in (Sampling(), Sampling(True), Sampling(True, seed=3)):
        report, _ = request(sampling)
        assert (report.exact, report.distance) == (True, None)
        assert report.to_dict()["distance"] is None
        assert "approximate" not in printed(report_table(report))


def test_an_approximate_request_is_labelled_even_where_it_has_spent_nothing() -> None:
    report, _ = request(sampled(EVERYONE, 0.0))
    assert not report.exact
    assert report.distance is not None
    assert (report.distance.total, report.distance.steps) == (0, 0)


def test_sessions_of_one_request_share_its_budget() -> None:
    one, _ = request(sampled(EVERYONE, 3.0))
    report, frames = request(sampled(EVERYONE, 3.0), sessions=3)
    assert one.distance is not None
    assert report.distance is not None
    assert one.distance.total > 1.5
    assert report.distance.total <= 3.0
    assert report.distance.budget == 3.0
    assert len(report.distance.by_step) == frames


def test_exact_and_approximate_figures_are_never_added_up() -> None:
    exact, near = request(Sampling(True))[0], request(sampled(EVERYONE))[0]
    for mixed in ([exact, near], [near, exact, near]):
        with pytest.raises(ValueError, match="exact and of approximate runs are never added up"):
            total(mixed)
    both = total([near, near])
    assert not both.exact
    assert both.distance is not None
    assert near.distance is not None
    assert both.distance.total == pytest.approx(2 * near.distance.total)
    assert both.distance.steps == 2 * near.distance.steps
    assert total([exact, exact]).distance is None


def test_a_table_of_both_kinds_adds_nothing_up() -> None:
    exact, near = request(Sampling(True))[0], request(sampled(EVERYONE))[0]
    shown = printed(overview_table([("one", 1.0, exact), ("two", 1.0, near)]))
    assert "two (approximate)" in shown
    assert "one (approximate)" not in shown
    assert "all  " not in shown.split("two")[1]
    assert (
        "all  " in printed(overview_table([("one", 1.0, near), ("two", 1.0, near)])).split("two")[1]
    )


def printed(table: Any) -> str:
    console = Console(width=160)
    with console.capture() as shown:
        console.print(table)
    return shown.get()


@pytest.mark.parametrize(("exact", "ledger"), [(True, DistanceLedger((0.1,))), (False, None)])
def test_a_report_that_contradicts_itself_is_refused(
    exact: bool, ledger: DistanceLedger | None
) -> None:
    facts = {"drafter_forwards": 0, "conditioning": "none", "target_forwards": 0, "seconds": {}}
    facts |= {"encoder_runs": 0, "drafter_encoder_runs": 0, "parity": "L3", "finish_reason": "stop"}
    with pytest.raises(ValueError, match=f"exact={exact}"):
        RoundStats().report(**facts, exact=exact, distance=ledger)


# What doesn't go together


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sample": False}, "greedy decoding has no distribution to stay near to"),
        ({"sample": True, "seed": 3}, "a seed promises the same codes for every drafter"),
        ({"sample": True, "rule": "block"}, "leave out rule 'block'"),
    ],
)
def test_requests_that_cannot_be_approximate_are_refused(
    options: dict[str, Any], message: str
) -> None:
    with pytest.raises(OptionError, match=f"approximate acceptance doesn't go with .*{message}"):
        Sampling(**options, approximate=ONE)


def test_groups_of_another_number_of_codebooks_are_refused() -> None:
    for run, codebooks in ((frame_toys, 2), (toys, 3)):
        opened: Any = run
        first = case("known rows") if run is frame_toys else toys.toy_law(0)
        with pytest.raises(OptionError, match=f"groups of {codebooks} codebooks were given"):
            opened.open_session(first, None, sampling=sampled(codebooks=codebooks))


def test_groups_of_codes_that_the_target_does_not_know_are_refused() -> None:
    given = case("depth")
    wide = Approximate((groups([(1, V)], V + 1),) * K)
    with pytest.raises(OptionError, match=f"don't fit a target that knows {V}"):
        frame_toys.decode(given, sampling=Sampling(True, approximate=wide))
    marked = Approximate((groups(EVERYONE, V + 1),) * K)  # behind the codes, a mark no head says
    run = open_ended(Sampling(True, approximate=marked))
    assert run.frames == open_ended(sampled(EVERYONE)).frames

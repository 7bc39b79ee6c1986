"""Requests side by side: each emits what it emits alone, at its own pace."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor

from mmspec.clock import Clock
from mmspec.engine import AdaptivePolicy, BlockCosts, Steps, run_alone, run_batched
from mmspec.target import Pass
from tests.toys import (
    DRAFTERS,
    PROMPT,
    Run,
    ToyTarget,
    decode,
    drafter_for,
    open_session,
    ordinary,
    toy_law,
)

LENGTHS = (10, 31, 14, 25, 40, 12)
"""Of the outputs, prompt included: requests end at different times."""


def request(run: Run) -> Steps[list[int]]:
    """A session's rounds to its end, as a request."""
    while run.session.finish_reason is None:
        yield from run.session.steps()
    return run.session.prefix.emitted


def runs(kind: str, count: int = len(LENGTHS)) -> list[Run]:
    return [
        open_session(toy_law(n), drafter_for(kind, toy_law(n)), 4, max_length=LENGTHS[n])
        for n in range(count)
    ]


@pytest.mark.parametrize("kind", DRAFTERS)
@pytest.mark.parametrize("width", [1, 2, 3, 20])
def test_D4_D5_every_request_is_its_single_run(kind: str, width: int) -> None:
    opened = runs(kind)
    done = dict(run_batched([request(run) for run in opened], width))
    assert sorted(done) == list(range(len(LENGTHS)))
    for number, run in enumerate(opened):
        law, length = toy_law(number), LENGTHS[number]
        assert done[number] == ordinary(law, max_length=length).ids
        alone = decode(law, drafter_for(kind, law), 4, max_length=length)
        assert run.tally.trace == alone.tally.trace, "the same rounds as alone"
        assert run.target.forwards == alone.target.forwards
        assert run.target.held == tuple(run.session.prefix.ids[:-1])


def test_passes_of_all_running_requests_run_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    together: list[int] = []
    real = ToyTarget.score_batched

    def watched(self: ToyTarget, passes: Sequence[Pass]) -> list[Tensor]:
        together.append(len(passes))
        return real(self, passes)

    monkeypatch.setattr(ToyTarget, "score_batched", watched)
    opened = runs("none")
    list(run_batched([request(run) for run in opened], 6))
    steps = [length - len(PROMPT) - 1 for length in LENGTHS]  # the first unit takes no pass
    expected = [sum(step > number for step in steps) for number in range(max(steps))]
    assert together == expected


def test_a_free_place_is_filled_at_once_and_requests_are_made_when_needed() -> None:
    begun: list[int] = []

    def counted(number: int) -> Steps[list[int]]:
        begun.append(number)
        law = toy_law(number)
        ids = yield from request(open_session(law, max_length=LENGTHS[number]))
        return ids

    done = run_batched((counted(number) for number in range(6)), 2)
    alive = [len(begun) - ended for ended, _ in enumerate(done, 1)]
    assert begun == list(range(6))
    assert max(alive) <= 2


def test_one_requests_failure_is_no_others() -> None:
    opened = runs("ngram")
    seen = []

    def fault(ids: Sequence[int]) -> None:
        seen.append(ids)
        if len(seen) == 3:
            raise RuntimeError("out of luck")

    opened[1].target.fault = fault

    def failing(passes: Sequence[Pass]) -> list[Tensor]:
        return [one.target.score(one.ids, one.keep, one.parents) for one in passes]

    requests = [request(run) for run in opened]
    done = dict(run_batched(requests, 1))  # alone in its pass
    assert isinstance(done[1], RuntimeError)
    for number in {0, 2, 3, 4, 5}:
        assert done[number] == ordinary(toy_law(number), max_length=LENGTHS[number]).ids
    held = opened[1].target.held
    assert held == tuple(opened[1].session.prefix.ids[: len(held)]), "and its state is in order"


def test_a_pass_that_fails_for_all_leaves_every_state_in_order() -> None:
    opened = runs("hypothesis")[1:4]

    def fault(ids: Sequence[int]) -> None:
        raise MemoryError("no room")

    opened[2].target.fault = fault
    done = dict(run_batched([request(run) for run in opened], 3))
    for number, run in enumerate(opened):
        assert isinstance(done[number], MemoryError)
        assert run.target.held == tuple(run.session.prefix.ids[: run.target.state.length])
        run.target.fault = lambda ids: None
        want = ordinary(toy_law(number + 1), max_length=LENGTHS[number + 1]).ids
        assert run.session.run() == want


def test_time_is_shared_out() -> None:
    opened = runs("none")[1:4]
    spans: list[tuple[str, float]] = []
    for run in opened:
        clock = run.session.clock
        clock.charge = lambda phase, seconds, took: spans.append((phase, seconds))  # type: ignore[method-assign]
    list(run_batched([request(run) for run in opened], 3))
    assert {phase for phase, _ in spans} == {"verify"}
    first = [seconds for _, seconds in spans[:3]]
    assert first[0] == first[1] == first[2] > 0


def test_requests_that_need_no_work_end_at_once() -> None:
    def idle(number: int) -> Steps[int]:
        return number
        yield  # a generator all the same

    assert dict(run_batched([idle(n) for n in range(5)], 2)) == {n: n for n in range(5)}
    assert dict(run_batched([], 2)) == {}
    assert run_alone(idle(7)) == 7


def test_leaving_a_batch_early_leaves_every_state_in_order() -> None:
    opened = runs("ngram")
    requests = [request(run) for run in opened]
    outcomes: Any = run_batched(requests, 6)
    next(outcomes)  # it needs no pass: the others haven't begun
    next(outcomes)
    outcomes.close()
    assert all(steps.gi_frame is None for steps in requests), "every request was closed"
    for run in opened:
        assert run.target.held == tuple(run.session.prefix.ids[: run.target.state.length])


def test_a_policy_beside_others_has_its_own_costs_and_shares_what_it_learns() -> None:
    alone = AdaptivePolicy(BlockCosts())
    dear = BlockCosts()
    for rows in range(1, 30):
        for _ in range(9):
            dear.add(rows, 0.01 * rows)
    beside = alone.at(dear)
    law = toy_law(0)
    decode(law, drafter_for("hypothesis", law), beside, max_length=60, costs=dear)
    assert beside.costs is dear
    assert alone._acceptance_rate is beside._acceptance_rate
    assert alone._acceptance_rate._first


@dataclass
class Listening:
    """A piece of work that runs apart, as an encoder run does."""

    call: Callable[[], Any] = lambda: None
    clock: Clock = field(default_factory=lambda: Clock(torch.device("cpu")))
    phase: str = "encode"
    kind: str = "listening"
    apart: bool = True

    def run(self) -> Tensor:
        raise AssertionError("together, it runs on nobody's clock")

    def run_batched(self, works: Sequence[Any]) -> list[Tensor]:
        assert works == [self], "each by itself"
        self.call()
        return [torch.ones(1)]


def heard_first(run: Run, work: Listening) -> Steps[list[int]]:
    """A request that has to listen before it decodes."""
    heard = yield work
    assert heard.tolist() == [1.0]
    ids = yield from request(run)
    return ids


@pytest.mark.parametrize("kind", DRAFTERS)
@pytest.mark.parametrize("width", [1, 2, 3, 20])
def test_requests_that_listen_first_are_their_single_runs(
    kind: str, width: int, threads: int
) -> None:
    opened = runs(kind)
    works = [Listening(lambda n=n: time.sleep(0.002 * (n % 3))) for n in range(len(opened))]  # type: ignore[misc]
    requests = [heard_first(*pair) for pair in zip(opened, works, strict=True)]
    done = dict(run_batched(requests, width))
    for number, run in enumerate(opened):
        law, length = toy_law(number), LENGTHS[number]
        assert done[number] == ordinary(law, max_length=length).ids
        alone = decode(law, drafter_for(kind, law), 4, max_length=length)
        assert run.tally.trace == alone.tally.trace, "the same rounds as alone"
    assert torch.get_num_threads() == threads


def test_they_listen_side_by_side_on_threads_of_their_own(threads: int) -> None:
    """Each waits for the others: one after the other they would wait for ever."""
    meeting = threading.Barrier(threads, timeout=20)
    seen: list[tuple[int, int]] = []

    def call() -> None:
        seen.append((threading.get_ident(), torch.get_num_threads()))
        meeting.wait()

    opened = runs("none", threads)
    list(run_batched([heard_first(run, Listening(call)) for run in opened], threads))
    assert len({ident for ident, _ in seen} - {threading.get_ident()}) == threads
    assert {count for _, count in seen} == {1}


def test_others_decode_meanwhile_on_what_is_left() -> None:
    """The second request listens until the first is done, and may."""
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    first_done = threading.Event()
    counts: list[int] = []
    try:
        opened = runs("none", 3)[1:]
        opened[0].target.fault = lambda ids: counts.append(torch.get_num_threads())

        def first() -> Steps[list[int]]:
            ids = yield from request(opened[0])
            first_done.set()
            return ids

        slow = Listening(lambda: first_done.wait(20) or pytest.fail("waited in vain"))
        ended = [number for number, _ in run_batched([first(), heard_first(opened[1], slow)], 2)]
    finally:
        torch.set_num_threads(before)
    assert ended == [0, 1]
    assert set(counts) == {2}, "one of three listens"


def test_one_alone_listens_on_all_threads(threads: int) -> None:
    counts: list[int] = []
    work = Listening(lambda: counts.append(torch.get_num_threads()))
    list(run_batched([heard_first(runs("none", 1)[0], work)], 5))
    assert counts == [threads]


def test_a_failure_to_listen_is_no_others(threads: int) -> None:
    def fail() -> None:
        raise RuntimeError("deaf")

    opened = runs("none", 3)
    works = [Listening(), Listening(fail), Listening()]
    requests = [heard_first(*pair) for pair in zip(opened, works, strict=True)]
    done = dict(run_batched(requests, 3))
    assert isinstance(done[1], RuntimeError)
    for number in (0, 2):
        assert done[number] == ordinary(toy_law(number), max_length=LENGTHS[number]).ids


def test_leaving_while_one_listens_waits_for_it_and_closes_it(threads: int) -> None:
    ended = threading.Event()

    def slow() -> None:
        time.sleep(0.05)
        ended.set()

    def idle() -> Steps[list[int]]:
        return []
        yield  # a generator all the same

    opened = runs("none", 1)
    listening = heard_first(opened[0], Listening(slow))
    outcomes: Any = run_batched([listening, idle()], 2)
    assert next(outcomes) == (1, [])
    outcomes.close()
    assert listening.gi_frame is None
    assert torch.get_num_threads() == threads


def test_the_seconds_of_a_batch_add_up_to_the_time_that_passed(threads: int) -> None:
    """Two listen for a while; what one takes beside another isn't counted twice."""
    works = [Listening(lambda: time.sleep(0.2)) for _ in range(2)]
    requests = [heard_first(*pair) for pair in zip(runs("none", 2), works, strict=True)]
    start = time.perf_counter()
    list(run_batched(requests, 2))
    passed = time.perf_counter() - start
    counted = sum(work.clock.seconds["encode"] for work in works)
    assert 0.1 < counted <= passed


def test_costs_are_learned_from_what_a_pass_took_not_from_its_share() -> None:
    clock = Clock(torch.device("cpu"))
    clock.charge("verify", 0.1, 0.3)
    assert (clock.seconds["verify"], clock.last) == (0.1, 0.3)
    clock.charge("verify", 0.2)
    assert (round(clock.seconds["verify"], 9), clock.last) == (0.3, 0.2)

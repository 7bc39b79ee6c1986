"""Computations beside the caller's, and torch's threads as they were."""

from __future__ import annotations

import threading

import pytest
import torch

from mmspec.kernels import WorkerPool


def test_each_call_has_its_threads_and_the_caller_what_is_left(threads: int) -> None:
    go = threading.Event()

    def call() -> tuple[int, int]:
        go.wait(20)
        return threading.get_ident(), torch.get_num_threads()

    with WorkerPool[tuple[int, int]]() as workers:
        assert (workers.free, workers.running) == (threads, {})
        for number in range(threads):
            workers.start(number, call, threads=1)
        assert (workers.free, workers.running) == (0, dict.fromkeys(range(threads), 1))
        assert workers.ended(waiting=False) == []
        with workers.beside():
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == threads
        go.set()
        got: dict[object, object] = {}
        while workers.running:
            got.update(workers.ended(waiting=True))
        with workers.beside():
            assert torch.get_num_threads() == threads, "nothing runs beside"
    assert sorted(got) == list(range(threads))
    idents, counts = zip(*got.values(), strict=True)  # type: ignore[call-overload]
    assert threading.get_ident() not in idents
    assert set(counts) == {1}
    assert torch.get_num_threads() == threads


def test_one_call_may_have_several_threads(threads: int) -> None:
    with WorkerPool[int]() as workers:
        workers.start(0, torch.get_num_threads, threads)
        assert workers.free == 0
        assert workers.ended(waiting=True) == [(0, threads)]
        assert workers.free == threads


def test_they_really_run_at_the_same_time(threads: int) -> None:
    meeting = threading.Barrier(threads, timeout=20)
    with WorkerPool[int]() as workers:
        for number in range(threads):
            workers.start(number, meeting.wait, threads=1)
        places = []
        while workers.running:
            places += [place for _, place in workers.ended(waiting=True)]
    assert sorted(places) == list(range(threads))


def test_a_failure_is_given_back_and_threads_are_as_before(threads: int) -> None:
    def fail() -> None:
        raise RuntimeError("no")

    with WorkerPool[None]() as workers:
        workers.start(5, fail, threads=1)
        [(number, error)] = workers.ended(waiting=True)
    assert number == 5
    assert isinstance(error, RuntimeError)
    assert torch.get_num_threads() == threads


def test_leaving_waits_for_what_still_runs(threads: int) -> None:
    begun, done = threading.Event(), threading.Event()

    def call() -> None:
        begun.set()
        torch.ones(200, 200).matmul(torch.ones(200, 200))
        done.set()

    def leave() -> None:
        with WorkerPool[None]() as workers:
            workers.start(0, call, threads=1)
            begun.wait(20)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        leave()
    assert done.is_set()
    assert torch.get_num_threads() == threads

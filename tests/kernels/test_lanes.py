"""Computations beside the caller's, and torch's threads as they were."""

from __future__ import annotations

import threading

import pytest
import torch

from mmspec.kernels import Lanes


def test_each_call_has_its_threads_and_the_caller_what_is_left(threads: int) -> None:
    go = threading.Event()

    def call() -> tuple[int, int]:
        go.wait(20)
        return threading.get_ident(), torch.get_num_threads()

    with Lanes[tuple[int, int]]() as lanes:
        assert (lanes.free, lanes.running) == (threads, {})
        for number in range(threads):
            lanes.start(number, call, threads=1)
        assert (lanes.free, lanes.running) == (0, dict.fromkeys(range(threads), 1))
        assert lanes.ended(waiting=False) == []
        with lanes.beside():
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == threads
        go.set()
        got: dict[object, object] = {}
        while lanes.running:
            got.update(lanes.ended(waiting=True))
        with lanes.beside():
            assert torch.get_num_threads() == threads, "nothing runs beside"
    assert sorted(got) == list(range(threads))
    idents, counts = zip(*got.values(), strict=True)  # type: ignore[call-overload]
    assert threading.get_ident() not in idents
    assert set(counts) == {1}
    assert torch.get_num_threads() == threads


def test_one_call_may_have_several_threads(threads: int) -> None:
    with Lanes[int]() as lanes:
        lanes.start(0, torch.get_num_threads, threads)
        assert lanes.free == 0
        assert lanes.ended(waiting=True) == [(0, threads)]
        assert lanes.free == threads


def test_they_really_run_at_the_same_time(threads: int) -> None:
    meeting = threading.Barrier(threads, timeout=20)
    with Lanes[int]() as lanes:
        for number in range(threads):
            lanes.start(number, meeting.wait, threads=1)
        places = []
        while lanes.running:
            places += [place for _, place in lanes.ended(waiting=True)]
    assert sorted(places) == list(range(threads))


def test_a_failure_is_given_back_and_threads_are_as_before(threads: int) -> None:
    def fail() -> None:
        raise RuntimeError("no")

    with Lanes[None]() as lanes:
        lanes.start(5, fail, threads=1)
        [(number, error)] = lanes.ended(waiting=True)
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
        with Lanes[None]() as lanes:
            lanes.start(0, call, threads=1)
            begun.wait(20)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        leave()
    assert done.is_set()
    assert torch.get_num_threads() == threads

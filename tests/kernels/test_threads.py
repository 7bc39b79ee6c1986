"""Independent computations side by side, and torch's threads as they were."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
import torch

from mmspec.kernels import side_by_side


@pytest.fixture(params=[1, 2, 3])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def test_results_come_in_order_and_threads_are_as_before(threads: int) -> None:
    seen: list[tuple[int, int]] = []

    def call(number: int) -> int:
        seen.append((threading.get_ident(), torch.get_num_threads()))
        return number

    got = side_by_side([lambda number=number: call(number) for number in range(5)])  # type: ignore[misc]
    assert got == list(range(5))
    assert torch.get_num_threads() == threads
    here = [inside for ident, inside in seen if ident == threading.get_ident()]
    others = [inside for ident, inside in seen if ident != threading.get_ident()]
    assert here == [threads] * (5 if threads == 1 else 5 % threads), "the rest has all threads"
    assert others == [1] * (5 - len(here)), "the others one each"


def test_they_really_run_at_the_same_time(threads: int) -> None:
    meeting = threading.Barrier(threads, timeout=20)
    side_by_side([meeting.wait] * threads)


def test_a_failure_is_raised_and_threads_are_as_before(threads: int) -> None:
    def fail() -> None:
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        side_by_side([fail, *[lambda: None] * 5])
    assert torch.get_num_threads() == threads

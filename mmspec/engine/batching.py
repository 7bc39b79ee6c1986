"""Several requests side by side.

The passes that requests need next run as one where their model can do that; every request keeps its
own state and its own pace, and one that is done stands still. What is large enough to keep a thread
busy by itself (an encoder run on a CPU) runs apart, so that no thread waits for another and small
passes fill what large ones leave. Which requests share a pass depends on how long things take; what
each of them emits doesn't.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

from torch import Tensor

from mmspec.engine.work import Steps, Work
from mmspec.kernels import WorkerPool

T = TypeVar("T")

_Running = dict[int, tuple[Steps[T], Work]]
"""Requests that have begun, by number, with what each needs next."""


def run_batched(requests: Iterable[Steps[T]], width: int) -> Iterator[tuple[int, T | Exception]]:
    """Run requests side by side, `width` of them at a time; a free place is filled at once.

    Yields:
        (a request's number, what it returned or raised), in the order in which they end.
    """
    waiting = enumerate(requests)
    running: _Running[T] = {}
    workers: WorkerPool[Tensor] = WorkerPool()
    try:
        with workers:
            while True:
                while len(running) < width and (upcoming := next(waiting, None)) is not None:
                    yield from _advance(running, *upcoming, None)
                if not running:
                    return
                here = [number for number, (_, work) in running.items() if not work.apart]
                _start(workers, running, beside=bool(here))
                for number, result in _results(workers, running, here):
                    yield from _advance(running, number, running.pop(number)[0], result)
    finally:  # whoever stops listening leaves no state or kernel open
        for steps, _ in running.values():
            steps.close()


def _advance(
    running: _Running[T],
    number: int,
    steps: Steps[T],
    result: Tensor | BaseException | None,
) -> Iterator[tuple[int, T | Exception]]:
    """Give a request its result; note what it needs next, or yield what it ended with."""
    try:
        if isinstance(result, BaseException):
            work = steps.throw(result)
        else:
            work = next(steps) if result is None else steps.send(result)
    except StopIteration as done:
        yield number, done.value
    except Exception as error:  # one request's failure is no other's
        yield number, error
    else:
        running[number] = steps, work


def _start(workers: WorkerPool[Tensor], running: _Running[T], *, beside: bool) -> None:
    """Start what runs apart, as far as there are threads.

    It goes first: a pass is worth the more, the more requests have got as far as to share it.
    """
    apart = [number for number, (_, work) in running.items() if work.apart]
    new = [number for number in apart if number not in workers.running]
    if not new:
        return
    threads = max(1, workers.free // (len(new) + beside))
    for number in new[: workers.free]:
        work = running[number][1]
        workers.start(number, partial(_alone, work), threads)


def _alone(work: Work) -> Tensor:
    return work.run_batched([work])[0]


def _results(
    workers: WorkerPool[Tensor], running: _Running[T], here: Sequence[int]
) -> Iterator[tuple[int, Tensor | BaseException]]:
    """Run what the requests in `here` need, one pass for each kind, unless no thread is free.

    Yields:
        (a request's number, its result): of these passes, and of what has ended apart meanwhile.
    """
    groups = _by_kind(running, here) if workers.free else []
    for group in groups:
        works = [running[number][1] for number in group]
        with workers.beside(), _shared_out(workers, running, works):
            results = _run_group(works)
        yield from zip(group, results, strict=True)
    if groups:
        ended = workers.ended(waiting=False)
    else:
        with _shared_out(workers, running, []):
            ended = workers.ended(waiting=True)
    yield from ended


def _by_kind(running: _Running[T], numbers: Sequence[int]) -> list[list[int]]:
    groups: dict[Any, list[int]] = {}
    for number in numbers:
        work = running[number][1]
        groups.setdefault((type(work), work.kind), []).append(number)
    return list(groups.values())


def _run_group(works: Sequence[Work]) -> Sequence[Tensor | Exception]:
    """Results of one forward for all."""
    try:
        return works[0].run_batched(works)
    except Exception as error:
        return [error] * len(works)


@contextmanager
def _shared_out(
    workers: WorkerPool[Tensor], running: _Running[T], here: Sequence[Work]
) -> Iterator[None]:
    """Charge the seconds inside to all whose work they are: by threads, and evenly in a pass."""
    parties: list[tuple[Sequence[Work], int]] = [
        ([running[number][1]], threads) for number, threads in workers.running.items()
    ]
    if here:
        parties.append((here, max(1, workers.free)))
    now = parties[0][0][0].clock.now
    start = now()
    yield
    seconds, all_threads = now() - start, sum(threads for _, threads in parties)
    for works, threads in parties:
        took = seconds / len(works)
        for work in works:
            work.clock.charge(work.phase, took * threads / all_threads, took)

"""Requests as generators of the forward passes that they need, and the two ways to run them.

A request yields a piece of work (a pass of its target, an encoder run), gets the result back and
goes on. Alone, each piece runs as it comes. Together, the pieces that several requests need next
run as one where their model can do that; every request keeps its own state and its own pace, and
one that is done stands still.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import Any, Protocol, TypeVar

from torch import Tensor

from mmspec.clock import Clock

T = TypeVar("T")


class Work(Protocol):
    """Something to be computed for a request.

    Attributes:
        clock: of the request.
        phase: what its seconds are counted as.
    """

    @property
    def clock(self) -> Clock: ...  # noqa: D102

    @property
    def phase(self) -> str: ...  # noqa: D102

    @property
    def kind(self) -> Any:
        """Pieces of one kind may run together."""
        ...

    def run(self) -> Tensor:
        """Run it by itself, on the request's clock."""
        ...

    def run_together(self, works: Sequence[Any]) -> list[Tensor]:
        """Run it with others of its kind, itself among them; no clock is touched."""
        ...


Steps = Generator[Work, Tensor, T]


def stepwise(steps: Steps[T]) -> Generator[None, None, T]:
    """Run a request by itself, pausing after each piece of its work; its return value."""
    try:
        work = next(steps)
        while True:
            try:
                result = work.run()
            except BaseException as error:  # the request puts its state in order, and raises it
                work = steps.throw(error)
            else:
                work = steps.send(result)
            yield
    except StopIteration as done:
        return done.value
    finally:
        steps.close()


def run_alone(steps: Steps[T]) -> T:
    """Run a request by itself; its return value."""
    pauses = stepwise(steps)
    while True:
        try:
            next(pauses)
        except StopIteration as done:
            return done.value


def run_together(requests: Iterable[Steps[T]], width: int) -> Iterator[tuple[int, T | Exception]]:
    """Run requests side by side, `width` of them at a time; a free place is filled at once.

    Yields:
        (a request's number, what it returned or raised), in the order in which they end.
    """
    waiting = enumerate(requests)
    running: dict[int, tuple[Steps[T], Work]] = {}
    try:
        while True:
            while len(running) < width and (upcoming := next(waiting, None)) is not None:
                yield from _advance(running, *upcoming, None)
            if not running:
                return
            for group in _by_kind(running):
                results = _run_group([running[number][1] for number in group])
                for number, result in zip(group, results, strict=True):
                    steps, _ = running.pop(number)
                    yield from _advance(running, number, steps, result)
    finally:  # whoever stops listening leaves no state or kernel open
        for steps, _ in running.values():
            steps.close()


def _advance(
    running: dict[int, tuple[Steps[T], Work]],
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


def _by_kind(running: dict[int, tuple[Steps[T], Work]]) -> list[list[int]]:
    groups: dict[Any, list[int]] = {}
    for number, (_, work) in running.items():
        groups.setdefault((type(work), work.kind), []).append(number)
    return list(groups.values())


def _run_group(works: list[Work]) -> Sequence[Tensor | Exception]:
    """Results of one forward for all, its time shared out evenly."""
    clock = works[0].clock
    start = clock.now()
    try:
        results: Sequence[Tensor | Exception] = works[0].run_together(works)
    except Exception as error:
        results = [error] * len(works)
    share = (clock.now() - start) / len(works)
    for work in works:
        work.clock.charge(work.phase, share)
    return results

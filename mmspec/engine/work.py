"""Requests as generators of the forward passes that they need.

A request yields a piece of work (a pass of its target, an encoder run), gets the result back and
goes on. Alone, each piece runs as it comes; several requests are run together in `together`.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
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

    @property
    def apart(self) -> bool:
        """Whether it had better run on a thread of its own, beside what others need."""
        ...

    def run(self) -> Tensor:
        """Run it by itself, on the request's clock."""
        ...

    def run_batched(self, works: Sequence[Any]) -> list[Tensor]:
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

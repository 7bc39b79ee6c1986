"""CPU threads shared out between computations that don't need each other.

A computation that is spread over threads waits for the slowest of them at every layer, and small
layers don't fill them. Side by side, each on threads of its own, they wait for nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Generic, Self, TypeVar

import torch

T = TypeVar("T")


class WorkerPool(Generic[T]):
    """Runs calls beside the caller's thread, each on some of torch's CPU threads.

    Use it with `with`: at its end it waits for the calls that are still running.

    Example:
        >>> with WorkerPool() as workers:
        ...     workers.start(7, lambda: torch.ones(2).sum().item(), threads=1)
        ...     workers.ended(waiting=True)
        [(7, 2.0)]
    """

    def __init__(self) -> None:
        self._threads = torch.get_num_threads()
        self._pool = ThreadPoolExecutor(self._threads)  # its threads begin when they are needed
        self._running: dict[Future[T], tuple[int, int]] = {}
        self._used = False

    @property
    def running(self) -> dict[int, int]:
        """How many threads each call has that was started and not yet given back."""
        return dict(self._running.values())

    @property
    def free(self) -> int:
        """Threads that no call has."""
        return self._threads - sum(self.running.values())

    def start(self, number: int, call: Callable[[], T], threads: int) -> None:
        """Let a call begin, on so many of the free threads; `number` is how it is known."""

        def on_its_threads() -> T:
            # A thread asks for the process's number once, and must have done so before it is told.
            torch.get_num_threads()
            torch.set_num_threads(threads)
            return call()

        self._used = True
        self._running[self._pool.submit(on_its_threads)] = number, threads

    def ended(self, *, waiting: bool) -> list[tuple[int, T | BaseException]]:
        """Numbers of calls that ended since, with what they returned or raised.

        Args:
            waiting: for the first to end, where none has.
        """
        if waiting:
            wait(self._running, return_when=FIRST_COMPLETED)
        done = [future for future in self._running if future.done()]
        return [(self._running.pop(one)[0], one.exception() or one.result()) for one in done]

    @contextmanager
    def beside(self) -> Iterator[None]:
        """Keep the caller's computations to the free threads, one at least."""
        if not self._running:
            yield
            return
        torch.set_num_threads(max(1, self.free))
        try:
            yield
        finally:
            torch.set_num_threads(self._threads)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)
        if self._used:  # MKL has one number for all, and the pool's threads have changed it
            torch.set_num_threads(self._threads)

"""Independent computations side by side: one thread each, instead of all threads on each in turn.

A computation that is spread over threads waits for the slowest of them at every layer; on a machine
that does other things as well these waits add up to more than the computation. Computations that
don't need each other don't have to wait.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

T = TypeVar("T")


def side_by_side(calls: Sequence[Callable[[], T]]) -> list[T]:
    """Results of all calls, in order, computed on torch's CPU threads with one for each call.

    torch's number of threads is 1 meanwhile, for the whole process, and as before afterwards. Calls
    that would leave a thread idle run one after the other, on all threads.

    Example:
        >>> side_by_side([lambda: torch.ones(2).sum().item(), lambda: 5.0])
        [2.0, 5.0]
    """
    threads = torch.get_num_threads()
    fitting = len(calls) // threads * threads if threads > 1 else 0
    done: list[T] = []
    if fitting:
        try:
            with ThreadPoolExecutor(
                threads, initializer=torch.set_num_threads, initargs=(1,)
            ) as pool:
                done = list(pool.map(lambda call: call(), calls[:fitting]))
        finally:
            torch.set_num_threads(threads)
    return [*done, *(call() for call in calls[fitting:])]

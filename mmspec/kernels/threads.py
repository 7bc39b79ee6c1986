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

    torch's number of threads is 1 meanwhile, for the whole process, and as before afterwards.

    Example:
        >>> side_by_side([lambda: torch.ones(2).sum().item(), lambda: 5.0])
        [2.0, 5.0]
    """
    threads = torch.get_num_threads()
    if threads == 1 or len(calls) < 2:
        return [call() for call in calls]
    try:
        with ThreadPoolExecutor(
            min(threads, len(calls)), initializer=torch.set_num_threads, initargs=(1,)
        ) as pool:
            return list(pool.map(lambda call: call(), calls))
    finally:
        torch.set_num_threads(threads)

"""Counting and timing the runs of encoders, wherever in a model's code they happen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from torch import nn

from mmspec.clock import Clock


class Runs:
    """How often encoders ran."""

    def __init__(self) -> None:
        self.count = 0


@contextmanager
def watched(encoder_names: Sequence[nn.Module], clock: Clock) -> Iterator[Runs]:
    """Count runs of `encoder_names` while this is open; their seconds are `encode` on the clock.

    The modules get hooks of torch's and lose them again: nothing is left behind.
    """
    runs = Runs()
    running: list[ExitStack] = []

    def begins(module: nn.Module, inputs: Any) -> None:
        runs.count += 1
        stack = ExitStack()
        stack.enter_context(clock("encode"))
        running.append(stack)

    def ends(module: nn.Module, inputs: Any, outputs: Any) -> None:
        if running:  # else it began before, in another thread
            running.pop().close()

    with ExitStack() as hooks:
        for encoder in encoder_names:
            hooks.callback(encoder.register_forward_pre_hook(begins).remove)
            hooks.callback(encoder.register_forward_hook(ends).remove)
        try:
            yield runs
        finally:
            while running:  # a run that raised
                running.pop().close()

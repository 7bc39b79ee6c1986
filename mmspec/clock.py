"""Where the time goes: seconds by phase, with the device synchronised at the edges."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch

PHASES = ("encode", "prefill", "draft", "verify", "reconcile", "post")


class Clock:
    """Adds up seconds by phase.

    Example:
        >>> clock = Clock(torch.device("cpu"))
        >>> with clock("verify"):
        ...     pass
        >>> clock.seconds["verify"] > 0, clock.seconds["draft"]
        (True, 0.0)
    """

    def __init__(self, device: torch.device) -> None:
        self._synchronise = device.type == "cuda"
        self._device = device
        self._nested_s = [0.0]
        self.seconds: dict[str, float] = dict.fromkeys(PHASES, 0.0)
        self.last = 0.0

    @contextmanager
    def __call__(self, phase: str) -> Iterator[None]:
        """Count what runs inside under `phase`; a phase inside a phase is counted once, its own."""
        start = self.now()
        self._nested_s.append(0.0)
        try:
            yield
        finally:
            elapsed = self.now() - start
            self.last = elapsed - self._nested_s.pop()
            self._nested_s[-1] += elapsed
            self.seconds[phase] += self.last

    def charge(self, phase: str, seconds: float, took: float | None = None) -> None:
        """Count seconds that were measured elsewhere: a request's share of a pass with others.

        Args:
            phase: what they are counted as.
            seconds: of the whole machine.
            took: how long it took, where other things ran meanwhile; None: as long.
        """
        self.last = seconds if took is None else took
        self.seconds[phase] += seconds

    def now(self) -> float:
        """Seconds on the wall, once the device has done what it was given."""
        if self._synchronise:
            torch.cuda.synchronize(self._device)
        return time.perf_counter()

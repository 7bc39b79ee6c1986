"""Whole codebooks that one pass fills: work of a request in which nothing is drafted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import Tensor

from mmspec.clock import Clock


@dataclass(frozen=True, slots=True, eq=False)
class Filling:
    """Passes that fill whole codebooks: not autoregressive, so nothing in them is drafted.

    Attributes:
        fill: runs them.
        clock: of the request.
    """

    fill: Callable[[], Tensor]
    clock: Clock

    @property
    def phase(self) -> str:
        """What its seconds are counted as: speculation can't change them."""
        return "post"

    @property
    def kind(self) -> int:
        """Each runs by itself: they see all of time, and no two are of one length."""
        return id(self)

    @property
    def apart(self) -> bool:
        """No: it is too short to be worth it."""
        return False

    def run(self) -> Tensor:
        """The filled codes."""
        with self.clock(self.phase):
            return self.fill()

    def run_batched(self, works: Sequence[Filling]) -> list[Tensor]:
        """One after the other."""
        return [work.fill() for work in works]

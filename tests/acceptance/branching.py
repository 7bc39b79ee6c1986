"""Runs a rule through every answer that chance may give, and adds up the exact distribution.

`Branching` answers by a script and notes what else it could have answered; `integrated` goes
through all scripts. Repeated attempts, which could go on for ever, are summed as the geometric
series that they are: one attempt is run through, and what succeeds is divided by the chance that
one attempt succeeds. No draw is sampled and no formula of a rule is used.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

from torch import Tensor

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)
Script = tuple[int, ...]


class AgainError(Exception):
    """An attempt gave nothing."""


class Branching:
    """Chance whose answers are scripted; behind the script, always the first possible one."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self.taken: Script = ()
        self.others: list[int] = []
        self.weight = 1.0
        self.begun: list[tuple[Script, float]] = []

    def happens(self, probability: float) -> bool:
        return bool(self._answer([(1, probability), (0, 1 - probability)]))

    def draw(self, weights: Tensor) -> int:
        parts = weights.tolist()
        total = math.fsum(parts)
        return self._answer([(code, part / total) for code, part in enumerate(parts)])

    def first(self, attempt: Callable[[], T | None]) -> T:
        self.begun.append((self.taken, self.weight))
        found = attempt()
        if found is None:
            raise AgainError
        return found

    def _answer(self, answers: list[tuple[int, float]]) -> int:
        for _, probability in answers:
            if not -1e-15 < probability < 1 + 1e-15:  # also not a number
                raise AssertionError(f"a probability of {probability}")
        possible = [answer for answer in answers if answer[1] > 0]
        step = len(self.taken)
        at = self._script[step] if step < len(self._script) else 0
        self.taken = (*self.taken, at)
        self.others.append(len(possible) - 1 - at)
        self.weight *= possible[at][1]
        return possible[at][0]


@dataclass(frozen=True)
class Summed(Generic[K]):
    law: dict[K, float]
    attempts: float
    """How many attempts are made on average, over all `first` of a run."""


def integrated(run: Callable[[Branching], K]) -> Summed[K]:
    """The distribution of what `run` returns, over everything that chance may answer."""
    found: list[tuple[Branching, K]] = []
    failed: dict[Script, float] = defaultdict(float)
    reached: dict[Script, tuple[Branching, int]] = {}
    script: Script | None = ()
    while script is not None:
        chance = Branching(script)
        try:
            found.append((chance, run(chance)))
        except AgainError:
            failed[chance.begun[-1][0]] += chance.weight
        for nth, (begun, _) in enumerate(chance.begun):
            reached.setdefault(begun, (chance, nth))
        script = _next_script(chance)

    def factor(chance: Branching, loops: int) -> float:
        """One over the chance that one attempt succeeds, for the first so many loops."""
        product = 1.0
        for begun, weight in chance.begun[:loops]:
            product /= 1 - failed[begun] / weight
        return product

    law: dict[K, float] = defaultdict(float)
    for chance, result in found:
        law[result] += chance.weight * factor(chance, len(chance.begun))
    attempts = sum(
        chance.begun[nth][1] * factor(chance, nth + 1) for chance, nth in reached.values()
    )
    return Summed(dict(law), attempts)


def _next_script(chance: Branching) -> Script | None:
    for step in reversed(range(len(chance.taken))):
        if chance.others[step] > 0:
            return (*chance.taken[:step], chance.taken[step] + 1)
    return None

"""A hypothesis is followed, and found again after every kind of error."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor

from mmspec.proposals import HypothesisDrafter
from mmspec.proposals.hypothesis import align
from tests.toys import PROMPT, decode, ordinary

WIDE = 400
"""A vocabulary like a text's: a unit seldom recurs within a few steps."""

LENGTH = 60


def text_law(seed: int) -> Callable[[Sequence[int]], Tensor]:
    """Greedy decoding gives one fixed random text of `LENGTH` units, whatever was fed before."""
    chance = random.Random(seed)
    text = [chance.randrange(WIDE) for _ in range(LENGTH)]

    def law(prefix: Sequence[int]) -> Tensor:
        row = torch.zeros(WIDE)
        row[text[min(len(prefix) - len(PROMPT), LENGTH - 1)]] = 1.0
        return row

    return law


def substitution(units: list[int], at: int, chance: random.Random) -> list[int]:
    return [*units[:at], (units[at] + chance.randrange(1, WIDE)) % WIDE, *units[at + 1 :]]


def missing(units: list[int], at: int, chance: random.Random) -> list[int]:
    return units[:at] + units[at + 1 :]


def additional(units: list[int], at: int, chance: random.Random) -> list[int]:
    return [*units[:at], chance.randrange(WIDE), *units[at:]]


def two_more(units: list[int], at: int, chance: random.Random) -> list[int]:
    return additional(additional(units, at, chance), at, chance)


def two_less(units: list[int], at: int, chance: random.Random) -> list[int]:
    return units[:at] + units[at + 2 :]


ERRORS = (substitution, missing, additional)


def forwards(law: Callable[[Sequence[int]], Tensor], hypothesis: list[int]) -> int:
    expected = ordinary(law, max_length=len(PROMPT) + LENGTH).ids
    run = decode(law, HypothesisDrafter(hypothesis), 80, max_length=len(PROMPT) + LENGTH)
    assert run.ids == expected
    return run.target.forwards


def test_a_right_hypothesis_costs_two_forwards() -> None:
    law = text_law(0)
    text = ordinary(law, max_length=len(PROMPT) + LENGTH).ids
    assert forwards(law, text) == 2, "the prompt, and the whole of it"


@pytest.mark.parametrize("error", [*ERRORS, two_more, two_less])
@pytest.mark.parametrize("at", range(0, LENGTH - 2, 3))
def test_one_error_anywhere_costs_at_most_three_forwards(
    error: Callable[..., list[int]], at: int
) -> None:
    law, chance = text_law(0), random.Random(at)
    text = ordinary(law, max_length=len(PROMPT) + LENGTH).ids
    assert forwards(law, error(text, at, chance)) <= 2 + 3


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("count", [2, 4])
def test_forwards_grow_by_at_most_three_per_error(seed: int, count: int) -> None:
    chance, law = random.Random(seed), text_law(seed)
    text = ordinary(law, max_length=len(PROMPT) + LENGTH).ids
    places = sorted(chance.sample(range(2, LENGTH - 4, 6), count), reverse=True)
    for at in places:
        text = chance.choice(ERRORS)(text, at, chance)
    assert forwards(law, text) <= 2 + 3 * count


@pytest.mark.parametrize("seed", range(6))
def test_any_hypothesis_at_all_gives_the_ordinary_output(seed: int) -> None:
    chance, law = random.Random(seed), text_law(seed)
    for length in (0, 1, 5, 200):
        forwards(law, [chance.randrange(WIDE) for _ in range(length)])


def test_a_hypothesis_that_is_used_up_proposes_nothing() -> None:
    law = text_law(1)
    text = ordinary(law, max_length=len(PROMPT) + LENGTH).ids
    run = decode(law, HypothesisDrafter(text[:10]), 4, max_length=len(PROMPT) + 30)
    # Two rounds of four, each with a bonus, and there is nothing left.
    assert run.tally.proposed == run.tally.accepted == 8


def slow_align(ahead: Sequence[int], committed: Sequence[int]) -> tuple[int, int]:
    """By the definition: distances by recursion, runs by walking the cheapest paths back."""

    def distance(used: int, done: int) -> int:
        if used == 0 or done == 0:
            return used + done
        key = used, done
        if key not in known:
            known[key] = min(
                distance(used - 1, done - 1) + (ahead[used - 1] != committed[done - 1]),
                distance(used - 1, done) + 1,
                distance(used, done - 1) + 1,
            )
        return known[key]

    def run(used: int, done: int) -> int:
        matches = 0
        while used and done and ahead[used - 1] == committed[done - 1]:
            if distance(used, done) != distance(used - 1, done - 1):
                break
            used, done, matches = used - 1, done - 1, matches + 1
        return matches

    known: dict[tuple[int, int], int] = {}
    end = len(committed)
    candidates = [
        (distance(used, end) - 0.5 * run(used, end), abs(used - end), used)
        for used in range(len(ahead) + 1)
    ]
    best = min(candidates)[2]
    return best, run(best, end)


@pytest.mark.parametrize("units", [2, 4, 30])
def test_align_equals_the_slow_reference(units: int) -> None:
    chance = random.Random(units)
    for _ in range(150):
        ahead = [chance.randrange(units) for _ in range(chance.randrange(0, 9))]
        committed = [chance.randrange(units) for _ in range(chance.randrange(1, 8))]
        if chance.random() < 0.5:
            committed = [*committed[:2], *ahead[chance.randrange(3) :]][:8] or [0]
        assert align(ahead, committed) == slow_align(ahead, committed)

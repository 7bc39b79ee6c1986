"""A hypothesis is followed, and found again after every kind of error."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor

from mmspec.prefix import Prefix
from mmspec.proposals import HypothesisDrafter
from mmspec.proposals.hypothesis import alignments, tree_of
from tests.toys import PROMPT, decode, ordinary

WIDE = 400
"""A vocabulary like a text's: a token seldom recurs within a few steps."""

LENGTH = 60


def text_law(seed: int) -> Callable[[Sequence[int]], Tensor]:
    """Greedy decoding gives one fixed random text of `LENGTH` tokens, whatever was fed before."""
    chance = random.Random(seed)
    text = [chance.randrange(WIDE) for _ in range(LENGTH)]

    def law(prefix: Sequence[int]) -> Tensor:
        row = torch.zeros(WIDE)
        row[text[min(len(prefix) - len(PROMPT), LENGTH - 1)]] = 1.0
        return row

    return law


def substitution(tokens: list[int], at: int, chance: random.Random) -> list[int]:
    return [*tokens[:at], (tokens[at] + chance.randrange(1, WIDE)) % WIDE, *tokens[at + 1 :]]


def missing(tokens: list[int], at: int, chance: random.Random) -> list[int]:
    return tokens[:at] + tokens[at + 1 :]


def additional(tokens: list[int], at: int, chance: random.Random) -> list[int]:
    return [*tokens[:at], chance.randrange(WIDE), *tokens[at:]]


def two_more(tokens: list[int], at: int, chance: random.Random) -> list[int]:
    return additional(additional(tokens, at, chance), at, chance)


def two_less(tokens: list[int], at: int, chance: random.Random) -> list[int]:
    return tokens[:at] + tokens[at + 2 :]


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


def slow_alignments(
    ahead: Sequence[int], committed: Sequence[int], begins: Sequence[bool], most: int
) -> list[tuple[int, int]]:
    """By the definition: distances by recursion, runs by walking the cheapest paths back."""

    def distance(used: int, done: int) -> int:
        if used == 0 or done == 0:
            return sum(begins[:used]) + done
        key = used, done
        if key not in known:
            known[key] = min(
                distance(used - 1, done - 1) + (ahead[used - 1] != committed[done - 1]),
                distance(used - 1, done) + begins[used - 1],
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
    candidates = []
    for used in range(len(ahead) + 1):
        inside = used < len(ahead) and not begins[used] and run(used, end) == 0
        badness = distance(used, end) - 0.5 * run(used, end) + inside
        candidates.append((badness, abs(sum(begins[:used]) - end), used))
    return [(used, run(used, end)) for _, _, used in sorted(candidates)[:most]]


@pytest.mark.parametrize("tokens", [2, 4, 30])
def test_alignments_equal_the_slow_reference(tokens: int) -> None:
    chance = random.Random(tokens)
    for _ in range(150):
        ahead = [chance.randrange(tokens) for _ in range(chance.randrange(0, 9))]
        committed = [chance.randrange(tokens) for _ in range(chance.randrange(1, 8))]
        if chance.random() < 0.5:
            committed = [*committed[:2], *ahead[chance.randrange(3) :]][:8] or [0]
        begins = [chance.random() < 0.6 for _ in ahead]
        most = chance.randrange(1, 5)
        found = alignments(ahead, committed, begins, most)
        assert found == slow_alignments(ahead, committed, begins, most)


def planted(text: list[int], seed: int, rate: float = 0.06) -> list[int]:
    """A text with errors of the three kinds."""
    chance = random.Random(seed)
    made: list[int] = []
    for token in text:
        if chance.random() >= rate:
            made.append(token)
        else:
            other = chance.randrange(WIDE)
            made += chance.choice(([other], [], [other, token]))
    return made


def test_a_tree_needs_fewer_forwards_than_the_best_guess_alone() -> None:
    chain = tree = errors = 0
    for seed in range(30):
        law = text_law(seed)
        text = ordinary(law, max_length=len(PROMPT) + LENGTH).ids
        hypothesis = planted(text, seed)
        both = []
        for branches in (1, 3):
            drafter = HypothesisDrafter(hypothesis, branches=branches)
            run = decode(law, drafter, 80, max_length=len(PROMPT) + LENGTH)
            assert run.ids == text
            both.append(run.tally.rounds)
        chain, tree, errors = chain + both[0], tree + both[1], errors + both[1] - 1
    assert tree < 0.85 * chain
    assert errors >= 60, "there were errors to find the way back from"


def test_branches_that_begin_alike_are_proposed_once() -> None:
    tree = tree_of([[1, 2, 3], [1, 2, 4], [5]])
    assert tree.ids == (1, 2, 3, 4, 5)
    assert tree.parents == (-1, 0, 1, 1, -1)
    assert tree_of([[1, 2]]).parents is None


def test_another_word_is_skipped_whole() -> None:
    """Tokens 7 and 8 are the halves of one word; the target said another one."""
    drafter = HypothesisDrafter([5, 7, 8, 9], begins=[True, True, False, True])
    prefix = Prefix([1], capacity=16, device=torch.device("cpu"))
    prefix.extend([5, 42])
    drafter.commit(prefix, agreed=2)
    assert drafter.propose(prefix, 4, pick=None).ids == (9,)  # type: ignore[arg-type]

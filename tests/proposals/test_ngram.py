"""The incremental n-gram index finds what a search over the whole prefix finds."""

from __future__ import annotations

import random
from typing import Any

import pytest

from mmspec.prefix import Prefix
from mmspec.proposals import NgramDrafter
from tests.toys import CPU

NO_PICK: Any = None


def slow(ids: list[int], longest: int, shortest: int, limit: int, never: set[int]) -> list[int]:
    """The continuation of the latest earlier occurrence of the longest known suffix."""
    for size in range(longest, shortest - 1, -1):
        if size > len(ids):
            continue
        for end in range(len(ids) - 1, size - 1, -1):
            if ids[end - size : end] == ids[-size:]:
                tokens = ids[end : end + limit]
                cut = next((i for i, token in enumerate(tokens) if token in never), len(tokens))
                return tokens[:cut]
    return []


@pytest.mark.parametrize("sizes", [(1, 1), (3, 1), (4, 2), (5, 5)])
@pytest.mark.parametrize("tokens", [2, 3, 8])
@pytest.mark.parametrize("never", [set(), {1}])
def test_the_incremental_index_equals_a_search(
    sizes: tuple[int, int], tokens: int, never: set[int]
) -> None:
    chance = random.Random(sizes[0] * 100 + tokens)
    longest, shortest = sizes
    for prompt_length in (0, 1, 2, 7):
        ids = [chance.randrange(tokens) for _ in range(prompt_length)]
        prefix = Prefix(ids, 200, CPU)
        drafter = NgramDrafter(longest, shortest, never)
        while len(ids) < 80:
            limit = chance.randrange(1, 9)
            expected = slow(ids, longest, shortest, limit, never)
            asked = chance.random() < 0.8
            if asked:
                outlook = drafter.outlook(prefix)
                assert (outlook.available > 0) >= bool(expected)
                proposal = drafter.propose(prefix, limit, NO_PICK)
                assert list(proposal.ids) == expected
                assert proposal.draft_probs is None
            more = [chance.randrange(tokens) for _ in range(chance.randrange(1, 6))]
            ids += more
            prefix.extend(more)
            drafter.commit(prefix, len(ids))


def test_the_outlook_says_how_much_there_is_and_how_sure_it_is() -> None:
    prefix = Prefix([1, 2, 3, 4, 1, 2, 3], 20, CPU)
    drafter = NgramDrafter(4, 2)
    outlook = drafter.outlook(prefix)
    assert (outlook.context, outlook.available) == ("match 3", 4)
    assert drafter.propose(prefix, 10, NO_PICK).ids == (4, 1, 2, 3)
    prefix.extend([9])
    assert drafter.outlook(prefix).available == 0
    assert drafter.propose(prefix, 10, NO_PICK).ids == ()


def test_a_loop_goes_round() -> None:
    prefix = Prefix([9, 1, 2, 3, 1, 2, 3], 20, CPU)
    drafter = NgramDrafter(4, 2, loops=True)
    assert drafter.outlook(prefix).available > 8
    assert drafter.propose(prefix, 8, NO_PICK).ids == (1, 2, 3, 1, 2, 3, 1, 2)
    assert NgramDrafter(4, 2, loops=True, never={3}).propose(prefix, 8, NO_PICK).ids == (1, 2)
    prefix.extend([7])
    assert drafter.outlook(prefix).available == 0
    assert drafter.propose(prefix, 8, NO_PICK).ids == ()


def test_Z5_placeholders_are_never_proposed_and_end_a_proposal() -> None:
    image = 99
    ids = [1, 5, 6, *[image] * 4, 7, 8, 9, 5, 6]
    drafter = NgramDrafter(3, 1, never={image})
    assert drafter.propose(Prefix(ids, 40, CPU), 5, NO_PICK).ids == ()
    ids = [1, 5, 6, 3, image, 7, 8, 9, 5, 6]
    drafter = NgramDrafter(3, 1, never={image})
    assert drafter.propose(Prefix(ids, 40, CPU), 5, NO_PICK).ids == (3,)


@pytest.mark.parametrize(("longest", "shortest"), [(2, 3), (3, 0), (0, 0), (-1, -1)])
def test_sizes_that_make_no_sense(longest: int, shortest: int) -> None:
    with pytest.raises(ValueError, match=rf"n-gram sizes {shortest}..{longest}: need 1 <="):
        NgramDrafter(longest, shortest)

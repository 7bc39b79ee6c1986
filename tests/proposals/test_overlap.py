"""The overlap drafter: it finds its place by itself, and then goes on like any hypothesis."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch

from mmspec.prefix import Prefix
from mmspec.proposals.overlap import OverlapDrafter

NEIGHBOUR = list(range(10, 40))


def forwards(drafter: OverlapDrafter, output: Sequence[int], limit: int = 8) -> int:
    """Rounds that a target needs which says `output`."""
    prefix = Prefix([1], capacity=200, device=torch.device("cpu"))
    rounds = 0
    while len(prefix.emitted) < len(output):
        rest = output[len(prefix.emitted) :]
        drafted: Sequence[int] = ()
        if drafter.outlook(prefix).available > 0:
            drafted = drafter.propose(prefix, limit, pick=None).ids  # type: ignore[arg-type]
        same = 0
        while same < min(len(drafted), len(rest)) and drafted[same] == rest[same]:
            same += 1
        agreed = len(prefix) + same
        prefix.extend(rest[: same + 1])
        drafter.commit(prefix, agreed)
        rounds += 1
    return rounds


@pytest.mark.parametrize("skipped", [0, 1, 7, 20])
def test_wherever_the_output_begins_two_units_find_the_place(skipped: int) -> None:
    output = NEIGHBOUR[skipped:]
    ideal = -(-len(output) // 9)
    assert forwards(OverlapDrafter(NEIGHBOUR), output) <= ideal + 2


def test_the_output_begins_before_the_text() -> None:
    output = [5, 6, 7, 8, *NEIGHBOUR]
    assert forwards(OverlapDrafter(NEIGHBOUR), output) <= 4 + 2 + 4


def test_errors_on_the_way_cost_a_round_or_two_each() -> None:
    output = [*NEIGHBOUR[3:10], 99, *NEIGHBOUR[11:20], *NEIGHBOUR[21:]]
    assert forwards(OverlapDrafter(NEIGHBOUR), output) <= 4 + 2 * 3


def test_behind_its_end_it_proposes_nothing() -> None:
    drafter = OverlapDrafter(NEIGHBOUR)
    prefix = Prefix([1], capacity=200, device=torch.device("cpu"))
    prefix.extend(NEIGHBOUR)
    drafter.commit(prefix, len(prefix))
    assert drafter.outlook(prefix).available == 0


def test_a_phrase_that_comes_twice_is_told_apart_by_what_led_to_it() -> None:
    text = [3, 4, 5, 6, 7, 9, 4, 5, 8, 2]
    drafter = OverlapDrafter(text)
    prefix = Prefix([1], capacity=200, device=torch.device("cpu"))
    prefix.extend([9, 4, 5])
    drafter.commit(prefix, 1)
    assert drafter.propose(prefix, 2, pick=None).ids == (8, 2)  # type: ignore[arg-type]


def test_the_first_guess_is_kept_apart_from_what_follows() -> None:
    drafter = OverlapDrafter(NEIGHBOUR)
    prefix = Prefix([1], capacity=200, device=torch.device("cpu"))
    first = drafter.outlook(prefix)
    prefix.extend(NEIGHBOUR[:3])
    drafter.commit(prefix, len(prefix))
    later = drafter.outlook(prefix)
    assert first.context != later.context
    assert first.first < later.first

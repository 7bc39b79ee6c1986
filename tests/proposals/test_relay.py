"""A relay lets the drafter propose that promises most, and never changes the output."""

from __future__ import annotations

import pytest

from mmspec.prefix import Prefix
from mmspec.proposals import HypothesisDrafter, NgramDrafter, RelayDrafter
from tests.toys import CPU, decode, garbage, ordinary, perfect, spoilt, toy_law


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("gamma", [1, 4, 9])
def test_the_output_is_that_of_ordinary_decoding(seed: int, gamma: int) -> None:
    law = toy_law(seed)
    want = ordinary(law).ids
    relay = RelayDrafter([HypothesisDrafter(spoilt(want)[:9]), NgramDrafter(3, 1, loops=True)])
    run = decode(law, relay, gamma)
    assert run.ids == want
    assert set(run.tally.by_drafter) == {"hypothesis", "ngram"}


def test_every_drafter_follows_and_is_closed() -> None:
    law = toy_law()
    model = perfect(law)
    relay = RelayDrafter([garbage(), model])
    run = decode(law, relay, 3)
    assert run.ids == ordinary(law).ids
    assert relay.forwards == model.forwards
    relay.close()


def test_whoever_promises_most_proposes() -> None:
    prefix = Prefix([1, 2, 3, 1, 2, 3], 20, CPU)
    relay = RelayDrafter([HypothesisDrafter([]), NgramDrafter(3, 3)])
    assert relay.outlook(prefix).context == "match 3"
    assert relay.name == "ngram"
    prefix.extend([9])
    relay.commit(prefix, agreed=6)
    assert relay.outlook(prefix).available == 0

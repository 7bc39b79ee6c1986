"""The catalogue's numbered list of checks worth making permanent, with the three drafters."""

from __future__ import annotations

import pytest
import torch

import mmspec
from tests.modalities.drafting import FORCED_HIT, drafter_options, same_ids
from tests.modalities.test_whisper_parity import Counting, EveryThird, StopAt
from tests.modalities.test_whisper_sampling import (
    counted,
    drawn,
    exact_law,
    g_statistic,
    null_bracket,
)
from tests.modalities.tiny import EOS, PREVIOUS, START, features, shared

from .support import equal, plain_ids, said, speculated, with_three

SEEDS = [1, 5, 11]


@pytest.mark.parametrize("seed", SEEDS)
def test_check_1_a_self_draft_is_accepted_whole_and_equal(seed: int) -> None:
    made = equal(shared(seed), "same-weights", 5)
    for report in made.reports:
        assert report.accepted == report.proposed > 0


@pytest.mark.parametrize("seed", [1, 5, 13])
def test_check_2_a_noisy_draft_is_rejected_and_equal(seed: int) -> None:
    made = equal(shared(seed), "other-seed", 5)
    assert sum(report.accepted for report in made.reports) < sum(
        report.proposed for report in made.reports
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_check_3_a_lookup_with_a_forced_hit_is_equal(seed: int) -> None:
    made = equal(shared(seed), "ngram", 5, prompt_ids=FORCED_HIT)
    assert made.reports[0].proposed >= 3


@with_three
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_check_4_equality_in_full_precision(drafter: str, dtype: torch.dtype) -> None:
    """bfloat16, with its rule for ties, is A9."""
    from tests.modalities.tiny import tiny

    model, batch = tiny(1).to(dtype), features().to(dtype)
    helper = model if drafter == "same-weights" else tiny(11).to(dtype)
    draft = "ngram" if drafter == "ngram" else helper
    want = model.generate(batch, language="en")
    same_ids(mmspec.generate(model, batch, draft, gamma=4, language="en").sequences, want)


@with_three
@pytest.mark.parametrize("offset", range(5))
def test_check_5_an_end_or_a_criterion_at_every_block_offset(drafter: str, offset: int) -> None:
    token = plain_ids()[offset]
    equal(shared(), drafter, 4, eos_token_id=[EOS, token])
    equal(shared(), drafter, 4, stopping_criteria=[StopAt(token)])


@with_three
@pytest.mark.parametrize("count", range(1, 6))
def test_check_6_every_limit_around_a_block(drafter: str, count: int) -> None:
    equal(shared(), drafter, 3, max_new_tokens=count)
    words = torch.tensor([PREVIOUS, *(4 + i % 9 for i in range(32 - 5 - count))])
    equal(shared(), drafter, 3, prompt_ids=words)


def test_check_7_causality() -> None:
    from mmspec.modalities.whisper.checkpoint import Whisper

    whisper = Whisper.of(shared())
    target = whisper.open(whisper.encode(features()))
    target.score([START, 51, 53, 56], keep=1)
    one = target.score([9, 8, 7, 6], keep=4)
    target.state.rollback(4)
    other = target.score([9, 8, 7, 60], keep=4)
    target.close()
    torch.testing.assert_close(one[:3], other[:3], rtol=0, atol=1e-6)


@with_three
@pytest.mark.parametrize("kind", [Counting, EveryThird])
def test_check_8_a_processor_with_a_memory(drafter: str, kind: type) -> None:
    want = said(shared(), logits_processor=[kind()])
    got = speculated(shared(), drafter, 4, logits_processor=[kind()])
    same_ids(got.sequences, want)


@with_three
def test_check_9_and_10_interleaved_and_repeated_calls(drafter: str) -> None:
    loop = mmspec.custom_generate(gamma=4, **drafter_options(drafter, shared(), []))
    for seed in (5, 6, 5, 5):
        want = shared().generate(features(seed), language="en")
        same_ids(shared().generate(features(seed), custom_generate=loop, language="en"), want)


@pytest.mark.parametrize("drafter", ["other-seed", "hypothesis-right"])
def test_check_11_the_law_of_the_first_units(drafter: str) -> None:
    sequences, _ = drawn(drafter, 2, None)
    assert g_statistic(counted(sequences), exact_law().double()) < null_bracket()


def test_check_12_the_grid_and_back() -> None:
    """Whisper's grid is its ids; prompt marks and end marks never reach the text."""
    from mmspec.modalities.whisper.checkpoint import steps_of

    steps = steps_of(shared())
    ids = (57, 4, 9, 80)
    assert steps.from_grid(steps.to_grid(ids)) == ids
    assert steps.reserved.isdisjoint(steps.stop_tokens)
    assert {START, PREVIOUS} <= steps.reserved


# 13, the zoo of inputs: tests/modalities/test_audio.py, G10, G12 and J.

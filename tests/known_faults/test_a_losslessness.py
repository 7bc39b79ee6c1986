"""A: committing a block."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import mmspec
from tests.modalities.drafting import emitted, same_ids
from tests.modalities.test_whisper_parity import StopAt
from tests.modalities.tiny import (
    EN,
    EOS,
    NO_TIMES,
    PREVIOUS,
    START,
    TRANSCRIBE,
    features,
    shared,
    tiny,
    tiny_processor,
)

from .support import equal, hit, plain_ids, said, speculated, with_three


@with_three
def test_A1_the_output_ends_at_an_end_unit_at_every_offset_of_a_block(drafter: str) -> None:
    plain = plain_ids()
    for gamma in (3, 8):
        for position in range(12):
            made = equal(shared(), drafter, gamma, eos_token_id=plain[position])
            # transformers goes on in another go where text ended with times: only the first counts
            assert made.reports[0].tokens == plain.index(plain[position]) + 1
            assert made.reports[0].finish_reason == "stop"


@with_three
def test_A1_a_list_of_end_units(drafter: str) -> None:
    plain = plain_ids()
    for position in (1, 4, 8):
        equal(shared(), drafter, 5, eos_token_id=[EOS, plain[position], plain[position + 3]])


@with_three
def test_A2_end_units_in_the_prompt_are_not_copied(drafter: str) -> None:
    """An n-gram before an end token in the previous text must not end or prolong anything."""
    prompt = torch.tensor([PREVIOUS, 4, 53, 56, EOS, 7, 9])
    made = equal(shared(), drafter, 3, prompt_ids=prompt)
    assert made.report.tokens > 3


@with_three
def test_A3_no_end_unit_is_legal(drafter: str) -> None:
    model = tiny(1)
    model.generation_config.eos_token_id = None
    assert equal(model, drafter).report.finish_reason == "length"
    config = shared().generation_config.__class__.from_dict(shared().generation_config.to_dict())
    config.eos_token_id = None
    want = shared().generate(features(), generation_config=config, language="en")
    loop = mmspec.custom_generate("ngram", gamma=3)
    got = shared().generate(
        features(), generation_config=config, language="en", custom_generate=loop
    )
    same_ids(got, want)


@with_three
@pytest.mark.parametrize("count", range(1, 8))
def test_A4_never_more_than_max_new_tokens(drafter: str, count: int) -> None:
    for gamma in (5, "adaptive"):
        made = equal(shared(), drafter, gamma, **hit(max_new_tokens=count))
        assert made.sequences.shape[1] <= count
        assert made.report.proposed < count or count == 1  # the bonus counts


@with_three
def test_A5_stop_strings_end_the_output_where_plain_decoding_does(drafter: str) -> None:
    tokenizer = tiny_processor().tokenizer
    text = tokenizer.decode(plain_ids(), skip_special_tokens=True)
    for stop in (text[2:4], text[5:8], text[1:2]):
        equal(shared(), drafter, 4, stop_strings=[stop], tokenizer=tokenizer)


@with_three
def test_A6_ids_scores_and_stream_end_at_the_same_unit(drafter: str) -> None:
    from tests.modalities.drafting import drafter_options
    from tests.test_generation import Collecting

    stop = plain_ids()[6]
    asked: dict[str, Any] = {
        "language": "en",
        "return_dict_in_generate": True,
        "output_scores": True,
    }
    streamer = Collecting()
    loop = mmspec.custom_generate(
        gamma=4, streamer=streamer, **drafter_options(drafter, shared(), [])
    )
    got = shared().generate(
        features(), custom_generate=loop, stopping_criteria=[StopAt(stop)], **asked
    )
    want = shared().generate(features(), stopping_criteria=[StopAt(stop)], **asked)
    same_ids(got.sequences, want.sequences)
    assert len(got.scores) == len(want.scores) == loop.report.tokens
    assert streamer.ids[-loop.report.tokens :] == emitted(got.sequences)[-loop.report.tokens :]
    assert streamer.ids[: -loop.report.tokens] == [START, EN, TRANSCRIBE, NO_TIMES]


@with_three
def test_A7_min_new_tokens_masks_end_units_row_by_row(drafter: str) -> None:
    early = plain_ids()[3]
    for least in (2, 4, 5, 12):
        made = equal(shared(), drafter, 5, eos_token_id=early, min_new_tokens=least)
        assert made.reports[0].tokens >= least


@with_three
def test_A9_bfloat16_differs_only_where_two_units_nearly_tie(drafter: str) -> None:
    model = tiny(1).to(torch.bfloat16)
    helper = model if drafter == "same-weights" else shared(11)
    batch = features().to(torch.bfloat16)
    want = emitted(model.generate(batch, language="en"))
    draft: Any = "ngram" if drafter == "ngram" else helper
    got = emitted(mmspec.generate(model, batch, draft, gamma=4, language="en").sequences)
    differing = [i for i, pair in enumerate(zip(got, want, strict=False)) if pair[0] != pair[1]]
    if differing:
        ids = torch.tensor([[START, 51, 53, 56, *want[: differing[0]]]])
        with torch.no_grad():
            row = model(batch, decoder_input_ids=ids, use_cache=False).logits[0, -1].float()
        two = row.topk(2).values
        assert float(two[0] - two[1]) <= 0.02 * float(two[0].abs())


def test_A11_a_drafter_with_the_targets_weights_is_accepted_whole() -> None:
    for asked in ({}, {"return_timestamps": True}, hit()):
        made = equal(shared(5), "same-weights", 6, **asked)
        for report in made.reports:
            assert report.accepted == report.proposed


@with_three
def test_A_the_length_limit_of_the_config_holds(drafter: str) -> None:
    for limit in (1, 2, 7):
        model = tiny(1, says={"max_length": limit})
        same_ids(speculated(model, drafter, 4).sequences, said(model))

"""C: logits processors, scores and penalties."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import LogitsProcessor, LogitsProcessorList

import mmspec
from tests.modalities.drafting import drafter_options, emitted, same_ids
from tests.modalities.test_whisper_parity import Counting
from tests.modalities.tiny import EOS, features, shared, tiny

from .support import equal, plain_ids, said, speculated, with_three


@with_three
@pytest.mark.parametrize(
    "asked",
    [
        {"repetition_penalty": 1.5},
        {"no_repeat_ngram_size": 2},
        {"min_new_tokens": 9},
        {"min_length": 14},
        {"bad_words_ids": [[19], [45, 3]]},
    ],
)
def test_C1_penalties_see_every_committed_unit(drafter: str, asked: dict[str, Any]) -> None:
    equal(shared(), drafter, 5, eos_token_id=[EOS, plain_ids()[5]], **asked)


@with_three
def test_C2_a_processor_with_a_memory_counts_what_was_kept(drafter: str) -> None:
    mine, theirs = Counting(), Counting()
    want = said(shared(), logits_processor=LogitsProcessorList([theirs]))
    got = speculated(shared(), drafter, 5, logits_processor=[mine])
    same_ids(got.sequences, want)
    assert mine.counts == theirs.counts


@with_three
@pytest.mark.parametrize("asked", [{"repetition_penalty": 2.0}, {"repetition_penalty": 0.6}])
def test_C3_a_penalty_is_not_ignored(drafter: str, asked: dict[str, Any]) -> None:
    made = equal(shared(), drafter, 5, **asked)
    assert emitted(made.sequences) != list(plain_ids())


def test_C4_a_drafter_has_no_begin_rules_of_its_own() -> None:
    """Its rounds don't begin the output: what is suppressed at the begin is so once."""
    second = plain_ids()[1]
    same = tiny(1, says={"begin_suppress_tokens": [3, EOS, second]})
    made = equal(same, "same-weights", 4)
    assert made.report.accepted == made.report.proposed
    assert second in emitted(made.sequences)


@with_three
def test_C6_scores_have_the_values_of_plain_decoding(drafter: str) -> None:
    asked: dict[str, Any] = {
        "language": "en",
        "return_dict_in_generate": True,
        "output_scores": True,
    }
    loop = mmspec.custom_generate(gamma=5, **drafter_options(drafter, shared(), []))
    got = shared().generate(features(), custom_generate=loop, **asked)
    want = shared().generate(features(), **asked)
    assert len(got.scores) == len(want.scores)
    for mine, theirs in zip(got.scores, want.scores, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-4)


class Grammar(LogitsProcessor):
    """Behind an opener only codes until a closer; elsewhere no codes: a tiny state machine."""

    OPEN, CLOSE, CODES = 19, 35, range(60, 80)

    def __init__(self) -> None:
        self.inside, self.read = False, 0

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        ids = input_ids[0].tolist()
        for token in ids[max(self.read, 4) :]:
            self.inside = token == self.OPEN or (self.inside and token != self.CLOSE)
        self.read = len(ids)
        codes = torch.zeros_like(scores, dtype=torch.bool)
        codes[:, list(self.CODES)] = True
        allowed = codes.clone() if self.inside else ~codes
        if self.inside:
            allowed[:, self.CLOSE] = True
        return scores.masked_fill(~allowed, -torch.inf)


@with_three
@pytest.mark.parametrize("gamma", [1, 3, 8])
def test_C7_a_grammar_that_switches_inside_a_block(drafter: str, gamma: int) -> None:
    options = {"max_new_tokens": 20}
    want = said(shared(), logits_processor=LogitsProcessorList([Grammar()]), **options)
    got = speculated(shared(), drafter, gamma, logits_processor=[Grammar()], **options)
    same_ids(got.sequences, want)
    assert Grammar.OPEN in emitted(want)


@with_three
def test_C8_two_equal_calls_are_equal_and_change_no_config(drafter: str) -> None:
    model = shared()
    chosen = drafter_options(drafter, model, [])
    loop = mmspec.custom_generate(gamma=4, **chosen)
    models = [model] + ([chosen["draft"]] if drafter == "other-seed" else [])
    before = [copy.deepcopy((m.config.to_dict(), m.generation_config.to_dict())) for m in models]
    seen = []
    for _ in range(2):
        ids = model.generate(features(), custom_generate=loop, language="en")
        report = loop.report
        seen.append((ids.tolist(), report.rounds, report.proposed, report.accepted))
    assert seen[0] == seen[1]
    assert before == [(m.config.to_dict(), m.generation_config.to_dict()) for m in models]

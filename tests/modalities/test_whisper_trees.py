"""Whisper's decoder scores trees: each branch's rows are those of the branch alone."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from torch import Tensor

import mmspec
from mmspec.modalities.base.decoder import DecoderTarget
from mmspec.modalities.whisper.checkpoint import Whisper
from tests.modalities.tiny import (
    EN,
    NO_TIMES,
    START,
    TEXT_PIECES,
    TRANSCRIBE,
    features,
    shared,
    tiny,
    tiny_processor,
)

PROMPT = [START, EN, TRANSCRIBE, NO_TIMES]
IDS = [5, 9, 30, 9, 44, 7, 61]
PARENTS = [-1, 0, 0, -1, 3, 1, 4]
MODES = [("sdpa", True), ("sdpa", False), ("eager", False)]


def opened(model: Any, packed: bool) -> DecoderTarget:
    whisper = Whisper.of(model, packed=packed)
    target = whisper.open(whisper.encode(features()))
    target.score(PROMPT, keep=1)
    return target


def branch(node: int) -> list[int]:
    tokens: list[int] = []
    while node >= 0:
        tokens.append(IDS[node])
        node = PARENTS[node]
    return tokens[::-1]


@pytest.mark.parametrize(("attention", "packed"), MODES)
def test_every_row_is_that_of_its_branch_alone(attention: str, packed: bool) -> None:
    target = opened(tiny(1, attention=attention), packed)
    rows = target.score(IDS, keep=len(IDS), parents=PARENTS)
    for node, row in enumerate(rows):
        target.state.rollback(len(PROMPT))
        alone = target.score(branch(node), keep=1)
        torch.testing.assert_close(row, alone[0], rtol=1e-4, atol=1e-4)
    target.close()


@pytest.mark.parametrize(("attention", "packed"), MODES)
def test_what_follows_a_kept_path_is_what_follows_the_branch(attention: str, packed: bool) -> None:
    target = opened(tiny(1, attention=attention), packed)
    target.score(IDS, keep=1, parents=PARENTS)
    target.state.keep_path(len(PROMPT), (3, 4, 6))
    target.state.poison_unused()
    after = target.score([20, 21], keep=2)
    target.state.rollback(len(PROMPT))
    target.score(branch(6), keep=1)
    torch.testing.assert_close(after, target.score([20, 21], keep=2), rtol=1e-4, atol=1e-4)
    target.close()


def test_an_attention_kernel_that_takes_no_mask_takes_no_trees() -> None:
    model = tiny(1)
    target = opened(model, False)
    assert target.takes_trees
    model.config._attn_implementation = "flash_attention_2"
    assert not target.takes_trees
    target.close()


def test_words_begin_with_a_space_and_behind_a_hyphen() -> None:
    pieces = ["Ġthe", "an", "Ġ", "in", "Ġb", "-", "c", "ed", ",", "<|endoftext|>", "<|0.02|>"]
    processor = tiny_processor(pieces=(*TEXT_PIECES[:-2], "-", ","))
    tokens = processor.tokenizer.convert_tokens_to_ids(pieces)
    begins = Whisper.of(shared(), processor).word_beginnings(tokens)
    assert begins is not None
    assert [piece for piece, begin in zip(pieces, begins, strict=True) if not begin] == [
        *("an", "in", "ed")
    ]
    assert Whisper.of(shared()).word_beginnings(tokens) is None


def spoilt(ids: list[int], seed: int) -> list[int]:
    chance = random.Random(seed)
    made: list[int] = []
    for token in ids:
        made += chance.choice(([token], [token], [token], [chance.randrange(49)], [], [7, token]))
    return made


@pytest.mark.parametrize("timestamps", [False, True])
@pytest.mark.parametrize("sampled", [False, True])
@pytest.mark.parametrize("packed", [False, True])
def test_a_hypothesis_with_errors_changes_nothing(
    timestamps: bool, sampled: bool, packed: bool
) -> None:
    branched = 0
    for model_seed in (1, 2, 5):
        model = shared(model_seed)
        asked: dict[str, Any] = {"language": "en", "return_timestamps": timestamps}
        if sampled:
            asked |= {"do_sample": True, "temperature": 0.7, "seed": 3}
        want: Tensor = mmspec.generate(model, features(), **asked).sequences
        ids = want[0].tolist()
        for seed in range(3):
            made = mmspec.generate(
                model,
                features(),
                draft="hypothesis",
                gamma=5,
                hypothesis=spoilt(ids, seed),
                packed=packed,
                **asked,
            )
            assert made.sequences.tolist() == want.tolist()
            assert not [fault for report in made.reports for fault in report.faults]
            branched += sum(report.proposed for report in made.reports)
    assert branched > 0

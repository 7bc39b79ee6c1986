"""The timestamp rules over a block are transformers' rules, row by row."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import GenerationConfig
from transformers.generation.logits_process import WhisperTimeStampLogitsProcessor

from mmspec.modalities.whisper.timestamp_rules import timestamp_rules

EOS, NO_TIMES, VOCAB = 9, 13, 24
FIRST = NO_TIMES + 1
PROMPT = [10, 11, 12]

UNITS = st.one_of(st.integers(0, 8), st.integers(FIRST, VOCAB - 1), st.integers(0, VOCAB - 1))


def rules(begin: int, limit: int | None, *, prefer_times: bool) -> WhisperTimeStampLogitsProcessor:
    config = GenerationConfig(eos_token_id=EOS, bos_token_id=EOS, no_timestamps_token_id=NO_TIMES)
    config.max_initial_timestamp_index = limit
    return WhisperTimeStampLogitsProcessor(
        config, begin_index=begin, _detect_timestamp_from_logprob=prefer_times
    )


@settings(max_examples=300, deadline=None)
@given(
    emitted=st.lists(UNITS, max_size=7),
    drafted=st.lists(UNITS, max_size=7),
    limit=st.sampled_from([None, 0, 2, 50]),
    prefer_times=st.booleans(),
    seed=st.integers(0, 1 << 20),
    sharpness=st.sampled_from([0.1, 1.0, 6.0]),
)
def test_block_form_equals_transformers_row_by_row(
    emitted: list[int],
    drafted: list[int],
    limit: int | None,
    prefer_times: bool,
    seed: int,
    sharpness: float,
) -> None:
    processor = rules(len(PROMPT), limit, prefer_times=prefer_times)
    generator = torch.Generator().manual_seed(seed)
    rows = sharpness * torch.randn(len(drafted) + 1, VOCAB, generator=generator)
    ids, start = [*PROMPT, *emitted, *drafted], len(PROMPT) + len(emitted)
    expected = torch.cat(
        [
            processor(torch.tensor([ids[: start + row]]), rows[row : row + 1].clone())
            for row in range(len(rows))
        ]
    )
    torch.testing.assert_close(
        timestamp_rules(processor)(rows.clone(), ids, start), expected, rtol=0, atol=0
    )


@pytest.mark.parametrize("emitted", [[], [FIRST], [FIRST, 3, 16], [FIRST, 3, 16, 16], [3, 4, 5]])
def test_the_whole_block_at_once_equals_one_row_at_a_time(emitted: list[int]) -> None:
    form = timestamp_rules(rules(len(PROMPT), 2, prefer_times=True))
    drafted, start = [FIRST + 1, 2, 17, 17, 5], len(PROMPT) + len(emitted)
    rows = torch.randn(len(drafted) + 1, VOCAB, generator=torch.Generator().manual_seed(3))
    ids = [*PROMPT, *emitted, *drafted]
    together = form(rows.clone(), ids, start)
    for row in range(len(rows)):
        alone = form(rows[row : row + 1].clone(), ids[: start + row], start + row)
        torch.testing.assert_close(together[row : row + 1], alone, rtol=0, atol=0)


def test_the_rules_follow_a_begin_index_that_moves() -> None:
    """transformers moves it between the goes at a window; the form must see that."""
    processor = rules(3, 2, prefer_times=False)
    form = timestamp_rules(processor)
    ids, row = [*PROMPT, 4, 5], torch.zeros(1, VOCAB)
    before = form(row.clone(), ids, 5)
    processor.set_begin_index(5)
    after = form(row.clone(), ids, 5)
    assert torch.isfinite(before[0, 4])
    assert torch.isinf(after[0, 4])  # the first unit behind the new begin must be a time

"""Whisper's timestamp rules over a whole block of drafted prefixes.

transformers applies them to one prefix at a time, scanning it from its start. Here the scan is
replaced by what the rules need to know of a prefix (its last two tokens and its latest time), so a
block costs one pass over its rows.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from transformers.generation.logits_process import (
    WhisperNoSpeechDetection,
    WhisperTimeStampLogitsProcessor,
)

from mmspec.engine import register_block_form
from mmspec.engine.processing import OBSERVERS, BlockForm
from mmspec.errors import OptionError

OBSERVERS.add(WhisperNoSpeechDetection)


@register_block_form(WhisperTimeStampLogitsProcessor)
def timestamp_rules(processor: WhisperTimeStampLogitsProcessor) -> BlockForm:
    """Block form of `WhisperTimeStampLogitsProcessor` (Radford et al. 2022; its reference code)."""
    first = processor.timestamp_begin
    eos = processor.eos_token_id
    if not isinstance(eos, int):  # the rules need to know where text ends and marks begin
        raise OptionError(f"timestamps: found eos_token_id {eos!r}, expected one id")
    latest_initial = processor.max_initial_timestamp_index

    def block(rows: Tensor, ids: Sequence[int], start: int) -> Tensor:
        rows[:, processor.no_timestamps_token_id] = -torch.inf
        for offset, row in enumerate(rows):
            seen = start + offset - processor.begin_index
            last, before = _last_two(ids, start + offset, seen)
            last_is_time = last is not None and last >= first
            before_is_time = before is None or before >= first
            if last_is_time:  # times come in pairs
                if before_is_time:
                    row[first:] = -torch.inf
                else:
                    row[:eos] = -torch.inf
            latest = _latest_time(ids, processor.begin_index, start + offset, first)
            if latest is not None:  # and never go back
                repeat = last_is_time and not before_is_time
                row[first : latest + (not repeat)] = -torch.inf
            if seen == 0:
                row[:first] = -torch.inf
                if latest_initial is not None:
                    row[first + latest_initial + 1 :] = -torch.inf
        if processor._detect_timestamp_from_logprob:
            _prefer_times(rows, first)
        return rows

    return block


def _last_two(ids: Sequence[int], end: int, seen: int) -> tuple[int | None, int | None]:
    """The last token before `end` and the one before that, where they were generated."""
    return (ids[end - 1] if seen >= 1 else None), (ids[end - 2] if seen >= 2 else None)


def _prefer_times(rows: Tensor, first: int) -> None:
    """Where times together are likelier than the likeliest text token, only times remain."""
    logprobs = rows.float().log_softmax(-1)
    times = logprobs[:, first:].logsumexp(-1)
    text = logprobs[:, :first].amax(-1)
    rows[:, :first].masked_fill_((times > text)[:, None], -torch.inf)


def _latest_time(ids: Sequence[int], begin: int, end: int, first: int) -> int | None:
    """The last time among the generated ids before `end`; looks back one segment at most."""
    for position in range(end - 1, begin - 1, -1):
        if ids[position] >= first:
            return ids[position]
    return None

"""Tiny Higgs-Audio v2 models with random weights, and what transformers makes them say."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import transformers as hf
from torch import Tensor

BOOKS, CODES = 4, 16
START, END = 16, 17
WORDS, AUDIO, AUDIO_START, DELAY, TEXT_END, TEXT_PAD = 50, 50, 51, 52, 53, 54

Rows = list[tuple[int, ...]]


@functools.cache
def tiny(seed: int = 0, layers: int = 2, *, spread: float = 0.35) -> Any:
    """A Higgs-Audio of 4 codebooks; its special ids stand as in the published checkpoint."""
    config = hf.HiggsAudioV2Config(
        vocab_size=60,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=layers,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=16,
        max_position_embeddings=256,
        pad_token_id=TEXT_PAD,
        bos_token_id=1,
        eos_token_id=TEXT_END,
        num_codebooks=BOOKS,
        codebook_size=CODES + 2,
        audio_token_id=AUDIO,
        audio_bos_token_id=AUDIO_START,
        audio_delay_token_id=DELAY,
        audio_stream_bos_id=START,
        audio_stream_eos_id=END,
    )
    torch.manual_seed(seed)
    model = hf.HiggsAudioV2ForConditionalGeneration(config).eval()
    for parameter in model.parameters():
        if parameter.ndim > 1:  # as drawn, all codes are about as likely
            parameter.data.normal_(0.0, spread)
    return model


def inputs(seed: int = 0, words: int = 7, voice: int = 0) -> dict[str, Tensor]:
    """A prompt of words, behind a recording of so many frames where voice > 0."""
    drawn = torch.Generator().manual_seed(seed)
    text = torch.randint(2, WORDS, (1, words), generator=drawn)
    start = torch.tensor([[AUDIO_START]])
    if not voice:
        ids = torch.cat([text, start], 1)
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    rows = _delayed(torch.randint(0, CODES, (voice, BOOKS), generator=drawn).tolist())
    marks = [AUDIO] * (len(rows) - (BOOKS - 1)) + [DELAY] * (BOOKS - 1)
    ids = torch.cat([start, torch.tensor([marks]), text, start], 1)
    return {
        "input_ids": ids,
        "attention_mask": torch.ones_like(ids),
        "audio_input_ids": torch.tensor([rows]),
        "audio_input_ids_mask": torch.ones(1, len(rows), dtype=torch.bool),
    }


def _delayed(grid: Sequence[Sequence[int]]) -> Rows:
    """A recording as the processor writes it: start and end frames around it, then delayed."""
    framed = [[START] * BOOKS, *grid, [END] * BOOKS]
    rows = []
    for row in range(len(framed) + BOOKS - 1):
        places = [row - k for k in range(BOOKS)]
        rows.append(
            tuple(
                START if t < 0 else END if t >= len(framed) else framed[t][k]
                for k, t in enumerate(places)
            )
        )
    return rows


def library(model: Any, given: Mapping[str, Any], **options: Any) -> tuple[list[int], Rows]:
    """(text ids, rows) of transformers' own `generate`, without the prompt's."""
    made = model.generate(**given, **options, return_dict_in_generate=True)
    text = made.sequences[0, given["input_ids"].shape[1] :].tolist()
    rows = [tuple(row) for row in made.audio_sequences[0].tolist()]
    return text, rows[len(rows) - len(text) :]


def library_rows(model: Any, given: Mapping[str, Any], **options: Any) -> Rows:
    """The rows of transformers' own `generate`, marks included, without the prompt's."""
    return library(model, given, **options)[1]


def library_codes(model: Any, given: Mapping[str, Any], **options: Any) -> Rows:
    """The codes of transformers' own `generate`, frames × codebooks."""
    return undelayed(library_rows(model, given, **options))


def undelayed(rows: Sequence[Sequence[int]]) -> Rows:
    """Whole frames of codes, taken from where they stand; those that hold a mark are left out."""
    count = max(0, len(rows) - BOOKS)
    grid = [tuple(rows[t + 1 + k][k] for k in range(BOOKS)) for t in range(count)]
    return [frame for frame in grid if max(frame) < CODES]

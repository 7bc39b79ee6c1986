"""Tiny Dia models with random weights, their processor, and what transformers makes them say."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
import transformers as hf
from torch import Tensor

CODES, END, PAD, START = 16, 16, 17, 18
DELAYS = (0, 2, 3, 5)
HOP, RATE = 4, 160

Rows = list[tuple[int, ...]]


@functools.cache
def tiny(seed: int = 0, layers: int = 2, *, codes: int = CODES, spread: float = 0.35) -> Any:
    """A Dia of 4 channels; its special ids stand to each other as in the published checkpoint."""
    heads = {"num_attention_heads": 2, "head_dim": 8, "hidden_size": 32, "intermediate_size": 48}
    encoder = hf.DiaEncoderConfig(
        **heads, num_key_value_heads=2, num_hidden_layers=1, max_position_embeddings=40
    )
    decoder = hf.DiaDecoderConfig(
        **heads,
        num_key_value_heads=1,
        num_hidden_layers=layers,
        cross_num_attention_heads=2,
        cross_num_key_value_heads=2,
        cross_head_dim=8,
        cross_hidden_size=32,
        max_position_embeddings=128,
        vocab_size=codes + 4,
        num_channels=len(DELAYS),
        eos_token_id=codes,
        pad_token_id=codes + 1,
        bos_token_id=codes + 2,
    )
    config = hf.DiaConfig(
        encoder_config=encoder, decoder_config=decoder, delay_pattern=list(DELAYS)
    )
    torch.manual_seed(seed)
    model = hf.DiaForConditionalGeneration(config).eval()
    for parameter in model.parameters():
        if parameter.ndim > 1:  # as drawn, all codes are about as likely
            parameter.data.normal_(0.0, spread)
    return model


@functools.cache
def processor() -> Any:
    """Bytes, delays and a codec, as the library puts them together."""
    torch.manual_seed(7)
    codec = hf.DacModel(
        hf.DacConfig(
            encoder_hidden_size=4,
            decoder_hidden_size=8,
            downsampling_ratios=[2, 2],
            upsampling_ratios=[2, 2],
            n_codebooks=len(DELAYS),
            codebook_size=CODES,
            codebook_dim=2,
            sampling_rate=RATE,
        )
    ).eval()
    features = hf.DiaFeatureExtractor(feature_size=1, sampling_rate=RATE, hop_length=HOP)
    return hf.DiaProcessor(features, hf.DiaTokenizer(), codec)


def inputs(text: str = "[S1] so be it", frames: int = 0) -> dict[str, Tensor]:
    """What the processor makes of a text and, where frames > 0, a recording of so many."""
    sound = np.random.default_rng(3).normal(size=frames * HOP).astype(np.float32)
    made = processor()(
        text=[text],
        audio=[sound] if frames else None,
        padding="longest",
        max_length=None,
        return_tensors="pt",
        delay_pattern=list(DELAYS),
        eos_token_id=END,
        pad_token_id=PAD,
        bos_token_id=START,
        sampling_rate=RATE,
    )
    return dict(made)


def library_rows(model: Any, given: Mapping[str, Any], **options: Any) -> Rows:
    """The rows of transformers' own `generate`, start row, prompt and marks included."""
    made = model.generate(**given, **options)
    return [tuple(row) for row in made[0].tolist()]


def library_codes(model: Any, given: Mapping[str, Any], **options: Any) -> Rows:
    """The codes of transformers' own `generate`, frames × codebooks, the prompt's included."""
    return undelayed(library_rows(model, given, **options))


def undelayed(rows: Sequence[Sequence[int]]) -> Rows:
    """Whole frames of codes, taken one by one from where they stand."""
    grid: Rows = []
    while len(grid) + 1 + max(DELAYS) < len(rows):
        frame = tuple(rows[len(grid) + 1 + late][k] for k, late in enumerate(DELAYS))
        if any(token >= CODES for token in frame):
            break
        grid.append(frame)
    return grid

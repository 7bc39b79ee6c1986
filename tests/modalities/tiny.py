"""Tiny Whisper models with random weights: every rule of the family, milliseconds per output.

The weights are drawn wide (std 0.4): the logits of small random transformers are near ties
otherwise, and a test of equality would test rounding.
"""

from __future__ import annotations

import functools
import string
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import (
    GenerationConfig,
    WhisperConfig,
    WhisperFeatureExtractor,
    WhisperForCausalLM,
    WhisperForConditionalGeneration,
    WhisperProcessor,
    WhisperTokenizer,
)

VOCAB, CONTEXT = 108, 32
EOS, START, EN, DE, TRANSCRIBE, PREVIOUS, TRANSLATE, NO_TIMES, FIRST_TIME = range(49, 58)
POSITIONS = 50
"""Encoder positions: a window of one second, 20 ms each."""
FRAMES, BINS = 2 * POSITIONS, 8

TEXT_PIECES = (
    *string.ascii_lowercase,
    *("Ġ", "th", "he", "in", "er", "Ġa", "Ġt", "Ġth", "Ġthe", "an", "Ġb", "Ġc", "Ġd", "Ġi"),
    *("Ġs", "on", "en", "Ġw", "Ġn", "ed", "Ġh", "Ġo", "Ġl"),
)
MERGES = [(piece[:-1], piece[-1]) for piece in TEXT_PIECES if len(piece) > 1]

COMMON: dict[str, Any] = {
    "bos_token_id": EOS,
    "eos_token_id": EOS,
    "pad_token_id": EOS,
    "decoder_start_token_id": START,
    "suppress_tokens": [1, 2],
    "begin_suppress_tokens": [3, EOS],
    "no_timestamps_token_id": NO_TIMES,
    "prev_sot_token_id": PREVIOUS,
    "max_length": CONTEXT,
    "max_initial_timestamp_index": 5,
    "return_timestamps": False,
    "is_multilingual": True,
    "lang_to_id": {"<|en|>": EN, "<|de|>": DE},
    "task_to_id": {"transcribe": TRANSCRIBE, "translate": TRANSLATE},
}


def config(
    vocab: int = VOCAB,
    layers: int = 3,
    width: int = 16,
    context: int = CONTEXT,
    bins: int = BINS,
    positions: int = POSITIONS,
    **more: Any,
) -> WhisperConfig:
    return WhisperConfig(
        vocab_size=vocab,
        num_mel_bins=bins,
        d_model=width,
        encoder_layers=2,
        decoder_layers=layers,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=2 * width,
        decoder_ffn_dim=2 * width,
        max_source_positions=positions,
        max_target_positions=context,
        bos_token_id=EOS,
        eos_token_id=EOS,
        pad_token_id=EOS,
        decoder_start_token_id=START,
        **more,
    )


def _drawn(model: Any, seed: int) -> Any:
    generator = torch.Generator().manual_seed(seed)
    for weight in model.parameters():
        if weight.dim() > 1:
            torch.nn.init.normal_(weight, std=0.4, generator=generator)
    decoder = model.get_decoder()
    with torch.no_grad():
        decoder.embed_positions.weight *= 3  # else the outputs are one unit over and over
        decoder.embed_tokens.weight[FIRST_TIME:] *= 0.7  # and half of them times
        decoder.embed_tokens.weight[EOS] *= 0.5  # and over after a few
    return model.eval()


def tiny(
    seed: int = 1, *, says: dict[str, Any] | None = None, attention: str = "sdpa", **shape: Any
) -> Any:
    """A model of its own; `says` overrides its generation config (None drops an entry)."""
    with torch.random.fork_rng():
        model = WhisperForConditionalGeneration._from_config(
            config(**shape), attn_implementation=attention
        )
    entries = {**COMMON, "max_length": model.config.max_target_positions, **(says or {})}
    model.generation_config = GenerationConfig(
        **{name: value for name, value in entries.items() if value is not None}
    )
    return _drawn(model, seed)


@functools.cache
def shared(seed: int = 1) -> Any:
    """The plain model of a seed, made once: for tests that don't write to it."""
    return tiny(seed)


def tiny_decoder(seed: int = 0, **shape: Any) -> Any:
    """A drafter without encoder (distil-Whisper style)."""
    with torch.random.fork_rng():
        model = WhisperForCausalLM(config(**shape))
    return _drawn(model, seed)


def english_only(seed: int = 1, **more: Any) -> Any:
    nothing = {"lang_to_id": None, "task_to_id": None, "is_multilingual": False}
    return tiny(seed, says=nothing, **more)


def features(seed: int = 5, rows: int = 1, bins: int = BINS, frames: int = FRAMES) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, bins, frames, generator=generator)


def speech(seed: int = 7, seconds: float = 0.9) -> Any:
    """Noise with a moving pitch: something that a random encoder reacts to."""
    generator = torch.Generator().manual_seed(seed)
    time = torch.arange(int(seconds * 16_000)) / 16_000
    tone = torch.sin(2 * torch.pi * (200 + 600 * time) * time)
    return (0.3 * tone + 0.1 * torch.randn(len(time), generator=generator)).numpy()


def tiny_processor(bins: int = BINS, seconds: int = 1, pieces: tuple[str, ...] = ()) -> Any:
    """A real processor for the tiny vocabulary; other `pieces` make it another tokenizer."""
    names = ["<|endoftext|>", "<|startoftranscript|>", "<|en|>", "<|de|>", "<|transcribe|>"]
    names += ["<|startofprev|>", "<|translate|>", "<|notimestamps|>"]
    names += [f"<|{0.02 * step:.2f}|>" for step in range(POSITIONS + 1)]
    text = [*(pieces or TEXT_PIECES)]
    vocabulary = {piece: token for token, piece in enumerate([*text, *names])}
    merges = [pair for pair in MERGES if "".join(pair) in vocabulary]
    tokenizer = WhisperTokenizer(
        vocab=vocabulary,
        merges=merges,
        pad_token="<|endoftext|>",
        additional_special_tokens=names[:8],
    )
    extractor = WhisperFeatureExtractor(feature_size=bins, chunk_length=seconds)
    return WhisperProcessor(extractor, tokenizer)


def saved(folder: Path, model: Any = None, processor: Any = None) -> Path:
    """A checkpoint directory."""
    (tiny() if model is None else model).save_pretrained(folder)
    (tiny_processor() if processor is None else processor).save_pretrained(folder)
    return folder

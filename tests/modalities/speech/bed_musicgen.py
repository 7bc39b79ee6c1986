"""Tiny MusicGen models with random weights, and what transformers' own loop makes of them.

Special ids stand to each other as in the published checkpoints: start and padding are the id behind
the codes. Every bias and norm is drawn as well: what forgets one of them says something else.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
import transformers as hf
from torch import Tensor
from transformers.models.musicgen.configuration_musicgen import MusicgenDecoderConfig
from transformers.models.musicgen_melody.configuration_musicgen_melody import (
    MusicgenMelodyDecoderConfig,
)

from mmspec.compat import quiet
from mmspec.prefix import Frame

CODES = 32
WORDS = 50
CHROMA, CHROMA_LENGTH = 4, 5
Given = Mapping[str, Tensor]


def codec(codebooks: int, codes: int = CODES) -> Any:
    """EnCodec's configuration at 100 frames a second, 16 samples each."""
    return hf.EncodecConfig(
        target_bandwidths=[codebooks * math.log2(codes) * 100 / 1000],
        sampling_rate=1600,
        upsampling_ratios=[4, 2, 2],
        num_filters=4,
        hidden_size=8,
        codebook_dim=8,
        codebook_size=codes,
        num_lstm_layers=1,
        use_conv_shortcut=False,
    )


def text_encoder(width: int = 16) -> Any:
    return hf.T5Config(vocab_size=WORDS, d_model=width, d_kv=8, d_ff=32, num_layers=1, num_heads=2)


def decoder(kind: Any, codebooks: int, channels: int, width: int, layers: int, codes: int) -> Any:
    return kind(
        vocab_size=codes,
        hidden_size=width,
        num_hidden_layers=layers,
        ffn_dim=2 * width,
        num_attention_heads=2,
        num_codebooks=codebooks,
        audio_channels=channels,
        max_position_embeddings=64,
        pad_token_id=codes,
        bos_token_id=codes,
    )


def drawn(model: Any, seed: int) -> Any:
    """The model with every parameter drawn: a distribution that differs from row to row."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if parameter.ndim == 1:
                parameter += 0.3 * noise
            else:
                parameter.copy_(1.5 * noise / parameter.shape[-1] ** 0.5)
        for name, buffer in model.named_buffers():
            if name.endswith("codebook.embed"):  # zero as made: all codes would sound alike
                buffer.copy_(torch.randn(buffer.shape, generator=generator))
    return model.eval()


def tiny(
    seed: int = 0,
    *,
    codebooks: int = 4,
    channels: int = 1,
    width: int = 16,
    text_width: int = 16,
    layers: int = 2,
    codes: int = CODES,
) -> Any:
    """A whole MusicGen."""
    with quiet():
        config = hf.MusicgenConfig(
            text_encoder=text_encoder(text_width),
            audio_encoder=codec(codebooks // channels, codes),
            decoder=decoder(MusicgenDecoderConfig, codebooks, channels, width, layers, codes),
        )
        return drawn(hf.MusicgenForConditionalGeneration(config), seed)


def tiny_decoder(
    seed: int = 1, *, codebooks: int = 4, channels: int = 1, width: int = 16, layers: int = 1
) -> Any:
    """A language model of codes without an encoder, to draft with."""
    with quiet():
        config = decoder(MusicgenDecoderConfig, codebooks, channels, width, layers, CODES)
        return drawn(hf.MusicgenForCausalLM(config), seed)


def tiny_melody(
    seed: int = 0,
    *,
    codebooks: int = 4,
    channels: int = 1,
    width: int = 16,
    text_width: int = 12,
    layers: int = 2,
) -> Any:
    """A whole MusicGen Melody."""
    with quiet():
        config = hf.MusicgenMelodyConfig(
            text_encoder=text_encoder(text_width),
            audio_encoder=codec(codebooks // channels),
            decoder=decoder(MusicgenMelodyDecoderConfig, codebooks, channels, width, layers, CODES),
            num_chroma=CHROMA,
            chroma_length=CHROMA_LENGTH,
        )
        return drawn(hf.MusicgenMelodyForConditionalGeneration(config), seed)


def tiny_melody_decoder(seed: int = 1, *, width: int = 16, layers: int = 1) -> Any:
    with quiet():
        config = decoder(MusicgenMelodyDecoderConfig, 4, 1, width, layers, CODES)
        return drawn(hf.MusicgenMelodyForCausalLM(config), seed)


def text(*words: int) -> dict[str, Tensor]:
    ids = torch.tensor([words or (3, 4, 5)])
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def prompt_codes(frames: int, codebooks: int = 4, seed: int = 5) -> Tensor:
    """Codes to go on from, `[K, frames]`, as a codec would have found them."""
    return torch.randint(CODES, (codebooks, frames), generator=torch.Generator().manual_seed(seed))


def other(token: int) -> int:
    """Another code in its place; a mark stays."""
    return token if token == CODES else token ^ 1


def wrong(row: int, frame: Frame) -> Frame:
    """No code is right."""
    return tuple(other(token) for token in frame)


def late(row: int, frame: Frame) -> Frame:
    """All are right, but for codebook 0 of every third row."""
    return frame if row % 3 else (other(frame[0]), *frame[1:])

"""Tiny codecs with random weights, through the libraries' own classes.

Codebooks and biases are drawn as well: they are zero at first, and what forgets one of them would
sound the same.
"""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import transformers as hf

from mmspec.compat import quiet

CODES = 16


def drawn(model: Any, seed: int = 0, wide: bool = False) -> Any:
    """Every codebook drawn, every vector shaken, kernels widened where sound dies in them."""
    generator = torch.Generator().manual_seed(seed)
    values = [*model.named_parameters(), *model.named_buffers()]
    with torch.no_grad():
        for name, value in values:
            noise = torch.randn(value.shape, generator=generator)
            if name.endswith(("embed", "embed_sum", "codebook.weight")):
                value.copy_(noise)
            elif wide and value.ndim == 3:
                value.copy_(1.5 * noise / value[0].numel() ** 0.5)
            elif value.is_floating_point() and value.ndim == 1 and not name.endswith("usage"):
                value += 0.1 * noise
    return model.eval()


def encodec(codebooks: int = 4, codes: int = CODES, **settings: Any) -> Any:
    """transformers' EnCodec: 50 frames a second of 16 samples."""
    asked = {
        "target_bandwidths": [codebooks * math.log2(codes) * 50 / 1000],
        "sampling_rate": 800,
        "upsampling_ratios": [4, 2, 2],
        "num_filters": 4,
        "hidden_size": 8,
        "codebook_size": codes,
        "num_lstm_layers": 1,
    }
    with quiet():
        return drawn(hf.EncodecModel(hf.EncodecConfig(**{**asked, **settings})))


def dac(codebooks: int = 4, ratios: tuple[int, ...] = (2, 4)) -> Any:
    """transformers' DAC; with an odd ratio its decoder comes out shorter than its input was."""
    with quiet():
        config = hf.DacConfig(
            encoder_hidden_size=4,
            downsampling_ratios=list(ratios),
            decoder_hidden_size=16,
            n_codebooks=codebooks,
            codebook_size=CODES,
            codebook_dim=4,
            sampling_rate=800,
        )
        return drawn(hf.DacModel(config), wide=True)


def mimi(codebooks: int = 4, window: int = 8) -> Any:
    """transformers' Mimi; `window` is how far its attention looks back, two positions a frame."""
    with quiet():
        config = hf.MimiConfig(
            sampling_rate=800,
            hidden_size=16,
            num_filters=4,
            upsampling_ratios=[4, 2],
            codebook_size=CODES,
            codebook_dim=8,
            num_quantizers=codebooks,
            vector_quantization_hidden_dimension=8,
            upsample_groups=16,
            num_hidden_layers=2,
            intermediate_size=32,
            num_attention_heads=2,
            num_key_value_heads=2,
            sliding_window=window,
            layer_scale_initial_scale=0.5,
        )
        return drawn(hf.MimiModel(config))


def package(codebooks: int = 4, causal: bool = True, **settings: Any) -> Any:
    """EnCodec of the `encodec` package."""
    from encodec.model import EncodecModel
    from encodec.modules import SEANetDecoder, SEANetEncoder
    from encodec.quantization import ResidualVectorQuantizer

    asked: dict[str, Any] = {
        "channels": 1,
        "dimension": 8,
        "n_filters": 4,
        "ratios": [4, 2, 2],
        "norm": "weight_norm",
        "causal": causal,
    }
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # its weight_norm is torch's old one
        parts = SEANetEncoder(**asked), SEANetDecoder(**asked)
    books = ResidualVectorQuantizer(dimension=8, n_q=codebooks, bins=CODES, kmeans_init=False)
    return drawn(EncodecModel(*parts, books, [0.2, 0.8], 800, 1, **settings))


KINDS: dict[str, Callable[[], Any]] = {
    "encodec": encodec,
    "encodec, zeros": functools.partial(encodec, pad_mode="constant"),
    "encodec, replicated": functools.partial(encodec, pad_mode="replicate", use_causal_conv=False),
    "encodec, looks ahead": functools.partial(encodec, use_causal_conv=False),
    "encodec, trimmed": functools.partial(encodec, trim_right_ratio=0.5),
    "encodec, stereo": functools.partial(encodec, audio_channels=2),
    "dac": dac,
    "dac, odd ratios": functools.partial(dac, ratios=(2, 5, 3)),
    "mimi": mimi,
    "package": package,
    "package, looks ahead": functools.partial(package, causal=False),
}


@functools.cache
def tiny(kind: str) -> Any:
    """One of `KINDS`; shared: nobody writes to it."""
    torch.manual_seed(0)
    return KINDS[kind]()


def codes(frames: int, codebooks: int = 4, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, CODES, (frames, codebooks))


def sound(samples: int, channels: int = 1, seed: int = 0) -> np.ndarray:
    """Noise, float32, `[n]` or `[channels, n]`."""
    wave = np.random.default_rng(seed).standard_normal((channels, samples)) / 4
    return (wave[0] if channels == 1 else wave).astype(np.float32)

"""Log-mel features of a recording of any length, as Whisper's own feature extractor makes them.

Legend: F mel frames (10 ms each in released checkpoints).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

PIECE_S = 300
"""Seconds that the extractor is given at once: it needs some 25 times its input's memory."""

RANGE = 2.0
"""The extractor keeps 8 powers of ten below the loudest bin, then divides by 4."""


def log_mel(extractor: Any, samples: np.ndarray, window_s: float) -> Tensor:
    """Features `[1, bins, F]`: padded to one window, or as long as a longer recording is.

    What the extractor returns, for a longer recording with `truncation=False, padding="longest"`.

    Args:
        extractor: transformers' `WhisperFeatureExtractor`.
        samples: mono, at the extractor's rate.
        window_s: seconds that the encoder hears at once.
    """
    rate = extractor.sampling_rate
    if len(samples) <= window_s * rate:
        return extractor(samples, sampling_rate=rate, return_tensors="pt").input_features
    if len(samples) <= PIECE_S * rate:
        return _whole(extractor, samples)
    return _in_pieces(extractor, samples)


def _whole(extractor: Any, samples: np.ndarray) -> Tensor:
    made = extractor(
        samples,
        sampling_rate=extractor.sampling_rate,
        truncation=False,
        padding="longest",
        return_tensors="pt",
    )
    return made.input_features


def _in_pieces(extractor: Any, samples: np.ndarray) -> Tensor:
    """The same piece by piece: frames that an inner edge reaches are left out, then one floor.

    Each piece's floor is relative to its own loudest bin, so it lies below the recording's.
    """
    hop = extractor.hop_length
    margin = -(-extractor.n_fft // (2 * hop))  # a frame reaches half a transform to either side
    step = PIECE_S * extractor.sampling_rate // hop
    total = len(samples) // hop
    features = torch.empty(1, extractor.feature_size, total)
    for start in range(0, total, step):
        end = min(start + step, total)
        before = min(margin, start)
        last = len(samples) if end == total else (end + margin) * hop
        piece = _whole(extractor, samples[(start - before) * hop : last])
        features[..., start:end] = piece[..., before : before + end - start]
    return features.clamp_(min=float(features.max()) - RANGE)


def window_of(features: Tensor, seek: int, frames: int) -> Tensor:
    """The `frames` features from frame `seek` on, padded with zeros as transformers does."""
    window = features[..., seek : seek + frames]
    missing = frames - window.shape[-1]
    return torch.nn.functional.pad(window, (0, missing)) if missing else window

"""Log-mel features as pictures."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from PIL import Image

from mmspec.page.pictures import data_uri

# Viridis (Smith and van der Walt 2015, public domain): lightness grows evenly from end to end.
ANCHORS = [
    "440154",
    "481a6c",
    "472f7d",
    "414487",
    "39568c",
    "31688e",
    "2a788e",
    "23888e",
    "1f988b",
    "22a884",
    "35b779",
    "54c568",
    "7ad151",
    "a5db36",
    "d2e21b",
    "fde725",
]

PIECE_S = 30
"""Features are made of so many seconds at a time: that bounds the memory."""


def colours(count: int) -> list[tuple[int, int, int]]:
    """So many colours, evenly spaced, dark to light."""
    anchors = np.array([[int(name[i : i + 2], 16) for i in (0, 2, 4)] for name in ANCHORS])
    places = np.linspace(0, len(anchors) - 1, count)
    channels = [np.interp(places, np.arange(len(anchors)), anchors[:, c]) for c in range(3)]
    return [(round(r), round(g), round(b)) for r, g, b in zip(*channels, strict=True)]


def log_mel(samples: np.ndarray, extractor: Any) -> tuple[np.ndarray, float]:
    """What the model hears, for looking at.

    Args:
        samples: mono float32 at the extractor's rate.
        extractor: transformers' `WhisperFeatureExtractor`.

    Returns:
        (`uint8 [mel bins, frames]`, 0 to 255 over the range that occurs; frames per second).
    """
    rate, hop = extractor.sampling_rate, extractor.hop_length
    pieces = []
    for start in range(0, len(samples), PIECE_S * rate):
        piece = samples[start : start + PIECE_S * rate]
        frames = math.ceil(len(piece) / hop)
        room = max(frames * hop, 2 * extractor.n_fft)  # its frames reach over both edges
        padded = np.pad(piece, (0, room - len(piece)))
        made = extractor(
            padded, sampling_rate=rate, padding="do_not_pad", truncation=False, return_tensors="np"
        )
        pieces.append(made.input_features[0][:, :frames].astype(np.float16))
    whole = np.concatenate(pieces, axis=1) if pieces else np.zeros((extractor.feature_size, 0))
    return _levels(whole), rate / hop


def _levels(values: np.ndarray) -> np.ndarray:
    if not values.size:
        return values.astype(np.uint8)
    low, high = float(values.min()), float(values.max())
    scaled = (values.astype(np.float32) - low) / max(high - low, 1e-6)
    return np.round(255 * scaled).astype(np.uint8)


def stretch(
    mel: tuple[np.ndarray, float], start_s: float, end_s: float, width: int, shades: int
) -> str | None:
    """A part of a spectrogram as `picture` makes one; None where nothing of it lies there.

    Args:
        mel: levels and frames per second, as `log_mel` returns them.
        start_s: where the part begins, in seconds.
        end_s: where it ends.
        width: see `picture`.
        shades: likewise.
    """
    levels, per_s = mel
    part = levels[:, round(start_s * per_s) : round(end_s * per_s)]
    return picture(part, width, shades) if part.shape[1] else None


def picture(levels: np.ndarray, width: int, shades: int) -> str:
    """A PNG as a data URI, low frequencies at the bottom.

    Args:
        levels: `uint8 [mel bins, frames]`.
        width: pixels at most; more frames are averaged.
        shades: colours in it; fewer make a smaller file.
    """
    grey = Image.fromarray(np.ascontiguousarray(levels[::-1]))
    if grey.width > width:
        grey = grey.resize((width, grey.height), Image.Resampling.BOX)
    indices = (np.asarray(grey).astype(np.uint16) * shades // 256).astype(np.uint8)
    image = Image.frombytes("P", grey.size, indices.tobytes())
    image.putpalette([channel for colour in colours(shades) for channel in colour])
    return data_uri(image, "png", optimize=True)

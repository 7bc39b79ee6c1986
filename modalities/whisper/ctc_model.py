"""A CTC model of the library as a drafter's ears: what it hears in a recording, frame by frame."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import AutoFeatureExtractor, AutoModelForCTC, AutoTokenizer

from mmspec.compat import quiet
from mmspec.errors import ModelError
from mmspec.modalities.whisper.checkpoint import SAMPLING_RATE
from mmspec.proposals import Alphabet

PIECE_S, MARGIN_S = 30, 4
"""A long recording is heard in such pieces, each with so much more on either side."""

PROBES_S = (1, 3)
"""Silences whose frames are counted, to know how long a frame is."""


class CtcModel:
    """A model, its feature extractor and its alphabet.

    Args:
        model: transformers' `...ForCTC`.
        processor: its feature extractor.
        tokenizer: what its symbols mean.

    Raises:
        ModelError: they don't fit one another, or it takes another sampling rate.
    """

    def __init__(self, model: Any, processor: Any, tokenizer: Any) -> None:
        self.model, self.processor = model, processor
        if processor.sampling_rate != SAMPLING_RATE:
            raise ModelError(
                f"it hears {processor.sampling_rate} samples a second, expected {SAMPLING_RATE}"
            )
        symbols, blank = model.config.vocab_size, model.config.pad_token_id
        if blank is None or not 0 <= blank < symbols:
            raise ModelError(f"its config names no blank (pad_token_id is {blank})")
        self.blank: int = blank
        self.alphabet = Alphabet(_texts(tokenizer, symbols, blank))
        short, long = (self._hear(np.zeros(s * SAMPLING_RATE, np.float32)) for s in PROBES_S)
        self.frames_per_second = (len(long) - len(short)) / (PROBES_S[1] - PROBES_S[0])

    @property
    def window_frames(self) -> int:
        """Frames of 30 seconds, which is what a Whisper hears at a time."""
        return round(30 * self.frames_per_second)

    def features(self, samples: np.ndarray) -> Tensor:
        """Log-probabilities `[1, S, T]` of a whole recording's frames."""
        total = max(1, round(len(samples) / SAMPLING_RATE * self.frames_per_second))
        heard = torch.empty(total, self.model.config.vocab_size)
        pieces = max(1, math.ceil(len(samples) / SAMPLING_RATE / PIECE_S))
        for number in range(pieces):
            start_s, end_s = number * PIECE_S, (number + 1) * PIECE_S
            before_s = max(0, start_s - MARGIN_S)
            after_s = end_s + MARGIN_S if number + 1 < pieces else None
            last = None if after_s is None else after_s * SAMPLING_RATE
            rows = self._hear(samples[before_s * SAMPLING_RATE : last])
            start, end = (round(s * self.frames_per_second) for s in (start_s, end_s))
            skipped = start - round(before_s * self.frames_per_second)
            end = min(end, total)
            rows = rows[skipped : skipped + end - start]
            heard[start : start + len(rows)] = rows
            heard[start + len(rows) : end] = rows[-1:]  # an edge that the last frames didn't reach
        return heard.T[None]

    @torch.no_grad()
    def _hear(self, samples: np.ndarray) -> Tensor:
        """Log-probabilities `[T, S]` of samples that are heard at once."""
        inputs = self.processor(samples, sampling_rate=SAMPLING_RATE, return_tensors="pt")
        weight = next(self.model.parameters())
        given = {
            name: value.to(weight.device, weight.dtype if value.is_floating_point() else None)
            for name, value in inputs.items()
        }
        logits: Tensor = self.model(**given).logits[0]
        return logits.float().log_softmax(-1).cpu()


def _texts(tokenizer: Any, symbols: int, blank: int) -> list[str]:
    """What each symbol adds to a text."""
    if len(tokenizer) < symbols - 1:
        raise ModelError(f"its tokenizer knows {len(tokenizer)} symbols, the model says {symbols}")
    special = {blank, *tokenizer.all_special_ids}
    delimiter = getattr(tokenizer, "word_delimiter_token", None)
    texts = []
    for symbol, token in enumerate(tokenizer.convert_ids_to_tokens(list(range(symbols)))):
        unspoken = symbol in special or token is None or token.startswith("<")
        text = "" if unspoken else token.replace("\N{LOWER ONE EIGHTH BLOCK}", " ")
        texts.append(" " if token == delimiter else text)
    return texts


def load_ctc_model(name: str, device: str) -> CtcModel:
    """A CTC model by its name or directory, with its own processor.

    Raises:
        ModelError: there is none, or it can't be used.
    """
    try:
        with quiet():
            model = AutoModelForCTC.from_pretrained(name, dtype=torch.float32)
            processor = AutoFeatureExtractor.from_pretrained(name)
            tokenizer = AutoTokenizer.from_pretrained(name)
        return CtcModel(model.to(device).eval(), processor, tokenizer)
    except ModelError as error:
        raise ModelError(f"draft ctc:{name}: {error}") from None
    except (OSError, ValueError, KeyError, RuntimeError, AttributeError, TypeError) as error:
        why = " ".join(str(error).split())
        raise ModelError(f"draft ctc:{name}: no CTC model can be loaded: {why}") from None

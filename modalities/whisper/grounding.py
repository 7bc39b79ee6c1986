"""Whisper without its ears: what a window's decoder says when there is nothing to hear."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

import numpy as np
from torch import Tensor

from mmspec.modalities.base.decoder import DecoderTarget
from mmspec.modalities.whisper.checkpoint import SAMPLING_RATE, Whisper


class Silence:
    """A model's ablated conditioning: the encoder states of a window of silence.

    They are computed when they are first needed, and kept.

    Args:
        whisper: the model, with its processor.
    """

    def __init__(self, whisper: Whisper) -> None:
        self._whisper = whisper
        self._states: Tensor | None = None

    @property
    def states(self) -> Tensor:
        """Encoder states `[1, S, D]`."""
        if self._states is None:
            nothing = np.zeros(int(self._whisper.window_s * SAMPLING_RATE), np.float32)
            self._states = self._whisper.encode(self._whisper.features(nothing))
        return self._states

    def rows(self, prompt: Sequence[int], ids: Sequence[int]) -> Tensor:
        """The distributions `[n, V]` of a window's n tokens, had it been silent."""
        with closing(self._whisper.open(self.states)) as target:
            return teacher_forced(target, prompt, ids)


def teacher_forced(target: DecoderTarget, prompt: Sequence[int], ids: Sequence[int]) -> Tensor:
    """Read a prompt and tokens in one pass; raw logits `[n, V]`, row i that of token i."""
    return target.score([*prompt, *ids], len(ids) + 1)[:-1]

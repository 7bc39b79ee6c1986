"""Audio that comes piece by piece: mono at the model's rate, kept until it is let go of."""

from __future__ import annotations

from typing import Any

import numpy as np
import soxr

from mmspec.errors import InputError
from mmspec.modalities.media.audio import chunk_samples, is_small_for_its_type, refuse_scale

DOUBTFUL_S = 1.0
"""Seconds of sound after which integers that stay small for their type are taken for misscaled."""


class AudioBuffer:
    """A stretch of a stream, from the first sample that is still needed to the last that came.

    Positions are samples at `target_rate`, counted from the stream's start.

    Args:
        target_rate: Hz of what is kept.

    Example:
        >>> audio = AudioBuffer()
        >>> audio.add(np.ones(800), 8_000)
        >>> audio.finish()
        >>> audio.let_go(320)
        >>> audio.start, audio.end, len(audio.between(400, 500))
        (320, 1600, 100)
    """

    def __init__(self, target_rate: int = 16_000) -> None:
        self.start = 0
        self._rate = target_rate
        self._held = np.zeros(0, np.float32)
        self._coming: list[np.ndarray] = []
        self._given_rate: int | None = None
        self._resampler: Any = None
        self._finished = False
        self._is_loud = False
        self._small: Any = None
        self._small_count = 0

    @property
    def end(self) -> int:
        """Behind the last sample that came."""
        return self.start + len(self._held) + sum(map(len, self._coming))

    def add(self, samples: Any, rate: int | None = None) -> None:
        """Take a chunk of any size, also an empty one.

        Args:
            samples: as `load_audio` takes arrays.
            rate: Hz, the same for every chunk; None: as before, at first `target_rate`.

        Raises:
            InputError: samples that can't be used, or another rate; nothing was taken then. Also
                16-bit samples in a wider type, after a second of them.
        """
        if self._finished:
            raise InputError("audio chunk: found audio behind the stream's end, expected none")
        mono = chunk_samples(samples)
        rate = self._checked_rate(rate)
        self._check_scale(samples, mono, rate)
        if self._given_rate is None and rate != self._rate:
            self._resampler = soxr.ResampleStream(
                rate, self._rate, 1, dtype="float32", quality="soxr_hq"
            )
        self._given_rate = rate
        if self._resampler is not None:
            mono = self._resampler.resample_chunk(mono)
        self._coming.append(mono)

    def finish(self) -> None:
        """Nothing more comes: what the resampler still holds is added.

        Raises:
            InputError: all that came were 16-bit samples in a wider type.
        """
        self._finished = True
        if self._small is not None:
            refuse_scale(self._small, "audio chunk")
        if self._resampler is not None:
            self._coming.append(self._resampler.resample_chunk(np.zeros(0, np.float32), last=True))
            self._resampler = None

    def between(self, start: int, end: int) -> np.ndarray:
        """The samples `[end - start]`."""
        if self._coming:
            self._held = np.concatenate([self._held, *self._coming])
            self._coming = []
        return self._held[start - self.start : end - self.start]

    def let_go(self, start: int) -> None:
        """What comes before `start` isn't needed any more."""
        self._held = self.between(start, self.end).copy()
        self.start = start

    def _check_scale(self, samples: Any, mono: np.ndarray, rate: int) -> None:
        """Refuse a stream of 16-bit samples in a wider type, once there was a second of them.

        A few chunks may be that quiet; a stream that is throughout is on another scale.
        """
        if self._is_loud:
            return
        if is_small_for_its_type(samples):
            self._small, self._small_count = samples, self._small_count + len(mono)
            if self._small_count >= rate * DOUBTFUL_S:
                refuse_scale(samples, "audio chunk")
        elif mono.any():
            self._is_loud, self._small = True, None

    def _checked_rate(self, rate: int | None) -> int:
        """Hz of a chunk."""
        if rate is None:
            return self._given_rate or self._rate
        whole = isinstance(rate, int | np.integer) and not isinstance(rate, bool)
        if not whole or rate < 1:
            raise InputError(
                f"audio chunk: found sampling rate {rate!r}, expected a whole number of Hz above 0"
            )
        if self._given_rate not in (None, rate):
            raise InputError(
                f"audio chunk: found a sampling rate of {rate} Hz, expected {self._given_rate} Hz "
                "as in the chunks before it: a stream keeps its rate"
            )
        return int(rate)

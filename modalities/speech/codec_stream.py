"""Sound while codes are still being written: committed frames in, samples out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mmspec.errors import StateError
from mmspec.modalities.speech.codec_stages import Stage


class StreamingDecoder:
    """Decodes frames as they are committed; each goes through the codec once.

    All pieces joined are what `Codec.decode` gives of all frames, but for float rounding. It never
    takes anything back, so nothing that isn't committed may be pushed.

    Made by `Codec.stream`.

    Args:
        split: checks frames, numbered from its second argument, and gives `[codebooks, frames]`
            for each signal.
        stages: the decoder of each signal.
        join: one array of what they give.
        empty: what they give where nothing is certain yet.
    """

    def __init__(
        self,
        split: Callable[[Any, int], list[Tensor]],
        stages: Sequence[Stage],
        join: Callable[[Sequence[Tensor]], np.ndarray],
        empty: Tensor,
    ) -> None:
        self._split, self._stages, self._join, self._empty = split, stages, join, empty
        self._frames, self._ended = 0, False

    @property
    def frames(self) -> int:
        """How many it has taken."""
        return self._frames

    def push(self, frames: Any) -> np.ndarray:
        """Take the next committed frames.

        Args:
            frames: codes, frames × codebooks; one or several, or none.

        Returns:
            The samples that are certain by now and weren't before: float32 `[n]`, or
            `[channels, n]`. A codec that looks ahead is some frames late.

        Raises:
            InputError: a cell that holds no code; nothing of these frames was taken.
            StateError: it has ended.
        """
        self._check_open()
        parts = self._split(frames, self._frames)
        count = parts[0].shape[-1]
        self._frames += count
        return self._decoded(parts if count else [None] * len(parts), last=False)

    def end(self) -> np.ndarray:
        """Nothing follows: the samples that are left.

        Raises:
            StateError: it has ended before.
        """
        self._check_open()
        self._ended = True
        return self._decoded([None] * len(self._stages), last=True)

    def _decoded(self, parts: Sequence[Tensor | None], last: bool) -> np.ndarray:
        with torch.no_grad():
            waves = [
                stage.push(part, last) for stage, part in zip(self._stages, parts, strict=True)
            ]
        return self._join([self._empty if wave is None else wave.flatten(0, 1) for wave in waves])

    def _check_open(self) -> None:
        if self._ended:
            raise StateError("this decoder has ended: open another with Codec.stream()")

"""Reading a decoded window again: when each token was spoken, and what it owes to the audio.

The window's tokens are read once more, in one teacher-forced pass over a state of its own: what
was decoded, and the state that decoded it, are never touched.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from contextlib import closing, nullcontext

import numpy as np
from torch import Tensor

from mmspec.modalities.base.decoder import DecoderTarget
from mmspec.modalities.whisper.alignment import Watch, alignment_heads, boundaries
from mmspec.modalities.whisper.checkpoint import Whisper
from mmspec.modalities.whisper.grounding import Silence, teacher_forced
from mmspec.modalities.whisper.words import Span
from mmspec.report.grounding import log_prob_drops


class SecondPass:
    """A second look at every window of a recording, as soon as it is decoded.

    Args:
        whisper: the model.
        times: find out when each token was spoken.
        silence: the ablated conditioning, where drops are wanted.

    Attributes:
        spans: start and end of each token kept so far, in seconds of the recording, as attention
            has them.
        drops: by how many nats the log-probability of each falls without the audio.
    """

    def __init__(self, whisper: Whisper, *, times: bool, silence: Silence | None) -> None:
        self._whisper, self._silence = whisper, silence
        self._heads = alignment_heads(whisper) if times else ()
        self.spans: list[Span] = []
        self.drops: list[float] = []

    def afresh(self) -> SecondPass:
        """The same look at another recording: nothing was found yet."""
        again = copy.copy(self)
        again.spans, again.drops = [], []
        return again

    def __call__(
        self,
        target: DecoderTarget,
        prompt: Sequence[int],
        states: Tensor,
        ids: Sequence[int],
        seek_s: float,
        frames: int,
    ) -> None:
        """Look at a window.

        Args:
            target: the decoder that is open on it.
            prompt: what it had read first.
            states: its encoder states `[1, S, D]`.
            ids: the tokens that were kept, without the end mark.
            seek_s: where the window starts in the recording.
            frames: mel frames of the window that hold audio.
        """
        if not ids:
            return
        with closing(target.fork()) as again:
            watch = Watch(self._whisper.model.get_decoder().layers, again, self._heads)
            with watch.listening() if self._heads else nullcontext():
                if self._silence is None:
                    again.score([*prompt, *ids], 0)
                else:
                    rows = teacher_forced(again, prompt, ids)
            if self._heads:
                self.spans += self._spans(watch, ids, seek_s, frames)
        if self._silence is not None:
            silent = self._silence.rows(prompt, ids)
            self.drops += log_prob_drops(rows, silent, ids).tolist()

    def _spans(self, watch: Watch, ids: Sequence[int], seek_s: float, frames: int) -> list[Span]:
        whisper = self._whisper
        config = whisper.model.config
        stride = whisper.window_frames // config.max_source_positions
        positions = min(max(frames // stride, 1), config.max_source_positions)
        found = edges(whisper, watch, ids, positions)
        rate = whisper.frames_per_second
        times_s = (round(seek_s * rate) + found * stride) / rate
        return list(zip(times_s[:-1].tolist(), times_s[1:].tolist(), strict=True))


def edges(whisper: Whisper, watch: Watch, ids: Sequence[int], positions: int) -> np.ndarray:
    """Encoder positions `[n + 1]`: token i is spoken between edge i and edge i + 1.

    The row behind a token attends to what comes next, so it starts where the token ends. The row
    behind the prompt finds the start of the first token. Where that is a time it takes no time to
    speak, and the row is left out, as transformers always does; where it is a word it needs it,
    as in the reference implementation: without it a first word would have no room.
    """
    opens_with_time = whisper.steps.is_timestamp(ids[0])
    weights = watch.weights(len(ids) + (not opens_with_time), positions)
    starts = boundaries(weights, getattr(whisper.model.config, "median_filter_width", 7))
    return np.append(0, starts) if opens_with_time else starts

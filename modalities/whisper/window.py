"""One encoder window being decoded: what `transcribe` and transformers' `generate` share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor

from mmspec.clock import Clock
from mmspec.engine import Steps
from mmspec.engine.stats import RequestStats
from mmspec.modalities.base.decoder import DecoderTarget
from mmspec.modalities.base.speculative_decoder import SpeculativeDecoder
from mmspec.modalities.whisper.checkpoint import Whisper
from mmspec.target import Pass


class WhisperSpeculativeDecoder(SpeculativeDecoder[Whisper]):
    """A Whisper with its kind of drafter."""

    @property
    def whisper(self) -> Whisper:
        """The target."""
        return self.checkpoint

    @contextmanager
    def target(self, states: Tensor, stats: RequestStats) -> Iterator[DecoderTarget]:
        """The target's decoder on one window's encoder states, closed and counted afterwards."""
        with stats.clock("prefill"):
            target = self.whisper.open(states)
        try:
            yield target
        finally:
            stats.target_forwards += target.forwards
            target.close()


def read_prompt(
    target: DecoderTarget, prompt: Sequence[int], stats: RequestStats, keep: int = 1
) -> Steps[Tensor]:
    """Let the target read what it hasn't read of its prompt; the last `keep` rows `[keep, V]`."""
    unread = prompt[target.state.length :]
    rows = yield Pass(target, unread, keep, None, stats.clock, "prefill")
    target.state.freeze()
    return rows


@dataclass(slots=True, eq=False)
class Encoding:
    """An encoder run that a request needs next.

    Attributes:
        whisper: whose encoder.
        features: one window `[1, bins, frames]`.
        clock: of the request.
        layer: after how many of its layers a drafter listens too, None: nowhere.
        middle_states: `[1, S, D]`, what it hears there.
    """

    whisper: Whisper
    features: Tensor
    clock: Clock
    layer: int | None = None
    middle_states: Tensor | None = field(init=False, default=None)

    @property
    def phase(self) -> str:
        """What its seconds are counted as."""
        return "encode"

    @property
    def kind(self) -> int:
        """Windows of one model may be encoded together."""
        return id(self.whisper.model)

    def run(self) -> Tensor:
        """Encoder states `[1, S, D]`."""
        with self.clock(self.phase):
            states, self.middle_states = self.whisper.encode_layers(self.features, self.layer)
            return states

    @property
    def apart(self) -> bool:
        """On a CPU, which is busy with one window already; several fit a GPU."""
        return self.whisper.device.type == "cpu"

    def run_batched(self, works: Sequence[Encoding]) -> list[Tensor]:
        """States of several windows from one run."""
        features = torch.cat([work.features for work in works])
        states, middle = self.whisper.encode_layers(features, self.layer)
        if middle is not None:
            for work, own in zip(works, middle.split(1), strict=True):
                work.middle_states = own
        return list(states.split(1))

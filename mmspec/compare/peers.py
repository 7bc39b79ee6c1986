"""Who can decode an input: mmspec with any drafter, and transformers with its own or none.

All are asked the same and answer with ids, text and times. What differs from one task to another is
in the `peers` of each task room.
"""

from __future__ import annotations

import contextlib
import copy
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from transformers.generation.streamers import BaseStreamer

from mmspec.errors import MMSpecError, OptionError
from mmspec.report.report import Report

PEERS = ("plain", "hf", "hf-assisted")
"""What mmspec is compared with: itself without speculation, transformers, and its speculation."""

LOOKUP_TOKENS = 3
"""transformers' prompt lookup, at the setting that was its best on short clips."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One run of one peer on one input.

    Attributes:
        ids: of tokens; of a model that speaks frames of codes.
        decode_s: from the first token to the end: drafting, verification and bookkeeping.
        end_to_end_s: from the input as it was given to the output.
        report: mmspec's own; None for other peers.
    """

    ids: tuple[Any, ...]
    text: str
    decode_s: float
    end_to_end_s: float
    report: Report | None = None


class Peer(Protocol):
    """Something that can decode an input.

    Attributes:
        name: in tables.
        why_not: why it can't run the case, where it can't.
        remark: what is to be known beside its figures.
    """

    name: str
    why_not: str | None
    remark: str | None

    def run(self, subject: Any, request: Any, hypothesis: Any = None, /) -> Outcome:
        """Decode mono samples at 16 kHz, images, or a text to be said."""
        ...


class Library(Peer, Protocol):
    """transformers' own `generate`, which can also say how far apart two outputs are."""

    def difference(self, subject: Any, request: Any, ours: Outcome, peer: Outcome, /) -> Any:
        """The first `Difference`, None where the ids are equal."""
        ...


class PeerRoom(Protocol):
    """What a task room's `peers` module answers about what `mmspec.load` gave."""

    def plain_of(self, ours: Any, *, packed: bool = True) -> Any:
        """Ordinary decoding with the same target."""
        ...

    def own(self, ours: Any, name: str) -> Peer:
        """mmspec itself as a peer."""
        ...

    def library(self, ours: Any) -> Library:
        """transformers on the same target."""
        ...

    def assisted(self, ours: Any) -> Peer:
        """transformers' own speculation with the drafter of `ours`, or why there is none."""
        ...


@dataclass(slots=True)
class Unavailable:
    """A peer that can't run the case."""

    name: str
    why_not: str | None
    remark: str | None = None

    def run(self, subject: Any, request: Any, hypothesis: Any = None) -> Outcome:
        """Never."""
        raise OptionError(str(self.why_not))


class DecodeWatch(BaseStreamer):
    """A streamer that takes the time from a window's first token to its end.

    `generate` puts the prompt, then tokens as they are decided, then ends, once per window.
    """

    def __init__(self) -> None:
        self.decode_s = 0.0
        self.prompts: list[tuple[int, ...]] = []
        self._expects_prompt = True
        self._first: float | None = None

    def put(self, value: torch.Tensor) -> None:
        """A prompt, or tokens."""
        if self._expects_prompt:
            self.prompts.append(tuple(value.flatten().tolist()))
            self._expects_prompt = False
        elif self._first is None:
            self._first = time.perf_counter()

    def end(self) -> None:
        """The window is over."""
        if self._first is not None:
            self.decode_s += time.perf_counter() - self._first
        self._expects_prompt, self._first = True, None


def one_reason(error: Exception) -> str:
    """An exception on one line."""
    reason = next((line for line in str(error).splitlines() if line.strip()), "")
    name = "" if isinstance(error, MMSpecError) else f"{type(error).__name__}: "
    return f"{name}{reason.strip()}"[:300]


@contextlib.contextmanager
def untouched(models: Sequence[Any]) -> Iterator[None]:
    """Give the models' generation configs back as they were: assisted generation writes to them."""
    configs = [model.generation_config for model in models if model is not None]
    before = [copy.deepcopy(vars(config)) for config in configs]
    try:
        yield
    finally:
        for config, facts in zip(configs, before, strict=True):
            vars(config).clear()
            vars(config).update(facts)

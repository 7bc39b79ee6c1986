"""One request being decoded: the prompt is read once, then rounds follow.

Every row of a batch is a request of its own, with its own prompt, state and pace.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import nn

from mmspec.clock import Clock
from mmspec.engine import Sampling, Scores, Session, Steps, Stops
from mmspec.engine.stats import RequestStats
from mmspec.modalities.base.checkpoint import Checkpoint
from mmspec.modalities.base.encoder_runs import watched
from mmspec.modalities.base.preparation import Prepared
from mmspec.modalities.base.prepared_target import PreparedTarget
from mmspec.modalities.base.speculative_decoder import SpeculativeDecoder, decode

Inputs = Callable[[Checkpoint], Mapping[str, Any]]
"""Inputs of a drafting model for the same images and text, made when asked for."""


@dataclass
class Request:
    """What a drafter may know of what is being decoded.

    Attributes:
        target: the opened decoder, its prompt read.
        prepared: what it was opened on.
        inputs: a drafting model's own inputs; None where only the target's are known.
        hypothesis: what the caller expects, in target tokens.
        clock: for what opening a drafter costs.
        step_s: seconds of an ordinary step, None where none was measured yet.
        drafter_encoder_runs: of a drafter's own encoder, so far.
    """

    target: PreparedTarget
    prepared: Prepared
    inputs: Inputs | None
    hypothesis: Sequence[int] | None
    clock: Clock
    step_s: Callable[[], float | None] = lambda: None
    drafter_encoder_runs: int = 0

    @property
    def prompt(self) -> Sequence[int]:
        """The prompt's ids; an image is a run of placeholders."""
        return self.prepared.prompt

    @property
    def room(self) -> int:
        """Tokens that may follow the prompt."""
        return (self.prepared.config.max_length or self.target.capacity) - len(self.prompt)

    @contextmanager
    def counting(self, encoders: Sequence[nn.Module]) -> Iterator[None]:
        """Count and time the runs of a drafter's encoders while this is open."""
        with watched(encoders, self.clock) as runs:
            try:
                yield
            finally:
                self.drafter_encoder_runs += runs.count


@contextmanager
def session(
    pair: SpeculativeDecoder[Checkpoint],
    prepared: Prepared,
    stats: RequestStats,
    *,
    sampling: Sampling,
    inputs: Inputs | None = None,
    hypothesis: Sequence[int] | None = None,
    streamer: Any = None,
    scores: Scores | None = None,
) -> Iterator[Session]:
    """A session on a prepared request of one row, its prompt read; closed and counted afterwards.

    Args:
        pair: the target and its kind of drafter.
        prepared: what `generate` prepared.
        stats: adds up what is done.
        sampling: how tokens are drawn.
        inputs: makes a drafting model's own inputs.
        hypothesis: expected tokens.
        streamer: gets committed ids.
        scores: collects rows where not None.
    """
    checkpoint, clock = pair.checkpoint, stats.clock
    family = checkpoint.family
    with clock("prefill"):
        target = family.open(prepared, packed=checkpoint.packed)
    try:
        with clock("prefill"), watched(family.encoders(checkpoint.model), clock) as runs:
            first_row = target.read_prompt()
        stats.encoder_runs += runs.count
        step_s = partial(pair.costs.seconds, 1)
        request = Request(target, prepared, inputs, hypothesis, clock, step_s)
        with pair.session(
            request,
            first_row,
            stats,
            processors=prepared.processors,
            stops=Stops.from_transformers(prepared.criteria, (), family.limit(prepared)),
            sampling=sampling,
            streamer=streamer,
            scores=scores,
        ) as opened:
            yield opened
        if prepared.cache is not None:
            target.state.copy_to(prepared.cache)
    finally:
        stats.target_forwards += target.forwards
        target.close()


def decoded(
    pair: SpeculativeDecoder[Checkpoint], prepared: Prepared, stats: RequestStats, **how: Any
) -> Steps[list[int]]:
    """Decode a prepared request to its end: the arguments of `session`; the emitted tokens."""
    with session(pair, prepared, stats, **how) as opened:
        return (yield from decode(opened))

"""One request being said in frames: the prompt is read once, then rounds follow."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import nn

from mmspec.clock import Clock
from mmspec.codebooks import count_codes
from mmspec.engine import Sampling, Steps
from mmspec.modalities.pair import decode
from mmspec.modalities.speech.family import Asked, FrameFamily, Opened, Said, stops_of, units_of
from mmspec.modalities.speech.preparation import prepare
from mmspec.modalities.vlm.preparation import Prepared, check_mode
from mmspec.modalities.vlm.towers import watched
from mmspec.prefix import Frame


@dataclass
class Request:
    """What a drafter may know of what is being said.

    Attributes:
        target: the opened decoder, its prompt read.
        prepared: what it was opened on.
        asked: the request.
        clock: for what opening a drafter costs.
        step_s: seconds of an ordinary step, None where none was measured yet.
        drafter_encoder_runs: of a drafter's own encoder, so far.
    """

    target: Opened
    prepared: Prepared
    asked: Asked
    clock: Clock
    step_s: Callable[[], float | None] = lambda: None
    drafter_encoder_runs: int = 0

    @property
    def prompt(self) -> Sequence[Frame]:
        """The frames that were read."""
        return self.target.prompt

    @contextmanager
    def counting(self, encoders: Sequence[nn.Module]) -> Iterator[None]:
        """Count and time the runs of a drafter's encoders while this is open."""
        with watched(encoders, self.clock) as runs:
            try:
                yield
            finally:
                self.drafter_encoder_runs += runs.count


def said_in_frames(family: FrameFamily, asked: Asked) -> Steps[Said]:
    """Prepare, read the prompt, decode in rounds, and count codes.

    Raises:
        OptionError: beams and the like.
    """
    checkpoint, account = asked.pair.checkpoint, asked.account
    clock, encoders = account.clock, family.encoders(checkpoint.model)
    with clock("prefill"), watched(encoders, clock) as runs:
        prepared = prepare(checkpoint.model, asked.inputs, **asked.options)
        check_mode(prepared.config)
        target = family.open(prepared, checkpoint.packed)
    try:
        with clock("prefill"):
            first_row = target.read_prompt()
        account.encoder_runs += runs.count
        request = Request(target, prepared, asked, clock, partial(asked.pair.costs.seconds, 1))
        with asked.pair.session(
            request,
            first_row,
            account,
            processors=prepared.processors,
            stops=stops_of(target, prepared),
            sampling=sampling_of(prepared, asked),
            units=units_of(target),
            streamer=asked.streamer,
        ) as session:
            before = len(account.tally.trace)
            yield from decode(session)
            frames = list(session.prefix.ids)
        rounds = account.tally.trace[before:]
        account.codes.append(count_codes(rounds, target.prompt, target.layout))
        grid, ended = family.grid(checkpoint.steps, frames)
        return Said(grid, ended, frames, len(target.prompt), target.layout)
    finally:
        account.target_forwards += target.forwards
        target.close()


def sampling_of(prepared: Prepared, asked: Asked) -> Sampling:
    """How codes are drawn: as the prepared config says, with the request's seed."""
    config: Any = prepared.config
    return Sampling(bool(config.do_sample), asked.seed if config.do_sample else None, asked.rule)

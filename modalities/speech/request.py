"""One request being said in frames: the prompt is read once, then rounds follow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from transformers.generation.streamers import BaseStreamer

from mmspec.acceptance.frames import FREE
from mmspec.clock import Clock
from mmspec.engine import Sampling, Steps
from mmspec.factorizations import DelayedFrames
from mmspec.modalities.base.encoder_runs import watched
from mmspec.modalities.base.preparation import Prepared, check_mode, refusing
from mmspec.modalities.base.speculative_decoder import decode
from mmspec.modalities.speech.contract import (
    CodesRequest,
    CodesResult,
    PreparedTarget,
    step_kind_of,
    stops_of,
)
from mmspec.prefix import Frame
from mmspec.report.by_codebook import count_codes
from mmspec.streaming import CollectedFrames

if TYPE_CHECKING:
    from mmspec.modalities.speech.family import FrameFamily


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

    target: PreparedTarget
    prepared: Prepared
    asked: CodesRequest
    clock: Clock
    step_s: Callable[[], float | None] = lambda: None
    drafter_encoder_runs: int = 0

    @property
    def prompt(self) -> Sequence[Frame]:
        """The frames that were read."""
        return self.target.prompt


def said_in_frames(family: FrameFamily, asked: CodesRequest) -> Steps[CodesResult]:
    """Prepare, read the prompt, decode in rounds, and count codes.

    Raises:
        OptionError: beams and the like.
    """
    checkpoint, stats = asked.pair.checkpoint, asked.stats
    clock, encoders = stats.clock, family.encoders(checkpoint.model)
    with clock("prefill"), watched(encoders, clock) as runs:
        prepared = prepared_request(family, asked)
        target = family.open(prepared, packed=checkpoint.packed)
    sampling = sampling_of(prepared, asked)
    try:
        with clock("prefill"):
            first_row = target.read_prompt()
        stats.encoder_runs += runs.count
        request = Request(target, prepared, asked, clock, partial(asked.pair.costs.seconds, 1))
        forcing, streamer = family.forcing(prepared, target), asked.streamer
        if forcing is not target.layout and streamer is not None:
            streamer = _WithMarks(streamer, target)
        with asked.pair.session(
            request,
            first_row,
            stats,
            processors=prepared.processors,
            stops=stops_of(target, prepared),
            sampling=sampling,
            step_kind=step_kind_of(target, forcing),
            streamer=streamer,
        ) as session:
            before = len(stats.tally.trace)
            _begin(asked.streamer, prepared, target)
            yield from decode(session)
            frames, reason = _marked(target, session.prefix.ids), session.finish_reason
        rounds = stats.tally.trace[before:]
        stats.codes.append(count_codes(rounds, target.prompt, target.layout))
        if asked.streamer is not None:
            asked.streamer.end()
        grid, marked = family.grid(checkpoint.steps, frames)
        ended = marked and reason == "stop"  # a length may have forced the mark
        given = len(target.prompt)
        # The row of start marks is no step.
        first = given - 1 if isinstance(checkpoint.steps, DelayedFrames) else given
        return CodesResult(grid, ended, frames, given, sampling, target.layout, first)
    finally:
        stats.target_forwards += target.forwards
        stats.depth_forwards += target.chain.passes if target.chain else 0
        target.close()


def _marked(target: PreparedTarget, frames: Sequence[Frame]) -> list[Frame]:
    """Frames of a whole output, its prompt included, with every mark in its place."""
    given, said = frames[: len(target.prompt)], frames[len(target.prompt) :]
    pairs = zip(said, target.layout.forced(given, said), strict=False)
    return [*given, *(_with_marks(frame, marks) for frame, marks in pairs)]


def _with_marks(frame: Frame, marks: Frame) -> Frame:
    return tuple(c if m == FREE else m for c, m in zip(frame, marks, strict=True))


class _WithMarks(BaseStreamer):
    """Hands frames on to a streamer, with every mark in its place."""

    def __init__(self, streamer: Any, target: PreparedTarget) -> None:
        self._streamer, self._layout = streamer, target.layout
        self._frames: list[Frame] = list(target.prompt)

    def put(self, value: Tensor) -> None:
        """Frames `[n, K]`."""
        for frame in map(tuple, value.tolist()):
            marks = self._layout.forced(self._frames, ())[0]
            self._frames.append(_with_marks(frame, marks))
            self._streamer.put(torch.tensor([self._frames[-1]]))

    def end(self) -> None:
        """Nothing more comes."""
        self._streamer.end()


def _begin(streamer: Any, prepared: Prepared, target: PreparedTarget) -> None:
    """Streamers get what was given first: ours the frames, transformers' own the ids."""
    if isinstance(streamer, CollectedFrames):
        streamer.begin(target.prompt)
    elif streamer is not None:
        streamer.put(prepared.input_ids.cpu())


def prepared_request(family: FrameFamily, asked: CodesRequest) -> Prepared:
    """What `generate` makes of a request.

    Raises:
        OptionError: an option that it refuses, or one that can't be decoded speculatively.
    """
    with refusing():
        prepared = family.prepare(asked.pair.checkpoint.model, asked.inputs, **asked.options)
    check_mode(prepared.config)
    return prepared


def sampling_of(prepared: Prepared, asked: CodesRequest) -> Sampling:
    """How codes are drawn: as the prepared config says, with the request's seed."""
    config: Any = prepared.config
    sample = bool(config.do_sample)
    return Sampling(sample, asked.seed if sample else None, asked.rule, asked.approximate)

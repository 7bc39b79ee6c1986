"""Decoding a long recording in chunks: fixed windows that overlap, each one by itself.

Every chunk's ids are what transformers' `generate` returns for it. What the chunk before said of
the overlap is a nearly free draft for its head. `whisper_merge` makes one transcript of them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from torch import Tensor

from mmspec.acceptance import derive_seed
from mmspec.clock import Clock
from mmspec.engine import Steps, run_alone, run_batched
from mmspec.errors import OptionError
from mmspec.factorizations import Segment, WhisperSteps
from mmspec.factorizations.whisper import TIMESTAMP_STEP_S
from mmspec.modalities.base.drafts import HypothesisDraft
from mmspec.modalities.base.speculative_decoder import Draft
from mmspec.modalities.whisper.checkpoint import SAMPLING_RATE, Whisper
from mmspec.modalities.whisper.decode import Recognition
from mmspec.modalities.whisper.draft import Window
from mmspec.modalities.whisper.hypothesis_cursor import HypothesisCursor
from mmspec.modalities.whisper.merge import Merged, Piece, merge
from mmspec.modalities.whisper.request import TranscriptionRequest
from mmspec.modalities.whisper.result import Chunk, Transcription, with_texts
from mmspec.modalities.whisper.second_pass import SecondPass
from mmspec.modalities.whisper.window import WhisperSpeculativeDecoder
from mmspec.modalities.whisper.words import Span, within_segments
from mmspec.proposals import Drafter, OverlapDrafter
from mmspec.report.totals import total
from mmspec.report.trace import Origin, Round

OVERLAP_SHARE = 1 / 6
"""Of a chunk, where nothing else is said."""

Hear = Callable[[np.ndarray], Callable[[Whisper], Tensor]]
"""From samples to what makes a checkpoint's features of them."""


class OverlapDraft(Draft):
    """What the chunk before said of the overlap; the first chunk is decoded ordinarily."""

    name = "overlap"

    def __init__(self, target: Whisper) -> None:
        self._target = target

    def open(self, window: Window) -> Drafter | None:
        """A drafter on what is expected of the chunk's head."""
        tokens = window.hypothesis
        return OverlapDrafter(tokens, self._target.word_beginnings(tokens)) if tokens else None


@dataclass(frozen=True, slots=True)
class Chunking:
    """How a recording is cut.

    Attributes:
        chunk_s: seconds in a chunk; the last one may be shorter.
        overlap_s: seconds that it shares with the next one; None is a sixth of a chunk.

    Example:
        >>> Chunking(10.0, 2.0).spans(25.0)
        [(0.0, 10.0), (8.0, 18.0), (16.0, 25.0)]
    """

    chunk_s: float
    overlap_s: float | None = None

    @property
    def shared_s(self) -> float:
        """Seconds that neighbours share."""
        return self.chunk_s * OVERLAP_SHARE if self.overlap_s is None else self.overlap_s

    def check(self, window_s: float) -> None:
        """Raise where a recording can't be cut like this.

        Args:
            window_s: what the model hears at a time.

        Raises:
            OptionError: says what was given and what is possible.
        """
        if not 0 < self.chunk_s <= window_s:
            raise OptionError(
                f"chunk_s: found {self.chunk_s:g}, expected more than 0 and at most {window_s:g} "
                "(seconds that this model hears at a time)"
            )
        # Chunks begin on the grid of the time marks; each has to begin behind the one before.
        if not (math.isfinite(self.shared_s) and self.shared_s >= 0 and self._stride_steps > 0):
            raise OptionError(
                f"overlap_s: found {self.shared_s:g}, expected 0 or more and less than a chunk "
                f"({self.chunk_s:g})"
            )

    @property
    def _stride_steps(self) -> int:
        return round((self.chunk_s - self.shared_s) / TIMESTAMP_STEP_S)

    def spans(self, duration_s: float) -> list[tuple[float, float]]:
        """(start, end) of each chunk in seconds; the last one ends with the recording."""
        spans, number = [], 0
        while True:
            start_s = round(number * self._stride_steps * TIMESTAMP_STEP_S, 6)
            spans.append((start_s, min(start_s + self.chunk_s, duration_s)))
            if start_s + self.chunk_s >= duration_s:
                return spans
            number += 1


class ChunkedRecognition:
    """A recording being decoded chunk by chunk.

    Args:
        pair: the target and its kind of drafter.
        hear: makes features of samples.
        request: what is wanted, of every chunk.
        samples: the recording, at 16 kHz.
        chunking: how it is cut.
        look: the second look, where there is one.

    Attributes:
        chunks: what was heard in each, once all is decoded.
        spans: start and end of each token of the transcript, where the look finds them out.
        drops: as in `SecondPass`, where the look finds them out.

    Raises:
        OptionError: it can't be cut like this.
    """

    def __init__(
        self,
        pair: WhisperSpeculativeDecoder,
        hear: Hear,
        request: TranscriptionRequest,
        samples: np.ndarray,
        chunking: Chunking,
        look: SecondPass | None = None,
    ) -> None:
        chunking.check(pair.whisper.window_s)
        self._pair, self._hear, self._samples, self._look = pair, hear, samples, look
        self.request = request
        self._steps = pair.whisper.steps
        self._spans = chunking.spans(len(samples) / SAMPLING_RATE)
        self._clock = Clock(pair.whisper.device)
        self._expected = HypothesisCursor.of(request.hypothesis, pair.whisper)
        self._done: list[_Done] = []
        self.chunks: tuple[Chunk, ...] = ()
        self.spans: list[Span] = []
        self.drops: list[float] = []

    def run(self) -> Transcription:
        """Decode to the end."""
        run_alone(self.steps())
        return self.heard()

    def run_batched(self, batch: int) -> Transcription:
        """Decode so many chunks side by side.

        Raises:
            OptionError: a chunk is drafted from the one before it, so they can't be.
        """
        if isinstance(self._pair.draft, OverlapDraft | HypothesisDraft):
            raise OptionError(
                f"batch {batch}: draft {self._pair.draft.name!r} takes a chunk's draft from where "
                "the one before it ended: decode one at a time, or with another draft"
            )
        pair = self._pair.for_batch(batch)
        requests = (self._chunk(pair, number) for number in range(len(self._spans)))
        done: dict[int, _Done] = {}
        for number, outcome in run_batched(requests, batch):
            if isinstance(outcome, Exception):
                raise outcome
            done[number] = outcome
        self._done = [done[number] for number in range(len(self._spans))]
        return self.heard()

    def steps(self) -> Steps[None]:
        """The decoding, as a request that leaves passes and encoder runs to whoever runs it."""
        for number in range(len(self._spans)):
            done = yield from self._chunk(self._pair, number)
            self._done.append(done)

    def _chunk(self, pair: WhisperSpeculativeDecoder, number: int) -> Steps[_Done]:
        start_s, end_s = self._spans[number]
        begin, end = (round(edge * SAMPLING_RATE) for edge in (start_s, end_s))
        look = None if self._look is None else self._look.afresh()
        recognition = Recognition(
            pair,
            self._hear(self._samples[begin:end]),
            self._request_of(number, start_s),
            end_s - start_s,
            look,
        )
        yield from recognition.steps()
        with self._clock("post"):
            return self._finished(recognition.heard(), look, start_s, end_s)

    def _request_of(self, number: int, start_s: float) -> TranscriptionRequest:
        """What is wanted of one chunk: noise, processors and criteria of its own, and what is
        expected to be heard."""
        request = self.request.apart  # what one chunk taught them is no other chunk's business
        if number and request.seed is not None:
            request = replace(request, seed=derive_seed(request.seed, number))
        before = self._done[-1].piece if self._done else None
        if isinstance(self._pair.draft, OverlapDraft):
            expected = [] if before is None else expected_head(before, start_s, self._steps)
            return replace(request, hypothesis=expected)
        if before is not None and request.hypothesis is not None:
            times = before.times(self._steps.is_timestamp)
            pairs = zip(before.ids, times, strict=True)
            self._expected.consume([token for token, second in pairs if second < start_s])
            return replace(request, hypothesis=self._expected.ahead(timestamps=False) or [])
        return request

    def _finished(
        self, heard: Transcription, look: SecondPass | None, start_s: float, end_s: float
    ) -> _Done:
        segments = tuple(
            Segment(part.start_s + start_s, part.end_s + start_s, part.ids)
            for part in heard.segments
        )
        found, drops = ([], []) if look is None else (look.spans, look.drops)
        inside = within_segments(heard.segments, found, self._steps.is_timestamp) if found else []
        spans = [(a + start_s, b + start_s) for part in inside for a, b in part]
        middles = tuple((a + b) / 2 for a, b in spans) or None
        return _Done(Piece(start_s, end_s, segments, middles), heard, spans, drops)

    def heard(self) -> Transcription:
        """The whole recording's outcome, once the decoding is over."""
        with self._clock("post"):
            merged = merge([done.piece for done in self._done], self._steps.is_timestamp)
            ids, text, segments = with_texts(self._pair.whisper, merged.segments)
            origins, trace = self._collect(merged)
        report = total([done.heard.report for done in self._done])
        post_s = report.seconds["post"] + self._clock.seconds["post"]
        languages = Counter(done.heard.language for done in self._done)
        return Transcription(
            text=text,
            ids=ids,
            segments=segments,
            language=languages.most_common(1)[0][0],
            report=replace(report, seconds={**report.seconds, "post": post_s}),
            origins=tuple(origins),
            trace=tuple(trace),
            chunks=self.chunks,
        )

    def _collect(self, merged: Merged) -> tuple[list[Origin], list[Round]]:
        """What belongs to the kept ids; their origins point into the rounds of all chunks."""
        origins: list[Origin] = []
        trace: list[Round] = []
        chunks = []
        for done, (begin, end) in zip(self._done, merged.kept, strict=True):
            origins += [
                replace(origin, round_number=origin.round_number + len(trace))
                for origin in done.heard.origins[begin:end]
            ]
            trace += done.heard.trace
            self.spans += done.spans[begin:end]
            self.drops += done.drops[begin:end]
            piece = done.piece
            chunks.append(Chunk(piece.start_s, piece.end_s, piece.ids, (begin, end)))
        self.chunks = tuple(chunks)
        return origins, trace


@dataclass(frozen=True, slots=True)
class _Done:
    """A decoded chunk, in seconds of the recording."""

    piece: Piece
    heard: Transcription
    spans: list[Span]
    drops: list[float]


def expected_head(before: Piece, start_s: float, steps: WhisperSteps) -> list[int]:
    """What a chunk is expected to say first: what the one before said from there on.

    Its time marks are written anew, as seconds from the chunk's own start.

    Args:
        before: the chunk before.
        start_s: where the chunk starts in the recording.
        steps: the descriptor.
    """
    ids, times = before.ids, before.times(steps.is_timestamp)
    said = (
        i for i, token in enumerate(ids) if not steps.is_timestamp(token) and times[i] >= start_s
    )
    first = next(said, len(ids))
    if 0 < first < len(ids) and steps.is_timestamp(ids[first - 1]):
        first -= 1
    return [
        _mark(times[i] - start_s, steps) if steps.is_timestamp(ids[i]) else ids[i]
        for i in range(first, len(ids))
    ]


def _mark(second: float, steps: WhisperSteps) -> int:
    mark = steps.timestamp_begin + round(max(0.0, second) / TIMESTAMP_STEP_S)
    return min(mark, steps.vocab_size - 1)

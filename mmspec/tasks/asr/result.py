"""What a transcription is, and how it is made of what was heard."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from mmspec.modalities.whisper.checkpoint import Whisper
from mmspec.modalities.whisper.chunks import Chunk
from mmspec.modalities.whisper.request import Heard
from mmspec.modalities.whisper.words import Span, Word, words_of
from mmspec.report.grounding import Grounding, share_by_class
from mmspec.report.report import Report
from mmspec.report.trace import Origin, Round


@dataclass(frozen=True, slots=True)
class SpokenSegment:
    """A stretch of speech: when, what, and the tokens that say it.

    `words` are there where word timestamps were asked for.
    """

    start_s: float
    end_s: float
    text: str
    ids: tuple[int, ...]
    words: tuple[Word, ...] | None = None


@dataclass(frozen=True, slots=True)
class Transcription:
    """What was heard.

    Attributes:
        text: the transcript.
        ids: token ids as transformers' `generate` returns them (no prompt, no end mark).
        segments: with times where timestamps were asked for, else one over the whole audio.
        language: code of the given or detected language; None for English-only models.
        report: how it was obtained.
        origins: the same for each id: drafted and accepted, or the target's own.
        trace: every round of the run; an origin names its round.
        unit_times: when each id begins to be spoken, in seconds; None where word timestamps
            weren't asked for.
        grounding: what each id owes to the audio; None where that wasn't asked for.
        chunks: each chunk and its own ids, where the recording was decoded in chunks.
    """

    text: str
    ids: tuple[int, ...]
    segments: tuple[SpokenSegment, ...]
    language: str | None
    report: Report
    origins: tuple[Origin, ...]
    trace: tuple[Round, ...]
    unit_times: tuple[float, ...] | None = None
    grounding: Grounding | None = None
    chunks: tuple[Chunk, ...] = ()

    @property
    def words(self) -> tuple[Word, ...] | None:
        """All segments' words; None where word timestamps weren't asked for."""
        if self.unit_times is None:
            return None
        return tuple(word for segment in self.segments for word in segment.words or ())


def transcription_of(heard: Heard, chunks: tuple[Chunk, ...] = ()) -> Transcription:
    """What was heard, for users."""
    segments = tuple(
        SpokenSegment(part.start_s, part.end_s, text, part.ids)
        for part, text in zip(heard.segments, heard.segment_texts, strict=True)
    )
    return Transcription(
        text=heard.text,
        ids=heard.ids,
        segments=segments,
        language=heard.language,
        report=heard.report,
        origins=heard.origins,
        trace=heard.trace,
        chunks=chunks,
    )


def with_times(
    said: Transcription, whisper: Whisper, spans: Sequence[Sequence[Span]]
) -> Transcription:
    """The same with words, from the spans of each segment's units."""
    segments = [
        replace(part, words=words_of(whisper, part.ids, times, said.language))
        for part, times in zip(said.segments, spans, strict=True)
    ]
    starts = tuple(start_s for times in spans for start_s, _ in times)
    return replace(said, segments=tuple(segments), unit_times=starts)


def with_grounding(said: Transcription, grounding: Grounding) -> Transcription:
    """The same with classes, and acceptance by class in the report."""
    shares = share_by_class(grounding, said.origins)
    return replace(said, grounding=grounding, report=replace(said.report, by_class=shares))

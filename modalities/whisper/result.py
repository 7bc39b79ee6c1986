"""What was heard: of a recording, of a part of one, and what else is known about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from mmspec.factorizations import Segment
from mmspec.modalities.whisper.checkpoint import Whisper
from mmspec.modalities.whisper.words import Span, Word, words_of
from mmspec.report.grounding import Grounding, share_by_class
from mmspec.report.report import Report
from mmspec.report.trace import Origin, Round


@dataclass(frozen=True, slots=True)
class SpokenSegment(Segment):
    """A stretch of speech: when, the tokens that say it, what they say.

    `words` are there where word timestamps were asked for.
    """

    text: str = ""
    words: tuple[Word, ...] | None = None


@dataclass(frozen=True, slots=True)
class Chunk:
    """A chunk and what became of it.

    Attributes:
        start_s: where it starts in the recording.
        end_s: where it ends.
        ids: as transformers' `generate` returns them for it.
        kept: (first, behind the last) index of those that are in the transcript.
    """

    start_s: float
    end_s: float
    ids: tuple[int, ...]
    kept: tuple[int, int]


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
        token_times: when each id begins to be spoken, in seconds; None where word timestamps
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
    token_times: tuple[float, ...] | None = None
    grounding: Grounding | None = None
    chunks: tuple[Chunk, ...] = ()

    @property
    def words(self) -> tuple[Word, ...] | None:
        """All segments' words; None where word timestamps weren't asked for."""
        if self.token_times is None:
            return None
        return tuple(word for segment in self.segments for word in segment.words or ())

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON; what wasn't asked for is left out."""
        data: dict[str, Any] = {
            "text": self.text,
            "ids": list(self.ids),
            "language": self.language,
            "segments": [_segment(part) for part in self.segments],
        }
        if self.token_times is not None:
            data["token_times"] = list(self.token_times)
        if self.grounding is not None:
            data["grounding"] = self.grounding.to_dict()
        if self.chunks:
            data["chunks"] = [_chunk(part) for part in self.chunks]
        return {**data, "report": self.report.to_dict()}


def with_texts(
    whisper: Whisper, segments: Sequence[Segment]
) -> tuple[tuple[int, ...], str, tuple[SpokenSegment, ...]]:
    """All ids of segments, all that they say, and the segments with what each says."""
    ids = tuple(token for segment in segments for token in segment.ids)
    text, *texts = (whisper.text(part).strip() for part in (ids, *(one.ids for one in segments)))
    pairs = zip(segments, texts, strict=True)
    spoken = [SpokenSegment(part.start_s, part.end_s, part.ids, said) for part, said in pairs]
    return ids, text, tuple(spoken)


def with_times(
    said: Transcription, whisper: Whisper, spans: Sequence[Sequence[Span]]
) -> Transcription:
    """The same with words, from the spans of each segment's tokens."""
    segments = [
        replace(part, words=words_of(whisper, part.ids, times, said.language))
        for part, times in zip(said.segments, spans, strict=True)
    ]
    starts = tuple(start_s for times in spans for start_s, _ in times)
    return replace(said, segments=tuple(segments), token_times=starts)


def with_grounding(said: Transcription, grounding: Grounding) -> Transcription:
    """The same with classes, and acceptance by class in the report."""
    shares = share_by_class(grounding, said.origins)
    return replace(said, grounding=grounding, report=replace(said.report, by_class=shares))


def _segment(part: SpokenSegment) -> dict[str, Any]:
    words = {} if part.words is None else {"words": [_spoken(word) for word in part.words]}
    return _spoken(part) | words


def _spoken(part: SpokenSegment | Word) -> dict[str, Any]:
    return {"start": part.start_s, "end": part.end_s, "text": part.text, "ids": list(part.ids)}


def _chunk(part: Chunk) -> dict[str, Any]:
    ids, kept = list(part.ids), list(part.kept)
    return {"start": part.start_s, "end": part.end_s, "ids": ids, "kept": kept}

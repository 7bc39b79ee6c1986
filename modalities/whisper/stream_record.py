"""What a stream says: updates as they come, segments, and what it all took."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mmspec.modalities.whisper.local_agreement import HeardWord
from mmspec.report.report import Report
from mmspec.report.totals import total


@dataclass(frozen=True, slots=True)
class Decode:
    """One decode of the buffer, and what it takes to repeat it.

    Attributes:
        start_s: where the buffer started, in seconds of the stream.
        end_s: where it ended.
        previous: the text that the decoder was shown as a prompt; None: none.
        hypothesis: the ids that were drafted from.
        ids: what was decoded, as transformers' `generate` returns it for these samples and this
            prompt.
        language: code of the given or detected language; None for English-only models.
        no_speech: the model's probability that nobody speaks in the buffer; None: it has none.
        report: how the ids were obtained.
    """

    start_s: float
    end_s: float
    previous: str | None
    hypothesis: tuple[int, ...]
    ids: tuple[int, ...]
    language: str | None
    no_speech: float | None
    report: Report

    @property
    def duration_s(self) -> float:
        """Seconds in the buffer."""
        return self.end_s - self.start_s


@dataclass(frozen=True, slots=True)
class Spoken:
    """A stretch of committed text.

    Attributes:
        text: what was said.
        start_s: when, in seconds of the stream; None: it goes on from what came before.
        end_s: until when; None: it isn't over.
        ids: the token ids that spell it.
    """

    text: str
    start_s: float | None
    end_s: float | None
    ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Update:
    """What an advance of the stream has brought.

    Attributes:
        new: text that was committed by it; updates' new texts one after the other are `committed`.
        committed: all text so far that is certain; every later update's begins with it.
        tentative: what was heard behind it and may still change.
        spoken: the new text with its times, as far as they are known.
        heard_s: how much of the stream was heard so far.
        decodes: how it was heard: one decode; none where a full window was cut without one, or
            nothing was left at the end; several where the end took several.
        final: whether the stream is over.
    """

    new: str
    committed: str
    tentative: str
    spoken: tuple[Spoken, ...]
    heard_s: float
    decodes: tuple[Decode, ...] = ()
    final: bool = False

    @property
    def decode(self) -> Decode | None:
        """The latest decode, which the tentative text comes from."""
        return self.decodes[-1] if self.decodes else None

    def then(self, later: Update) -> Update:
        """This update and the next one as one."""
        return replace(
            later,
            new=self.new + later.new,
            spoken=self.spoken + later.spoken,
            decodes=self.decodes + later.decodes,
        )


@dataclass(frozen=True, slots=True)
class StreamTotals:
    """What a stream took, all in all.

    The encoder hears a whole window at every decode, however little is new: speculation makes
    decoding shorter and leaves that as it is.

    Attributes:
        decodes: of the buffer.
        audio_s: seconds of the stream that were heard.
        encoded_s: seconds of audio in all buffers that were encoded, padding left out.
        encoded_again_s: seconds of the stream that were in more than one of them.
        report: of all decodes together; None: there was none.
    """

    decodes: int = 0
    audio_s: float = 0.0
    encoded_s: float = 0.0
    encoded_again_s: float = 0.0
    report: Report | None = None

    @property
    def encoded_again_share(self) -> float:
        """Share of the stream that was encoded more than once."""
        return self.encoded_again_s / self.audio_s if self.audio_s else 0.0

    @property
    def encoded_times(self) -> float:
        """How often a second of the stream was encoded on average."""
        return self.encoded_s / self.audio_s if self.audio_s else 0.0

    @property
    def encode_seconds(self) -> float:
        """Seconds that the encoder took."""
        return self.report.seconds["encode"] if self.report else 0.0

    @property
    def decode_seconds(self) -> float:
        """Seconds that drafting, verification and bookkeeping took."""
        return self.report.decode_seconds if self.report else 0.0

    @property
    def mean_acceptance_length(self) -> float:
        """Tokens per round over all decodes, bonus included."""
        return self.report.mean_acceptance_length if self.report else 0.0

    def with_decode(self, decode: Decode, before_s: float, again_from_s: float) -> StreamTotals:
        """With one more decode.

        Args:
            decode: the new one.
            before_s: how far the stream was heard before it.
            again_from_s: up to where it is counted already as encoded again.
        """
        again_s = min(before_s, decode.end_s) - max(decode.start_s, again_from_s)
        known = [] if self.report is None else [self.report]
        return replace(
            self,
            decodes=self.decodes + 1,
            audio_s=max(self.audio_s, decode.end_s),
            encoded_s=self.encoded_s + decode.duration_s,
            encoded_again_s=self.encoded_again_s + max(0.0, again_s),
            report=total([*known, decode.report]),
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON, derived figures included."""
        return {
            "decodes": self.decodes,
            "audio_s": self.audio_s,
            "encoded_s": self.encoded_s,
            "encoded_again_s": self.encoded_again_s,
            "encoded_again_share": self.encoded_again_share,
            "encoded_times": self.encoded_times,
            "encode_seconds": self.encode_seconds,
            "decode_seconds": self.decode_seconds,
            "mean_acceptance_length": self.mean_acceptance_length,
        }


def stretches(words: Sequence[HeardWord]) -> Iterator[Spoken]:
    """Committed words as stretches of text, cut where segments start and end."""
    part: list[HeardWord] = []
    for number, word in enumerate(words, 1):
        part.append(word)
        ends = number == len(words) or words[number].start_s is not None
        if ends or word.end_s is not None:
            text, ids = "".join(w.text for w in part), tuple(u for w in part for u in w.ids)
            yield Spoken(text, part[0].start_s, word.end_s, ids)
            part = []


def joined(pieces: Sequence[Spoken], end_s: float) -> tuple[Spoken, ...]:
    """Stretches of text as segments that have a start and an end.

    A segment that was committed in several stretches becomes one. Where it never said when it
    ended, it ends where the next one starts, the last one at `end_s`.

    Example:
        >>> pieces = [Spoken(" a", 0.0, None, (1,)), Spoken(" b", None, 2.0, (2,)),
        ...           Spoken(" c", 2.5, None, (3,))]
        >>> [(part.text, part.start_s, part.end_s) for part in joined(pieces, 4.0)]
        [('a b', 0.0, 2.0), ('c', 2.5, 4.0)]
    """
    parts: list[Spoken] = []
    for piece in pieces:
        open_ = bool(parts) and parts[-1].end_s is None
        if piece.start_s is None and open_:
            text, ids = parts[-1].text + piece.text, parts[-1].ids + piece.ids
            parts[-1] = replace(parts[-1], text=text, ids=ids, end_s=piece.end_s)
            continue
        start_s = piece.start_s
        if start_s is None:
            start_s = parts[-1].end_s if parts else 0.0
        if open_:
            parts[-1] = replace(parts[-1], end_s=start_s)
        parts.append(replace(piece, start_s=start_s))
    if parts and parts[-1].end_s is None:
        parts[-1] = replace(parts[-1], end_s=end_s)
    return tuple(_in_order(parts))


def _in_order(parts: Sequence[Spoken]) -> list[Spoken]:
    """Times that never run backwards: each was right for the hypothesis that it came from."""
    ordered, floor_s = [], 0.0
    for part in parts:
        start_s = max(floor_s, part.start_s or 0.0)
        floor_s = max(start_s, part.end_s or 0.0)
        ordered.append(replace(part, text=part.text.strip(), start_s=start_s, end_s=floor_s))
    return ordered

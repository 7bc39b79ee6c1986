"""Words of a transcript with their times, from its tokens with theirs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from transformers.models.whisper.tokenization_whisper import LANGUAGES

from mmspec.compat import words_of_tokens
from mmspec.factorizations import Segment
from mmspec.modalities.whisper.checkpoint import Whisper

Span = tuple[float, float]
"""Start and end in seconds from the start of the recording."""


@dataclass(frozen=True, slots=True)
class Word:
    """A word as it was spoken.

    Attributes:
        text: as in the transcript, its leading space and its punctuation included.
        start_s: seconds from the start of the recording.
        end_s: the same; not before `start_s`, and not behind the next word's start.
        ids: the token ids that spell it.
    """

    text: str
    start_s: float
    end_s: float
    ids: tuple[int, ...]


def within_segments(
    segments: Sequence[Segment],
    spans: Sequence[Span],
    is_time: Callable[[int], bool] = lambda token: False,
) -> list[list[Span]]:
    """The spans of each segment's tokens, inside their segment and never running backwards.

    Attention and time tokens are two opinions on the same times. Where they disagree the segment
    is right: a subtitle's words have to lie in the subtitle.

    Args:
        segments: in order.
        spans: of all their tokens, as attention has them.
        is_time: whether a token is a time. One that opens a segment stands where it says: the rows
            around it look at what comes next already, and would leave it and the first word none.

    Raises:
        ValueError: there isn't one span per token.
    """
    counts = [len(segment.ids) for segment in segments]
    if sum(counts) != len(spans):
        raise ValueError(f"found {len(spans)} spans for {sum(counts)} tokens")
    remaining, floor_s, inside = iter(spans), 0.0, []
    for segment, count in zip(segments, counts, strict=True):
        placed = []
        for number, (start_s, end_s) in enumerate(next(remaining) for _ in range(count)):
            if number == 0 and is_time(segment.ids[0]):
                start_s = segment.start_s
            start_s = max(floor_s, min(max(start_s, segment.start_s), segment.end_s))
            floor_s = max(start_s, min(end_s, segment.end_s))
            placed.append((start_s, floor_s))
        inside.append(placed)
    return inside


def words_of(
    whisper: Whisper, ids: Sequence[int], spans: Sequence[Span], language: str | None
) -> tuple[Word, ...]:
    """The words of a segment's tokens; times and marks among them belong to no word.

    A time takes no time to say: what is given to the one that opens a segment is the first word's.

    Args:
        whisper: whose tokenizer spells them.
        ids: tokens of one segment.
        spans: of each of them.
        language: its code; None is English. Some languages write without spaces: there a word is
            a character.
    """
    return tuple(_words(whisper, ids, spans, language))


def _words(
    whisper: Whisper, ids: Sequence[int], spans: Sequence[Span], language: str | None
) -> Iterator[Word]:
    tokenizer = whisper.processor.tokenizer
    text = [index for index, token in enumerate(ids) if token < tokenizer.eos_token_id]
    name = LANGUAGES.get(language or "en", "english")
    for spelled, members in words_of_tokens(tokenizer, [ids[index] for index in text], name):
        places = [text[member] for member in members]
        behind_time = places[0] == 1 and whisper.steps.is_timestamp(ids[0])
        yield Word(
            spelled,
            spans[0 if behind_time else places[0]][0],
            spans[places[-1]][1],
            tuple(ids[place] for place in places),
        )

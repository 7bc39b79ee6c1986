"""A recording on a page: its transcript, its spectrogram, and what was said when."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mmspec.modalities.whisper.words import Word
from mmspec.page.data import Decoded, Token, decoding_of
from mmspec.page.pieces import TokenTexts
from mmspec.page.spectrogram import stretch
from mmspec.page.wording import HEARD, Wording
from mmspec.tasks.asr.result import Transcription

STRIP_S = 30.0
"""Seconds in one row of the spectrogram."""

FINE_S = 120.0
"""Longer recordings get a coarser picture: an hour has to stay a file that opens."""


@dataclass(frozen=True, slots=True)
class Spoken:
    """Something with a time: a segment, a word or a token; `tokens` are indices of the output."""

    text: str
    start_s: float
    end_s: float
    tokens: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Strip:
    """A stretch of the spectrogram."""

    start_s: float
    end_s: float
    image: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording(Decoded):
    """A recording that was transcribed.

    Attributes:
        spoken: what stands under the spectrogram.
        spoken_kind: "words", "tokens" or "segments": the finest that has times.
    """

    duration_s: float
    spoken: tuple[Spoken, ...]
    spoken_kind: str
    strips: tuple[Strip, ...]

    @property
    def words(self) -> Wording:
        """What the page calls things."""
        return HEARD

    @property
    def heading(self) -> str:
        """What its text is called."""
        return "Transcript"

    @property
    def facts(self) -> str:
        """Its length and language."""
        language = f", {self.language}" if self.language else ""
        return f"{self.duration_s:.1f} s{language}"

    @property
    def amount(self) -> float:
        """Seconds."""
        return self.duration_s


def recording_of(
    name: str,
    said: Transcription,
    texts: TokenTexts,
    *,
    duration_s: float,
    mel: tuple[np.ndarray, float] | None = None,
    compared: Mapping[str, Any] | None = None,
) -> Recording:
    """A transcription as a page shows it.

    Args:
        name: of the recording.
        said: with word times and grounding where these were asked for.
        texts: turns ids into text.
        duration_s: length of the audio.
        mel: levels and frames per second, as `log_mel` returns them.
        compared: peers' comparisons.
    """
    decoding = decoding_of(said, said.ids, texts, times=said.unit_times, compared=compared)
    kind, spoken = _spoken(said, decoding["tokens"], duration_s)
    return Recording(
        name=name,
        duration_s=duration_s,
        language=said.language,
        spoken=spoken,
        spoken_kind=kind,
        strips=_strips(duration_s, mel),
        **decoding,
    )


def _spoken(
    said: Transcription, tokens: Sequence[Token], duration_s: float
) -> tuple[str, tuple[Spoken, ...]]:
    """The finest things that have times."""
    if said.words:
        return "words", tuple(_of_words(said.words, tokens))
    if any(token.start_s is not None for token in tokens):
        return "tokens", tuple(_of_tokens(tokens, duration_s))
    segments = [
        Spoken(part.text.strip(), part.start_s, min(part.end_s, duration_s))
        for part in said.segments
        if part.text.strip()
    ]
    return "segments", tuple(segments)


def _of_words(words: Sequence[Word], tokens: Sequence[Token]) -> Iterator[Spoken]:
    """Words with their tokens; other tokens, times among them, lie between."""
    places = iter(enumerate(tokens))
    for word in words:
        found = [next((i for i, t in places if t.unit == unit), None) for unit in word.ids]
        mine = tuple(index for index in found if index is not None)
        yield Spoken(word.text.strip(), word.start_s, word.end_s, mine)


def _of_tokens(tokens: Sequence[Token], duration_s: float) -> list[Spoken]:
    timed = [(i, token) for i, token in enumerate(tokens) if token.start_s is not None]
    ends = [token.start_s for _, token in timed[1:]] + [duration_s]
    return [
        Spoken(token.piece.text, token.start_s, end or duration_s, (index,))
        for (index, token), end in zip(timed, ends, strict=True)
        if token.start_s is not None and not token.piece.is_time
    ]


def _strips(duration_s: float, mel: tuple[np.ndarray, float] | None) -> tuple[Strip, ...]:
    count = max(1, math.ceil(duration_s / STRIP_S))
    width, shades = (1500, 48) if duration_s <= FINE_S else (800, 16)
    strips = []
    for number in range(count):
        start_s = number * STRIP_S
        end_s = min(duration_s, start_s + STRIP_S)
        image = None if mel is None else stretch(mel, start_s, end_s, width, shades)
        strips.append(Strip(start_s, end_s, image))
    return tuple(strips)

"""A recording on a page: its transcript, its spectrogram, and what was said when."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mmspec.modalities.whisper.words import Word
from mmspec.page.data import Decoded, Failure, Token, decoding_of
from mmspec.page.pieces import TokenTexts
from mmspec.page.recordings import Recording, Spoken, Strip
from mmspec.page.spectrogram import log_mel, stretch
from mmspec.tasks.asr.result import Transcription

STRIP_S = 30.0
"""Seconds in one row of the spectrogram."""

FINE_S = 120.0
"""Longer recordings get a coarser picture: an hour has to stay a file that opens."""


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
    decoding = decoding_of(said, said.ids, texts, times=said.token_times, compared=compared)
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
        found = [next((i for i, t in places if t.token == token), None) for token in word.ids]
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


class RecordingEntries:
    """What a page shows of recordings, as they are done.

    Args:
        transcriber: whose tokenizer and features these are.
    """

    def __init__(self, transcriber: Any) -> None:
        self.made: list[Decoded | Failure] = []
        self._processor, self._texts = transcriber.processor, TokenTexts.of(transcriber)

    def done(self, path: Path, said: Any, samples: Any, compared: Mapping[str, Any] | None) -> None:
        """A recording was transcribed; what is kept of its samples is a picture."""
        extractor = self._processor.feature_extractor
        self.made.append(
            recording_of(
                path.name,
                said,
                self._texts,
                duration_s=len(samples) / extractor.sampling_rate,
                mel=log_mel(samples, extractor),
                compared=compared,
            )
        )

    def failed(self, path: Path, message: str) -> None:
        """A recording couldn't be transcribed."""
        self.made.append(Failure(path.name, message))

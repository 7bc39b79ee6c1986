"""What a page shows, as plain data: recordings with their tokens, rounds and pictures."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mmspec.modalities.whisper_words import Word
from mmspec.page.pieces import Piece, TokenTexts
from mmspec.page.spectrogram import picture
from mmspec.report import Report
from mmspec.trace import Origin, Round
from mmspec.transcription import Transcription

STRIP_S = 30.0
"""Seconds in one row of the spectrogram."""

FINE_S = 120.0
"""Longer recordings get a coarser picture: an hour has to stay a file that opens."""


@dataclass(frozen=True, slots=True)
class Token:
    """One id of the output.

    Attributes:
        piece: how it looks.
        origin: how it was obtained.
        start_s: when it is said; None where nobody knows.
        label: its class, "grounded" or "syntactic"; None where that wasn't asked for.
        drop: nats that its log-probability loses without the conditioning.
    """

    unit: int
    piece: Piece
    origin: Origin
    start_s: float | None = None
    label: str | None = None
    drop: float | None = None


@dataclass(frozen=True, slots=True)
class RoundRow:
    """One round: drafted tokens with their fate, then the target's own.

    Attributes:
        drafted: (text, kept) in the order of the proposal.
        own: the target's own token; None where the output ended before it.
        branches: continuations that were proposed side by side.
        seconds: drafting and verification.
    """

    number: int
    drafter: str
    drafted: tuple[tuple[str, bool], ...]
    own: str | None
    rejected: bool
    branches: int
    block: int
    seconds: float


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


@dataclass(frozen=True, slots=True)
class Recording:
    """A recording that was transcribed.

    Attributes:
        spoken: what stands under the spectrogram.
        spoken_kind: "words", "tokens" or "segments": the finest that has times.
        threshold: nats above which a drop makes a token grounded; None: classes aren't known.
        compared: per peer, None where no comparison ran.
    """

    name: str
    duration_s: float
    language: str | None
    text: str
    tokens: tuple[Token, ...]
    rounds: tuple[RoundRow, ...]
    spoken: tuple[Spoken, ...]
    spoken_kind: str
    strips: tuple[Strip, ...]
    report: Report
    threshold: float | None = None
    compared: Mapping[str, Any] | None = None

    @property
    def drafters(self) -> list[str]:
        """Who contributed tokens, in the order of the report."""
        found = [token.origin.drafter for token in self.tokens]
        names = dict.fromkeys([*self.report.drafters, *found])
        return [name for name in names if name is not None and name in found]


@dataclass(frozen=True, slots=True)
class Failure:
    """A recording that couldn't be transcribed."""

    name: str
    error: str


@dataclass(frozen=True, slots=True)
class PageData:
    """A run."""

    settings: Mapping[str, Any]
    entries: tuple[Recording | Failure, ...]

    @property
    def recordings(self) -> list[Recording]:
        """Those that were transcribed."""
        return [entry for entry in self.entries if isinstance(entry, Recording)]


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
    grounding, unknown = said.grounding, [None] * len(said.ids)
    tokens = tuple(
        Token(*facts)
        for facts in zip(
            said.ids,
            texts.sequence(said.ids),
            said.origins,
            unknown if said.unit_times is None else said.unit_times,
            unknown if grounding is None else grounding.classes,
            unknown if grounding is None else grounding.drops,
            strict=True,
        )
    )
    kind, spoken = _spoken(said, tokens, duration_s)
    return Recording(
        name=name,
        duration_s=duration_s,
        language=said.language,
        text=said.text,
        tokens=tokens,
        rounds=tuple(_row(number, done, texts) for number, done in enumerate(said.trace)),
        spoken=spoken,
        spoken_kind=kind,
        strips=_strips(duration_s, mel),
        report=said.report,
        threshold=None if grounding is None else grounding.threshold,
        compared=compared,
    )


def _row(number: int, done: Round, texts: TokenTexts) -> RoundRow:
    kept = frozenset(done.path)
    has_own = len(done.emitted) > done.accepted
    return RoundRow(
        number=number,
        drafter=done.drafter,
        drafted=tuple((texts.alone(unit), i in kept) for i, unit in enumerate(done.proposal)),
        own=texts.alone(done.emitted[-1]) if has_own else None,
        rejected=done.rejected,
        branches=done.branches,
        block=done.block,
        seconds=done.draft_s + done.verify_s,
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
        image = None
        if mel is not None:
            levels, per_s = mel
            part = levels[:, round(start_s * per_s) : round(end_s * per_s)]
            image = picture(part, width, shades) if part.shape[1] else None
        strips.append(Strip(start_s, end_s, image))
    return tuple(strips)

"""A text on a page that was said aloud: its sound, its codes, and what decided each of them."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import soundfile
import soxr
from transformers import WhisperFeatureExtractor

from mmspec.factorizations.codes import Codebook
from mmspec.modalities.media.audio import chunk_samples
from mmspec.page.code_grid import GridStrip, code_cells, grid_strips
from mmspec.page.data import Decoded, Failure, RoundRow, decoding_of
from mmspec.page.pieces import Piece
from mmspec.page.spectrogram import log_mel
from mmspec.page.wording import SPOKEN, Wording
from mmspec.report.trace import Round
from mmspec.tasks.tts.result import Speech

SOUND_ROOM = 8_000_000
"""Characters of sound on a page, at most."""

CODES_WRITTEN = 12
"""Codes of a drafted frame that are written out."""

TITLE_LENGTH = 90


@dataclass(frozen=True, slots=True, kw_only=True)
class Utterance(Decoded):
    """A text that was said.

    Its tokens are steps: each decides a code, or a frame of them.

    Attributes:
        frames: of the whole output.
        codebooks: codes in a frame.
        seconds: how long it sounds; None where nobody knows.
        strips: the codes; of a long output not all of them.
        sound: a data URI; None where there is none, or no room for it.
        sounds: whether there is any.
        filled: what of it is not autoregressive; "" where everything is.
    """

    frames: int
    codebooks: int
    seconds: float | None
    strips: tuple[GridStrip, ...]
    sound: str | None
    sounds: bool
    filled: str

    @property
    def title(self) -> str:
        """What was said."""
        whole = " ".join(self.text.split())
        short = whole if len(whole) <= TITLE_LENGTH else whole[: TITLE_LENGTH - 1].rstrip() + "…"
        return f"“{short}”"

    @property
    def words(self) -> Wording:
        """What the page calls things."""
        return SPOKEN

    @property
    def heading(self) -> str:
        """What its text is called."""
        return "What was said"

    @property
    def facts(self) -> str:
        """How long it is."""
        seconds = "" if self.seconds is None else f"{self.seconds:.2f} s, "
        return f"{seconds}{self.frames} × {self.codebooks} codes"

    @property
    def amount(self) -> float:
        """Frames."""
        return self.frames

    @property
    def left_out(self) -> int:
        """Frames that the page has no room for."""
        return self.frames - sum(len(strip.frames) for strip in self.strips)

    @property
    def undecided(self) -> set[str]:
        """Why some of the codes shown were decided by no step."""
        every = (cell for strip in self.strips for row in strip.rows for cell in row)
        return {cell.undecided for cell in every if cell.undecided}


class CodeTexts:
    """Turns what the steps of a model that speaks have decided into codes to read.

    Args:
        books: the codebooks of its grid.

    Example:
        >>> texts = CodeTexts([Codebook(9, codes=8, pad=8)] * 2)
        >>> texts.alone((3, 8)), texts.alone(5), texts.alone(8)
        ('3 ·', '5', '⟨8⟩')
    """

    def __init__(self, books: Sequence[Codebook]) -> None:
        self._books = tuple(books)

    @classmethod
    def of(cls, speaker: Any) -> CodeTexts:
        """As an `mmspec.Speaker`'s target writes its codes."""
        return cls(speaker.checkpoint.family.books(speaker.descriptor))

    def sequence(self, ids: Sequence[Any]) -> list[Piece]:
        """A piece per step."""
        return [Piece(self.alone(token)) for token in ids]

    def alone(self, token: Any) -> str:
        """The code of a token, or those of a frame; `·` for a mark among these."""
        if isinstance(token, tuple):
            codes = [self._code(book, one) for book, one in zip(self._books, token, strict=True)]
            shown = ["·" if code is None else str(code) for code in codes[:CODES_WRITTEN]]
            return " ".join(shown) + ("" if len(codes) <= CODES_WRITTEN else " …")
        found = {self._code(book, token) for book in self._books} - {None}
        return str(found.pop()) if len(found) == 1 else f"⟨{token}⟩"

    @staticmethod
    def _code(book: Codebook, token: int) -> int | None:
        return token - book.first if token in book.ids else None


def utterance_of(
    name: str,
    said: Speech,
    texts: CodeTexts,
    *,
    compared: Mapping[str, Any] | None = None,
    room: int = SOUND_ROOM,
) -> Utterance:
    """A speech as a page shows it.

    Args:
        name: of the text.
        said: with grounding where that was asked for.
        texts: turns ids into codes.
        compared: peers' comparisons.
        room: characters that its sound may take.
    """
    tokens = [token for done in said.trace for token in done.emitted]
    decoding = decoding_of(said, tokens, texts, compared=compared)
    decoding["rounds"] = tuple(_numbered(decoding["rounds"], said.trace))
    samples, rate_hz, sound, mel = said.samples, said.sample_rate_hz, "", None
    if samples is not None and samples.size and rate_hz is not None:
        mel, sound = spectrogram_of(samples, rate_hz), sound_of(samples, rate_hz)
    cells = code_cells(said.codes, said.decided_at, said.origins, bool(said.filled))
    return Utterance(
        name=name,
        frames=len(said.codes),
        codebooks=said.codes.shape[1],
        seconds=said.seconds,
        strips=grid_strips(cells, said.frame_rate_hz, mel),
        sound=sound if 0 < len(sound) <= room else None,
        sounds=bool(sound),
        filled=said.filled,
        **decoding,
    )


def spectrogram_of(samples: np.ndarray, sample_rate_hz: int) -> tuple[np.ndarray, float]:
    """The log-mel spectrogram of a sound, as Whisper would hear it: up to 8 kHz.

    Args:
        samples: float `[n]` or `[channels, n]`.
        sample_rate_hz: of the samples.

    Returns:
        As `log_mel`.

    Raises:
        InputError: samples that aren't finite.
    """
    extractor = WhisperFeatureExtractor()
    mono = chunk_samples(samples)
    return log_mel(soxr.resample(mono, sample_rate_hz, extractor.sampling_rate), extractor)


def sound_of(samples: np.ndarray, sample_rate_hz: int) -> str:
    """A sound as a data URI: FLAC of 16 bits per sample.

    Args:
        samples: float `[n]` or `[channels, n]`, full scale is 1.
        sample_rate_hz: of the samples.
    """
    file = io.BytesIO()
    soundfile.write(file, samples.T, sample_rate_hz, format="FLAC", subtype="PCM_16")
    return f"data:audio/flac;base64,{base64.b64encode(file.getvalue()).decode('ascii')}"


def _numbered(rows: Sequence[RoundRow], trace: Sequence[Round]) -> Iterator[RoundRow]:
    """The same rounds, with the number of each step before its codes."""
    step = 0
    for row, done in zip(rows, trace, strict=True):
        drafted = [(f"{step + i}: {text}", kept) for i, (text, kept) in enumerate(row.drafted)]
        own = None if row.own is None else f"{step + done.accepted}: {row.own}"
        step += len(done.emitted)
        yield replace(row, drafted=tuple(drafted), own=own)


class SpeechEntries:
    """What a page shows of texts that are said aloud, as they are done.

    Args:
        speaker: whose codes they are.
    """

    def __init__(self, speaker: Any) -> None:
        self.made: list[Decoded | Failure] = []
        self._texts, self._room = CodeTexts.of(speaker), SOUND_ROOM

    def done(self, name: str, said: Any, compared: Mapping[str, Any] | None = None) -> None:
        """A text was said; its sound is kept as long as the page has room for it."""
        made = utterance_of(name, said, self._texts, compared=compared, room=self._room)
        self._room -= len(made.sound or "")
        self.made.append(made)

    def failed(self, name: str, message: str) -> None:
        """A text couldn't be said."""
        self.made.append(Failure(name, message, SPOKEN))

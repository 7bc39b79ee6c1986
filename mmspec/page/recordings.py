"""A recording on a page: its spectrogram in strips, and what stands under it."""

from __future__ import annotations

from dataclasses import dataclass

from mmspec.page.data import Decoded
from mmspec.page.wording import HEARD, Wording


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

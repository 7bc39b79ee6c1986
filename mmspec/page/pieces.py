"""What a token looks like: every one visible, also spaces and halves of characters."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from mmspec.output.formats import neutral
from mmspec.streaming import UNFINISHED, TextPieces

SPACES = {" ": "␣", "\n": "↵", "\t": "⇥"}
PART = "·"
"""Stands for a token whose bytes are the beginning of a character."""


@dataclass(frozen=True, slots=True)
class Piece:
    """One token as it is shown.

    Attributes:
        text: what to show, never empty.
        spaced: whether a space stands before it.
        is_time: it says when, not what.
        breaks: a line ends with it.
        whole: the text that it completes together with the parts before it; None for a part.
    """

    text: str
    spaced: bool = False
    is_time: bool = False
    breaks: bool = False
    whole: str | None = None


class TokenTexts:
    """Turns ids into what a page shows for them.

    Args:
        tokenizer: decodes ids.
        time_begin: ids from here on are times; the vocabulary's size where there are none.
        seconds: what such an id means.
    """

    def __init__(
        self, tokenizer: Any, time_begin: int, seconds: Callable[[int], float] = float
    ) -> None:
        self._tokenizer, self._time_begin, self._seconds = tokenizer, time_begin, seconds
        self._special = frozenset(tokenizer.all_special_ids)
        self._alone: dict[int, str] = {}

    @classmethod
    def of(cls, transcriber: Any) -> TokenTexts:
        """As an `mmspec.Transcriber`'s target spells and times its tokens."""
        steps = transcriber.descriptor
        return cls(transcriber.processor.tokenizer, steps.timestamp_begin, steps.seconds)

    @classmethod
    def of_viewer(cls, viewer: Any) -> TokenTexts:
        """As an `mmspec.Viewer`'s target spells its tokens."""
        return cls(viewer.processor.tokenizer, viewer.descriptor.vocab_size)

    def sequence(self, ids: Sequence[int]) -> list[Piece]:
        """A piece per id, in order; a character of several tokens is shown at its last one."""
        pieces: list[Piece] = []
        waiting: list[int] = []
        decoder = TextPieces(self._tokenizer, self._time_begin)
        for index, token in enumerate(ids):
            pieces.append(self._mark(token) or Piece(PART))
            if self._is_mark(token):
                continue
            text = "".join(decoder.add(token))
            waiting.append(index)
            if text:
                pieces[index] = _shown(text)
                waiting = []
        for index in waiting:
            pieces[index] = Piece(UNFINISHED, whole=UNFINISHED)
        return pieces

    def alone(self, token: int) -> str:
        """A token by itself; its id where it is no whole character."""
        if token not in self._alone:
            mark = self._mark(token)
            text = "" if mark else self._tokenizer.decode([token])
            if mark is None and (not text or UNFINISHED in text):
                mark = Piece(f"⟨{token}⟩")
            self._alone[token] = (mark or _shown(text)).text
        return self._alone[token]

    def _is_mark(self, token: int) -> bool:
        return token >= self._time_begin or token in self._special

    def _mark(self, token: int) -> Piece | None:
        if token >= self._time_begin:
            return Piece(f"{self._seconds(token):.2f}", is_time=True)
        if token in self._special:
            return Piece(str(self._tokenizer.convert_ids_to_tokens(token)))
        return None


def _shown(text: str) -> Piece:
    """A whole text as a piece.

    Example:
        >>> _shown(" on").text, _shown(" on").spaced, _shown(" ").text, _shown("\\u200d").text
        ('on', True, '␣', 'U+200D')
    """
    if not text.strip():
        shown = "".join(SPACES.get(space, "␣") for space in text)
        return Piece(shown, breaks="\n" in text, whole=text)
    body = neutral(text.strip())
    if not any(_visible(character) for character in body):
        body = " ".join(f"U+{ord(character):04X}" for character in body)
    ends = text[len(text.rstrip()) :]
    return Piece(body, spaced=text[0].isspace(), breaks="\n" in ends, whole=text)


def _visible(character: str) -> bool:
    return unicodedata.category(character)[0] not in "CMZ"

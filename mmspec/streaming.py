"""Text from committed ids, piece by piece, without ever taking a piece back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

UNFINISHED = "\N{REPLACEMENT CHARACTER}"
"""What a tokenizer shows for the bytes of a character that isn't complete yet."""


class TextPieces:
    """Turns ids into pieces of text as they come.

    Args:
        tokenizer: decodes ids.
        text_end: ids from here on (timestamps) are no text.
    """

    def __init__(self, tokenizer: Any, text_end: int) -> None:
        self._tokenizer, self._text_end = tokenizer, text_end
        self._waiting: list[int] = []

    def add(self, unit: int) -> Iterator[str]:
        """The text that this id completes, if any."""
        if unit >= self._text_end:
            return
        self._waiting.append(unit)
        text = self._decode()
        if text and not text.endswith(UNFINISHED):
            self._waiting = []
            yield text

    def end(self) -> Iterator[str]:
        """What is left, an incomplete character included."""
        text = self._decode()
        self._waiting = []
        if text:
            yield text

    def _decode(self) -> str:
        return self._tokenizer.decode(
            self._waiting, skip_special_tokens=True, clean_up_tokenization_spaces=False
        )

"""Text from committed ids, piece by piece, without ever taking a piece back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from torch import Tensor
from transformers.generation.streamers import BaseStreamer

from mmspec.prefix import Frame

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
        self._before: list[int] = []
        self._waiting: list[int] = []

    def add(self, token: int) -> Iterator[str]:
        """The text that this id completes, if any."""
        if token >= self._text_end:
            return
        self._waiting.append(token)
        text = self._behind()
        if text and not text.endswith(UNFINISHED):
            self._before, self._waiting = self._waiting, []
            yield text

    def end(self) -> Iterator[str]:
        """What is left, an incomplete character included."""
        text = self._behind()
        self._before, self._waiting = self._waiting, []
        if text:
            yield text

    def _behind(self) -> str:
        """What the waiting ids add to the piece before: some tokenizers drop a first space."""
        before = self._decode(self._before)
        return self._decode([*self._before, *self._waiting])[len(before) :]

    def _decode(self, ids: list[int]) -> str:
        return self._tokenizer.decode(
            ids, skip_special_tokens=True, clean_up_tokenization_spaces=False
        )


class HandedOn(BaseStreamer):
    """A streamer that hands on what it gets to several.

    Args:
        streamers: in the order in which they get it.
    """

    def __init__(self, streamers: Sequence[BaseStreamer]) -> None:
        self._streamers = streamers

    def put(self, value: Tensor) -> None:
        """To all of them."""
        for streamer in self._streamers:
            streamer.put(value)

    def end(self) -> None:
        """To all of them."""
        for streamer in self._streamers:
            streamer.end()


class CollectedFrames(BaseStreamer):
    """A streamer that keeps committed frames, given ones first, until they are taken."""

    def __init__(self) -> None:
        self._frames: list[Frame] = []

    def begin(self, frames: Sequence[Frame]) -> None:
        """What was given."""
        self._frames += frames

    def put(self, value: Tensor) -> None:
        """Frames `[n, K]`."""
        self._frames += map(tuple, value.tolist())

    def end(self) -> None:
        """Nothing more comes."""

    def take(self) -> list[Frame]:
        """What came since the last time."""
        taken, self._frames = self._frames, []
        return taken


class Collected(BaseStreamer):
    """A streamer that keeps ids until they are taken; the prompt, which comes first, is dropped."""

    def __init__(self) -> None:
        self._ids: list[int] = []
        self._past_prompt = False

    def put(self, value: Tensor) -> None:
        """The prompt, then ids."""
        if self._past_prompt:
            self._ids += value.flatten().tolist()
        self._past_prompt = True

    def end(self) -> None:
        """Nothing more comes."""

    def take(self) -> list[int]:
        """What came since the last time."""
        taken, self._ids = self._ids, []
        return taken

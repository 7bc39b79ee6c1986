"""Committed text on standard output as it comes: what is printed is never taken back."""

from __future__ import annotations

import sys
from typing import Any

from transformers.generation.streamers import BaseStreamer

from mmspec.formats import neutral
from mmspec.streaming import TextPieces


class LiveLine(BaseStreamer):
    """A streamer that prints one line, piece by piece. The line break is the caller's.

    Every window begins with its prompt, which isn't printed, and ends with `end`.
    """

    def __init__(self, transcriber: Any, steps: Any) -> None:
        descriptor = transcriber.descriptor
        self._pieces = TextPieces(transcriber.processor.tokenizer, descriptor.timestamp_begin)
        self._steps, self._begun, self._expects_prompt = steps, False, True

    def put(self, value: Any) -> None:
        """A window's prompt, or committed ids."""
        if self._expects_prompt:
            self._expects_prompt = False
            return
        for unit in value.flatten().tolist():
            for piece in self._pieces.add(unit):
                self._print(piece)

    def end(self) -> None:
        """What is left of an incomplete character; the window is over."""
        self._expects_prompt = True
        for piece in self._pieces.end():
            self._print(piece)

    def _print(self, piece: str) -> None:
        text = neutral(piece)
        if not self._begun:
            text = text.lstrip()
        if text:
            self._begun = True
            with self._steps.aside():
                sys.stdout.write(text)
                sys.stdout.flush()

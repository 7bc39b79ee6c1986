"""How likely it is that nobody speaks in a window, overheard from the pass over its prompt.

Whisper was trained to say `<|nospeech|>` behind the start mark where there is nothing to write
down (Radford et al. 2022, section 2.3). That row comes with the prompt's own pass, so it is free.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from mmspec.clock import Clock
from mmspec.engine import Steps
from mmspec.modalities.whisper.checkpoint import Whisper
from mmspec.target import Pass

NAMES = ("<|nospeech|>", "<|nocaptions|>")
"""What released tokenizers call it."""


def no_speech_token(whisper: Whisper) -> int | None:
    """The id of the mark, None where the tokenizer has none."""
    vocabulary = whisper.processor.tokenizer.get_vocab()
    return next((vocabulary[name] for name in NAMES if name in vocabulary), None)


@dataclass(frozen=True, slots=True, eq=False)
class _WithNoSpeechRow:
    """A pass of which one more row is looked at; the request gets the rows that it asked for."""

    inner: Pass
    place: int
    look: Callable[[Tensor], None]

    @property
    def clock(self) -> Clock:
        return self.inner.clock

    @property
    def phase(self) -> str:
        return self.inner.phase

    @property
    def kind(self) -> Any:
        """Of its own: the rows differ from those of other passes."""
        return id(self)

    @property
    def apart(self) -> bool:
        return self.inner.apart

    def run(self) -> Tensor:
        from_place = len(self.inner.ids) - self.place
        rows = replace(self.inner, keep=max(from_place, self.inner.keep)).run()
        self.look(rows[len(rows) - from_place])
        return rows[len(rows) - self.inner.keep :]

    def run_batched(self, works: Any) -> list[Tensor]:
        return [work.run() for work in works]


def with_no_speech_row(
    steps: Steps[None], start: int, no_speech: int | None, chances: list[float]
) -> Steps[None]:
    """The same request; notes for each window how likely it is that nobody speaks in it.

    Args:
        steps: a recognition's.
        start: the start mark.
        no_speech: the no-speech mark; None: nothing is noted.
        chances: gets a probability for each time that the start mark is read.
    """

    def look(row: Tensor) -> None:
        chances.append(float(row.float().softmax(-1)[no_speech]))

    try:
        work = next(steps)
        while True:
            if isinstance(work, Pass) and work.phase == "prefill" and no_speech is not None:
                ids = list(work.ids)
                if start in ids:
                    work = _WithNoSpeechRow(work, ids.index(start), look)
            try:
                result = yield work
            except BaseException as error:  # the request puts its state in order, and raises it
                work = steps.throw(error)
            else:
                work = steps.send(result)
    except StopIteration:
        return
    finally:
        steps.close()

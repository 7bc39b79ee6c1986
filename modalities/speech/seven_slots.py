"""Seven slots of a frame in one vocabulary: its marks, where a sequence stands, and a mask."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import LogitsProcessor

from mmspec.engine.processing import MEMORYLESS
from mmspec.errors import InputError
from mmspec.factorizations import TimeMajorFrames


@dataclass(frozen=True, slots=True)
class SpecialTokens:
    """What the ids of such a model mean; the defaults are the published checkpoint's.

    Attributes:
        base: id of code 0 in slot 0.
        codes: codes per slot.
        start: begins speech.
        end: ends it.
        before: stand before a text.
        behind: stand behind a text; the model goes on with its own marks, then speech.
    """

    base: int = 128_266
    codes: int = 4096
    start: int = 128_257
    end: int = 128_258
    before: tuple[int, ...] = (128_259,)
    behind: tuple[int, ...] = (128_009, 128_260)

    @property
    def ids(self) -> range:
        """All ids that are codes."""
        return range(self.base, self.base + 7 * self.codes)


class Slots:
    """Follows a sequence token by token: which of them are speech, and whole frames of it.

    Args:
        steps: the descriptor.
        start: the mark that begins speech.
        resync: leave out what is out of place, and go on at the next token of slot 0; else it is
            refused.

    Attributes:
        frames: codes of the whole frames so far, by column.
        columns: of each token, the column that it is in; None where it is in no frame.
        inside: whether speech has begun and not ended.
        ended: whether it has ended by its mark.

    Example:
        >>> steps = TimeMajorFrames.seven_slots(vocab_size=20, base=6, end=5, codes=2)
        >>> slots = Slots(steps, start=4)
        >>> slots.follow([1, 4, 6, 8, 11, 12, 15, 16, 18, 5])
        >>> slots.frames, slots.ended
        ([(0, 0, 1, 1, 0, 0, 0)], True)
    """

    def __init__(self, steps: TimeMajorFrames, start: int, *, resync: bool = False) -> None:
        self._steps, self._start, self._resync = steps, start, resync
        self._slot = 0
        self._partial: list[int] = []
        self.frames: list[tuple[int, ...]] = []
        self.columns: list[int | None] = []
        self.inside = self.ended = False

    def follow(self, sequence: Iterable[int]) -> None:
        """The next tokens.

        Raises:
            InputError: a token that is out of place inside speech, unless those are left out.
        """
        for token in sequence:
            self._push(token)

    def _push(self, token: int) -> None:
        self.columns.append(None)
        if not self.inside:
            if token == self._start:  # what was said before it was another utterance
                self.inside, self.ended, self.frames = True, False, []
        elif token in self._steps.stop_tokens:
            self._check_whole()
            self._drop()
            self.inside, self.ended = False, True
        else:
            self._place(token)

    def _place(self, token: int) -> None:
        column = self._steps.slots[self._slot]
        if token not in self._steps.codebooks[column].ids and self._resync:
            self._drop()
            column = self._steps.slots[0]
            if token not in self._steps.codebooks[column].ids:
                return
        where = f"frame {len(self.frames)}, codebook {column}: "
        self._partial.append(self._steps.codebooks[column].code_of(token, where))
        self.columns[-1] = column
        self._slot += 1
        if self._slot == len(self._steps.slots):
            codes = dict(zip(self._steps.slots, self._partial, strict=True))
            self.frames.append(tuple(codes[k] for k in range(len(codes))))
            self._partial, self._slot = [], 0

    def _check_whole(self) -> None:
        if self._slot and not self._resync:
            raise InputError(
                f"speech ends inside frame {len(self.frames)}, after {self._slot} of "
                f"{len(self._steps.slots)} codes"
            )

    def _drop(self) -> None:
        """The frame that was begun is none."""
        for place in range(self._slot):
            self.columns[-2 - place] = None
        self._partial, self._slot = [], 0

    def column(self, index: int) -> int | None:
        """The column of a token; behind the last one, of what comes if all goes on as it should."""
        if index < len(self.columns):
            return self.columns[index]
        ahead = self._slot + index - len(self.columns)
        return self._steps.slots[ahead % len(self._steps.slots)] if self.inside else None


class SlotMask(LogitsProcessor):
    """Between the marks only codes of the slot that is due, and an end only where a frame is whole.

    Nobody's default: pass it to `generate`, here or the library's, in `logits_processor`.

    Args:
        marks: of the vocabulary.
    """

    def __init__(self, marks: SpecialTokens) -> None:
        self._marks = marks

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Scores `[rows, V]` with what may not stand there at -inf."""
        allowed = torch.zeros_like(scores, dtype=torch.bool)
        for row, ids in enumerate(input_ids.tolist()):
            self._allow(ids, allowed[row])
        return scores.masked_fill(~allowed, -torch.inf)

    def _allow(self, ids: list[int], allowed: Tensor) -> None:
        marks = self._marks
        last = next((i for i in reversed(range(len(ids))) if ids[i] in (marks.start, marks.end)), 0)
        if ids[last] != marks.start:
            allowed[:] = True
            allowed[list(marks.ids)] = False
            allowed[marks.end] = False
            return
        slot = (len(ids) - 1 - last) % 7
        first = marks.base + slot * marks.codes
        allowed[first : first + marks.codes] = True
        allowed[marks.end] = slot == 0


MEMORYLESS.add(SlotMask)

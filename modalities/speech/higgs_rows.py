"""Higgs-Audio's rows: what is forced in them, and the text that the library keeps beside them.

A text id stands beside each row. It says that the row is audio, that an end has begun, or that it
is complete, and is a function of the rows. An end begins with an end mark in any codebook, wherever
the target says it; from the next row on codebook k has k + 1 rows left before it is forced to end
as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import LogitsProcessor, StoppingCriteria
from transformers.models.higgs_audio_v2.generation_higgs_audio_v2 import (
    HiggsAudioV2DelayPatternLogitsProcessor as Marks,
)

from mmspec.acceptance.frames import FREE
from mmspec.engine.frames import register_frame_form
from mmspec.engine.frames.processing import FrameForm
from mmspec.modalities.base.preparation import Prepared
from mmspec.prefix import Frame


class HiggsLayout:
    """What Higgs-Audio prescribes: start marks, and the marks that follow the first end mark.

    Args:
        codebooks: K.
        start: the start mark's id.
        end: the end mark's.

    Example:
        >>> layout = HiggsLayout(codebooks=2, start=8, end=9)
        >>> layout.forced([(8, 8)], [(3, 8), (1, 9), (2, 0)])
        [(-1, 8), (-1, -1), (9, -1), (9, 9)]
    """

    def __init__(self, codebooks: int, start: int, end: int) -> None:
        self._codebooks, self._start, self._end = codebooks, start, end

    def forced(self, frames: Sequence[Frame], drafted: Sequence[Frame]) -> list[Frame]:
        """Start marks while a codebook is late, end marks from as late as it is on."""
        begun = self._begun(frames)
        found = []
        for row in range(len(frames), len(frames) + len(drafted) + 1):
            marks = tuple(self._mark(k, row, begun) for k in range(self._codebooks))
            found.append(marks)
            ahead = row - len(frames)
            if begun is None and ahead < len(drafted):
                pairs = zip(marks, drafted[ahead], strict=True)
                if any(mark == FREE and token == self._end for mark, token in pairs):
                    begun = row
        return found

    def ends(self, frames: Sequence[Frame], more: Sequence[Frame]) -> bool:
        """Whether the last row is all end marks."""
        return self._is_complete(more[-1])

    def text(self, rows: Sequence[Frame], audio: int, delay: int, end: int) -> list[int]:
        """The text ids that stand beside rows.

        Args:
            rows: all of them, from the row of start marks on.
            audio: the id beside a row of audio.
            delay: the one beside a row from the first end mark on.
            end: the one beside a row of end marks.
        """
        found: list[int] = []
        for row in rows:
            begun = self._end in row or found[-1:] == [delay]
            found.append(end if self._is_complete(row) else delay if begun else audio)
        return found

    def _mark(self, k: int, row: int, begun: int | None) -> int:
        if row <= k:
            return self._start
        return FREE if begun is None or row <= begun + k else self._end

    def _is_complete(self, row: Frame) -> bool:
        return all(token == self._end for token in row)

    def _begun(self, frames: Sequence[Frame]) -> int | None:
        """The row of the first end mark; all end marks stand at most K rows later."""
        earliest = max(0, len(frames) - self._codebooks)
        return next((r for r in range(earliest, len(frames)) if self._end in frames[r]), None)


@register_frame_form(Marks)
def _marks(processor: LogitsProcessor, codebooks: int) -> FrameForm:
    return lambda rows: rows  # every cell that it forces is forced by `HiggsLayout`


class BesideText(StoppingCriteria):
    """A criterion that is shown the text ids of a prompt and those beside its rows.

    Args:
        criterion: transformers', or the caller's.
        prepared: the request.
        layout: knows the text beside rows.
    """

    def __init__(
        self, criterion: StoppingCriteria, prepared: Prepared, layout: HiggsLayout
    ) -> None:
        config = prepared.model.config
        self._criterion, self._layout, self._prompt = criterion, layout, prepared.input_ids
        self._ids = config.audio_token_id, config.audio_delay_token_id, config.eos_token_id
        self._begun = False

    def __call__(self, input_ids: Tensor, scores: Any, **kwargs: Any) -> Any:
        """What the criterion says of the text beside rows `[K, n]`."""
        rows = [tuple(row) for row in input_ids.t().tolist()]
        if not self._begun:  # the row of start marks is a step of the library's, here it is given
            self._begun = True
            ended = self._asked(rows[:1], scores, kwargs)
            if bool(ended.any()):
                return ended
        return self._asked(rows, scores, kwargs)

    def _asked(self, rows: list[Frame], scores: Any, more: dict[str, Any]) -> Any:
        beside = self._prompt.new_tensor([self._layout.text(rows, *self._ids)])
        return self._criterion(torch.cat([self._prompt, beside], dim=1), scores, **more)

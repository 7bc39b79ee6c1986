"""Logits processors at drafted prefixes of frames: a row there is a row per codebook.

transformers' processors see the codebooks of one request as a batch. What looks at the scores only
runs once over a whole block; every other one is called step by step, with the ids of all codebooks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import LogitsProcessor, LogitsProcessorList
from transformers.generation import logits_process as hf

from mmspec.engine.processing import IGNORES_PREFIX, BlockForm, Processors

FrameForm = Callable[[Tensor], Tensor]
"""A processor over `[n, R, V]`, R the codebooks or twice as many; gives `[n, K, V]`."""

FRAME_FORMS: dict[type[LogitsProcessor], Callable[[Any, int], FrameForm]] = {}
"""Forms by exact processor type: (processor, codebooks) to its form. Adapters add theirs."""


def register_frame_form(
    kind: type[LogitsProcessor],
) -> Callable[[Callable[[Any, int], FrameForm]], Callable[[Any, int], FrameForm]]:
    """Register a function that turns a processor of exactly this type into its form."""

    def register(factory: Callable[[Any, int], FrameForm]) -> Callable[[Any, int], FrameForm]:
        FRAME_FORMS[kind] = factory
        return factory

    return register


@register_frame_form(hf.ClassifierFreeGuidanceLogitsProcessor)
def _guidance(processor: Any, codebooks: int) -> FrameForm:
    def form(rows: Tensor) -> Tensor:
        if rows.shape[1] == codebooks:
            return rows  # a drafter's, without its unconditional half
        given, dropped = rows.split(codebooks, dim=1)
        return dropped + (given - dropped) * processor.guidance_scale

    return form


def over_codebooks(processor: Any) -> FrameForm:
    """The form of a processor that looks at nothing but one row of scores at a time."""

    def form(rows: Tensor) -> Tensor:
        return processor(None, rows.flatten(0, 1)).view_as(rows)

    return form


class FrameProcessors(Processors):
    """A request's logits processors over blocks of frames.

    Args:
        processors: transformers' list, as `generate` would call it.
        codebooks: K.
        said: ids that a head says; a processor that is called step by step is shown no others, as
            under `generate`. None: all of a row.
    """

    def __init__(
        self,
        processors: LogitsProcessorList | None = None,
        codebooks: int = 1,
        said: int | None = None,
    ) -> None:
        self._codebooks, self._said = codebooks, said
        super().__init__(processors)

    def _add(self, processor: LogitsProcessor) -> None:
        kind = type(processor)
        if kind in FRAME_FORMS:
            self._steps.append((processor, _block(FRAME_FORMS[kind](processor, self._codebooks))))
        elif kind in IGNORES_PREFIX or kind is hf.SuppressTokensLogitsProcessor:
            self._steps.append((processor, _block(over_codebooks(processor))))
        else:
            self._add_by_row(processor)

    def _called(self, processor: Any, ids: Tensor, rows: Tensor) -> Tensor:
        shown = rows[0, :, : self._said]
        done = processor(ids, shown)
        if shown.shape[-1] == rows.shape[-1]:
            return done.unsqueeze(0)
        unsaid = rows[0, : len(done), shown.shape[-1] :]
        return torch.cat([done, unsaid], dim=-1).unsqueeze(0)

    def _like(self, processors: LogitsProcessorList) -> Processors:
        return FrameProcessors(processors, self._codebooks, self._said)


def _block(form: FrameForm) -> BlockForm:
    def block(rows: Tensor, ids: Sequence[int], start: int) -> Tensor:
        return form(rows)

    return block

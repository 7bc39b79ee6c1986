"""What a caller's own code sees of its row's batch, where rows are decoded one after the other.

`generate` shows a processor, a criterion or a function all rows at once: each has a number, and the
columns of padding in front. A row by itself is row 0 and has none of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from transformers import LogitsProcessorList, StoppingCriteria, StoppingCriteriaList
from transformers.generation.stopping_criteria import MaxLengthCriteria

from mmspec.engine.processing import Wrapped


class _BehindPadding(Wrapped):
    """A processor that is shown the padding in front of its row, `[1, n]`."""

    def __init__(self, processor: Any, padding: Tensor) -> None:
        super().__init__(processor)
        self.padding = padding

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Process `[1, V]` behind ids `[1, P]`."""
        return self.processor(_behind(self.padding, input_ids), scores)


class _CriterionBehindPadding(StoppingCriteria):
    """A criterion that is shown the padding in front of its row."""

    def __init__(self, criterion: Any, padding: Tensor) -> None:
        self.criterion, self.padding = criterion, padding

    def __call__(self, input_ids: Tensor, scores: Any, **more: Any) -> Any:
        """Whether the row `[1, P]` ends."""
        return self.criterion(_behind(self.padding, input_ids), scores, **more)


def _behind(padding: Tensor, ids: Tensor) -> Tensor:
    return torch.cat([padding.to(ids), ids], dim=1)


def as_in_batch(
    options: Mapping[str, Any],
    row: int,
    padding: Tensor,
    is_row_by_row: Callable[[Any], bool],
    row_criteria: frozenset[type],
) -> dict[str, Any]:
    """A row's options of `generate`, whose code is shown what it would be shown in the batch.

    Args:
        options: with processors and criteria of the row's own.
        row: its number; sequences of one prompt share it, as in the library.
        padding: ids in front of it, `[1, n]`.
        is_row_by_row: whether a processor is one of the library's, which padding doesn't change.
        row_criteria: the library's criteria that judge each row by itself.
    """
    options, allowed = dict(options), options.get("prefix_allowed_tokens_fn")
    if allowed is not None:
        options["prefix_allowed_tokens_fn"] = lambda _, ids: allowed(
            row, _behind(padding, ids[None])[0]
        )
    if not padding.numel():
        return options
    if options.get("logits_processor"):
        options["logits_processor"] = LogitsProcessorList(
            one if is_row_by_row(one) else _BehindPadding(one, padding)
            for one in options["logits_processor"]
        )
    if options.get("stopping_criteria"):
        options["stopping_criteria"] = StoppingCriteriaList(
            _criterion(one, padding, row_criteria) for one in options["stopping_criteria"]
        )
    return options


def _criterion(one: Any, padding: Tensor, row_criteria: frozenset[type]) -> Any:
    if type(one) is MaxLengthCriteria:
        return MaxLengthCriteria(one.max_length - padding.shape[1], one.max_position_embeddings)
    return one if type(one) in row_criteria else _CriterionBehindPadding(one, padding)

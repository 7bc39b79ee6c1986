"""Where an output ends: stop units, length limits and transformers' criteria, unit by unit."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, Self

import torch
from torch import Tensor
from transformers import StoppingCriteria, StoppingCriteriaList
from transformers.generation.stopping_criteria import EosTokenCriteria, MaxLengthCriteria

from mmspec.prefix import Prefix

ScoresSoFar = tuple[Tensor, ...] | None
"""Processed rows of every emitted unit, where they are collected."""


class Stops:
    """Cuts a block where ordinary decoding would have ended.

    Args:
        stop_units: ids that end the output (and belong to it).
        max_length: absolute length, prompt included, that the output never exceeds.
        criteria: transformers' criteria. They are asked once per committed unit, in order, as in
            ordinary decoding, so a criterion with a memory needs no undoing.

    Attributes:
        others: the criteria.
    """

    def __init__(
        self,
        stop_units: Collection[int],
        max_length: int,
        criteria: Sequence[StoppingCriteria] = (),
    ) -> None:
        self.stop_units = frozenset(int(unit) for unit in stop_units)
        self.max_length = max_length
        self.others = list(criteria)

    @classmethod
    def from_transformers(
        cls, criteria: StoppingCriteriaList, stop_units: Collection[int], max_length: int
    ) -> Self:
        """Stops that hold all of `criteria`; those that a set or a number can say run as such."""
        stop_units = set(stop_units)
        others = []
        for criterion in criteria:
            if type(criterion) is EosTokenCriteria:
                stop_units.update(criterion.eos_token_id.tolist())
            elif type(criterion) is MaxLengthCriteria:
                max_length = min(max_length, criterion.max_length)
            else:
                others.append(criterion)
        return cls(stop_units, max_length, others)

    def room(self, prefix: Prefix) -> int:
        """Units that may still be emitted."""
        return max(0, self.max_length - len(prefix))

    def cut(
        self,
        prefix: Prefix,
        units: Sequence[Any],
        scores: Callable[[int], ScoresSoFar] | None = None,
    ) -> tuple[int, str | None]:
        """How many of `units` are emitted, and why the output ends there, if it does.

        The prefix must be showing `units` (`Prefix.show_draft`); `scores(k)` are the processed rows
        of the output up to the first k of them, for criteria that look at rows.

        Returns:
            (units kept, "stop" | "length" | "criterion" | None).
        """
        start = len(prefix)
        for kept in range(1, len(units) + 1):
            rows = None if scores is None else scores(kept)
            reason = self._reason(prefix, start + kept, units[:kept], rows)
            if reason is not None:
                return kept, reason
        return len(units), None

    def _reason(
        self, prefix: Prefix, length: int, units: Sequence[Any], scores: ScoresSoFar
    ) -> str | None:
        """Why the output ends behind these units, the last of which is at `length`."""
        # Every criterion is asked at every unit, also where another one has ended the output:
        # that is what transformers does, and criteria may count.
        ended = self._ended_by_others(prefix.tensor(length), scores)
        if self._ends(prefix, units):
            return "stop"
        if ended:
            return "criterion"
        return "length" if length >= self.max_length else None

    def _ended_by_others(self, ids: Tensor, scores: ScoresSoFar) -> bool:
        """Whether a criterion ends the output here; each is asked."""
        # Some answer with a plain bool, which transformers' own list takes as well.
        return any([bool(torch.as_tensor(c(ids, scores)).all()) for c in self.others])

    def _ends(self, prefix: Prefix, units: Sequence[Any]) -> bool:
        """Whether the last of the units that follow the prefix says that nothing comes after it."""
        return units[-1] in self.stop_units

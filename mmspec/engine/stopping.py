"""Where an output ends: stop tokens, length limits and transformers' criteria, token by token."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, Self

import torch
from torch import Tensor
from transformers import StoppingCriteria, StoppingCriteriaList
from transformers.generation.stopping_criteria import EosTokenCriteria, MaxLengthCriteria

from mmspec.prefix import Prefix

ScoresSoFar = tuple[Tensor, ...] | None
"""Processed rows of every emitted token, where they are collected."""


class Stops:
    """Cuts a block where ordinary decoding would have ended.

    Args:
        stop_tokens: ids that end the output (and belong to it).
        max_length: absolute length, prompt included, that the output never exceeds.
        criteria: transformers' criteria. They are asked once per committed token, in order, as in
            ordinary decoding, so a criterion with a memory needs no undoing.

    Attributes:
        others: the criteria.
    """

    def __init__(
        self,
        stop_tokens: Collection[int],
        max_length: int,
        criteria: Sequence[StoppingCriteria] = (),
    ) -> None:
        self.stop_tokens = frozenset(int(token) for token in stop_tokens)
        self.max_length = max_length
        self.others = list(criteria)

    @classmethod
    def from_transformers(
        cls, criteria: StoppingCriteriaList, stop_tokens: Collection[int], max_length: int
    ) -> Self:
        """Stops that hold all of `criteria`; those that a set or a number can say run as such."""
        stop_tokens = set(stop_tokens)
        others = []
        for criterion in criteria:
            if type(criterion) is EosTokenCriteria:
                stop_tokens.update(criterion.eos_token_id.tolist())
            elif type(criterion) is MaxLengthCriteria:
                max_length = min(max_length, criterion.max_length)
            else:
                others.append(criterion)
        return cls(stop_tokens, max_length, others)

    def room(self, prefix: Prefix) -> int:
        """Tokens that may still be emitted."""
        return max(0, self.max_length - len(prefix))

    def cut(
        self,
        prefix: Prefix,
        tokens: Sequence[Any],
        scores: Callable[[int], ScoresSoFar] | None = None,
    ) -> tuple[int, str | None]:
        """How many of `tokens` are emitted, and why the output ends there, if it does.

        The prefix must be showing `tokens` (`Prefix.show_draft`); `scores(k)` are the processed
        rows of the output up to the first k of them, for criteria that look at rows.

        Returns:
            (tokens kept, "stop" | "length" | "criterion" | None).
        """
        start = len(prefix)
        for kept in range(1, len(tokens) + 1):
            rows = None if scores is None else scores(kept)
            reason = self._reason(prefix, start + kept, tokens[:kept], rows)
            if reason is not None:
                return kept, reason
        return len(tokens), None

    def _reason(
        self, prefix: Prefix, length: int, tokens: Sequence[Any], scores: ScoresSoFar
    ) -> str | None:
        """Why the output ends behind these tokens, the last of which is at `length`."""
        # Every criterion is asked at every token, also where another one has ended the output:
        # that is what transformers does, and criteria may count.
        ended = self._ended_by_others(prefix.tensor(length), scores)
        if self._ends(prefix, tokens):
            return "stop"
        if ended:
            return "criterion"
        return "length" if length >= self.max_length else None

    def _ended_by_others(self, ids: Tensor, scores: ScoresSoFar) -> bool:
        """Whether a criterion ends the output here; each is asked."""
        # Some answer with a plain bool, which transformers' own list takes as well.
        return any([bool(torch.as_tensor(c(ids, scores)).all()) for c in self.others])

    def _ends(self, prefix: Prefix, tokens: Sequence[Any]) -> bool:
        """Whether the last of the tokens behind the prefix says that nothing comes after it."""
        return tokens[-1] in self.stop_tokens

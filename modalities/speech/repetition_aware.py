"""Codes that are drawn a second time where they repeat themselves, as one distribution.

Legend: K codebooks, V ids of each, n positions of a prefix.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import LogitsProcessor

from mmspec.engine.processing import MEMORYLESS


class RepetitionAwareDistribution(LogitsProcessor):
    """The distribution of a code that is replaced by a draw from the raw scores if it was said too
    often.

    A code is drawn from the processed scores. If it stands in its codebook in at least `repeats` of
    the last `window` rows, another one is drawn in its place from what the model said itself. So a
    code comes up in one of two ways: drawn and kept, or drawn to replace one that wasn't.

    Args:
        processors: what makes processed scores of raw ones; they look at nothing else.
        voice: rows that stand before the output's.
        window: rows that are looked at.
        repeats: how often is too often.
        marks: ids that may repeat themselves.

    Example:
        >>> distribution = RepetitionAwareDistribution([], [(1,)], window=2, repeats=2, marks=(2,))
        >>> raw = torch.tensor([[0.1, 0.6, 0.3]]).log()
        >>> distribution(torch.tensor([[1]]), raw).exp()  # 0.6 of the draws are drawn again
        tensor([[0.1600, 0.3600, 0.4800]])

    Source:
        Chen et al. 2024, "VALL-E 2: Neural Codec Language Models are Human Parity Zero-Shot
        Text to Speech Synthesizers", repetition aware sampling.
    """

    def __init__(
        self,
        processors: Sequence[Any],
        voice: Sequence[Sequence[int]],
        *,
        window: int,
        repeats: int,
        marks: Sequence[int],
    ) -> None:
        self._processors = list(processors)
        self._voice, self._marks = [list(row) for row in voice], list(marks)
        self._window, self._repeats = window, repeats

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """The log of that distribution `[K, V]` behind rows `[K, n]`, of raw scores `[K, V]`."""
        raw = scores.softmax(-1)
        for processor in self._processors:
            scores = processor(input_ids, scores)
        drawn = scores.softmax(-1)
        again = self._said(input_ids, scores.shape[-1]) >= self._repeats
        replaced = drawn.where(again, 0.0).sum(-1, keepdim=True)
        return (drawn.where(~again, 0.0) + replaced * raw).log()

    def _said(self, input_ids: Tensor, vocab_size: int) -> Tensor:
        """How often each id stands in the window, `[K, V]`; marks never do."""
        rows = input_ids
        if self._voice:
            rows = torch.cat([rows.new_tensor(self._voice).t(), rows], dim=1)
        counts = rows.new_zeros(len(rows), vocab_size)
        seen = rows[:, -self._window :]
        counts.scatter_add_(1, seen, torch.ones_like(seen))
        counts[:, self._marks] = 0
        return counts


MEMORYLESS.add(RepetitionAwareDistribution)

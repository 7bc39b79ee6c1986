"""Decoded rows of a batch, as transformers' `generate` returns them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import EncoderDecoderCache

from mmspec.engine import Scores
from mmspec.report import Report


@dataclass
class Row:
    """One decoded row: emitted ids, rows of scores where collected, and its report.

    `memory` is what its decoder remembers, where that was asked for.
    """

    ids: list[int]
    scores: Scores | None
    report: Report
    memory: EncoderDecoderCache | None = None


def collects_scores(config: Any) -> bool:
    """Whether a generation config asks for rows of scores."""
    wanted = config.output_scores or config.output_logits
    return bool(config.return_dict_in_generate and wanted)


def padded(rows: Sequence[Sequence[int]], prompts: Tensor, pad: int | None) -> Tensor:
    """Prompts and emitted ids side by side `[rows, length]`, padded on the right."""
    longest = max(len(ids) for ids in rows)
    filled = [[*ids, *[pad or 0] * (longest - len(ids))] for ids in rows]
    emitted = torch.tensor(filled, dtype=torch.long, device=prompts.device)
    return torch.cat([prompts, emitted.view(len(rows), longest)], dim=1)


def side_by_side(
    rows: Sequence[Sequence[int]],
    prompts: Sequence[int],
    pad: int,
    device: torch.device,
    front: int | None = None,
) -> Tensor:
    """Rows that were decoded one by one, as a batch: prompts end in one column.

    Args:
        rows: prompt and emitted ids of each.
        prompts: lengths of the prompts.
        pad: what fills the end.
        device: of the result.
        front: what fills the beginning; None: the same.

    Returns:
        `[rows, length]`.

    Example:
        >>> side_by_side([[5, 1, 2], [6, 7, 3]], [1, 2], 0, torch.device("cpu")).tolist()
        [[0, 5, 1, 2], [6, 7, 3, 0]]
    """
    widest, front = max(prompts), pad if front is None else front
    longest = max(len(ids) - prompt for ids, prompt in zip(rows, prompts, strict=True))
    filled = []
    for ids, prompt in zip(rows, prompts, strict=True):
        before, behind = widest - prompt, longest - (len(ids) - prompt)
        filled.append([*[front] * before, *ids, *[pad] * behind])
    return torch.tensor(filled, dtype=torch.long, device=device)


def steps_of_scores(rows: Sequence[Row], kind: str) -> tuple[Tensor, ...]:
    """Rows of scores by step, as transformers gives them; a finished row repeats its last.

    Args:
        rows: with scores.
        kind: "processed" or "raw".
    """
    scores = [getattr(row.scores, kind) for row in rows]
    longest = max(len(steps) for steps in scores)
    return tuple(
        torch.cat([steps[min(step, len(steps) - 1)] for steps in scores]) for step in range(longest)
    )

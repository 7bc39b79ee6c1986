"""Decoded rows of a batch, as transformers' `generate` returns them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import EncoderDecoderCache

from mmspec.engine import Scores
from mmspec.report.report import Report


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


def padded(rows: Sequence[Sequence[int]], prompts: Tensor, pad: int) -> Tensor:
    """Prompts and emitted ids side by side `[rows, length]`, padded on the right."""
    return torch.cat([prompts, filled_up(rows, pad, prompts.device)], dim=1)


def filled_up(rows: Sequence[Sequence[int]], pad: int, device: torch.device) -> Tensor:
    """Rows of ids as one tensor `[rows, length]`, padded on the right.

    Example:
        >>> filled_up([[5, 1], [6, 7, 3]], 0, torch.device("cpu")).tolist()
        [[5, 1, 0], [6, 7, 3]]
    """
    longest = max(len(ids) for ids in rows)
    filled = [[*ids, *[pad] * (longest - len(ids))] for ids in rows]
    return torch.tensor(filled, dtype=torch.long, device=device).view(len(rows), longest)


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

"""A model that looks, without its eyes: what it would say behind images that show nothing."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

import torch
from torch import Tensor

from mmspec.modalities.base.family import Family
from mmspec.modalities.base.preparation import Prepared
from mmspec.report.grounding import log_prob_drops


def log_prob_drops_without_images(
    family: Family, seen: Prepared, unseen: Prepared, ids: Sequence[int]
) -> tuple[float, ...]:
    """By how many nats the log-probability of each token falls without the images.

    Args:
        family: the adapter.
        seen: the request as it was decoded.
        unseen: the same with images of one colour, as large as the true ones, so that every
            position stays what it is.
        ids: the tokens.
    """
    if not ids:
        return ()
    true_rows, ablated_rows = (teacher_forced(family, one, ids) for one in (seen, unseen))
    return tuple(log_prob_drops(true_rows, ablated_rows, ids).tolist())


@torch.no_grad()
def teacher_forced(family: Family, prepared: Prepared, ids: Sequence[int]) -> Tensor:
    """Raw logits `[n, V]` behind a prompt, row i that of token i; on a state of its own."""
    with closing(family.open(prepared, packed=False)) as target:
        first = target.read_prompt()
        return first if len(ids) == 1 else torch.cat([first, target.score(ids[:-1], len(ids) - 1)])

"""Which codes of a loaded model are alike, found once per model."""

from __future__ import annotations

import weakref
from typing import Any

from mmspec.acceptance.groups import Groups, similar
from mmspec.errors import ModelError
from mmspec.modalities.speech.checkpoint import Checkpoint

_FOUND: weakref.WeakKeyDictionary[Any, dict[float, tuple[Groups, ...]]] = (
    weakref.WeakKeyDictionary()
)


def similar_codes(checkpoint: Checkpoint, threshold: float) -> tuple[Groups, ...]:
    """Groups for each place of a step, by the target's own embeddings of its codes.

    Args:
        checkpoint: the target.
        threshold: cosine above which two codes are alike.

    Raises:
        OptionError: the threshold is no cosine, or its family doesn't say what its codes are like.
        ModelError: its tables of embeddings don't fit its codebooks.
    """
    known = _FOUND.setdefault(checkpoint.model, {})
    if threshold not in known:
        known[threshold] = _found(checkpoint, threshold)
    return known[threshold]


def _found(checkpoint: Checkpoint, threshold: float) -> tuple[Groups, ...]:
    tables = checkpoint.family.code_embeddings(checkpoint.model)
    codebooks = checkpoint.family.books(checkpoint.steps)
    if len(tables) == 1:  # one sequence holds the codes of all codebooks
        return (similar(tables[0], threshold, codebooks),)
    if len(tables) != len(codebooks):
        raise ModelError(
            f"{checkpoint.family.title}: {len(tables)} tables of embeddings for {len(codebooks)} "
            "codebooks"
        )
    pairs = zip(tables, codebooks, strict=True)
    return tuple(similar(table, threshold, [codebook]) for table, codebook in pairs)

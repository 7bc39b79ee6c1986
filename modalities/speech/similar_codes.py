"""Which codes of a loaded model are alike, found once for the embeddings that it has."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from mmspec.acceptance.groups import Groups, similar
from mmspec.errors import ModelError
from mmspec.kernels import digest
from mmspec.modalities.speech.checkpoint import SpeechCheckpoint

_FOUND: weakref.WeakKeyDictionary[Any, dict[tuple[float, int], tuple[Groups, ...]]] = (
    weakref.WeakKeyDictionary()
)


def similar_codes(checkpoint: SpeechCheckpoint, threshold: float) -> tuple[Groups, ...]:
    """Groups for each place of a step, by the target's own embeddings of its codes.

    Args:
        checkpoint: the target.
        threshold: cosine above which two codes are alike.

    Raises:
        OptionError: the threshold is no cosine, or its family doesn't say what its codes are like.
        ModelError: its tables of embeddings don't fit its codebooks.
    """
    tables = checkpoint.family.code_embeddings(checkpoint.model)
    known, key = _FOUND.setdefault(checkpoint.model, {}), (threshold, digest(*tables))
    if key not in known:
        known[key] = _found(checkpoint, threshold, tables)
    return known[key]


def _found(
    checkpoint: SpeechCheckpoint, threshold: float, tables: Sequence[Tensor]
) -> tuple[Groups, ...]:
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

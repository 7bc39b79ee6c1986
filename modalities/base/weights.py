"""A checkpoint's weights: all that its config names, or none; and whether two are the same."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from mmspec.errors import ModelError

UNREAD = frozenset({"pooler"})
"""Parts that no decoding reads: released checkpoints leave their weights out."""


def whole_model(kind: Any, source: str, dtype: torch.dtype, code: dict[str, Any]) -> Any:
    """A model all of whose weights are in its files.

    transformers draws those that are missing at random, and only warns.

    Args:
        kind: transformers' class, or one of its auto classes.
        source: a directory or a hub id.
        dtype: of its weights.
        code: whether it may bring Python code of its own, as `from_pretrained` takes it.

    Raises:
        ModelError: names them.
    """
    model, found = kind.from_pretrained(
        source, dtype=dtype, use_safetensors=True, output_loading_info=True, **code
    )
    missing = sorted(name for name in found["missing_keys"] if not UNREAD & set(name.split(".")))
    if missing:
        shown = ", ".join(missing[:3]) + (", ..." if len(missing) > 3 else "")
        raise ModelError(
            f"{source}: found no weights for {len(missing)} of the parameters that its config "
            f"names ({shown}), expected all: config.json belongs to another checkpoint, or a file "
            "of weights is missing"
        )
    return model


def same_weights(module: nn.Module, other: nn.Module) -> bool:
    """Whether two modules are one, or hold equal tensors under the same names."""
    if module is other:
        return True
    own, others = module.state_dict(), other.state_dict()
    return own.keys() == others.keys() and all(
        weight.shape == others[name].shape
        and torch.equal(weight, others[name].to(weight.device, weight.dtype))
        for name, weight in own.items()
    )

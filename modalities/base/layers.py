"""Models that aren't plain: what is inside a wrapper, and layers that blocks can't run through."""

from __future__ import annotations

from typing import Any

from torch import nn

from mmspec.errors import ModelError

DYNAMIC = "quantized.dynamic"
"""In the name of torch's module of such layers, wherever its releases have it."""


def seen_through(model: Any) -> Any:
    """transformers' model inside a wrapper that has only changed its layers (PEFT, torch.compile).

    Anything else is given back as it is.

    Raises:
        ModelError: the wrapper also changes what the model reads, as prompt tuning does.
    """
    if not isinstance(model, nn.Module):
        return model
    if isinstance(inner := getattr(model, "_orig_mod", None), nn.Module):
        return seen_through(inner)
    if not hasattr(model, "peft_config") or not hasattr(model, "get_base_model"):
        return model
    if any(config.is_prompt_learning for config in model.peft_config.values()):
        raise ModelError(
            f"{type(model).__name__}: found an adapter that adds to the prompt, expected one that "
            "changes layers (LoRA and the like)"
        )
    return seen_through(model.get_base_model())


def mixes_rows(model: Any) -> bool:
    """Whether layers compute the rows of a block from each other, as dynamic quantisation does.

    Its scale is that of all rows together, so a row of a block isn't what it is by itself.
    """
    return any(DYNAMIC in type(part).__module__ for part in model.modules())

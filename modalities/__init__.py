"""Conditioning adapters: turn a model and its inputs into frozen conditioning plus a target.

One module per family, found by transformers' `model_type`, imported when first needed.
"""

from __future__ import annotations

import importlib
from types import ModuleType

from mmspec.errors import ModelError

ADAPTERS = {
    "whisper": "mmspec.modalities.whisper",
    "llava": "mmspec.modalities.vlm.llava",
    "qwen2_vl": "mmspec.modalities.vlm.qwen2_vl",
}


def adapter_for(model_type: str) -> ModuleType:
    """The adapter of a model family.

    Raises:
        ModelError: no adapter knows the family.
    """
    if model_type not in ADAPTERS:
        known = ", ".join(sorted(ADAPTERS))
        raise ModelError(f"no adapter for model type {model_type!r}; mmspec knows: {known}")
    return importlib.import_module(ADAPTERS[model_type])

"""Conditioning adapters: turn a model and its inputs into frozen conditioning plus a target.

One module per family, found by transformers' `model_type`, imported when first needed.
"""

from __future__ import annotations

import importlib
from types import ModuleType

from mmspec.errors import ModelError

ADAPTERS = {
    "bark": "mmspec.modalities.speech.bark",
    "blip": "mmspec.modalities.vlm.blip",
    "blip_text_model": "mmspec.modalities.vlm.blip",
    "csm": "mmspec.modalities.speech.csm",
    "dia": "mmspec.modalities.speech.dia",
    "florence2": "mmspec.modalities.vlm.florence2",
    "gemma3": "mmspec.modalities.vlm.gemma3",
    "got_ocr2": "mmspec.modalities.vlm.got_ocr2",
    "higgs_audio_v2": "mmspec.modalities.speech.higgs_audio",
    "idefics3": "mmspec.modalities.vlm.idefics3",
    "internvl": "mmspec.modalities.vlm.internvl",
    "llava": "mmspec.modalities.vlm.llava",
    "llava_onevision": "mmspec.modalities.vlm.llava_onevision",
    "musicgen": "mmspec.modalities.speech.musicgen",
    "musicgen_melody": "mmspec.modalities.speech.musicgen_melody",
    "paddleocr_vl": "mmspec.modalities.vlm.paddleocr_vl",
    "mmspec_valle": "mmspec.modalities.speech.valle",
    "mllama": "mmspec.modalities.vlm.mllama",
    "paligemma": "mmspec.modalities.vlm.paligemma",
    "pix2struct": "mmspec.modalities.vlm.pix2struct",
    "qwen2_5_vl": "mmspec.modalities.vlm.qwen2_5_vl",
    "qwen2_audio": "mmspec.modalities.vlm.qwen2_audio",
    "qwen2_vl": "mmspec.modalities.vlm.qwen2_vl",
    "qwen3_vl": "mmspec.modalities.vlm.qwen3_vl",
    "smolvlm": "mmspec.modalities.vlm.smolvlm",
    "vision-encoder-decoder": "mmspec.modalities.vlm.vision_encoder_decoder",
    "voxtral": "mmspec.modalities.vlm.voxtral",
    "whisper": "mmspec.modalities.whisper.checkpoint",
}

SPEAKING = frozenset(kind for kind, module in ADAPTERS.items() if ".speech." in module)
"""Those that say codes."""


def adapter_for(model_type: str) -> ModuleType:
    """The adapter of a model family.

    Raises:
        ModelError: no adapter knows the family.
    """
    if model_type not in ADAPTERS:
        from mmspec.modalities.unsupported import why

        known = ", ".join(sorted(ADAPTERS))
        raise ModelError(
            f"no adapter for model type {model_type!r}; mmspec knows: {known}; {model_type} "
            f"{why(model_type)}"
        )
    return importlib.import_module(ADAPTERS[model_type])

"""Conditioning adapters: turn a model and its inputs into frozen conditioning plus a target.

One module per family, found by transformers' `model_type`, imported when first needed.
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import NamedTuple

from mmspec.errors import ModelError


class Adapter(NamedTuple):
    """Where a family's adapter lies, and what its models are for.

    Attributes:
        module: below this package.
        task: "asr" (recordings become text), "vlm" (images, or sound in a conversation) or "tts"
            (codes, and sound of them).
    """

    module: str
    task: str


ADAPTERS = {
    "bark": Adapter("speech.bark", "tts"),
    "blip": Adapter("vlm.blip", "vlm"),
    "blip_text_model": Adapter("vlm.blip", "vlm"),
    "csm": Adapter("speech.csm", "tts"),
    "dia": Adapter("speech.dia", "tts"),
    "florence2": Adapter("vlm.florence2", "vlm"),
    "gemma3": Adapter("vlm.gemma3", "vlm"),
    "got_ocr2": Adapter("vlm.got_ocr2", "vlm"),
    "higgs_audio_v2": Adapter("speech.higgs_audio", "tts"),
    "idefics3": Adapter("vlm.idefics3", "vlm"),
    "internvl": Adapter("vlm.internvl", "vlm"),
    "llava": Adapter("vlm.llava", "vlm"),
    "llava_onevision": Adapter("vlm.llava_onevision", "vlm"),
    "musicgen": Adapter("speech.musicgen", "tts"),
    "musicgen_melody": Adapter("speech.musicgen_melody", "tts"),
    "paddleocr_vl": Adapter("vlm.paddleocr_vl", "vlm"),
    "mmspec_valle": Adapter("speech.valle", "tts"),
    "mllama": Adapter("vlm.mllama", "vlm"),
    "paligemma": Adapter("vlm.paligemma", "vlm"),
    "pix2struct": Adapter("vlm.pix2struct", "vlm"),
    "qwen2_5_vl": Adapter("vlm.qwen2_5_vl", "vlm"),
    "qwen2_audio": Adapter("vlm.qwen2_audio", "vlm"),
    "qwen2_vl": Adapter("vlm.qwen2_vl", "vlm"),
    "qwen3_vl": Adapter("vlm.qwen3_vl", "vlm"),
    "smolvlm": Adapter("vlm.smolvlm", "vlm"),
    "vision-encoder-decoder": Adapter("vlm.vision_encoder_decoder", "vlm"),
    "voxtral": Adapter("vlm.voxtral", "vlm"),
    "whisper": Adapter("whisper.checkpoint", "asr"),
}


def task_of(model_type: str) -> str | None:
    """What models of a family are for; None where no adapter knows it."""
    return ADAPTERS[model_type].task if model_type in ADAPTERS else None


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
    return importlib.import_module(f"mmspec.modalities.{ADAPTERS[model_type].module}")

"""Qwen2-Audio: sound of up to 30 seconds, as long in the prompt as it is in time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mmspec.modalities.base.family import Family


class Qwen2Audio(Family):
    """Qwen2-Audio."""

    model_types = ("qwen2_audio",)
    model_class = "Qwen2AudioForConditionalGeneration"
    placeholders = ("audio_token_id",)
    media_inputs = ("input_features", "feature_attention_mask")
    encoder_names = ("model.audio_tower",)
    hears = True

    def places(self, model: Any, inputs: Mapping[str, Any]) -> list[int]:
        """What is left of a sound's frames behind the tower's convolution and pooling."""
        frames = inputs["feature_attention_mask"].sum(-1)
        return model.model.audio_tower._get_feat_extract_output_lengths(frames)[1].tolist()


FAMILY = Qwen2Audio()

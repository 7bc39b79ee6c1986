"""Voxtral: sound in windows of 30 seconds, each a fixed number of positions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mmspec.modalities.base.family import Family


class Voxtral(Family):
    """Voxtral."""

    model_types = ("voxtral",)
    model_class = "VoxtralForConditionalGeneration"
    placeholders = ("audio_token_id",)
    media_inputs = ("input_features",)
    encoder_names = ("model.audio_tower",)
    hears = True

    def places(self, model: Any, inputs: Mapping[str, Any]) -> list[int]:
        """A window's positions, several of the tower's side by side in each."""
        config = model.config.audio_config
        of_window = config.max_source_positions * config.hidden_size // config.intermediate_size
        return [of_window] * len(inputs["input_features"])


FAMILY = Voxtral()

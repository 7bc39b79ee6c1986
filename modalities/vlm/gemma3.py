"""Gemma 3: most layers see a window; an image reads itself both ways, in the prompt only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mmspec.modalities.base.family import Family
from mmspec.modalities.base.prefix_decoder import PrefixTarget, WindowedTarget


class Gemma3(Family):
    """Gemma 3 that looks."""

    model_types = ("gemma3",)
    model_class = "Gemma3ForConditionalGeneration"
    placeholders = ("image_token_id",)

    def places(self, model: Any, inputs: Mapping[str, Any]) -> list[int]:
        """The same for every image or crop of one."""
        return [model.config.mm_tokens_per_image] * len(inputs["pixel_values"])

    def target_class(self, model: Any) -> type[PrefixTarget]:
        """Masks by kind of layer."""
        return WindowedTarget


FAMILY = Gemma3()

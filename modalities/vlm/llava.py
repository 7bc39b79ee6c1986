"""LLaVA: a CLIP tower and a projector in front of a causal language model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mmspec.modalities.base.family import Family, patches


class Llava(Family):
    """LLaVA 1.5 and its like."""

    model_types = ("llava",)
    model_class = "LlavaForConditionalGeneration"
    media_inputs = ("pixel_values", "image_sizes")

    def places(self, model: Any, inputs: Mapping[str, Any]) -> list[int]:
        """One for every patch, of a class embedding too if it is kept; Pixtral's by true size."""
        images, sizes = inputs["pixel_values"], inputs.get("image_sizes")
        if sizes is not None:
            side = model.config.vision_config.patch_size
            return [int(high // side) * int(wide // side) for high, wide in sizes]
        return [patches(model, images) + first_place(model)] * len(images)


def first_place(model: Any) -> int:
    """What stands before the patches of an image: 1, 0, or -1 where the first patch is dropped."""
    encoder = model.get_submodule("model.vision_tower")
    named = any(name.endswith("class_embedding") for name, _ in encoder.named_parameters())
    return int(named) - (model.config.vision_feature_select_strategy == "default")


FAMILY = Llava()

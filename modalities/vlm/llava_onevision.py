"""LLaVA-OneVision: a picture whole and in tiles of its own resolution, packed line by line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from transformers.models.llava_onevision.modeling_llava_onevision import image_size_to_num_patches

from mmspec.modalities.base.batch import Medium, joined
from mmspec.modalities.base.family import Family


class LlavaOnevision(Family):
    """LLaVA-OneVision."""

    model_types = ("llava_onevision",)
    model_class = "LlavaOnevisionForConditionalGeneration"
    media_inputs = ("pixel_values", "image_sizes", "batch_num_images")

    def media(self, model: Any, inputs: Mapping[str, Any]) -> list[Medium]:
        """Images, each with as many tiles as its size asks for; one of several has no tiles."""
        pixels, config = inputs.get("pixel_values"), model.config
        if pixels is None:
            return []
        sizes, together = inputs["image_sizes"], inputs.get("batch_num_images")
        if together is None:
            together = sizes.new_ones(len(sizes))
        found = []
        counts = together.repeat_interleave(together)
        for image, size, count in zip(pixels, sizes, counts.tolist(), strict=True):
            tiles = 1
            if count == 1:
                tiles = image_size_to_num_patches(
                    size, config.image_grid_pinpoints, config.vision_config.image_size
                )
            tensors = {"pixel_values": image[None, :tiles], "image_sizes": size[None]}
            found.append(Medium(config.image_token_id, positions_of(model, tiles, size), tensors))
        return found

    def packed(self, media: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
        """With the number of images, which decides about tiles."""
        together = joined(media)
        if media:
            together["batch_num_images"] = together["image_sizes"].new_tensor([len(media)])
        return together


def positions_of(model: Any, tiles: int, size: Tensor) -> int:
    """Positions of an image: the model's own packing, tried on features without content."""
    config = model.config
    side = config.vision_config.image_size // config.vision_config.patch_size
    features = torch.zeros(tiles, side * side, 1)
    packed, _ = model.model.pack_image_features(
        [features], [size], torch.zeros(1), config.vision_aspect_ratio
    )
    return len(packed[0])


FAMILY = LlavaOnevision()

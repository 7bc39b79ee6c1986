"""Families that count an image's rows and columns as positions of their own (M-RoPE)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mmspec.modalities.base.batch import Medium
from mmspec.modalities.base.family import Family

BY_PLACEHOLDER = {
    "image_token_id": ("pixel_values", "image_grid_thw"),
    "video_token_id": ("pixel_values_videos", "video_grid_thw"),
}
"""Patches and their grids `[media, 3]` (times, rows, columns), by what stands for them."""


class GridFamily(Family):
    """Native resolution: every image comes with its grid, and the positions follow from that."""

    encoder_names = ("model.visual",)
    media_inputs = ("pixel_values", "image_grid_thw", "pixel_values_videos", "video_grid_thw")

    def media(self, model: Any, inputs: Mapping[str, Any]) -> list[Medium]:
        """Each with its own patches; some neighbours among them share a position."""
        merged = model.config.vision_config.spatial_merge_size**2
        found = []
        for placeholder, (pixels, grids) in BY_PLACEHOLDER.items():
            if inputs.get(pixels) is None:
                continue
            sizes = inputs[grids].prod(-1).tolist()
            for patches, grid in zip(inputs[pixels].split(sizes), inputs[grids], strict=True):
                tensors = {pixels: patches, grids: grid[None]}
                stands = getattr(model.config, placeholder)
                found.append(Medium(stands, len(patches) // merged, tensors))
        return found

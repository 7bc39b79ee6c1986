"""InternVL: tiles and a view of the whole, each pooled to the same number of positions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mmspec.modalities.base.family import Family, patches


class InternVL(Family):
    """InternVL."""

    model_types = ("internvl",)
    model_class = "InternVLForConditionalGeneration"

    def places(self, model: Any, inputs: Mapping[str, Any]) -> list[int]:
        """Patches of a tile, pooled."""
        tiles = inputs["pixel_values"]
        pooled = patches(model, tiles) * model.config.downsample_ratio**2
        return [round(pooled)] * len(tiles)


FAMILY = InternVL()

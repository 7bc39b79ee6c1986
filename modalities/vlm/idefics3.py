"""Idefics 3: a picture in rows and columns of tiles, then the whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from mmspec.modalities.base.batch import Medium, joined
from mmspec.modalities.base.family import Family, patches


class Idefics3(Family):
    """Idefics 3."""

    model_types = ("idefics3",)
    model_class = "Idefics3ForConditionalGeneration"
    placeholders = ("image_token_id",)
    media_inputs = ("pixel_values", "pixel_attention_mask")
    encoder_names = ("model.vision_model",)

    def media(self, model: Any, inputs: Mapping[str, Any]) -> list[Medium]:
        """Tiles; a row with fewer than another has black ones behind, which the model skips."""
        given = {name: inputs[name] for name in self.media_inputs if inputs.get(name) is not None}
        if not given:
            return []
        tiles = given["pixel_values"]
        places = patches(model, tiles) // model.config.scale_factor**2
        return [
            Medium(
                model.config.image_token_id,
                places,
                {name: value[row : row + 1, tile : tile + 1] for name, value in given.items()},
            )
            for row, tile in (tiles != 0).flatten(2).any(-1).nonzero().tolist()
        ]

    def packed(self, media: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
        """All in one row."""
        return joined(media, axis=1)


FAMILY = Idefics3()

"""GOT-OCR 2: a SAM tower before a small decoder that reads documents."""

from collections.abc import Mapping
from typing import Any

from PIL import Image

from mmspec.modalities.base.family import Family
from mmspec.modalities.base.prompting import with_text


class GotOcr2(Family):
    """GOT-OCR 2."""

    model_types = ("got_ocr2",)
    model_class = "GotOcr2ForConditionalGeneration"
    instructions: Mapping[str, str | None] = {"read": None}
    takes_text = False
    most_images = 1

    def inputs(
        self, processor: Any, images: list[Image.Image], text: str | None
    ) -> Mapping[str, Any]:
        """Without a text the processor says what the model was trained with."""
        return with_text(processor, images, None)

    def places(self, model: Any, inputs: Mapping[str, Any]) -> list[int]:
        """Patches of a tile, halved twice each way."""
        tiles = inputs["pixel_values"]
        side = model.config.vision_config.patch_size
        high, wide = (-(-(length // side) // 4) for length in tiles.shape[-2:])
        return [high * wide] * len(tiles)


FAMILY = GotOcr2()

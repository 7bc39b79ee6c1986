"""Florence-2: image and instruction are read by BART's encoder, its decoder answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from PIL import Image

from mmspec.modalities.base.cross_attention import CrossAttentionFamily
from mmspec.modalities.base.prompting import with_text


class Florence2(CrossAttentionFamily):
    """Florence-2. Its checkpoints ask for beams: say `num_beams=1`."""

    model_types = ("florence2",)
    model_class = "Florence2ForConditionalGeneration"
    placeholders = ("image_token_id",)  # in the encoder's text
    instructions: Mapping[str, str | None] = {"caption": "<CAPTION>", "read": "<OCR>"}

    def decoder(self, model: Any) -> Any:
        """BART's, without its encoder."""
        return model.model.language_model.decoder

    def inputs(
        self, processor: Any, images: list[Image.Image], text: str | None
    ) -> Mapping[str, Any]:
        """A task's name or a question."""
        return with_text(processor, images, text)


FAMILY = Florence2()

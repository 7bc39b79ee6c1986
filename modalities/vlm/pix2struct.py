"""Pix2Struct: an image in patches of its own shape, questions drawn into it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from PIL import Image
from torch import nn

from mmspec.modalities.base.causal import UNLIMITED
from mmspec.modalities.base.cross_attention import CrossAttentionFamily
from mmspec.modalities.base.decoder import with_module
from mmspec.modalities.base.prompting import NO_WORDS, with_text


class Pix2Struct(CrossAttentionFamily):
    """Pix2Struct, MatCha, DePlot."""

    model_types = ("pix2struct",)
    model_class = "Pix2StructForConditionalGeneration"
    encoder_names = ("encoder",)
    endless = True  # positions are distances
    instructions = NO_WORDS

    def inputs(
        self, processor: Any, images: list[Image.Image], text: str | None
    ) -> Mapping[str, Any]:
        """A question's words go into the image, a caption's beginning to the decoder."""
        return with_text(processor, images, text)

    def context(self, model: Any) -> int:
        """There is no table of positions that could end."""
        return UNLIMITED

    def decoder(self, model: Any) -> Any:
        """The model's own, up to the final norm; its vocabulary projection is its last part."""
        return with_module(model.decoder, "lm_head", nn.Identity())

    def head(self, model: Any) -> nn.Module:
        """What the decoder does last."""
        return model.decoder.lm_head


FAMILY = Pix2Struct()

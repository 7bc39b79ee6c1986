"""BLIP: a captioner, and one that answers; the image is attended to across by BERT's layers.

BLIP's `generate` looks, then lets its text decoder generate: what reaches a decoding loop is that
decoder. Both are known here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from PIL import Image
from torch import Tensor, nn

from mmspec.modalities.base.cross_attention import CrossAttentionFamily
from mmspec.modalities.base.preparation import Prepared
from mmspec.modalities.base.prompting import with_text


class Blip(CrossAttentionFamily):
    """BLIP, for captions (a text is how they begin) and for questions."""

    model_types = ("blip", "blip_text_model")
    model_class = "BlipForConditionalGeneration"
    encoder_names = ("vision_model",)
    instructions: Mapping[str, str | None] = {"caption": None}

    def class_for(self, config: Any) -> str:
        """Both kinds have the same model type; the checkpoint says which one it is."""
        answers = "BlipForQuestionAnswering"
        return answers if answers in (config.architectures or ()) else self.model_class

    def inputs(
        self, processor: Any, images: list[Image.Image], text: str | None
    ) -> Mapping[str, Any]:
        """The text is a caption's beginning, or a question."""
        return with_text(processor, images, text)

    def decoder(self, model: Any) -> Any:
        """BERT, without its head."""
        return writer(model).bert

    def head(self, model: Any) -> nn.Module:
        """BERT's: a transformation and a projection."""
        return writer(model).cls

    def vocab_size(self, model: Any) -> int:
        """As its configuration has it."""
        return writer(model).config.vocab_size

    def ends(self, model: Any) -> frozenset[int]:
        """`generate` ends at the mark between two texts, whatever the generation config says."""
        return frozenset({writer(model).config.sep_token_id})

    def encoders(self, model: Any) -> list[nn.Module]:
        """The text decoder by itself has none."""
        return [] if writer(model) is model else super().encoders(model)

    def context(self, model: Any) -> int:
        """Positions that the text decoder has embeddings for."""
        return writer(model).config.max_position_embeddings

    def encoder_states(self, prepared: Prepared) -> Tensor:
        """The image, or the question that has looked at it."""
        return prepared.inputs["encoder_hidden_states"]

    def constants(self, prepared: Prepared) -> dict[str, Any]:
        """Without the last one it would read both ways."""
        mask = prepared.inputs["encoder_attention_mask"]
        return {"encoder_attention_mask": mask, "is_decoder": True}


def writer(model: Any) -> Any:
    """The part that writes, of a whole BLIP or of itself."""
    return getattr(model, "text_decoder", model)


FAMILY = Blip()

"""Any vision encoder with any text decoder: TrOCR, Donut, Nougat, ViT with GPT-2."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from PIL import Image
from torch import Tensor, nn

from mmspec.errors import ModelError
from mmspec.modalities.base.cross_attention import CrossAttentionFamily, CrossAttentionTarget
from mmspec.modalities.base.preparation import Prepared
from mmspec.modalities.base.prompting import NO_WORDS

PARTS = {
    "bart": ("model.decoder", "lm_head"),
    "gpt2": ("transformer", "lm_head"),
    "mbart": ("model.decoder", "lm_head"),
    "trocr": ("model.decoder", "output_projection"),
}
"""Where a decoder's layers and its vocabulary projection are, by its model type."""


class SinusoidalTarget(CrossAttentionTarget):
    """TrOCR where positions are computed: from those of a pass that are no pads.

    Behind a pad a new pass begins, as when tokens are fed one by one.
    """

    def score(self, ids: Sequence[int], keep: int, parents: Sequence[int] | None = None) -> Tensor:
        """As its base; see above."""
        pad = self._decoder.embed_positions.padding_idx
        # The prompt is one pass in the library as well.
        cuts = [place + 1 for place, token in enumerate(ids[:-1]) if token == pad]
        cuts = cuts if self.state.length else []
        rows, first = [], len(ids) - keep
        for start, end in zip([0, *cuts], [*cuts, len(ids)], strict=True):
            rows.append(super().score(ids[start:end], max(0, end - max(start, first))))
        return torch.cat(rows)


class VisionEncoderDecoder(CrossAttentionFamily):
    """An encoder that sees, a decoder that writes, joined afterwards."""

    model_types = ("vision-encoder-decoder",)
    model_class = "VisionEncoderDecoderModel"
    encoder_names = ("encoder",)
    instructions = NO_WORDS

    def inputs(
        self, processor: Any, images: list[Image.Image], text: str | None
    ) -> Mapping[str, Any]:
        """A text is what the decoder begins with (Donut's task)."""
        given = dict(processor(images=images, return_tensors="pt"))
        if text is None:
            return given
        read = processor.tokenizer(text, add_special_tokens=False, return_tensors="pt")
        return {**given, "decoder_input_ids": read["input_ids"]}

    def decoder(self, model: Any) -> Any:
        """Without what makes it a model of its own."""
        return model.decoder.get_submodule(self._parts(model)[0])

    def head(self, model: Any) -> nn.Module:
        """Its vocabulary projection."""
        return model.decoder.get_submodule(self._parts(model)[1])

    def context(self, model: Any) -> int:
        """Positions that the decoder has embeddings for."""
        return model.decoder.config.max_position_embeddings

    def encoder_states(self, prepared: Prepared) -> Tensor:
        """In the decoder's width: where the two differ, a projection stands between."""
        states = super().encoder_states(prepared)
        project = getattr(prepared.model, "enc_to_dec_proj", None)
        return states if project is None else project(states)

    def constants(self, prepared: Prepared) -> dict[str, Any]:
        """All that was encoded is attended to."""
        return {}

    def target_class(self, model: Any) -> type[CrossAttentionTarget]:
        """By how positions are made."""
        config = model.decoder.config
        computed = config.model_type == "trocr" and not config.use_learned_position_embeddings
        return SinusoidalTarget if computed else CrossAttentionTarget

    def _parts(self, model: Any) -> tuple[str, str]:
        kind = model.decoder.config.model_type
        if kind not in PARTS:
            raise ModelError(
                f"a vision encoder with a decoder of type {kind}; mmspec knows decoders of type "
                f"{', '.join(PARTS)}"
            )
        return PARTS[kind]


FAMILY = VisionEncoderDecoder()

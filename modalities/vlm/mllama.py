"""Llama 3.2 Vision: some layers of a language model attend to the image, and to nothing else.

The image's ids stand in the prompt, but what they are read as says nothing: what is seen is kept
by those layers, computed with the prompt.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import torch
from torch import Tensor

from mmspec.kernels import PackedLinears
from mmspec.modalities.base.batch import behind_padding
from mmspec.modalities.base.cross_attention import rows_of
from mmspec.modalities.base.decoder import block_layers
from mmspec.modalities.base.family import Family, text_config
from mmspec.modalities.base.prefix_decoder import PrefixTarget
from mmspec.modalities.base.preparation import Prepared
from mmspec.modalities.base.prepared_target import PreparedTarget
from mmspec.state import DecoderState

MASKS = ("cross_attention_mask", "full_text_row_masked_out_mask")
"""What the decoder is told of the images that a token sees, one row per token."""


OF_PROMPT = ("input_ids", "attention_mask", "cross_attention_mask")
"""Inputs that have an entry for each position of a prompt."""


class MllamaTarget(PrefixTarget):
    """A decoder with layers of both kinds; every token sees what the prompt's last one saw."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._sight: Mapping[str, Tensor] = {}

    @torch.no_grad()
    def read_prompt(self, places: Tensor | None = None) -> Tensor:
        """As its base; the masks that the model makes for its decoder are kept."""
        told: dict[str, Any] = {}
        hook = self._decoder.register_forward_pre_hook(
            lambda _, arguments, named: told.update(named), with_kwargs=True
        )
        try:
            row = super().read_prompt(places)
        finally:
            hook.remove()
        masks = {name: told.get(name) for name in MASKS}
        self._sight = {name: mask[:, :, -1:] for name, mask in masks.items() if mask is not None}
        return row

    def _told(self, size: int) -> Mapping[str, Any]:
        return {name: mask.expand(-1, -1, size, -1) for name, mask in self._sight.items()}

    def early_exit(self, layers: int) -> Self:
        """As its base."""
        shallow = super().early_exit(layers)
        shallow._sight = self._sight
        return shallow


class Mllama(Family):
    """Llama 3.2 Vision."""

    model_types = ("mllama",)
    model_class = "MllamaForConditionalGeneration"
    placeholders = ("image_token_index",)
    encoder_names = ("model.vision_model",)
    in_prompt = False

    def rows(self, model: Any, inputs: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Each row has its own images, padded to the most of any; its prompt isn't."""
        rows = rows_of(inputs)
        return [_unpadded(row) for row in rows] if len(rows) > 1 else rows

    def visual_tokens(self, prepared: Prepared) -> int:
        """Positions that the layers between the others attend to."""
        pixels = prepared.inputs.get("pixel_values")
        if pixels is None:
            return 0
        images, tiles = pixels.shape[1:3]
        return images * tiles * prepared.model.model.vision_model.num_patches

    def open(self, prepared: Prepared, *, packed: bool) -> PreparedTarget:
        """The decoder, nothing read yet. Close it when done."""
        model = prepared.model
        decoder, head = self.decoder(model), self.head(model)
        state = DecoderState(
            len(decoder.layers),
            self.room(prepared),
            cross_attention=False,
            frozen_layers=text_config(model).cross_attention_layers,
        )
        packs = PackedLinears(block_layers(decoder, head)).open() if packed else None
        return MllamaTarget(prepared, decoder, head, state, packs)


def _unpadded(row: dict[str, Any]) -> dict[str, Any]:
    """A row without the padding in front of its prompt."""
    if row.get("attention_mask") is None or row.get("input_ids") is None:
        return row
    none = torch.empty(0, dtype=torch.long)  # what is seen stands in no place of the prompt
    there = behind_padding(row["attention_mask"][0], row["input_ids"][0], none)
    return {**row, **{name: row[name][:, there] for name in OF_PROMPT if name in row}}


FAMILY = Mllama()

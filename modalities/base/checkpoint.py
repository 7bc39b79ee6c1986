"""A loaded model that looks or listens, as mmspec sees it: model, processor, family, descriptor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from PIL import Image

from mmspec.errors import ModelError
from mmspec.factorizations import TextSteps
from mmspec.kernels import PackedLinears
from mmspec.modalities import adapter_for
from mmspec.modalities.base.decoder import block_layers, check_inference_mode
from mmspec.modalities.base.family import Family
from mmspec.modalities.base.prompting import Instruction, inputs_of


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """A loaded checkpoint.

    Attributes:
        model: transformers' model; never written to.
        processor: its processor, or None where only ids and tensors are dealt with.
        family: what its family does its own way.
        steps: its descriptor.
        packed: run linear layers in packed layout where that pays.
    """

    model: Any
    processor: Any
    family: Family
    steps: TextSteps
    packed: bool = True
    _packs: PackedLinears | None = None

    @classmethod
    def of(
        cls,
        model: Any,
        processor: Any = None,
        *,
        packed: bool = True,
        family: Family | None = None,
    ) -> Checkpoint:
        """Describe a model; without a family, the one that its model type names.

        Raises:
            ModelError: it is in training mode, or of a family that no adapter knows.
        """
        check_inference_mode(model, "model")
        family = family or adapter_for(model.config.model_type).FAMILY
        packs = None
        if packed:  # made once and kept; each request's decoder shares them
            layers = block_layers(family.decoder(model), family.head(model))
            packs = PackedLinears(layers).pack()
        return cls(model, processor, family, steps_of(model, family), packed, packs)

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return self.model.device

    @property
    def tokenizer(self) -> Any:
        """The processor's, or what stands in for one where there is nothing but text."""
        return getattr(self.processor, "tokenizer", self.processor)

    def inputs(self, images: Sequence[Image.Image], instruction: Instruction) -> dict[str, Any]:
        """What `model.generate` takes for a prompt about images; see `prompting.inputs_of`."""
        return inputs_of(self, images, instruction)

    def text(self, ids: Sequence[int]) -> str:
        """What the tokens say, special ones left out."""
        return self.tokenizer.decode(list(ids), skip_special_tokens=True)

    def tokens(self, text: str) -> list[int]:
        """A complete hypothesis from its text: its tokens and the end."""
        ids = self.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
        return [*ids, *sorted(self.steps.stop_tokens)[:1]]

    def word_beginnings(self, tokens: Sequence[int]) -> list[bool] | None:
        """Whether each token begins a word, None where there is no tokenizer to tell."""
        if self.processor is None:
            return None
        begins, before = [], " "
        for token in tokens:
            text = self.tokenizer.decode([token])
            begins.append(not (before[-1:].isalnum() and text[:1].isalnum()))
            before = text
        return begins


def steps_of(model: Any, family: Family) -> TextSteps:
    """The descriptor of a model's decoder.

    Raises:
        ModelError: an end or a placeholder outside the vocabulary.
    """
    size = family.vocab_size(model)
    # A placeholder may stand beyond the vocabulary that the decoder predicts.
    reserved = frozenset(token for token in family.reserved(model) if token < size)
    try:
        return TextSteps(size, family.ends(model), reserved)
    except ValueError as error:
        raise ModelError(f"the generation config doesn't fit the model: {error}") from None

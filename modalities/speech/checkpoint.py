"""A loaded model that says codes, as mmspec sees it: model, processor, family, descriptor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from mmspec.modalities import adapter_for
from mmspec.modalities.base.decoder import check_inference_mode
from mmspec.modalities.speech.family import Family


@dataclass(frozen=True, eq=False)
class SpeechCheckpoint:
    """A loaded checkpoint.

    Attributes:
        model: transformers' model; never written to.
        processor: what makes its inputs, or None where only ids and tensors are dealt with.
        family: what its family does its own way.
        steps: its descriptor.
        packed: run linear layers in packed layout where that pays.
    """

    model: Any
    processor: Any
    family: Family
    steps: Any
    packed: bool = True

    @classmethod
    def of(
        cls, model: Any, processor: Any = None, *, packed: bool = True, family: Family | None = None
    ) -> SpeechCheckpoint:
        """Describe a model; without a family, the one that its model type names.

        Raises:
            ModelError: it is in training mode, of a family that no adapter knows, or its descriptor
                doesn't fit its configuration.
        """
        check_inference_mode(model, "model")
        family = family or adapter_for(model.config.model_type).FAMILY
        return cls(model, processor, family, family.descriptor(model), packed)

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return self.model.device

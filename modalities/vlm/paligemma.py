"""PaliGemma 1 and 2: the prompt reads itself both ways, the answer is causal; positions from 1."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from mmspec.modalities.base.family import Family
from mmspec.modalities.base.prefix_decoder import PrefixTarget, WindowedTarget
from mmspec.modalities.base.prompting import beside


class PaliGemma2Target(WindowedTarget):
    """A Gemma 2 decoder: every other layer sees a window, and logits are capped."""

    def _logits(self, hidden: Tensor) -> Tensor:
        cap: Any = self._decoder.config.final_logit_softcapping
        logits = super()._logits(hidden)
        return logits if cap is None else torch.tanh(logits / cap) * cap


class PaliGemma(Family):
    """PaliGemma 1 and 2."""

    model_types = ("paligemma",)
    model_class = "PaliGemmaForConditionalGeneration"
    placeholders = ("image_token_id",)
    instructions: Mapping[str, str | None] = {"caption": "caption en", "read": "ocr"}

    def inputs(
        self, processor: Any, images: list[Image.Image], text: str | None
    ) -> Mapping[str, Any]:
        """A task's name or a question; no conversations."""
        return beside(processor, images, text, between="")

    def target_class(self, model: Any) -> type[PrefixTarget]:
        """By the decoder's generation."""
        windowed = getattr(self.decoder(model).config, "sliding_window", None) is not None
        return PaliGemma2Target if windowed else PrefixTarget


FAMILY = PaliGemma()

"""PaliGemma 1 and 2: the prompt reads itself both ways, the answer is causal.

The decoder's own attention is declared to be bidirectional, so that a block without a mask would
see what stands behind it. Every block gets one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from mmspec.modalities.vlm.family import Family
from mmspec.modalities.vlm.prefixed import PrefixTarget, WindowedTarget
from mmspec.modalities.vlm.prompting import beside


class _CausalBlocks:
    """What both decoders do on top of theirs: a chain is masked as a tree is."""

    def _hidden(self, block: Tensor, parents: Sequence[int] | None) -> Tensor:
        chain = range(-1, block.shape[1] - 1)
        return super()._hidden(block, chain if parents is None else parents)  # type: ignore[misc]


class PaliGemmaTarget(_CausalBlocks, PrefixTarget):
    """A Gemma decoder."""


class PaliGemma2Target(_CausalBlocks, WindowedTarget):
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
        return PaliGemma2Target if windowed else PaliGemmaTarget


FAMILY = PaliGemma()

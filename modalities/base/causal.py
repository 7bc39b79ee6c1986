"""A plain language model: it neither looks nor listens, so it only ever drafts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from mmspec.compat import cache_argument
from mmspec.errors import ModelError
from mmspec.modalities.base.family import Family, text_config
from mmspec.modalities.base.prefix_decoder import PrefixTarget

UNLIMITED = 1 << 20
"""Positions of a model whose configuration names no limit."""


class TextModel(Family):
    """Any causal language model whose memory is keys and values."""

    model_types = ()
    model_class = "AutoModelForCausalLM"
    placeholders = ()
    encoder_names = ()
    endless = False

    def context(self, model: Any) -> int:
        """Positions that it can hold."""
        return getattr(text_config(model), "max_position_embeddings", None) or UNLIMITED

    def layers(self, model: Any) -> int:
        """How many its configuration names: a decoder of any make has them somewhere else."""
        return text_config(model).num_hidden_layers

    def target_class(self, model: Any) -> type[PrefixTarget]:
        """What runs blocks behind a prompt of words."""
        return TextTarget


class TextTarget(PrefixTarget):
    """A language model behind a prompt of words; places and positions are the same."""

    @torch.no_grad()
    def read_prompt(self, places: Tensor | None = None) -> Tensor:
        """Read the whole prompt and freeze it; the distribution behind it `[1, V]`."""
        row = self.score(self._prepared.prompt, 1)
        self.state.freeze()
        return row

    @torch.no_grad()
    def score(self, ids: Sequence[int], keep: int, parents: Sequence[int] | None = None) -> Tensor:
        """Append `ids`; float32 logits `[keep, V]`. The model's own forward scales its logits."""
        if parents is not None:
            raise ValueError("a drafting language model is asked for chains only")
        model, block = self._prepared.model, torch.tensor([list(ids)], device=self.device)
        with self.state.block(len(ids)):
            cache = cache_argument(type(model), self.state.cache)
            logits = model(input_ids=block, use_cache=True, return_dict=True, **cache).logits[0]
        self.forwards += 1
        return logits[len(ids) - keep :].float()


TEXT_MODEL = TextModel()


def check_text_model(model: Any) -> None:
    """Raise where a model can't draft as a language model.

    Raises:
        ModelError: says why.
    """
    kind = type(model).__name__
    if not callable(getattr(model, "generate", None)) or model.get_output_embeddings() is None:
        raise ModelError(f"{kind} has no vocabulary projection: expected a causal language model")
    if model.config.is_encoder_decoder:
        raise ModelError(f"{kind} reads with an encoder: expected a causal language model")
    if model._is_stateful:
        raise ModelError(
            f"{kind} keeps a running state, which can't be rolled back: it can't draft"
        )

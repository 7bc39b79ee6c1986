"""Whisper's decoder pass without the library's layers of indirection.

A block of a few tokens through a small decoder spends a good part of its time in Python around the
kernels. This is the same arithmetic, on the model's own modules, straight over the decoder state.
It runs only where it is known to be the same (`can_run_lean`); everywhere else, and with
`packed=False`, transformers' own forward runs.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers.models.whisper.modeling_whisper import WhisperDecoder

from mmspec.modalities.decoder import DecoderTarget


def can_run_lean(decoder: Any) -> bool:
    """Whether this decoder is the plain architecture that `LeanWhisperTarget` computes."""
    return (
        type(decoder) is WhisperDecoder
        and not decoder.training
        and decoder.config._attn_implementation == "sdpa"
        and not any(
            module._forward_hooks or module._forward_pre_hooks for module in decoder.modules()
        )
    )


class LeanWhisperTarget(DecoderTarget):
    """A `DecoderTarget` over Whisper's decoder that calls its modules directly."""

    def _hidden(self, block: Tensor) -> Tensor:
        decoder, length, size = self._decoder, self.state.length, block.shape[1]
        positions = decoder.embed_positions.weight[length : length + size]
        hidden = decoder.embed_tokens(block) + positions
        mask = _causal_mask(length, size, block.device)
        for index, layer in enumerate(decoder.layers):
            hidden = hidden + self._self_attention(index, layer, hidden, mask)
            hidden = hidden + self._cross_attention(index, layer, hidden)
            inner = layer.activation_fn(layer.fc1(layer.final_layer_norm(hidden)))
            hidden = hidden + layer.fc2(inner)
        return decoder.layer_norm(hidden)

    def _self_attention(
        self, index: int, layer: Any, hidden: Tensor, mask: Tensor | None
    ) -> Tensor:
        attention, normed = layer.self_attn, layer.self_attn_layer_norm(hidden)
        query = _heads(attention.q_proj(normed) * attention.scaling, attention)
        keys, values = self.state.growing(index).update(
            _heads(attention.k_proj(normed), attention), _heads(attention.v_proj(normed), attention)
        )
        return attention.out_proj(_attend(query, keys, values, mask))

    def _cross_attention(self, index: int, layer: Any, hidden: Tensor) -> Tensor:
        attention, conditioning = layer.encoder_attn, self.state.conditioning(index)
        if not conditioning.is_initialized:
            states = self._encoder_states
            conditioning.update(
                _heads(attention.k_proj(states), attention).contiguous(),
                _heads(attention.v_proj(states), attention).contiguous(),
            )
        query = _heads(
            attention.q_proj(layer.encoder_attn_layer_norm(hidden)) * attention.scaling, attention
        )
        return attention.out_proj(_attend(query, conditioning.keys, conditioning.values, None))


def _heads(projected: Tensor, attention: Any) -> Tensor:
    """`[1, n, heads x width]` as `[1, heads, n, width]`."""
    return projected.view(1, -1, attention.num_heads, attention.head_dim).transpose(1, 2)


def _attend(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
    """Attention with the scale already in the query, heads joined again: `[1, n, D]`."""
    mixed = scaled_dot_product_attention(query, keys, values, attn_mask=mask, scale=1.0)
    return mixed.transpose(1, 2).flatten(2)


def _causal_mask(length: int, size: int, device: torch.device) -> Tensor | None:
    """What each of `size` new positions may see of `length` old ones and its own block."""
    if size == 1:
        return None
    return torch.ones(size, length + size, dtype=torch.bool, device=device).tril(length)

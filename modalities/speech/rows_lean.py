"""A MusicGen decoder's pass over a block of rows without the library's layers of indirection.

Small decoders spend most of a step in Python around the kernels. This is the same arithmetic, on
the model's own modules, straight over a decoder state whose prompt was read by transformers' own
forward. It runs only where it is known to be the same (`can_run_lean`).

Legend: B batch rows (2 under guidance, else 1), K codebooks, n rows of a block, D width, S
positions of conditioning.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers.models.musicgen.modeling_musicgen import MusicgenDecoder
from transformers.models.musicgen_melody.modeling_musicgen_melody import MusicgenMelodyDecoder

from mmspec.state import DecoderState


def can_run_lean(decoder: Any) -> bool:
    """Whether this decoder is one of the plain architectures that `lean_rows` computes."""
    return (
        type(decoder) in (MusicgenDecoder, MusicgenMelodyDecoder)
        and not decoder.training
        and decoder.config._attn_implementation == "sdpa"
        and not any(
            module._forward_hooks or module._forward_pre_hooks for module in decoder.modules()
        )
    )


def lean_rows(
    decoder: Any, state: DecoderState, block: Tensor, start: int, sees: Tensor | None
) -> Tensor:
    """The decoder's last hidden states `[B, n, D]` for a block of ids `[B K, n]`.

    Args:
        decoder: one that can run lean.
        state: its memory; the prompt was read, and the block is announced.
        block: ids, batch row by batch row.
        start: slot of the block's first row in the memory: its position, as the decoder counts.
        sees: which positions of conditioning count, bool `[B, 1, 1, S]`; None: all.
    """
    size = block.shape[1]
    ids = block.view(-1, decoder.num_codebooks, size)
    hidden = decoder.embed_tokens[0](ids[:, 0])
    for codebook in range(1, decoder.num_codebooks):
        hidden = hidden + decoder.embed_tokens[codebook](ids[:, codebook])
    hidden = hidden + decoder.embed_positions.weights[start : start + size]
    mask = None
    if size > 1:
        mask = torch.ones(size, start + size, dtype=torch.bool, device=block.device).tril(start)
    for index, layer in enumerate(decoder.layers):
        attention, normed = layer.self_attn, layer.self_attn_layer_norm(hidden)
        query, key, value = (
            _heads(make(normed), attention)
            for make in (attention.q_proj, attention.k_proj, attention.v_proj)
        )
        keys, values = state.growing(index).update(key, value)
        hidden = hidden + _attended(attention, query, keys, values, mask)
        if hasattr(layer, "encoder_attn"):
            attention, conditioning = layer.encoder_attn, state.conditioning(index)
            query = _heads(attention.q_proj(layer.encoder_attn_layer_norm(hidden)), attention)
            hidden = hidden + _attended(
                attention, query, conditioning.keys, conditioning.values, sees
            )
        inner = layer.activation_fn(layer.fc1(layer.final_layer_norm(hidden)))
        hidden = hidden + layer.fc2(inner)
    return decoder.layer_norm(hidden)


def _heads(projected: Tensor, attention: Any) -> Tensor:
    """`[B, n, heads x width]` as `[B, heads, n, width]`."""
    shape = (*projected.shape[:2], attention.num_heads, attention.head_dim)
    return projected.view(shape).transpose(1, 2)


def _attended(
    attention: Any, query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None
) -> Tensor:
    """What an attention layer adds, `[B, n, D]`."""
    mixed = scaled_dot_product_attention(
        query, keys, values, attn_mask=mask, scale=attention.scaling
    )
    return attention.out_proj(mixed.transpose(1, 2).flatten(2))

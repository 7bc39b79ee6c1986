"""A MusicGen decoder's pass over a block of rows without the library's layers of indirection.

Small decoders spend most of a step in Python around the kernels. This is the same arithmetic, on
the model's own weights, straight over a decoder state whose prompt was read by transformers' own
forward. It runs only where it is proven to be the same (`why_not_fast`).

Legend: B batch rows (2 under guidance, else 1), K codebooks, n rows of a block, D width, S
positions of conditioning.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding, layer_norm, linear, scaled_dot_product_attention
from transformers.models.musicgen import modeling_musicgen as musicgen
from transformers.models.musicgen_melody import modeling_musicgen_melody as melody

from mmspec.compat import attends_by_sdpa
from mmspec.kernels import first_oddity, oddity
from mmspec.kernels.plain import Part
from mmspec.state import DecoderState
from mmspec.state.layers import FrozenLayer, GrowingLayer

Function = Callable[[Tensor], Tensor]


Kinds = tuple[type[nn.Module], type[nn.Module], type[nn.Module], type[nn.Module]]

PLAIN: tuple[Kinds, ...] = (
    (
        musicgen.MusicgenDecoder,
        musicgen.MusicgenDecoderLayer,
        musicgen.MusicgenAttention,
        musicgen.MusicgenSinusoidalPositionalEmbedding,
    ),
    (
        melody.MusicgenMelodyDecoder,
        melody.MusicgenMelodyDecoderLayer,
        melody.MusicgenMelodyAttention,
        melody.MusicgenMelodySinusoidalPositionalEmbedding,
    ),
)
"""Classes of the decoders, layers, attentions and positions whose computation stands here."""


def why_not_fast(decoder: Any) -> str | None:
    """What of this decoder isn't what `FastRows` computes, if anything.

    Projections and norms may be whatever they are: those that aren't plain are called.
    """
    kinds = next((kinds for kinds in PLAIN if type(decoder) is kinds[0]), None)
    if kinds is None:
        return f"the decoder is of class {type(decoder).__name__}"
    found = first_oddity(_stood_in_for(decoder, kinds))
    if found is not None:
        return found
    attentions = [one for layer in decoder.layers for one in _attentions(layer).values()]
    if not all(attends_by_sdpa(module) for module in (decoder, *attentions)):
        return "the decoder attends by another function than torch's fused one"
    if any(table.max_norm is not None for table in decoder.embed_tokens):
        return "an embedding keeps its rows' norms down"
    return None


def _stood_in_for(decoder: Any, kinds: Kinds) -> Iterator[Part]:
    """The submodules whose own forward isn't called."""
    whole, of_layer, of_attention, of_positions = kinds
    yield "the decoder", decoder, whole
    yield "embed_positions", decoder.embed_positions, of_positions
    for codebook, table in enumerate(decoder.embed_tokens):
        yield f"embed_tokens.{codebook}", table, nn.Embedding
    for index, layer in enumerate(decoder.layers):
        yield f"layers.{index}", layer, of_layer
        for name, attention in _attentions(layer).items():
            yield f"layers.{index}.{name}", attention, of_attention


def _attentions(layer: Any) -> dict[str, Any]:
    found = {name: getattr(layer, name, None) for name in ("self_attn", "encoder_attn")}
    return {name: attention for name, attention in found.items() if attention is not None}


@dataclass(frozen=True, slots=True, eq=False)
class _Attention:
    """An attention layer behind its norm."""

    norm: Function
    query: Function
    key: Function
    value: Function
    out: Function
    heads: int
    scale: float

    @classmethod
    def of(cls, norm: nn.LayerNorm, layer: Any) -> _Attention:
        return cls(
            _norm(norm),
            function_of(layer.q_proj),
            function_of(layer.k_proj),
            function_of(layer.v_proj),
            function_of(layer.out_proj),
            layer.num_heads,
            layer.scaling,
        )

    def split(self, projected: Tensor) -> Tensor:
        """`[B, n, heads x width]` as `[B, heads, n, width]`."""
        rows, size, width = projected.shape
        return projected.view(rows, size, self.heads, width // self.heads).transpose(1, 2)

    def attended(self, query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
        """What the layer adds, `[B, n, D]`."""
        mixed = scaled_dot_product_attention(
            self.split(query), keys, values, attn_mask=mask, scale=self.scale
        )
        return self.out(mixed.transpose(1, 2).flatten(2))


@dataclass(frozen=True, slots=True, eq=False)
class _Layer:
    """A decoder layer over a state: what it remembers of rows, and of conditioning if it does."""

    inward: _Attention
    memory: GrowingLayer
    across: _Attention | None
    conditioning: FrozenLayer | None
    norm: Function
    up: Function
    activation: Function
    down: Function


class FastRows:
    """A decoder over a state, its prompt read.

    Args:
        decoder: one that can run lean, its layers packed already if they are to be.
        state: its memory.
    """

    def __init__(self, decoder: Any, state: DecoderState) -> None:
        self._tables = [table.weight for table in decoder.embed_tokens]
        self._positions: Tensor = decoder.embed_positions.weights
        self._norm = _norm(decoder.layer_norm)
        self._layers = [self._layer(*numbered, state) for numbered in enumerate(decoder.layers)]

    def _layer(self, index: int, layer: Any, state: DecoderState) -> _Layer:
        crosses = hasattr(layer, "encoder_attn")
        return _Layer(
            _Attention.of(layer.self_attn_layer_norm, layer.self_attn),
            state.growing(index),
            _Attention.of(layer.encoder_attn_layer_norm, layer.encoder_attn) if crosses else None,
            state.conditioning(index) if crosses else None,
            _norm(layer.final_layer_norm),
            function_of(layer.fc1),
            layer.activation_fn,
            function_of(layer.fc2),
        )

    def hidden(self, block: Tensor, start: int, sees: Tensor | None) -> Tensor:
        """The decoder's last hidden states `[B, n, D]`; the state has to announce the block.

        Args:
            block: ids `[B K, n]`, batch row by batch row.
            start: slot of the block's first row in the memory: its position, as decoders count.
            sees: which positions of conditioning count, bool `[B, 1, 1, S]`; None: all.
        """
        size = block.shape[1]
        ids = block.view(-1, len(self._tables), size)
        hidden = embedding(ids[:, 0], self._tables[0])
        for codebook in range(1, len(self._tables)):
            hidden = hidden + embedding(ids[:, codebook], self._tables[codebook])
        hidden = hidden + self._positions[start : start + size]
        mask = None
        if size > 1:
            mask = torch.ones(size, start + size, dtype=torch.bool, device=block.device)
            mask = mask.tril(start)
        for layer in self._layers:
            inward = layer.inward
            normed = inward.norm(hidden)
            keys, values = layer.memory.update(
                inward.split(inward.key(normed)), inward.split(inward.value(normed))
            )
            hidden = hidden + inward.attended(inward.query(normed), keys, values, mask)
            across, known = layer.across, layer.conditioning
            if across is not None and known is not None:
                query = across.query(across.norm(hidden))
                hidden = hidden + across.attended(query, known.keys, known.values, sees)
            hidden = hidden + layer.down(layer.activation(layer.up(layer.norm(hidden))))
        return self._norm(hidden)


def function_of(layer: nn.Linear) -> Function:
    """A linear layer's function: the product itself where the layer is plain, else its call."""
    if oddity(layer, nn.Linear) is not None:
        return layer
    return partial(linear, weight=layer.weight, bias=layer.bias)


def _norm(layer: nn.LayerNorm) -> Function:
    if oddity(layer, nn.LayerNorm) is not None:
        return layer
    return partial(
        layer_norm,
        normalized_shape=layer.normalized_shape,
        weight=layer.weight,
        bias=layer.bias,
        eps=layer.eps,
    )

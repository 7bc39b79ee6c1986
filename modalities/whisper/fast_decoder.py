"""Whisper's decoder pass without the library's layers of indirection.

A block of a few tokens through a small decoder spends a good part of its time in Python around the
kernels. This is the same arithmetic, on the model's own modules, straight over the decoder state.
It runs only where it is proven to be the same (`why_not_fast`); everywhere else, and with
`packed=False`, transformers' own forward runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers.models.whisper.modeling_whisper import (
    WhisperAttention,
    WhisperDecoder,
    WhisperDecoderLayer,
    WhisperPositionalEmbedding,
)

from mmspec.compat import attends_by_sdpa
from mmspec.kernels import first_oddity
from mmspec.kernels.plain import Part
from mmspec.modalities.base.decoder import DecoderTarget, tree_shape
from mmspec.target import Pass


def why_not_fast(decoder: Any) -> str | None:
    """What of this decoder isn't the architecture that `FastWhisperTarget` computes, if anything.

    Layers that it calls as modules (projections, norms, activations, the embedding of tokens) may
    be whatever they are.
    """
    if type(decoder) is not WhisperDecoder:
        return f"the decoder is of class {type(decoder).__name__}"
    found = first_oddity(_stood_in_for(decoder))
    if found is None:
        attentions = (
            one for layer in decoder.layers for one in (layer.self_attn, layer.encoder_attn)
        )
        if not all(attends_by_sdpa(module) for module in (decoder, *attentions)):
            found = "the decoder attends by another function than torch's fused one"
    return found


def _stood_in_for(decoder: WhisperDecoder) -> Iterator[Part]:
    """The submodules whose own forward isn't called."""
    yield "the decoder", decoder, WhisperDecoder
    yield "embed_positions", decoder.embed_positions, WhisperPositionalEmbedding
    for index, layer in enumerate(decoder.layers):
        yield f"layers.{index}", layer, WhisperDecoderLayer
        for name in ("self_attn", "encoder_attn"):
            yield f"layers.{index}.{name}", getattr(layer, name), WhisperAttention


@dataclass(frozen=True, slots=True, eq=False)
class _Span:
    """One target's part of a forward: its rows, and what they may see.

    Attributes:
        target: whose rows.
        start: index of the first row among all of the forward.
        end: index behind the last.
        positions: of its tokens.
        sees: mask `[n, length + n]`, None where everything is seen.
    """

    target: FastWhisperTarget
    start: int
    end: int
    positions: Tensor
    sees: Tensor | None


class FastWhisperTarget(DecoderTarget):
    """A `DecoderTarget` over Whisper's decoder that calls its modules directly.

    Several targets of one decoder share a forward: their blocks stand in one row, so the layers'
    weights are read once for all and nothing is padded; only attention runs block by block, each
    over its own target's memory. So a block's rows are the same in any company.
    """

    takes_trees = True

    def score(self, ids: Sequence[int], keep: int, parents: Sequence[int] | None = None) -> Tensor:
        """Append `ids`; float32 logits `[keep, V]` behind the last `keep` of them."""
        return _forward([(self, ids, keep, parents)])[0]

    def score_batched(self, passes: Sequence[Pass]) -> list[Tensor]:
        """One forward per decoder, whatever lengths and shapes the blocks have."""
        results: list[Tensor | None] = [None] * len(passes)
        by_decoder: dict[int, list[int]] = {}
        for index, one in enumerate(passes):
            by_decoder.setdefault(id(one.target._decoder), []).append(index)  # type: ignore[attr-defined]
        for members in by_decoder.values():
            blocks = [passes[index] for index in members]
            rows = _forward([(one.target, one.ids, one.keep, one.parents) for one in blocks])  # type: ignore[misc]
            for index, result in zip(members, rows, strict=True):
                results[index] = result
        return [result for result in results if result is not None]


_Block = tuple[FastWhisperTarget, Sequence[int], int, Sequence[int] | None]


@torch.no_grad()
def _forward(blocks: Sequence[_Block]) -> list[Tensor]:
    """Rows for several targets of one decoder."""
    first = blocks[0][0]
    with ExitStack() as announced:
        for target, ids, _, _ in blocks:
            announced.enter_context(target.state.block(len(ids)))
        spans = _spans(blocks)
        tokens = [token for _, ids, _, _ in blocks for token in ids]
        hidden = _hidden(first._decoder, torch.tensor([tokens], device=first.device), spans)[0]
        wanted = [
            hidden[span.end - keep : span.end]
            for span, (_, _, keep, _) in zip(spans, blocks, strict=True)
        ]
        rows = torch.cat(wanted)
        logits = first._head(rows).float() if len(rows) else rows.new_empty(0, first.vocab_size)
    for target, _, _, _ in blocks:
        target.forwards += 1
    return list(logits.split([keep for _, _, keep, _ in blocks]))


def _spans(blocks: Sequence[_Block]) -> list[_Span]:
    spans: list[_Span] = []
    for target, ids, _, parents in blocks:
        start, length, size = (spans[-1].end if spans else 0), target.state.length, len(ids)
        if parents is None:
            positions = torch.arange(length, length + size, device=target.device)
            sees = _causal_mask(length, size, target.device)
        else:
            positions, sees = tree_shape(parents, length, target.device)
        spans.append(_Span(target, start, start + size, positions, sees))
    return spans


def _hidden(decoder: Any, block: Tensor, spans: Sequence[_Span]) -> Tensor:
    """The last hidden states `[1, n, D]` of all spans' tokens `[1, n]`."""
    positions = torch.cat([span.positions for span in spans])
    hidden = decoder.embed_tokens(block) + decoder.embed_positions.weight[positions]
    for index, layer in enumerate(decoder.layers):
        hidden = hidden + _self_attention(index, layer, hidden, spans)
        hidden = hidden + _cross_attention(index, layer, hidden, spans)
        inner = layer.activation_fn(layer.fc1(layer.final_layer_norm(hidden)))
        hidden = hidden + layer.fc2(inner)
    return decoder.layer_norm(hidden)


def _self_attention(index: int, layer: Any, hidden: Tensor, spans: Sequence[_Span]) -> Tensor:
    attention, normed = layer.self_attn, layer.self_attn_layer_norm(hidden)
    query = _heads(attention.q_proj(normed) * attention.scaling, attention)
    key, value = (_heads(make(normed), attention) for make in (attention.k_proj, attention.v_proj))
    mixed = []
    for span in spans:
        rows = slice(span.start, span.end)
        keys, values = span.target.state.growing(index).update(key[:, :, rows], value[:, :, rows])
        mixed.append(_attend(query[:, :, rows], keys, values, span.sees))
    return attention.out_proj(_joined(mixed))


def _cross_attention(index: int, layer: Any, hidden: Tensor, spans: Sequence[_Span]) -> Tensor:
    attention = layer.encoder_attn
    query = _heads(
        attention.q_proj(layer.encoder_attn_layer_norm(hidden)) * attention.scaling, attention
    )
    mixed = []
    for span in spans:
        conditioning = span.target.state.conditioning(index)
        if not conditioning.is_initialized:
            states = span.target._encoder_states
            conditioning.update(
                _heads(attention.k_proj(states), attention).contiguous(),
                _heads(attention.v_proj(states), attention).contiguous(),
            )
        rows = query[:, :, span.start : span.end]
        mixed.append(_attend(rows, conditioning.keys, conditioning.values, None))
    return attention.out_proj(_joined(mixed))


def _joined(mixed: list[Tensor]) -> Tensor:
    return mixed[0] if len(mixed) == 1 else torch.cat(mixed, dim=1)


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

"""A conditioned decoder as the core's `Target`: what encoder-decoder families share.

Legend: S encoder positions, D width, V vocabulary.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, Self

import torch
from torch import Tensor, nn

from mmspec.compat import cache_argument
from mmspec.errors import ModelError
from mmspec.kernels import PackedLinears
from mmspec.state import DecoderState
from mmspec.target import Pass


class DecoderTarget:
    """A decoder with cross-attention to fixed encoder states.

    Args:
        decoder: transformers' decoder module (embeddings, layers, final norm).
        head: vocabulary projection.
        encoder_states: `[1, S, D]`, what the decoder attends to.
        state: its key/value state.
        packed: packed layers that serve this decoder, closed with it.
    """

    def __init__(
        self,
        decoder: Any,
        head: nn.Module,
        encoder_states: Tensor,
        state: DecoderState,
        packed: PackedLinears | None = None,
    ) -> None:
        self._decoder, self._head = decoder, head
        self._encoder_states = encoder_states
        self.state = state
        self.vocab_size: int = head.weight.shape[0]  # type: ignore[assignment,index]
        self.capacity = state.capacity
        self.device = encoder_states.device
        self.forwards = 0
        self._packed = packed

    @property
    def takes_trees(self) -> bool:
        """Whether the attention kernel takes a mask of ours."""
        return self._decoder.config._attn_implementation in ("sdpa", "eager")

    @torch.no_grad()
    def score(self, ids: Sequence[int], keep: int, parents: Sequence[int] | None = None) -> Tensor:
        """Append `ids`; float32 logits `[keep, V]` behind the last `keep` of them."""
        block = torch.tensor([list(ids)], dtype=torch.long, device=self.device)
        with self.state.block(len(ids)):
            hidden = self._hidden(block, parents)
            if keep == 0:
                logits = hidden.new_empty(0, self.vocab_size)
            else:
                logits = self._head(hidden[0, -keep:])
        self.forwards += 1
        return logits.float()

    def score_together(self, passes: Sequence[Pass]) -> list[Tensor]:
        """One after the other: transformers' forward knows no rows of unequal length."""
        return [one.target.score(one.ids, one.keep, one.parents) for one in passes]

    def _hidden(self, block: Tensor, parents: Sequence[int] | None) -> Tensor:
        """The decoder's last hidden states `[1, n, D]` for a block of ids `[1, n]`."""
        shape: dict[str, Tensor] = {}
        if parents is not None:
            positions, sees = tree_shape(parents, self.state.length, self.device)
            hidden_from = torch.zeros(sees.shape, dtype=self._encoder_states.dtype)
            hidden_from = hidden_from.to(self.device).masked_fill(~sees, -torch.inf)
            shape = {"position_ids": positions[None], "attention_mask": hidden_from[None, None]}
        return self._decoder(
            input_ids=block,
            encoder_hidden_states=self._encoder_states,
            use_cache=True,
            **shape,
            **cache_argument(type(self._decoder), self.state.cache),
        ).last_hidden_state

    def beside(self) -> Self:
        """A second target on the same conditioning, nothing read yet; close it before this one."""
        state = self.state.beside()
        return type(self)(self._decoder, self._head, self._encoder_states, state)

    def close(self) -> None:
        """Release the state and the packed layers."""
        self.state.close()
        if self._packed is not None:
            self._packed.close()


def tree_shape(parents: Sequence[int], length: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Positions and visibility of a tree of n units behind `length` positions.

    Returns:
        (positions `[n]`, what each unit sees `[n, length + n]`, bool).

    Example:
        >>> positions, sees = tree_shape([-1, 0, 0], 1, torch.device("cpu"))
        >>> positions.tolist(), sees.long().tolist()
        ([1, 2, 2], [[1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 0, 1]])
    """
    size = len(parents)
    sees = torch.zeros(size, length + size, dtype=torch.bool)
    sees[:, :length] = True
    positions: list[int] = []
    for unit, parent in enumerate(parents):
        if parent >= 0:
            sees[unit] = sees[parent]
        sees[unit, length + unit] = True
        positions.append(length if parent < 0 else positions[parent] + 1)
    return torch.tensor(positions, device=device), sees.to(device)


def check_inference_mode(model: nn.Module, role: str) -> None:
    """Raise where a model is in training mode: dropout would make its output a lottery.

    Raises:
        ModelError: says what to do.
    """
    if model.training:
        raise ModelError(f"the {role} is in training mode: call .eval() on it first")


def block_layers(decoder: nn.Module, head: nn.Module) -> list[nn.Module]:
    """The layers that a decoder's passes go through."""
    return [*decoder.modules(), head]


def first_layers(decoder: Any, count: int) -> Any:
    """A decoder that ends after `count` layers and shares every parameter with the given one.

    Raises:
        ModelError: there are not that many layers to leave out.
    """
    total = len(decoder.layers)
    if not 1 <= count < total:
        raise ModelError(
            f"early exit after layer {count}: the decoder has {total} layers, so 1 to {total - 1}"
        )
    clone = copy.copy(decoder)
    clone._modules = dict(decoder._modules)
    clone.layers = nn.ModuleList(list(decoder.layers)[:count])
    return clone

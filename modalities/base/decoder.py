"""A conditioned decoder as the core's `Target`: what encoder-decoder families share.

Legend: S encoder positions, D width, V vocabulary.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Self

import torch
from torch import Tensor, nn

from mmspec.compat import cache_argument, takes_argument
from mmspec.errors import ModelError
from mmspec.kernels import PackedLinears, worth_packing
from mmspec.modalities.base.layers import mixes_rows
from mmspec.state import DecoderState
from mmspec.target import Pass


class BlockTarget(ABC):
    """A decoder that blocks of ids run through, and a head behind it.

    Args:
        decoder: transformers' decoder module (embeddings, layers, final norm).
        head: vocabulary projection.
        state: its key/value state.
        device: where blocks go.
        packed: packed layers that serve this decoder, closed with it.
        vocab_size: width of the head's rows; None: as its weight says.

    Attributes:
        note: what a report has to say of how blocks run here; None: nothing.
    """

    note: str | None = None

    def __init__(
        self,
        decoder: Any,
        head: Any,
        state: DecoderState,
        device: torch.device,
        packed: PackedLinears | None = None,
        vocab_size: int | None = None,
    ) -> None:
        self._decoder, self._head = decoder, head
        self.state = state
        self.vocab_size: int = vocab_size or head.weight.shape[0]
        self.capacity = state.capacity
        self.device = device
        self.forwards = 0
        self._packed = packed

    @torch.no_grad()
    def score(self, ids: Sequence[int], keep: int, parents: Sequence[int] | None = None) -> Tensor:
        """Append `ids`; float32 logits `[keep, V]` behind the last `keep` of them."""
        block = torch.tensor([list(ids)], dtype=torch.long, device=self.device)
        with self.state.block(len(ids)):
            hidden = self._hidden(block, parents)
            if keep == 0:
                logits = hidden.new_empty(0, self.vocab_size)
            else:
                logits = self._logits(hidden[0, -keep:])
        self.forwards += 1
        return logits.float()

    def score_batched(self, passes: Sequence[Pass]) -> list[Tensor]:
        """One after the other: transformers' forward knows no rows of unequal length."""
        return [one.target.score(one.ids, one.keep, one.parents) for one in passes]

    @abstractmethod
    def _hidden(self, block: Tensor, parents: Sequence[int] | None) -> Tensor:
        """The decoder's last hidden states `[1, n, D]` for a block of ids `[1, n]`."""

    def _logits(self, hidden: Tensor) -> Tensor:
        """Logits `[n, V]` of hidden states `[n, D]`."""
        return self._head(hidden)

    def close(self) -> None:
        """Release the state and the packed layers."""
        self.state.close()
        if self._packed is not None:
            self._packed.close()


class DecoderTarget(BlockTarget):
    """A decoder with cross-attention to fixed encoder states.

    Args:
        decoder: transformers' decoder module (embeddings, layers, final norm).
        head: vocabulary projection.
        encoder_states: `[1, S, D]`, what the decoder attends to.
        state: its key/value state.
        packed: packed layers that serve this decoder, closed with it.
        vocab_size: width of the head's rows; None: as its weight says.
        constants: what else every call of the decoder takes.
    """

    def __init__(
        self,
        decoder: Any,
        head: nn.Module,
        encoder_states: Tensor,
        state: DecoderState,
        packed: PackedLinears | None = None,
        *,
        vocab_size: int | None = None,
        constants: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(decoder, head, state, encoder_states.device, packed, vocab_size)
        self._encoder_states = encoder_states
        self._constants = constants or {}

    @property
    def takes_trees(self) -> bool:
        """Whether the decoder takes positions, and its attention kernel a mask of ours."""
        if not takes_argument(type(self._decoder), "position_ids"):
            return False  # swallowed by some that don't, without a word
        return self._decoder.config._attn_implementation in ("sdpa", "eager")

    def _hidden(self, block: Tensor, parents: Sequence[int] | None) -> Tensor:
        """The decoder's last hidden states `[1, n, D]` for a block of ids `[1, n]`."""
        shape: dict[str, Any] = {}
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
            **self._constants,
            **cache_argument(type(self._decoder), self.state.cache),
        )[0]

    def fork(self) -> Self:
        """A second target on the same conditioning, nothing read yet; close it before this one."""
        return self._over(self._decoder, self.state.fork())

    def _over(self, decoder: Any, state: DecoderState) -> Self:
        """The same conditioning and head behind another decoder or state."""
        return type(self)(
            decoder,
            self._head,
            self._encoder_states,
            state,
            vocab_size=self.vocab_size,
            constants=self._constants,
        )


def tree_shape(parents: Sequence[int], length: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Positions and visibility of a tree of n tokens behind `length` positions.

    Returns:
        (positions `[n]`, what each token sees `[n, length + n]`, bool).

    Example:
        >>> positions, sees = tree_shape([-1, 0, 0], 1, torch.device("cpu"))
        >>> positions.tolist(), sees.long().tolist()
        ([1, 2, 2], [[1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 0, 1]])
    """
    size = len(parents)
    sees = torch.zeros(size, length + size, dtype=torch.bool)
    sees[:, :length] = True
    positions: list[int] = []
    for token, parent in enumerate(parents):
        if parent >= 0:
            sees[token] = sees[parent]
        sees[token, length + token] = True
        positions.append(length if parent < 0 else positions[parent] + 1)
    return torch.tensor(positions, device=device), sees.to(device)


def end_tokens(config: Any) -> frozenset[int]:
    """Tokens that a generation config ends an output with; none is legal, then its length does."""
    ends = config.eos_token_id
    return frozenset([] if ends is None else ends if isinstance(ends, list) else [ends])


def check_inference_mode(model: nn.Module, role: str) -> None:
    """Raise where a model is in training mode: dropout would make its output a lottery.

    Raises:
        ModelError: it is, or computes a block's rows from each other; says what to do.
    """
    if model.training:
        raise ModelError(f"the {role} is in training mode: call .eval() on it first")
    if mixes_rows(model):
        raise ModelError(
            f"the {role} has dynamically quantised layers, whose scale is that of all rows of a "
            "block: a block says other ids than ordinary steps; use weights of a fixed scale, or "
            "transformers' own generate"
        )


def block_layers(decoder: nn.Module, head: nn.Module) -> list[nn.Module]:
    """The layers that a decoder's passes go through, as far as they are worth packing."""
    return worth_packing([*decoder.modules(), *head.modules()])


def layer_list(decoder: nn.Module) -> tuple[str, nn.ModuleList]:
    """A decoder's layers, and where they are: a dotted path from it."""
    lists = (found for found in decoder.named_modules() if isinstance(found[1], nn.ModuleList))
    return next(lists)  # outermost first


def first_layers(decoder: Any, count: int) -> Any:
    """A decoder that ends after `count` layers and shares every parameter with the given one.

    Raises:
        ModelError: there are not that many layers to leave out.
    """
    path, layers = layer_list(decoder)
    if not 1 <= count < len(layers):
        raise ModelError(
            f"early exit after layer {count}: the decoder has {len(layers)} layers, so 1 to "
            f"{len(layers) - 1}"
        )
    return with_module(decoder, path, nn.ModuleList(list(layers)[:count]))


def with_module(module: Any, path: str, part: nn.Module) -> Any:
    """A module that shares everything with the given one, but for the part at a dotted path."""
    clone = copy.copy(module)
    clone._modules = dict(module._modules)
    name, _, rest = path.partition(".")
    clone._modules[name] = with_module(module._modules[name], rest, part) if rest else part
    return clone

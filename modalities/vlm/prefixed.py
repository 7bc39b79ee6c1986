"""A decoder whose conditioning is a prefix: image or sound stand among the prompt's positions.

The prompt is read once, by the whole model. From then on blocks go through the decoder alone: no
tower runs again, nothing is inserted where an id that stands for an image comes up, and what the
prefix left in memory is never written again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from mmspec.compat import cache_argument
from mmspec.kernels import PackedLinears
from mmspec.modalities.decoder import tree_shape
from mmspec.modalities.vlm.preparation import Prepared
from mmspec.state import DecoderState
from mmspec.target import Pass


class PrefixTarget:
    """A decoder behind a prompt that holds its conditioning.

    Args:
        prepared: the request, one row.
        decoder: what a block runs through.
        head: vocabulary projection.
        state: its key/value state.
        packed: packed layers that serve this decoder, closed with it.
    """

    def __init__(
        self,
        prepared: Prepared,
        decoder: Any,
        head: Any,
        state: DecoderState,
        packed: PackedLinears | None = None,
    ) -> None:
        self._prepared, self._decoder, self._head = prepared, decoder, head
        self.state = state
        self.vocab_size: int = head.weight.shape[0]
        self.capacity = state.capacity
        self.device = head.weight.device
        self.forwards = 0
        self._packed = packed
        self._behind: Tensor | None = None

    @property
    def takes_trees(self) -> bool:
        """Whether the attention kernel takes a mask of ours."""
        config = self._decoder.config
        windowed = getattr(config, "sliding_window", None) is not None
        return config._attn_implementation in ("sdpa", "eager") and not windowed

    @torch.no_grad()
    def read_prompt(self) -> Tensor:
        """Let the whole model read the prompt and freeze it; the law behind it `[1, V]`."""
        prepared = self._prepared
        length = prepared.input_ids.shape[1]
        with self.state.block(length):
            outputs = prefill(prepared, self.state)
        self.state.freeze()
        self.forwards += 1
        self._behind = position_offset(prepared, length)
        return outputs.logits[:, -1].float()

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

    def score_together(self, passes: Sequence[Pass]) -> list[Tensor]:
        """One after the other: transformers' forward knows no rows of unequal length."""
        return [one.target.score(one.ids, one.keep, one.parents) for one in passes]

    def _hidden(self, block: Tensor, parents: Sequence[int] | None) -> Tensor:
        """The decoder's last hidden states `[1, n, D]` for a block of ids `[1, n]`."""
        start, size = self.state.length, block.shape[1]
        mask = None
        if parents is None:
            positions = torch.arange(start, start + size, device=self.device)
        else:
            positions, sees = tree_shape(parents, start, self.device)
            mask = torch.zeros(sees.shape, dtype=self._head.weight.dtype, device=self.device)
            mask = mask.masked_fill(~sees, -torch.inf)[None, None]
        return self._decoder(
            input_ids=block,
            position_ids=positions if self._behind is None else positions + self._behind,
            attention_mask=mask,
            use_cache=True,
            **cache_argument(type(self._decoder), self.state.cache),
        ).last_hidden_state

    def _logits(self, hidden: Tensor) -> Tensor:
        """Logits `[n, V]` of hidden states `[n, D]`."""
        return self._head(hidden)

    def close(self) -> None:
        """Release the state and the packed layers."""
        self.state.close()
        if self._packed is not None:
            self._packed.close()


def prefill(prepared: Prepared, state: DecoderState) -> Any:
    """The whole model's pass over a prompt, its keys and values written into `state`."""
    model = prepared.model
    cache = cache_argument(type(model), state.cache)
    inputs = model.prepare_inputs_for_generation(
        prepared.input_ids, is_first_iteration=True, **prepared.inputs, **cache
    )
    return model(**inputs, return_dict=True)


def position_offset(prepared: Prepared, length: int) -> Tensor:
    """By how much the positions of what follows a prompt differ from their place in the state.

    An image takes fewer positions than places where rows and columns are counted apart (M-RoPE).
    What `generate` prepared says how far the prompt has come; the model's own note of it
    (`rope_deltas`) is another request's as soon as two are open.

    Returns:
        `[..., 1]`, with an axis for every kind of position that the model counts.
    """
    positions = prepared.inputs["position_ids"]
    return positions[..., -1:] + 1 - length

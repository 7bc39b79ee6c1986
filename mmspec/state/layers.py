"""The two kinds of layer that a `DecoderState` is made of, behind transformers' cache interface.

Legend: R rows, H heads, C capacity in positions, T positions in use, D head width.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from transformers.cache_utils import CacheLayerMixin

from mmspec.errors import StateError

if TYPE_CHECKING:
    from mmspec.state.decoder import DecoderState


ROOM = 2048
"""Positions beyond its first block that a layer has room for at once, where so many can come."""


class GrowingLayer(CacheLayerMixin):
    """Keys and values of one self-attention layer, `[R, H, C, D]`, written in place.

    There is room for the whole capacity C, or for the `ROOM` positions that follow the first
    block; it doubles where more come. So nothing is copied in a request of usual length, and a
    limit that nobody means (a billion new tokens) costs nothing.

    The layer stores no length: the state that owns it does, once for all layers. A forward pass
    that fails half-way therefore leaves nothing to undo, the slots past the length are garbage.
    """

    is_compileable = False
    is_croppable = False
    is_sliding = False

    def __init__(self, owner: DecoderState, lender: GrowingLayer | None = None) -> None:
        super().__init__()
        self.keys: Tensor
        self.values: Tensor
        self.is_initialized: bool
        self._owner, self._lender = owner, lender
        if lender is not None:  # the same memory, under another owner's length
            self._take_over(lender)

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Allocate memory shaped like the first block that is written."""
        room = min(self._owner.capacity, key_states.shape[2] + ROOM)
        self.keys = key_states.new_empty(*key_states.shape[:2], room, key_states.shape[3])
        self.values = value_states.new_empty(*value_states.shape[:2], room, value_states.shape[3])
        self.is_initialized = True

    def _make_room(self, end: int) -> None:
        """See to it that `end` positions fit; where they don't, what is there moves."""
        if self._lender is not None:
            self._lender._make_room(end)
            self._take_over(self._lender)
        elif end > self.keys.shape[2]:
            room = min(self._owner.capacity, max(end, 2 * self.keys.shape[2]))
            self.keys, self.values = _widened(self.keys, room), _widened(self.values, room)

    def _take_over(self, lender: GrowingLayer) -> None:
        self.keys, self.values = lender.keys, lender.values
        self.is_initialized = lender.is_initialized

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Write a block behind the state's length; return views of all positions up to its end.

        Raises:
            StateError: no forward is open, or the block isn't what was announced.
        """
        start, end = self._owner.open_span(key_states.shape[2])
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        self._make_room(end)
        self.keys[:, :, start:end] = key_states
        self.values[:, :, start:end] = value_states
        return self.keys[:, :, :end], self.values[:, :, :end]

    def move(self, positions: Sequence[int], start: int) -> None:
        """Copy what stands at some positions to `start` and those behind it."""
        self._make_room(0)  # lent memory may have moved
        index = torch.tensor(positions, device=self.keys.device)
        for memory in (self.keys, self.values):
            memory[:, :, start : start + len(positions)] = memory.index_select(2, index)

    def get_seq_length(self) -> int:
        """Positions in use: the owner's length."""
        return self._owner.length

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Length and offset of the keys that a block of `query_length` will attend to."""
        return self._owner.length + query_length, 0

    def get_max_length(self) -> int:
        """The capacity."""
        return self._owner.capacity

    def crop(self, tokens_to_remove: int) -> None:
        """Refused: the owner rolls back, to an absolute position."""
        raise StateError("a layer can't be cropped by itself: use DecoderState.rollback(position)")

    def reset(self) -> None:
        """Refused: one layer's memory without the others' would be no state at all."""
        raise StateError("a layer can't be reset by itself: open a new state for another request")

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Refused: a request is one row, there are no beams."""
        raise StateError("a layer can't be reordered by itself: a state holds one request")


class FrozenLayer(CacheLayerMixin):
    """Conditioning of one cross-attention layer: written once by the prefill, then read only."""

    is_compileable = False
    is_croppable = False
    is_sliding = False

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Keep the very tensors that the prefill computed: conditioning is never copied."""
        self.keys, self.values = key_states, value_states
        self.is_initialized = True

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Take the conditioning, once.

        Raises:
            StateError: the conditioning is there already.
        """
        if self.is_initialized:
            raise StateError(
                "conditioning is frozen: cross-attention keys and values were written a second "
                "time (open a new state for another input)"
            )
        self.lazy_initialization(key_states, value_states)
        return key_states, value_states

    def get_seq_length(self) -> int:
        """Conditioning positions."""
        return 0 if self.keys is None else self.keys.shape[2]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Length and offset of the conditioning; it doesn't grow with the query."""
        return self.get_seq_length(), 0

    def get_max_length(self) -> int:
        """The conditioning's length: it never grows."""
        return self.get_seq_length()

    def crop(self, tokens_to_remove: int) -> None:
        """Refused: conditioning is never rolled back."""
        raise StateError("conditioning is frozen: it can't be cropped")

    def reset(self) -> None:
        """Refused: it would zero the conditioning in place."""
        raise StateError("conditioning is frozen: it can't be reset")

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Refused: it would copy the conditioning."""
        raise StateError("conditioning is frozen: it can't be reordered")


def _widened(memory: Tensor, room: int) -> Tensor:
    """The same positions in a memory with room for more."""
    wider = memory.new_empty(*memory.shape[:2], room, memory.shape[3])
    wider[:, :, : memory.shape[2]] = memory
    return wider


def poison(layer: GrowingLayer, start: int) -> None:
    """Fill every slot of `layer` from position `start` on with NaN (a test's way to see reads)."""
    if layer.is_initialized:
        layer.keys[:, :, start:] = torch.nan
        layer.values[:, :, start:] = torch.nan

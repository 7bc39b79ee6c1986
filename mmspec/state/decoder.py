"""`DecoderState`: what one decoder knows about one request.

Position is stored once, here. A forward pass announces its block (`with state.block(n)`), layers
write it behind the committed length, and only a block that went through moves the length.
Rollback is to an absolute position, never clamped, never below the frozen prefix.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType

from transformers.cache_utils import Cache, EncoderDecoderCache

from mmspec.errors import StaleHandleError, StateError
from mmspec.state.layers import FrozenLayer, GrowingLayer, poison

_state_numbers = itertools.count()


@dataclass(frozen=True, slots=True)
class Mark:
    """A position to come back to, valid until the state commits or closes."""

    position: int
    state_number: int
    epoch: int


class DecoderState:
    """Preallocated key/value state of one decoder, for one owner.

    Args:
        layers: decoder layers.
        capacity: positions that the decoder can hold (its context length).
        cross_attention: the decoder also attends to an encoder's states, kept frozen.
        frozen_layers: indices of layers that attend to such states and to nothing else.

    Raises:
        StateError: the first layer would be frozen; its memory tells transformers the length.

    Example:
        >>> state = DecoderState(layers=2, capacity=8, cross_attention=False)
        >>> state.length, state.frozen, state.capacity
        (0, 0, 8)
    """

    def __init__(
        self,
        layers: int,
        capacity: int,
        *,
        cross_attention: bool,
        frozen_layers: Collection[int] = (),
    ) -> None:
        if 0 in frozen_layers:
            raise StateError("layer 0 can't be frozen: its memory tells transformers the length")
        self.capacity = capacity
        self.frozen = 0
        self._length = 0
        self._block: int | None = None
        self._epoch = 0
        self._number = next(_state_numbers)
        self._closed = False
        self._lender: DecoderState | None = None
        self._layers: list[GrowingLayer | FrozenLayer] = [
            FrozenLayer() if layer in frozen_layers else GrowingLayer(self)
            for layer in range(layers)
        ]
        self._conditioning = [FrozenLayer() for _ in range(layers)] if cross_attention else []
        self._cache = self._assemble()

    def _assemble(self) -> Cache:
        growing = Cache(layers=list(self._layers))
        if not self._conditioning:
            return growing
        return EncoderDecoderCache(growing, Cache(layers=list(self._conditioning)))

    def lend(self, layers: int) -> DecoderState:
        """A second state over the memory of the first `layers` layers.

        For a drafter that is the beginning of the same decoder: what those layers hold of the
        committed prefix is the same, so it isn't computed twice. What the borrower writes behind
        the lender's positions, the lender's next block overwrites; those it can't write.

        Raises:
            StateError: nothing has been written yet, so there is no memory to lend.
        """
        self._check_open()
        if not self._length:
            raise StateError("a state can be lent only once its prompt has been read")
        borrower = DecoderState(0, self.capacity, cross_attention=False)
        borrower._layers = [
            GrowingLayer(borrower, layer) if isinstance(layer, GrowingLayer) else layer
            for layer in self._layers[:layers]
        ]
        borrower._conditioning = self._conditioning[:layers]
        borrower._cache = borrower._assemble()
        borrower._lender = self
        borrower.follow_lender()
        return borrower

    def fork(self) -> DecoderState:
        """An empty state over the same conditioning, with memory of its own for what grows.

        For reading something else, or the same again, without touching this state.
        """
        self._check_open()
        other = DecoderState(0, self.capacity, cross_attention=False)
        other._layers = [
            GrowingLayer(other) if isinstance(layer, GrowingLayer) else layer
            for layer in self._layers
        ]
        other._conditioning = self._conditioning
        other._cache = other._assemble()
        return other

    def follow_lender(self) -> None:
        """Take over the lender's length: everything that it has committed is known here too.

        Raises:
            StateError: this state was not lent.
        """
        self._check_open()
        if self._lender is None:
            raise StateError("this state has no lender")
        self._length = self._lender.length

    @property
    def cache(self) -> Cache:
        """What the model gets: transformers' cache interface over this state."""
        self._check_open()
        return self._cache

    def growing(self, layer: int) -> GrowingLayer:
        """A layer's self-attention memory, for code that runs the layers itself.

        Raises:
            StateError: the layer attends to conditioning only.
        """
        self._check_open()
        found = self._layers[layer]
        if not isinstance(found, GrowingLayer):
            raise StateError(f"layer {layer} has no self-attention: its memory is conditioning")
        return found

    @property
    def _growing(self) -> list[GrowingLayer]:
        return [layer for layer in self._layers if isinstance(layer, GrowingLayer)]

    def conditioning(self, layer: int) -> FrozenLayer:
        """A layer's cross-attention memory.

        Raises:
            StateError: it has none.
        """
        self._check_open()
        found = self._conditioning[layer] if self._conditioning else self._layers[layer]
        if not isinstance(found, FrozenLayer):
            raise StateError(f"layer {layer} has no cross-attention: its memory grows")
        return found

    @property
    def length(self) -> int:
        """Positions that the state describes."""
        return self._length

    @contextmanager
    def block(self, size: int) -> Iterator[None]:
        """Announce a forward pass over `size` new positions; the length moves if it succeeds.

        Raises:
            StateError: a block is open already, it doesn't fit into the capacity, or the memory is
                lent and its owner has filled those positions.
        """
        self._check_open()
        if self._block is not None:
            raise StateError("a forward pass is running on this state: it has one owner at a time")
        self._check_not_lent(self._length)
        if size < 1 or self._length + size > self.capacity:
            raise StateError(
                f"a block of {size} positions doesn't fit: {self._length} of {self.capacity} "
                "positions are in use"
            )
        self._block = size
        try:
            yield
            self._length += size
        finally:
            self._block = None

    def open_span(self, size: int) -> tuple[int, int]:
        """Where the announced block goes: first position and the one after the last.

        Raises:
            StateError: no block of this size was announced.
        """
        self._check_open()
        if self._block != size:
            raise StateError(f"a layer wrote {size} positions, but {self._block} were announced")
        return self._length, self._length + size

    def rollback(self, to: int) -> None:
        """Forget every position from the absolute position `to` on.

        Raises:
            StateError: `to` is ahead of the state, or inside its frozen prefix.
        """
        self._check_open()
        if self._block is not None:
            raise StateError("can't roll back inside a forward pass")
        if not self.frozen <= to <= self._length:
            raise StateError(
                f"can't roll back to position {to}: the state holds {self._length} positions, "
                f"of which the first {self.frozen} are frozen"
            )
        self._length = to

    def keep_path(self, start: int, path: Sequence[int]) -> None:
        """Of the positions from `start` on, keep those of one path through a tree, in order.

        Args:
            start: absolute position of the tree's first token.
            path: indices into the tree, rising.

        Raises:
            StateError: the path isn't among the positions that the state holds, or the memory is
                lent and its owner has filled those positions.
        """
        self._check_not_lent(start)
        end = start + len(path)
        if any(later <= index for index, later in itertools.pairwise(path)):
            raise StateError(f"path {tuple(path)} doesn't rise")
        if path and not 0 <= path[0] <= path[-1] < self._length - start:
            raise StateError(
                f"path {tuple(path)} from position {start} leaves the {self._length} positions held"
            )
        if path and path[-1] >= len(path):  # else it is where it belongs already
            for layer in self._growing:
                layer.move([start + index for index in path], start)
        self.rollback(end)

    def commit(self, to: int) -> None:
        """Roll back to `to` for good: marks taken before are stale from here on."""
        self.rollback(to)
        self._epoch += 1

    def freeze(self) -> None:
        """Make everything held so far conditioning: it can't be rolled back any more."""
        self._check_open()
        self.frozen = self._length

    def copy_to(self, cache: Cache) -> None:
        """Append everything held to a cache of the library's, as its own decoding fills one.

        Args:
            cache: empty; with cross-attention in two halves.
        """
        self._check_open()
        crossing = isinstance(cache, EncoderDecoderCache)
        own = cache.self_attention_cache if crossing else cache
        for index, layer in enumerate(self._layers):
            if layer.is_initialized:  # a prompt without an image leaves its layers empty
                held = self._length if isinstance(layer, GrowingLayer) else layer.get_seq_length()
                own.update(layer.keys[:, :, :held], layer.values[:, :, :held], index)
        for index, layer in enumerate(self._conditioning):
            cache.cross_attention_cache.update(layer.keys, layer.values, index)
            cache.is_updated[index] = True

    def mark(self) -> Mark:
        """A handle to the present position."""
        self._check_open()
        return Mark(self._length, self._number, self._epoch)

    def restore(self, mark: Mark) -> None:
        """Roll back to a mark.

        Raises:
            StaleHandleError: the mark is of another state, or older than the last commit.
        """
        self._check_open()
        if (mark.state_number, mark.epoch) != (self._number, self._epoch):
            raise StaleHandleError(
                f"a stale mark (position {mark.position}): the state has committed since it was "
                "taken. The usual mistake is to keep one mark over several rounds; take a new "
                "one with state.mark() before each."
            )
        self.rollback(mark.position)

    def poison_unused(self) -> None:
        """Fill the slots past the length with NaN; for tests, which then see any stray read."""
        for layer in self._growing:
            poison(layer, self._length)

    def close(self) -> None:
        """Release the memory; every later use raises. Closing twice is harmless."""
        self._closed = True
        self._layers, self._conditioning, self._lender = [], [], None
        self._cache = Cache(layers=[])

    def __enter__(self) -> DecoderState:
        self._check_open()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _check_not_lent(self, start: int) -> None:
        """Raise where a block from `start` on would overwrite what the lender goes on from."""
        if self._lender is not None and start < self._lender.length:
            raise StateError(
                f"can't write from position {start} on: this memory is lent, and its owner has "
                f"filled {self._lender.length} positions (follow_lender() takes them over)"
            )

    def _check_open(self) -> None:
        if self._closed:
            raise StaleHandleError(
                "this decoder state is closed. The usual mistake is to keep a target or drafter "
                "after its `with` block ended; open a new one for each request."
            )

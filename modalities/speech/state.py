"""A decoder's memory whose positions count from its first frame.

Codec models keep conditioning in the same memory as their frames: a text or a melody in front of
them, or their prompt a second time. There it stands at negative positions, so that a position is
always a place among the frames, whatever is in front of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from mmspec.errors import StateError
from mmspec.state import DecoderState
from mmspec.state.layers import GrowingLayer, poison


class BehindConditioning(DecoderState):
    """Preallocated key/value state with conditioning in front of position 0.

    Args:
        layers: decoder layers.
        capacity: frames that it can hold.
        before: positions of conditioning in front of them; the first block has to fill them all.
        cross_attention: the decoder also attends to an encoder's states, kept frozen.

    Example:
        >>> state = BehindConditioning(layers=1, capacity=8, before=3, cross_attention=False)
        >>> with state.block(5):
        ...     pass  # a forward pass over conditioning and two frames
        >>> state.length
        2
    """

    def __init__(self, layers: int, capacity: int, *, before: int, cross_attention: bool) -> None:
        super().__init__(layers, capacity, cross_attention=cross_attention)
        self.before = before
        self._length = self.frozen = -before
        slots = cast(DecoderState, _Slots(self))  # all of an owner that a layer asks for
        self._layers = [GrowingLayer(slots) for _ in range(layers)]
        self._cache = self._assemble()

    def lend(self, layers: int) -> DecoderState:
        """A second state over the memory of the first layers.

        Raises:
            StateError: there is conditioning in front, which a borrower would take for frames.
        """
        self._check_nothing_before("lent")
        return super().lend(layers)

    def fork(self) -> DecoderState:
        """An empty state over the same conditioning.

        Raises:
            StateError: part of the conditioning is in this memory alone.
        """
        self._check_nothing_before("opened a second time")
        return super().fork()

    def keep_path(self, start: int, path: Sequence[int]) -> None:
        """Of the positions from `start` on, keep those of one path through a tree.

        Raises:
            StateError: there is conditioning in front: such memory takes no trees.
        """
        self._check_nothing_before("asked for a path")
        super().keep_path(start, path)

    def poison_unused(self) -> None:
        """Fill the slots past the length with NaN; for tests, which then see any stray read."""
        for layer in self._growing:
            poison(layer, self.length + self.before)

    def _check_nothing_before(self, what: str) -> None:
        if self.before:
            raise StateError(
                f"a state with {self.before} positions of conditioning in front can't be {what}"
            )


class _Slots:
    """A state's positions as its layers see them: from the first slot of their memory."""

    def __init__(self, state: BehindConditioning) -> None:
        self._state = state

    @property
    def capacity(self) -> int:
        """Slots."""
        return self._state.capacity + self._state.before

    @property
    def length(self) -> int:
        """Slots in use."""
        return self._state.length + self._state.before

    def open_span(self, size: int) -> tuple[int, int]:
        """Where the announced block goes."""
        start, end = self._state.open_span(size)
        return start + self._state.before, end + self._state.before

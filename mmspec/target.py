"""What the core asks of a model: score a block of units on top of its state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from mmspec.state import DecoderState


class Target(Protocol):
    """A conditioned decoder, opened for one request; a drafting model has the same face.

    Attributes:
        state: its key/value state; `score` moves it forward, the engine rolls it back.
        vocab_size: width of the rows that `score` returns.
        capacity: positions it can hold.
        device: where its rows live.
        forwards: forward passes so far.
    """

    state: DecoderState
    vocab_size: int
    capacity: int
    device: torch.device
    forwards: int

    def score(self, ids: Sequence[int], keep: int) -> Tensor:
        """Append `ids` to the state; return the laws behind the last `keep` of them.

        Returns:
            Float32 logits `[keep, vocab_size]`; the last row is the law of the unit after `ids`.
            Row i must not depend on ids behind it.
        """
        ...

    def close(self) -> None:
        """Release state and kernels; the model object is as it was before it was opened."""
        ...

"""What the core asks of a model: score a block of tokens on top of its state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from mmspec.clock import Clock
from mmspec.state import DecoderState


class Target(Protocol):
    """A conditioned decoder, opened for one request; a drafting model has the same face.

    Attributes:
        state: its key/value state; `score` moves it forward, the engine rolls it back.
        vocab_size: width of the rows that `score` returns; ids that only the order of codes sets
            (marks) are in it, with the lowest score where no head says them.
        capacity: positions it can hold.
        device: where its rows live.
        forwards: forward passes so far; one that several targets share counts for each.
        note: what a report has to say of how its blocks run; None: nothing.
    """

    state: DecoderState
    vocab_size: int
    capacity: int
    device: torch.device
    forwards: int
    note: str | None

    @property
    def takes_trees(self) -> bool:
        """Whether `score` can be given `parents`."""
        ...

    def score(self, ids: Sequence[int], keep: int, parents: Sequence[int] | None = None) -> Tensor:
        """Append `ids` to the state; return the distributions behind the last `keep` of them.

        Args:
            ids: the block.
            keep: rows wanted.
            parents: for a tree: index of the token that each one follows, -1 for what the state
                holds already; None where each follows the one before it.

        Returns:
            Float32 logits `[keep, vocab_size]`; the last row is the distribution of the token after
            `ids`. A row must depend on no tokens of the block but those that lead to it.
        """
        ...

    def score_batched(self, passes: Sequence[Pass]) -> list[Tensor]:
        """Several passes of targets that may share a forward, this one among them.

        Returns:
            What each target's `score` would have returned.
        """
        ...

    def close(self) -> None:
        """Release state and kernels; the model object is as it was before it was opened."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Pass:
    """A forward pass that a request needs next.

    Attributes:
        target: whose.
        ids: the block, as for `Target.score`.
        keep: rows wanted.
        parents: the block's shape, where it is a tree.
        clock: of the request.
        phase: what its seconds are counted as.
    """

    target: Target
    ids: Sequence[int]
    keep: int
    parents: Sequence[int] | None
    clock: Clock
    phase: str

    @property
    def kind(self) -> Any:
        """Passes of one kind may run together."""
        return type(self.target)

    @property
    def apart(self) -> bool:
        """No: the more requests share it, the better."""
        return False

    def run(self) -> Tensor:
        """Run it by itself."""
        with self.clock(self.phase):
            return self.target.score(self.ids, self.keep, self.parents)

    def run_batched(self, passes: Sequence[Pass]) -> list[Tensor]:
        """Run it with others of its kind, itself among them."""
        return self.target.score_batched(passes)

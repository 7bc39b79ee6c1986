"""What a drafter is, what it proposes, and how it draws a unit the way the target would."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from mmspec.errors import DraftError
from mmspec.prefix import Prefix

Pick = Callable[[Tensor, int], tuple[int, Tensor | None]]
"""Draw a drafted unit from logits `[V]` at draft offset i: (unit, its law `[V]` or None).

Processors and randomness are the request's own, so a drafter draws like the target would. The
law is None where the unit is a function of the logits (greedy, keyed noise): one-hot.
"""


@dataclass(frozen=True, slots=True, eq=False)
class Proposal:
    """Drafted units.

    Attributes:
        ids: the units, first to be decided first.
        draft_probs: `[len(ids), V]`, the laws that the units were really drawn from, or None for
            a deterministic proposal.
    """

    ids: tuple[int, ...] = ()
    draft_probs: Tensor | None = None

    def __len__(self) -> int:
        return len(self.ids)

    def crop(self, length: int) -> Proposal:
        """The first `length` units. Lawful only where `length` doesn't depend on later units."""
        if length >= len(self.ids):
            return self
        probs = None if self.draft_probs is None else self.draft_probs[:length]
        return Proposal(self.ids[:length], probs)

    def check(self, limit: int, vocab_size: int) -> Proposal:
        """Return itself if it is a proposal that can be verified.

        Raises:
            DraftError: too long, ids outside the vocabulary, or laws that are none.
        """
        if len(self.ids) > limit:
            raise DraftError(f"proposed {len(self.ids)} units where at most {limit} were asked for")
        for unit in self.ids:
            if not (isinstance(unit, int) and 0 <= unit < vocab_size):
                raise DraftError(f"proposed unit {unit!r}, outside 0..{vocab_size - 1}")
        if self.draft_probs is not None and self.ids:
            shape = tuple(self.draft_probs.shape)
            if shape != (len(self.ids), vocab_size):
                raise DraftError(
                    f"draft_probs have shape {shape}, expected {(len(self.ids), vocab_size)}"
                )
            if self.draft_probs.dtype not in (torch.float32, torch.float64):
                raise DraftError(
                    f"draft_probs are {self.draft_probs.dtype}, expected float32 or float64"
                )
            sums = self.draft_probs.sum(-1)
            sound = (sums - 1).abs().max() < 1e-3 and self.draft_probs.min() >= 0
            if not bool(sound):  # NaN compares false, so it lands here too
                raise DraftError("draft_probs are no probability laws (NaN, negative, or sum ≠ 1)")
        return self


@dataclass(frozen=True, slots=True)
class Outlook:
    """What a drafter expects of its next proposal, before it makes it.

    Attributes:
        context: a label under which the policy keeps acceptance apart ("aligned", "match 3").
        first: prior probability that the first unit is accepted.
        rest: prior probability that a later unit is, given that those before it were.
        available: how many units it could propose at most (0: nothing to propose).
        opening_s: seconds that it needs before it can propose at all (its own encoder run).
    """

    context: str
    first: float
    rest: float
    available: int
    opening_s: float = 0.0


class Drafter(ABC):
    """Proposes units. It may be wrong, slow or broken: the output never depends on it."""

    name: str = "drafter"
    cost_prior: float = 0.0
    """Cost of one drafted unit in ordinary target steps, before anything was measured."""
    conditioning: str = "none"
    """What it knows of the input: "shared", "own", "none" ("blind" in a report)."""

    @abstractmethod
    def outlook(self, prefix: Prefix) -> Outlook:
        """What could be proposed now, and how likely it is to be kept."""

    @abstractmethod
    def propose(self, prefix: Prefix, limit: int, pick: Pick) -> Proposal:
        """Propose up to `limit` (≥ 1) units to follow `prefix`."""

    def commit(self, prefix: Prefix, agreed: int) -> None:
        """The round is over: `prefix` is committed, and drafted units agree with it up to `agreed`.

        Args:
            prefix: the committed prefix, longer than before unless the round failed.
            agreed: absolute length up to which what this drafter has seen is still right.
        """
        return  # nothing to do for a drafter without state

    @property
    def forwards(self) -> int:
        """Forward passes that this drafter cost so far (0 where it is no model)."""
        return 0

    def close(self) -> None:
        """Release what the drafter holds for this request."""
        return


def deterministic(units: list[int]) -> Proposal:
    """A proposal whose units are a function of the prefix."""
    return Proposal(tuple(int(unit) for unit in units))


def fit_vocabulary(row: Tensor, vocab_size: int) -> Tensor:
    """Crop or pad a drafter's logits `[V']` to the target's width; padding can't be drawn.

    Checkpoints of one family pad their embedding to different sizes though they share a tokenizer.

    Example:
        >>> fit_vocabulary(torch.zeros(3), 2).tolist(), fit_vocabulary(torch.zeros(1), 2).tolist()
        ([0.0, 0.0], [0.0, -inf])
    """
    missing = vocab_size - row.shape[-1]
    if missing <= 0:
        return row[..., :vocab_size]
    return torch.nn.functional.pad(row, (0, missing), value=-torch.inf)

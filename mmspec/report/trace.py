"""What happened, round by round, and how each token of an output was obtained."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["accepted", "recovered", "bonus"]


@dataclass(frozen=True, slots=True)
class Origin:
    """How one emitted token came about.

    Attributes:
        kind: kept from a proposal, the target's own in place of a rejected one, or the target's
            own where nothing (more) had been drafted.
        drafter: who proposed it; None where it is the target's own.
        round_number: index of its round in the run's trace.
    """

    kind: Kind
    drafter: str | None
    round_number: int


@dataclass(frozen=True, slots=True)
class Round:
    """One propose, verify, commit transaction.

    Attributes:
        drafter: who was asked; "none" where nobody was.
        context: the label that the drafter gave its outlook.
        proposal: drafted tokens; the nodes of a tree, parents before children.
        path: indices into `proposal` of the accepted tokens.
        emitted: tokens that the round committed: the accepted ones, then the target's own one
            unless a stop ended the output before it.
        rejected: whether the target's own token stands where another one had been drafted.
        depth: drafted tokens in a row, at most.
        branches: continuations that were proposed side by side.
        branch: which of them the accepted tokens are from; None where none was right.
        block: positions of the target's forward pass; 0 where none was needed.
        draft_s: seconds spent on drafting.
        verify_s: seconds spent on scoring and judging.
    """

    drafter: str
    context: str
    proposal: tuple[int, ...]
    path: tuple[int, ...]
    emitted: tuple[int, ...]
    rejected: bool
    depth: int
    branches: int
    branch: int | None
    block: int
    draft_s: float = field(compare=False)
    verify_s: float = field(compare=False)

    @property
    def accepted(self) -> int:
        """How many drafted tokens were kept."""
        return len(self.path)

    @property
    def judged(self) -> int:
        """How many drafted tokens in a row the target passed judgement on."""
        return self.accepted + self.rejected

    def origins(self, number: int) -> tuple[Origin, ...]:
        """An origin per emitted token, given the round's index in the trace."""
        kept = (Origin("accepted", self.drafter, number),) * self.accepted
        if len(self.emitted) == self.accepted:
            return kept
        return (*kept, Origin("recovered" if self.rejected else "bonus", None, number))

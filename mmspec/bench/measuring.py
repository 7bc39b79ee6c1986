"""The measurement: every peer on every case, pair after pair, in one process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from mmspec.bench.cases import Case
from mmspec.compare.peers import Outcome, Peer, one_reason

Say = Callable[[str, int], None]
"""Told what begins now, and how many such steps there are (0 where nobody knows yet)."""


@dataclass
class Measured:
    """What one peer did.

    Attributes:
        hypothesis_file: whose hypotheses it drafts from, None for others.
        outcomes: `[pair][case]`.
        why_not: why it couldn't run the case, where it couldn't.
    """

    peer: Peer
    hypothesis_file: str | None = None
    outcomes: list[list[Outcome]] = field(default_factory=list)
    why_not: str | None = None

    @property
    def name(self) -> str:
        """The peer's name."""
        return self.peer.name

    def hypothesis_of(self, case: Case) -> Any:
        """What it is told to expect."""
        return case.hypotheses[self.hypothesis_file] if self.hypothesis_file else None

    def run(self, case: Case) -> Outcome | None:
        """Decode one case; a peer that raises is out, and says why."""
        try:
            return self.peer.run(case.subject, case.request, self.hypothesis_of(case))
        except Exception as error:  # whatever a peer raises is an answer, not our failure
            self.why_not = f"{self.name} raised {one_reason(error)}"
            return None


def measure(
    members: Sequence[Measured],
    cases: Sequence[Case],
    pairs: int,
    say: Say = lambda what, total: None,
) -> None:
    """Fill in the outcomes: one pass to warm up, then `pairs` interleaved ones.

    Within a pair every case is decoded by all members in a row, so that what disturbs
    the machine disturbs them alike; who comes first rotates.
    """
    for member in members:
        member.why_not = member.peer.why_not
    total = (pairs + 1) * len(cases) * sum(member.why_not is None for member in members)
    for pair in range(-1, pairs):  # -1 warms up
        running = [member for member in members if member.why_not is None]
        if pair >= 0:
            for member in running:
                member.outcomes.append([])
        for number, case in enumerate(cases):
            first = (pair + number) % len(running) if running else 0
            for member in [*running[first:], *running[:first]]:
                label = "warm-up" if pair < 0 else f"pair {pair + 1} of {pairs}"
                say(f"{label}: {case.path.name}, {member.name}", total)
                outcome = member.run(case) if member.why_not is None else None
                if outcome is not None and pair >= 0:
                    member.outcomes[pair].append(outcome)
    for member in members:
        if member.why_not is not None:
            member.outcomes = []

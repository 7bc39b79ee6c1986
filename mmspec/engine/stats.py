"""What a request cost: counts and seconds over all its windows, turned into a report."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from mmspec.clock import Clock
from mmspec.engine.choosing import Sampling
from mmspec.engine.costs import BlockCosts
from mmspec.proposals import Drafter
from mmspec.report.by_codebook import CodeShare, add_codes
from mmspec.report.ledger import DistanceLedger
from mmspec.report.report import Report, RoundStats


@dataclass
class RequestStats:
    """Adds up what the sessions of one request did.

    Attributes:
        clock: seconds by phase.
        tally: rounds and tokens.
        target_forwards: forward passes of the target, prompts included.
        drafter_forwards: forward passes of drafters.
        depth_forwards: passes down the codebooks of frames, of the target's depth decoder.
        drafter_depth_forwards: the same of drafters.
        encoder_runs: of the target's encoder.
        drafter_encoder_runs: of a drafter's own encoder.
        conditioning: what the drafter knew of the input: "shared", "own" or "none".
        by_drafter: forward passes of each drafter, and what it knew.
        finish_reason: of the latest session.
        codes: of the sessions whose steps decide frames.
        notes: what is to be known beside the figures, each once.
        spent: distance from the target's distribution by emitted step; all 0 where judged exactly.
    """

    clock: Clock
    tally: RoundStats = field(default_factory=RoundStats)
    target_forwards: int = 0
    drafter_forwards: int = 0
    depth_forwards: int = 0
    drafter_depth_forwards: int = 0
    encoder_runs: int = 0
    drafter_encoder_runs: int = 0
    conditioning: str = "none"
    by_drafter: dict[str, tuple[int, str]] = field(default_factory=dict)
    finish_reason: str = "stop"
    codes: list[CodeShare] = field(default_factory=list)
    notes: dict[str, None] = field(default_factory=dict)
    spent: list[float] = field(default_factory=list)

    def left_for(self, sampling: Sampling) -> Sampling:
        """How a further session of the request may draw: with what is left of a budget."""
        if sampling.approximate is None:
            return sampling
        return replace(sampling, approximate=sampling.approximate.behind(math.fsum(self.spent)))

    def note(self, what: str | None) -> None:
        """Say something beside the figures, if there is something to be said."""
        if what is not None:
            self.notes[what] = None

    def add_drafter(self, drafter: Drafter, encoder_runs: int) -> None:
        """Count what a drafter cost, when it is done with a window."""
        self.drafter_forwards += drafter.forwards
        self.drafter_depth_forwards += drafter.depth_forwards
        self.drafter_encoder_runs += encoder_runs
        self.conditioning = drafter.conditioning
        for part in drafter.parts:
            self.note(part.note)
            before, _ = self.by_drafter.get(part.name, (0, ""))
            self.by_drafter[part.name] = before + part.forwards, part.conditioning

    def report(self, sampling: Sampling, costs: BlockCosts) -> Report:
        """The report of everything so far."""
        approximate, distance = sampling.approximate, None
        if approximate is not None:
            distance = DistanceLedger(tuple(self.spent), approximate.budget)
        return self.tally.report(
            target_forwards=self.target_forwards,
            drafter_forwards=self.drafter_forwards,
            depth_forwards=self.depth_forwards,
            drafter_depth_forwards=self.drafter_depth_forwards,
            encoder_runs=self.encoder_runs,
            drafter_encoder_runs=self.drafter_encoder_runs,
            seconds=dict(self.clock.seconds),
            parity=sampling.parity,
            exact=approximate is None,
            distance=distance,
            finish_reason=self.finish_reason,
            notes=tuple(self.notes),
            predicted_speedup=self._predicted(costs),
            conditioning=self.conditioning,
            by_drafter=self.by_drafter,
            by_codebook=add_codes(self.codes) if self.codes else None,
        )

    def _predicted(self, costs: BlockCosts) -> float | None:
        """Ordinary steps that the output would have taken, over what it cost in such steps.

        A session's first token comes from its prefill, drafted or not, and takes no step.
        """
        step, tally = costs.seconds(1), self.tally
        if not step:
            return None
        sizes = {block: count for block, count in tally.blocks.items() if block}
        passes = sum(count * costs.relative(block) for block, count in sizes.items())
        spent = passes + self.clock.seconds["draft"] / step
        return (tally.tokens - tally.sessions) / spent if spent else None

"""What a run says about itself: a typed value that becomes JSON or a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from mmspec.report.by_codebook import CodeShare
from mmspec.report.grounding import ClassShare
from mmspec.report.ledger import DistanceLedger
from mmspec.report.trace import Origin, Round


@dataclass(frozen=True, slots=True)
class DrafterShare:
    """What one drafter contributed."""

    proposed: int
    accepted: int
    forwards: int
    conditioning: str


@dataclass(frozen=True, slots=True)
class Report:
    """How an output was obtained.

    Counts are of tokens. `tokens` is what was emitted: accepted + recovered + bonus (an ordinary
    step's token is a bonus: all zero drafted tokens were kept). `mean_acceptance_length` is tokens
    per round, bonus included; `draft_acceptance_rate` is accepted / proposed.

    Attributes:
        parity: "L0" greedy ids equal ordinary decoding; "L1" seeded ids the same for every
            drafter; "L2" the sampled distribution is the target's; "L3" it is as far from it as the
            ledger says.
        finish_reason: "stop", "length" or "criterion".
        acceptance_by_offset: share of proposals that reached offset i whose token i was accepted.
        predicted_speedup: expected tokens per ordinary step, from the costs and the acceptance
            measured in this run; None where no block was measured.
        exact: whether nothing approximate was asked for.
        faults: what went wrong with a drafter, one line each; the output is unaffected.
        notes: what is to be known beside the figures, one line each: that the library's own forward
            ran, and why.
        by_class: of grounded and of syntactic tokens; None where that wasn't asked for.
        depth_forwards: passes of the target's depth decoder, where it has one; the backbone's are
            `target_forwards`.
        drafter_depth_forwards: the same of drafters.
        by_codebook: of the codes of frames; None where a step decides one token. Other counts are
            of steps there: of frames.
        distance: what an approximate run has spent; None where it is exact.

    Raises:
        ValueError: an exact report with a ledger, or an approximate one without.
    """

    tokens: int
    rounds: int
    target_forwards: int
    drafter_forwards: int
    proposed: int
    accepted: int
    recovered: int
    bonus: int
    accepted_length_histogram: Mapping[int, int]
    acceptance_by_offset: tuple[float, ...]
    proposed_by_offset: tuple[int, ...]
    drafters: Mapping[str, DrafterShare]
    encoder_runs: int
    drafter_encoder_runs: int
    seconds: Mapping[str, float]
    parity: str
    finish_reason: str
    predicted_speedup: float | None = None
    exact: bool = True
    faults: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    by_class: Mapping[str, ClassShare] | None = None
    by_codebook: CodeShare | None = None
    depth_forwards: int = 0
    drafter_depth_forwards: int = 0
    distance: DistanceLedger | None = None

    def __post_init__(self) -> None:
        if self.exact != (self.distance is None):
            raise ValueError(
                f"a report with exact={self.exact} and distance={self.distance}: an approximate "
                "run says what it has spent, an exact one spends nothing"
            )

    @property
    def mean_acceptance_length(self) -> float:
        """Tokens per round, bonus included."""
        return self.tokens / self.rounds if self.rounds else 0.0

    @property
    def draft_acceptance_rate(self) -> float:
        """Accepted over proposed tokens; 0 where nothing was proposed."""
        return self.accepted / self.proposed if self.proposed else 0.0

    @property
    def decode_seconds(self) -> float:
        """Drafting, verification and reconciliation: what speculation can change."""
        return sum(self.seconds[phase] for phase in ("draft", "verify", "reconcile"))

    @property
    def total_seconds(self) -> float:
        """All phases; the model was loaded before."""
        return sum(self.seconds.values())

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON, derived figures included."""
        data = asdict(self)
        data["accepted_length_histogram"] = {
            str(length): count for length, count in sorted(self.accepted_length_histogram.items())
        }
        if self.by_class is not None:
            data["by_class"] = {name: share.to_dict() for name, share in self.by_class.items()}
        if self.by_codebook is not None:
            data["by_codebook"] = self.by_codebook.to_dict()
        if self.distance is not None:
            data["distance"] = self.distance.to_dict()
        data["mean_acceptance_length"] = self.mean_acceptance_length
        data["draft_acceptance_rate"] = self.draft_acceptance_rate
        data["seconds"] = {
            **self.seconds,
            "decode": self.decode_seconds,
            "total": self.total_seconds,
        }
        return data


@dataclass
class RoundStats:
    """Counts rounds as they go; `report` turns them into the value above."""

    rounds: int = 0
    tokens: int = 0
    proposed: int = 0
    accepted: int = 0
    recovered: int = 0
    bonus: int = 0
    lengths: Counter[int] = field(default_factory=Counter)
    reached: Counter[int] = field(default_factory=Counter)
    kept: Counter[int] = field(default_factory=Counter)
    by_drafter: dict[str, list[int]] = field(default_factory=dict)
    sessions: int = 0
    blocks: Counter[int] = field(default_factory=Counter)
    """Target passes by block size; 0 is a round that needed none (a first token, undrafted)."""
    faults: list[str] = field(default_factory=list)
    trace: list[Round] = field(default_factory=list)
    """Every round, in order."""

    def add(self, done: Round) -> None:
        """Count one round."""
        proposed, accepted = len(done.proposal), done.accepted
        self.rounds += 1
        self.tokens += len(done.emitted)
        self.proposed += proposed
        self.accepted += accepted
        if len(done.emitted) > accepted:
            self.recovered += done.rejected
            self.bonus += not done.rejected
        if proposed:
            self.lengths[accepted] += 1
            share = self.by_drafter.setdefault(done.drafter, [0, 0])
            share[0] += proposed
            share[1] += accepted
        for offset in range(done.judged):
            self.reached[offset] += 1
            self.kept[offset] += offset < accepted
        self.blocks[done.block] += 1
        self.trace.append(done)

    def origins(self, first_round: int = 0) -> list[Origin]:
        """How each token came about that was emitted from a round on."""
        rounds = enumerate(self.trace[first_round:], first_round)
        return [origin for number, done in rounds for origin in done.origins(number)]

    def report(self, **facts: Any) -> Report:
        """The finished report; `facts` are the fields that rounds don't tell."""
        offsets = range(len(self.reached))
        # Forward passes of a drafter and what it knew; where it isn't known by name, of all.
        of_all = facts["drafter_forwards"], facts.pop("conditioning")
        known = facts.pop("by_drafter", {})
        return Report(
            tokens=self.tokens,
            rounds=self.rounds,
            proposed=self.proposed,
            accepted=self.accepted,
            recovered=self.recovered,
            bonus=self.bonus,
            accepted_length_histogram=dict(self.lengths),
            acceptance_by_offset=tuple(self.kept[i] / self.reached[i] for i in offsets),
            proposed_by_offset=tuple(self.reached[i] for i in offsets),
            drafters={
                name: DrafterShare(proposed, accepted, *known.get(name, of_all))
                for name, (proposed, accepted) in self.by_drafter.items()
            },
            faults=tuple(self.faults),
            **facts,
        )

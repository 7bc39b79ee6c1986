"""From raw outcomes to what the contract asks for: ratios, parity, acceptance, shares, quality."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mmspec.bench.cases import Case
from mmspec.bench.measuring import Measured
from mmspec.bench.spread import Spread
from mmspec.compare.comparison import ratio
from mmspec.compare.peers import Outcome
from mmspec.report.report import Report
from mmspec.report.totals import total

Quality = Callable[[Sequence[tuple[Case, Outcome]]], float | None]
"""How good outcomes are, given what their cases really hold; None where no case tells."""


@dataclass(frozen=True)
class Versus:
    """One peer of ours against one peer.

    Attributes:
        decode, end_to_end: the peer's time over ours, all cases of a pair together; the
            spread is over pairs.
        decode_by_file: the same for each case by itself.
        median_file: decode-only, median and range of the cases' medians.
    """

    ours: str
    peer: str
    why_not: str | None
    ids_equal: bool | None
    decode: Spread
    end_to_end: Spread
    decode_by_file: tuple[Spread, ...]
    end_to_end_by_file: tuple[Spread, ...]
    median_file: Spread

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        if self.why_not is not None:
            return {"ours": self.ours, "peer": self.peer, "available": False, "why": self.why_not}
        return {
            "ours": self.ours,
            "peer": self.peer,
            "available": True,
            "ids_equal": self.ids_equal,
            "decode": self.decode.to_dict(),
            "end_to_end": self.end_to_end.to_dict(),
            "median_file": self.median_file.to_dict(),
            "decode_by_file": [spread.to_dict() for spread in self.decode_by_file],
            "end_to_end_by_file": [spread.to_dict() for spread in self.end_to_end_by_file],
        }


def versus(ours: Measured, peer: Measured) -> Versus:
    """Ratios per pair, and whether the ids were equal in all of them."""
    why_not = ours.why_not or peer.why_not
    pairs = [] if why_not else list(zip(peer.outcomes, ours.outcomes, strict=True))
    by_file = _by_file(pairs, "decode_s")
    has_ids = any(outcome.ids for run in peer.outcomes for outcome in run)
    equal = all(p.ids == o.ids for run in pairs for p, o in zip(*run, strict=True))
    return Versus(
        ours.name,
        peer.name,
        why_not,
        equal if has_ids and not why_not else None,
        Spread.of(_together(*run, "decode_s") for run in pairs),
        Spread.of(_together(*run, "end_to_end_s") for run in pairs),
        by_file,
        _by_file(pairs, "end_to_end_s"),
        Spread.of(spread.median for spread in by_file),
    )


def _together(peer: Sequence[Outcome], ours: Sequence[Outcome], field: str) -> float | None:
    peer_s, ours_s = (sum(getattr(outcome, field) for outcome in run) for run in (peer, ours))
    return ratio(peer_s, ours_s)


def _by_file(pairs: Sequence[Any], field: str) -> tuple[Spread, ...]:
    if not pairs:
        return ()
    return tuple(
        Spread.of(
            ratio(getattr(peer[case], field), getattr(ours[case], field)) for peer, ours in pairs
        )
        for case in range(len(pairs[0][0]))
    )


def ours_summary(
    ours: Measured, cases: Sequence[Case], qualities: Mapping[str, Quality]
) -> dict[str, Any]:
    """What one drafter of ours did over all pairs, derived figures included."""
    if ours.why_not is not None:
        return {"name": ours.name, "available": False, "why": ours.why_not}
    reports = [outcome.report for run in ours.outcomes for outcome in run if outcome.report]
    report = total(reports)
    return {
        "name": ours.name,
        "available": True,
        "parity": report.parity,
        "mean_acceptance_length": report.mean_acceptance_length,
        "acceptance_by_offset": list(report.acceptance_by_offset),
        "draft_acceptance_rate": report.draft_acceptance_rate,
        "target_forwards_per_token": report.target_forwards / report.tokens,
        "drafter_forwards_per_token": report.drafter_forwards / report.tokens,
        "encoder_runs": report.encoder_runs // len(ours.outcomes),
        "drafter_encoder_runs": report.drafter_encoder_runs // len(ours.outcomes),
        "tokens": report.tokens // len(ours.outcomes),
        "shares": shares(report),
        "achieved_over_bound": achieved_over_bound(report),
        "predicted_speedup": report.predicted_speedup,
        **{name: quality_of(ours, cases, how) for name, how in qualities.items()},
        "faults": list(report.faults),
        "notes": list(report.notes),
        "report": report.to_dict(),
    }


def shares(report: Report) -> dict[str, float]:
    """Parts of the decoding time: draft, verify, reconcile."""
    spent = report.decode_seconds or 1.0
    return {phase: report.seconds[phase] / spent for phase in ("draft", "verify", "reconcile")}


def achieved_over_bound(report: Report) -> float | None:
    """Drafting and verification over all decoding time: what is missing is bookkeeping."""
    if not report.decode_seconds:
        return None
    return (report.seconds["draft"] + report.seconds["verify"]) / report.decode_seconds


def quality_of(member: Measured, cases: Sequence[Case], quality: Quality) -> float | None:
    """Of the first pair's outcomes, where references are known."""
    if not member.outcomes:
        return None
    found = zip(cases, member.outcomes[0], strict=True)
    return quality([(case, outcome) for case, outcome in found if case.reference is not None])

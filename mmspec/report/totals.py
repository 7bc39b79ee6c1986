"""Several reports as one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from mmspec.report.by_codebook import CodeShare, add_codes
from mmspec.report.grounding import ClassShare, add_shares
from mmspec.report.ledger import DistanceLedger, add_ledgers
from mmspec.report.report import DrafterShare, Report

_SUMS = (
    "tokens",
    "rounds",
    "target_forwards",
    "drafter_forwards",
    "proposed",
    "accepted",
    "recovered",
    "bonus",
    "depth_forwards",
    "drafter_depth_forwards",
    "encoder_runs",
    "drafter_encoder_runs",
)


def total(reports: Sequence[Report]) -> Report:
    """The report of all recordings together.

    Counts and seconds are sums; acceptance by offset is over all proposals that reached an offset;
    the predicted speed-up is the mean, weighted by tokens.

    Raises:
        ValueError: no reports; or exact and approximate ones, whose figures are never mixed.
    """
    if not reports:
        raise ValueError("no reports to add up")
    if are_mixed(reports):
        raise ValueError("figures of exact and of approximate runs are never added up")
    lengths: Counter[int] = Counter()
    for report in reports:
        lengths.update(report.accepted_length_histogram)
    shares, reached = _by_offset(reports)
    sums: dict[str, Any] = {
        name: sum(getattr(report, name) for report in reports) for name in _SUMS
    }
    return Report(
        **sums,
        accepted_length_histogram=dict(lengths),
        acceptance_by_offset=shares,
        proposed_by_offset=reached,
        drafters=_drafters(reports),
        seconds={
            phase: sum(report.seconds[phase] for report in reports) for phase in reports[0].seconds
        },
        parity=_common([report.parity for report in reports]),
        finish_reason=_common([report.finish_reason for report in reports]),
        predicted_speedup=_predicted(reports),
        exact=reports[0].exact,
        distance=_distance(reports),
        by_class=_by_class(reports),
        by_codebook=_by_codebook(reports),
        faults=tuple(dict.fromkeys(fault for report in reports for fault in report.faults)),
        notes=tuple(dict.fromkeys(note for report in reports for note in report.notes)),
    )


def are_mixed(reports: Sequence[Report]) -> bool:
    """Whether some of them are exact and others approximate."""
    return len({report.exact for report in reports}) > 1


def _distance(reports: Sequence[Report]) -> DistanceLedger | None:
    known = [report.distance for report in reports if report.distance is not None]
    return add_ledgers(known) if known else None


def _by_offset(reports: Sequence[Report]) -> tuple[tuple[float, ...], tuple[int, ...]]:
    reached: Counter[int] = Counter()
    kept: Counter[int] = Counter()
    for report in reports:
        pairs = zip(report.proposed_by_offset, report.acceptance_by_offset, strict=True)
        for offset, (count, share) in enumerate(pairs):
            reached[offset] += count
            kept[offset] += round(count * share)
    offsets = range(len(reached))
    return tuple(kept[i] / reached[i] for i in offsets), tuple(reached[i] for i in offsets)


def _drafters(reports: Sequence[Report]) -> dict[str, DrafterShare]:
    found: dict[str, DrafterShare] = {}
    for report in reports:
        for name, share in report.drafters.items():
            before = found.get(name, DrafterShare(0, 0, 0, share.conditioning))
            found[name] = DrafterShare(
                before.proposed + share.proposed,
                before.accepted + share.accepted,
                before.forwards + share.forwards,
                share.conditioning,
            )
    return found


def _by_class(reports: Sequence[Report]) -> dict[str, ClassShare] | None:
    """Of the recordings whose tokens have classes; None where none have."""
    known = [report.by_class for report in reports if report.by_class is not None]
    return add_shares(known) if known else None


def _by_codebook(reports: Sequence[Report]) -> CodeShare | None:
    """Of those whose steps decide frames; None where none do."""
    known = [report.by_codebook for report in reports if report.by_codebook is not None]
    return add_codes(known) if known else None


def _common(values: Sequence[str]) -> str:
    return ", ".join(dict.fromkeys(part for value in values for part in value.split(", ")))


def _predicted(reports: Sequence[Report]) -> float | None:
    known = [r for r in reports if r.predicted_speedup is not None]
    weight = sum(report.tokens for report in known)
    if not weight:
        return None
    return sum(r.tokens * (r.predicted_speedup or 0.0) for r in known) / weight

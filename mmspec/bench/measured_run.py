"""Who is measured against whom, and the result of it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mmspec.bench.cases import Case
from mmspec.bench.measuring import Measured, Say, measure
from mmspec.bench.plan import Plan
from mmspec.bench.summary import Quality, Versus, ours_summary, quality_of, versus
from mmspec.compare.comparison import Field, peers_of
from mmspec.compare.peers import PEERS, Peer

BENCH_VERSION = 1
"""Schema of the result file."""


@dataclass(frozen=True)
class LineUp:
    """Who takes part; all share one target in memory.

    Attributes:
        ours: mmspec with each drafter.
        peers: everyone else.
        pairs: who is compared with whom.
        field: the peers that every drafter has.
    """

    ours: Sequence[Measured]
    peers: Sequence[Measured]
    pairs: Sequence[tuple[Measured, Measured]]
    field: Field


def line_up(
    plan: Plan,
    loaded: Sequence[Any],
    peers: Sequence[str] = PEERS,
    further: Sequence[Peer] = (),
) -> LineUp:
    """Line up mmspec's drafters with their peers.

    Args:
        plan: names the drafters.
        loaded: a transcriber or viewer for each.
        peers: names among `PEERS`.
        further: others that every drafter is compared with.
    """
    names = short_names(plan.drafts)
    ours = [
        Measured(peers_of(one).own(one, f"mmspec {name}"), draft if plan.has_file(draft) else None)
        for draft, name, one in zip(plan.drafts, names, loaded, strict=True)
    ]
    field = Field.of(loaded[0], packed=plan.packed)
    common = [Measured(field.peer(peer)) for peer in peers if peer != "hf-assisted"]
    common += [Measured(one) for one in further]
    everyone, pairs = list(common), []
    for member, name, one in zip(ours, names, loaded, strict=True):
        beside = list(common)
        if "hf-assisted" in peers:
            assisted = Measured(peers_of(one).assisted(one))
            if assisted.peer.why_not is None:
                assisted.peer.name += f" {name}"
            beside.append(assisted)
            everyone.append(assisted)
        pairs += [(member, peer) for peer in beside]
    return LineUp(ours, everyone, pairs, field)


def short_names(drafts: Sequence[str]) -> list[str]:
    """Drafts as they are called in tables: a path's last part, where that tells them apart.

    Example:
        >>> short_names(["ngram", "models/tiny", "hypothesis:/a/b.txt"])
        ['ngram', 'tiny', 'hypothesis:b.txt']
    """
    names = []
    for draft in drafts:
        kind, colon, rest = draft.partition(":")
        last = f"{kind}:{Path(rest).name}" if colon else Path(draft).name
        names.append(last)
    return names if len(set(names)) == len(names) else list(drafts)


@dataclass(frozen=True)
class Result:
    """A finished benchmark.

    Attributes:
        benchmark: its name.
        qualities: how good an output is, by name.
    """

    benchmark: str
    settings: dict[str, Any]
    cases: Sequence[Case]
    ours: Sequence[dict[str, Any]]
    versus: Sequence[Versus]
    members: Sequence[Measured]
    qualities: Mapping[str, Quality]

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON, raw seconds included."""
        return {
            "version": BENCH_VERSION,
            "benchmark": self.benchmark,
            "settings": self.settings,
            "files": [case.to_dict() for case in self.cases],
            "mmspec": list(self.ours),
            "versus": [pair.to_dict() for pair in self.versus],
            **{
                name: {one.name: quality_of(one, self.cases, how) for one in self.members}
                for name, how in self.qualities.items()
            },
            "raw": [_raw(member) for member in self.members],
        }


def _raw(member: Measured) -> dict[str, Any]:
    runs = member.outcomes
    return {
        "name": member.name,
        "why_not": member.why_not,
        "remark": member.peer.remark,
        "decode_s": [[outcome.decode_s for outcome in run] for run in runs],
        "end_to_end_s": [[outcome.end_to_end_s for outcome in run] for run in runs],
        "texts": [outcome.text for outcome in runs[0]] if runs else [],
        "ids": [list(outcome.ids) for outcome in runs[0]] if runs else [],
    }


def measured_run(
    plan: Plan,
    lined: LineUp,
    cases: Sequence[Case],
    settings: dict[str, Any],
    qualities: Mapping[str, Quality],
    say: Say,
) -> Result:
    """Measure and summarise.

    Args:
        plan: how.
        lined: who.
        cases: on what.
        settings: what was frozen.
        qualities: how good an output is, by name.
        say: told what begins now.
    """
    members = [*lined.ours, *lined.peers]
    measure(members, cases, plan.pairs, say)
    settings["load_average"] = [settings["load_average"], os.getloadavg()[0]]
    return Result(
        plan.name,
        settings,
        cases,
        [ours_summary(member, cases, qualities) for member in lined.ours],
        [versus(one, other) for one, other in lined.pairs],
        members,
        qualities,
    )

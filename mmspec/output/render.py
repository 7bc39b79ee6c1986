"""Reports and comparisons as rich tables. What models and file names say is text, never markup."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from mmspec.output.formats import one_line
from mmspec.report.grounding import ClassShare
from mmspec.report.ledger import DistanceLedger
from mmspec.report.report import Report
from mmspec.report.totals import are_mixed

PHASES = ("encode", "prefill", "draft", "verify", "reconcile", "post")


def plain_text(value: object, style: str = "") -> Text:
    """Anything as text on one line: no markup, nothing that a terminal obeys."""
    return Text(one_line(str(value)), style=style)


def new_table(title: str | None = None, **options: Any) -> Table:
    """A table in mmspec's style."""
    heading = None if title is None else plain_text(title, "bold")
    return Table(title=heading, title_justify="left", box=box.SIMPLE_HEAD, **options)


def times(ratio: float | None) -> Text:
    """A speed ratio; a loss looks like one."""
    if ratio is None:
        return Text("-", style="dim")
    return Text(f"{ratio:.2f}×", style="green" if ratio >= 1 else "red")


def percent(share: float | None) -> str:
    """A share of one."""
    return "-" if share is None else f"{100 * share:.0f} %"


def report_table(report: Report, title: str | None = None) -> Table:
    """Everything that a report says, one fact a row."""
    table = new_table(title, show_header=False, pad_edge=False)
    table.add_column(style="cyan", no_wrap=True)
    table.add_column()
    for name, value in _facts(report):
        table.add_row(name, value if isinstance(value, Text) else plain_text(value))
    return table


def _facts(report: Report) -> list[tuple[str, object]]:
    facts: list[tuple[str, object]] = [
        ("tokens", f"{report.tokens} in {report.rounds} rounds, ended by {report.finish_reason}"),
        ("output", _exactness(report)),
        (
            "forwards",
            f"target {report.target_forwards}, drafter {report.drafter_forwards}; encoder runs "
            f"{report.encoder_runs}, drafter's own {report.drafter_encoder_runs}",
        ),
        (
            "tokens",
            f"accepted {report.accepted} of {report.proposed} proposed "
            f"({percent(report.draft_acceptance_rate)}), recovered {report.recovered}, "
            f"bonus {report.bonus}",
        ),
        ("acceptance length", f"{report.mean_acceptance_length:.2f} per round, bonus included"),
    ]
    if report.distance is not None:
        facts.append(("distance", plain_text(_distance(report.distance), "yellow")))
    if report.acceptance_by_offset:
        facts.append(("acceptance by offset", _offsets(report.acceptance_by_offset)))
    if report.by_codebook is not None:
        facts.append(("acceptance by codebook", codebooks(report.by_codebook.shares)))
    facts += [
        (
            f"drafter {name}",
            f"{share.accepted} of {share.proposed}, conditioning {share.conditioning}",
        )
        for name, share in report.drafters.items()
        if share.proposed
    ]
    facts += [(name, _of_class(share)) for name, share in (report.by_class or {}).items()]
    facts.append(("seconds", _seconds(report)))
    if report.predicted_speedup is not None:
        facts.append(("predicted", f"{report.predicted_speedup:.2f}× of an ordinary step loop"))
    facts += [("fault", plain_text(fault, "yellow")) for fault in report.faults]
    facts += [("note", plain_text(note)) for note in report.notes]
    return facts


def _of_class(share: ClassShare) -> str:
    return (
        f"{share.tokens} tokens, accepted {share.accepted} of {share.accepted + share.recovered} "
        f"judged ({percent(share.acceptance_rate)}), mean drop {share.mean_drop:.1f} nats"
    )


def _exactness(report: Report) -> str | Text:
    levels = {
        "L0": "the ids of ordinary decoding (L0)",
        "L1": "the ids of this seed, whatever drafts (L1)",
        "L2": "the target's distribution (L2)",
        "L3": "another distribution than the target's (L3)",
    }
    level = levels.get(report.parity, report.parity)
    return f"exact: {level}" if report.exact else plain_text(f"approximate: {level}", "yellow")


def _distance(ledger: DistanceLedger) -> str:
    budget = "no budget" if ledger.budget is None else f"budget {ledger.budget:g}"
    return (
        f"{ledger.total:.4f} in total variation, spent on {ledger.steps} of {len(ledger.by_step)} "
        f"steps, at most {ledger.largest:.4f} on one; {budget}"
    )


def _offsets(shares: Sequence[float], most: int = 12) -> str:
    shown = " ".join(f"{100 * share:.0f}" for share in shares[:most])
    more = f" … ({len(shares)} offsets)" if len(shares) > most else ""
    return f"{shown} %{more}"


def codebooks(shares: Sequence[float | None]) -> str:
    """Shares of right codes among judged ones, for each codebook.

    Example:
        >>> codebooks((0.5, None)), codebooks((None, None))
        ('50 - %', '-')
    """
    if all(share is None for share in shares):
        return "-"
    return " ".join("-" if share is None else f"{100 * share:.0f}" for share in shares) + " %"


def _seconds(report: Report) -> str:
    parts = [
        f"{phase} {report.seconds[phase]:.3f}" for phase in PHASES if report.seconds.get(phase)
    ]
    return f"{', '.join(parts)}; decode {report.decode_seconds:.3f}, all {report.total_seconds:.3f}"


def overview_table(
    rows: Sequence[tuple[str, float | str, Report]], measure: str = "audio"
) -> Table:
    """Several inputs, one a row: (name, how large it is, report), and all together unless some are
    exact and others approximate.

    Args:
        rows: seconds of audio add up; a size in words doesn't.
        measure: heading of the sizes.
    """
    table = new_table()
    table.add_column("file", overflow="fold")
    for heading in (measure, "tokens", "rounds", "per round", "accepted", "decode", "all"):
        table.add_column(heading, justify="right", no_wrap=True)
    for name, size, report in rows:
        shown = size if isinstance(size, str) else f"{size:.1f} s"
        label = name if report.exact else f"{name} (approximate)"
        table.add_row(plain_text(label), shown, *_overview([report]))
    if len(rows) > 1 and not are_mixed([report for _, _, report in rows]):
        table.add_section()
        seconds = [size for _, size, _ in rows if not isinstance(size, str)]
        shown = f"{sum(seconds):.1f} s" if seconds else ""
        table.add_row("all", shown, *_overview([report for _, _, report in rows]))
    return table


def _overview(reports: Sequence[Report]) -> list[str]:
    tokens = sum(report.tokens for report in reports)
    rounds = sum(report.rounds for report in reports)
    accepted = sum(report.accepted for report in reports)
    proposed = sum(report.proposed for report in reports)
    return [
        str(tokens),
        str(rounds),
        f"{tokens / rounds:.2f}" if rounds else "-",
        f"{accepted}/{proposed}",
        f"{sum(report.decode_seconds for report in reports):.3f} s",
        f"{sum(report.total_seconds for report in reports):.3f} s",
    ]


def comparison_table(rows: Sequence[tuple[str, Mapping[str, Any]]]) -> Table:
    """Peers beside mmspec: (file, comparison by peer); a ratio is the peer's time over ours.

    Peers that couldn't run the case are left to `comparison_notes`.
    """
    table = new_table("The peer's time over mmspec's")
    table.add_column("file", overflow="fold")
    for heading in ("peer", "ids"):
        table.add_column(heading, no_wrap=True)
    for heading in ("decode", "end to end"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("first difference", overflow="fold")
    seen: dict[str, list[Any]] = {}
    for name, peers in rows:
        for peer, comparison in peers.items():
            if comparison.available:
                table.add_row(plain_text(name), peer, *_compared(comparison))
                seen.setdefault(peer, []).append(comparison)
    if len(rows) > 1 and seen:
        table.add_section()
        for peer, comparisons in seen.items():
            table.add_row("median", peer, *_median(comparisons))
    return table


ASSISTED_DIFFERS = "hf-assisted differs from hf as well: transformers' speculation isn't exact here"


def comparison_notes(rows: Sequence[tuple[str, Mapping[str, Any]]]) -> list[Text]:
    """Lines for below the table: why a peer couldn't run a case, and whose difference it is."""
    notes = dict.fromkeys(
        f"{peer}: {comparison.why}"
        for _, peers in rows
        for peer, comparison in peers.items()
        if not comparison.available
    )
    for _, peers in rows:
        for peer, comparison in peers.items():
            if comparison.remark:
                notes[f"{peer}: {comparison.remark}"] = None
        plain, assisted = peers.get("hf"), peers.get("hf-assisted")
        if plain and assisted and plain.ids_equal and assisted.ids_equal is False:
            notes[ASSISTED_DIFFERS] = None
    return [plain_text(note, "dim") for note in notes]


def _median(comparisons: Sequence[Any]) -> list[Text]:
    equal = sum(comparison.ids_equal for comparison in comparisons)
    style = "green" if equal == len(comparisons) else "bold red"
    ratios = [
        [value for comparison in comparisons if (value := getattr(comparison, field)) is not None]
        for field in ("decode_ratio", "end_to_end_ratio")
    ]
    medians = [times(statistics.median(values) if values else None) for values in ratios]
    return [Text(f"{equal}/{len(comparisons)} equal", style=style), *medians, Text("")]


def _compared(comparison: Any) -> list[Text]:
    equal = Text("equal", style="green") if comparison.ids_equal else Text("differ", "bold red")
    return [
        equal,
        times(comparison.decode_ratio),
        times(comparison.end_to_end_ratio),
        plain_text(_difference(comparison.first_difference)),
    ]


def _difference(difference: Any) -> str:
    if difference is None:
        return ""
    ours, peer = ("end" if token is None else token for token in (difference.ours, difference.peer))
    gap = "gap unknown" if difference.gap is None else f"gap {difference.gap:.1e}"
    place = f"{difference.index}"
    if difference.codebook is not None:
        place = f"frame {difference.index}, codebook {difference.codebook}"
    return f"at {place}: {ours} here, {peer} there, {'a tie, ' * difference.tie}{gap}"

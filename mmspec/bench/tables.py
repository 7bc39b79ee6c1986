"""A benchmark's result for people: rich tables, and Markdown for a page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from mmspec.bench.measured_run import Result
from mmspec.bench.spread import Spread
from mmspec.bench.summary import Versus
from mmspec.output.formats import one_line
from mmspec.output.render import ASSISTED_DIFFERS, codebooks, new_table, percent, plain_text


def result_tables(result: Result) -> list[Table]:
    """Speed against every peer, then what each drafter did."""
    return [_versus_table(result), _ours_table(result)]


def notes(result: Result) -> list[Text]:
    """Why a peer couldn't run a case, and what is to be known of one that could; a line each."""
    remarks = {one.name: one.peer.remark for one in result.members}
    lines = []
    hf_equal = {pair.ours for pair in result.versus if pair.peer == "hf" and pair.ids_equal}
    for pair in result.versus:
        about = f"{_peer(pair)}, drafter {_drafter(pair.ours)}"
        if pair.why_not is not None:
            lines.append(f"{about}: {pair.why_not}")
            continue
        if remarks[pair.peer]:
            lines.append(f"{about}: {remarks[pair.peer]}")
        if pair.ids_equal is False and pair.ours in hf_equal and "assisted" in pair.peer:
            lines.append(f"{about}: {ASSISTED_DIFFERS}")
    return [plain_text(line, "dim") for line in lines]


def _versus_table(result: Result) -> Table:
    pairs = result.settings["pairs"]
    table = new_table(f"The peer's time over mmspec's: median of {pairs} pairs (range)")
    for heading in ("drafter", "peer", "ids"):
        table.add_column(heading, overflow="fold")
    for heading in ("decode", "decode, median file", "end to end"):
        table.add_column(heading, justify="right", min_width=len("(0.00-00.00)"))
    before = None
    for pair in result.versus:
        if pair.why_not is not None:
            continue
        if before not in (None, pair.ours):
            table.add_section()
        before = pair.ours
        table.add_row(
            plain_text(_drafter(pair.ours)), plain_text(_peer(pair)), *_versus_cells(pair)
        )
    return table


def _versus_cells(pair: Versus) -> list[Text]:
    if pair.why_not is not None:
        return [plain_text("-", "dim"), plain_text(pair.why_not, "dim"), Text(""), Text("")]
    ids = {True: Text("equal", "green"), False: Text("differ", "bold red"), None: Text("-", "dim")}
    return [
        ids[pair.ids_equal],
        _coloured(pair.decode),
        _coloured(pair.median_file),
        _coloured(pair.end_to_end),
    ]


def _coloured(spread: Spread) -> Text:
    if spread.median is None:
        return Text("-", style="dim")
    return Text(str(spread), style="green" if spread.median >= 1 else "red")


def _ours_table(result: Result) -> Table:
    step = result.settings.get("token")
    table = new_table("What each drafter did" + (f"; a token is {step}" if step else ""))
    table.add_column("", style="cyan", no_wrap=True)
    for facts in result.ours:
        table.add_column(plain_text(_drafter(facts["name"])), overflow="fold", justify="right")
    for name, *cells in _ours_rows(result):
        table.add_row(name, *map(plain_text, cells))
    return table


def _ours_rows(result: Result) -> list[tuple[str, ...]]:
    """A name and a cell for every drafter."""
    columns = [_ours_cells(facts) for facts in result.ours]
    rows = [(name, *(cells[n] for cells in columns)) for n, name in enumerate(_ROWS)]
    if any("by_class" in facts for facts in result.ours):
        rows.append(("kept, grounded / syntactic", *map(_by_class, result.ours)))
    if any(_shares(facts) for facts in result.ours):
        cells = (codebooks(_shares(facts)) for facts in result.ours)
        rows.append(("acceptance by codebook", *cells))
    for quality in result.qualities:
        cells = (_percent(facts.get(quality)) for facts in result.ours)
        rows.append((quality.replace("_", " "), *cells))
    return rows


def _shares(facts: dict[str, Any]) -> Sequence[float | None]:
    """Of right codes, by codebook; none where a step decides a single token."""
    known = facts.get("report", {}).get("by_codebook")
    return () if known is None else known["shares"]


def _by_class(facts: dict[str, Any]) -> str:
    shares = facts.get("by_class") or {}
    kept = [shares.get(name, {}).get("acceptance_rate") for name in ("grounded", "syntactic")]
    return " / ".join(_percent(share) for share in kept)


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f} %"


_ROWS = (
    "parity",
    "tokens per round, bonus included",
    "drafted tokens accepted",
    "acceptance by offset, %",
    "target forwards per token",
    "drafter forwards per token",
    "encoder runs, target + drafter",
    "draft / verify / bookkeeping",
    "achieved / bound",
    "predicted speed-up",
)


def _ours_cells(facts: dict[str, Any]) -> list[str]:
    if not facts["available"]:
        return [facts["why"], *[""] * (len(_ROWS) - 1)]
    offsets = " ".join(f"{100 * share:.0f}" for share in facts["acceptance_by_offset"][:8])
    parts = " / ".join(percent(share) for share in facts["shares"].values())
    predicted = facts["predicted_speedup"]
    return [
        facts["parity"],
        f"{facts['mean_acceptance_length']:.2f}",
        percent(facts["draft_acceptance_rate"]),
        offsets or "-",
        f"{facts['target_forwards_per_token']:.2f}",
        f"{facts['drafter_forwards_per_token']:.2f}",
        f"{facts['encoder_runs']} + {facts['drafter_encoder_runs']}",
        parts,
        f"{facts['achieved_over_bound'] or 0:.2f}",
        "-" if predicted is None else f"{predicted:.2f}×",
    ]


def _drafter(name: str) -> str:
    return name.removeprefix("mmspec ")


def _peer(pair: Versus) -> str:
    """A peer's name without the drafter, which stands beside it."""
    return pair.peer.removesuffix(f" {_drafter(pair.ours)}")


def to_markdown(result: Result) -> str:
    """The tables for a documentation page, losses and spreads included."""
    head = ("drafter", "peer", "ids", "decode", "decode, median file", "end to end")
    rows = [
        (_drafter(pair.ours), _peer(pair), *(str(cell) for cell in _versus_cells(pair)))
        for pair in result.versus
        if pair.why_not is None
    ]
    names = ["", *(_drafter(facts["name"]) for facts in result.ours)]
    lines = [*_markdown(head, rows), ""]
    for note in notes(result):
        lines += [f"- {note}"]
    return "\n".join([*lines, "", *_markdown(names, _ours_rows(result))]) + "\n"


def _markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(one_line(cell).replace("|", "\\|") for cell in cells) + " |"

    return [line(head), "|" + "---|" * len(head), *(line(row) for row in rows)]

"""The same thing decoded plainly and speculatively: run in turn, judged, and shown in a table."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

REPEATS = 3
PATIENCE_S = 3.0
"""After so many seconds a slow machine doesn't begin once more."""


@dataclass(frozen=True)
class SideBySide:
    """One thing in two ways.

    Attributes:
        name: of the recording or the image.
        drafter: who proposed.
        reference: what it really says.
        plain: what came of it, one token per pass: a transcription or a description.
        ours: what came of it speculatively.
    """

    name: str
    drafter: str
    reference: str
    plain: Any
    ours: Any

    @property
    def equal(self) -> bool:
        """Whether the ids are."""
        return bool(self.plain.ids == self.ours.ids)

    def compared(self) -> dict[str, Any]:
        """The same as a page takes it."""
        from mmspec.compare.comparison import Comparison, ratio

        plain, ours = self.plain.report, self.ours.report
        return {
            "plain": Comparison(
                available=True,
                ids_equal=self.equal,
                decode_ratio=ratio(plain.decode_seconds, ours.decode_seconds),
                end_to_end_ratio=ratio(plain.total_seconds, ours.total_seconds),
            )
        }


def in_turn(*decoders: Callable[[], Any]) -> list[Any]:
    """Each decoder's run that took the median time; what disturbs one disturbs all alike."""
    rows: list[list[Any]] = []
    start = time.perf_counter()
    while not rows or (len(rows) < REPEATS and time.perf_counter() - start < PATIENCE_S):
        rows.append([decode() for decode in decoders])
    return [
        sorted(runs, key=lambda said: said.report.decode_seconds)[len(runs) // 2]
        for runs in zip(*rows, strict=True)
    ]


def side_by_side(what: str, pairs: Sequence[SideBySide]) -> Any:
    """A row per pair.

    Args:
        what: heading of the first column.
        pairs: at least one.
    """
    from rich.text import Text

    from mmspec.output.render import new_table, plain_text, times

    table = new_table("Plain and speculative decoding", show_footer=True)
    several = len({pair.drafter for pair in pairs}) > 1
    equal = sum(pair.equal for pair in pairs)
    tokens = sum(pair.ours.report.tokens for pair in pairs)
    rounds = sum(pair.ours.report.rounds for pair in pairs)
    table.add_column(what, footer="all", no_wrap=True)
    if several:
        table.add_column("drafted by", no_wrap=True)
    table.add_column("ids", footer=f"{equal} of {len(pairs)} equal", no_wrap=True)
    for heading, footer in (("tokens", str(tokens)), ("rounds", str(rounds))):
        table.add_column(heading, footer=footer, justify="right")
    table.add_column("per round", footer=f"{tokens / max(1, rounds):.2f}", justify="right")
    table.add_column("decode speed", footer=times(speed(pairs)), justify="right")
    for pair in pairs:
        report = pair.ours.report
        table.add_row(
            plain_text(pair.name),
            *([plain_text(pair.drafter)] if several else []),
            Text("equal", style="green") if pair.equal else Text("DIFFER", style="bold red"),
            str(report.tokens),
            str(report.rounds),
            f"{report.mean_acceptance_length:.2f}",
            times(speed([pair])),
        )
    return table


def speed(pairs: Sequence[SideBySide]) -> float | None:
    """The time of plain decoding over that of speculative decoding, both of all pairs together."""
    plain_s = sum(pair.plain.report.decode_seconds for pair in pairs)
    ours_s = sum(pair.ours.report.decode_seconds for pair in pairs)
    return plain_s / ours_s if ours_s > 0 else None

"""`mmspec demo`: the embedded sample, plain and speculative, side by side."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from mmspec.cli import options as o
from mmspec.cli.console import Steps, quiet_libraries, stderr
from mmspec.settings import ModelSettings

REPEATS = 3

DemoTarget = Annotated[
    str, typer.Option("--target", "-t", metavar="MODEL", help="Whose output it is.")
]
DemoGamma = Annotated[
    str, typer.Option("--gamma", metavar="adaptive|N", help="Tokens drafted per round.")
]

DemoThreads = Annotated[
    int,
    typer.Option("--threads", min=1, metavar="N", help="CPU threads; small models want one."),
]


@dataclass(frozen=True)
class Shown:
    """One clip of the demo: its name, what was really said, and the two outcomes."""

    name: str
    reference: str
    plain: Any
    ours: Any


def demo(
    target: DemoTarget = "sample",
    draft: o.Draft = "sample",
    gamma: DemoGamma = "adaptive",
    threads: DemoThreads = 1,
    verbose: o.Verbose = False,
) -> int:
    """Show it: the embedded clips with the embedded models, offline, in seconds.

    The sample target decodes every clip plainly, one token per forward pass, and
    speculatively. The ids have to be equal; the tables say what speculation did.
    """
    models = ModelSettings(target, draft, gamma, threads=threads)
    models.check()
    with quiet_libraries(verbose):
        clips = demo_clips()
        with Steps(len(clips), stderr()) as steps:
            steps.say("loading the sample models")
            with models.load() as transcriber:
                shown = _decode(transcriber, clips, steps)
    _show(models, shown)
    return 0 if all(clip.plain.ids == clip.ours.ids for clip in shown) else 1


def demo_clips() -> list[tuple[Any, str]]:
    """The embedded clips in the voices that the sample target was trained on: (path, text)."""
    from mmspec.loading import sample_path

    with sample_path("audio", "transcripts.tsv").open(encoding="utf-8", newline="") as table:
        rows = list(csv.DictReader(table, delimiter="\t"))
    heard = [row for row in rows if row["voice"] != "LibriVox"]
    return [(sample_path("audio", row["file"]), row["text"]) for row in heard]


def _decode(transcriber: Any, clips: list[tuple[Any, str]], steps: Steps) -> list[Shown]:
    from mmspec.contenders import MMSpecContender, Request, plain_of
    from mmspec.modalities.audio import load_audio

    plain = MMSpecContender(plain_of(transcriber), "plain")
    ours, request = MMSpecContender(transcriber, "ours"), Request()
    warm_up = load_audio(clips[0][0])
    for contender in (plain, ours):
        contender.run(warm_up, request)
    shown = []
    for path, text in clips:
        steps.say(path.name)
        samples = load_audio(path)
        runs = [(plain.run(samples, request), ours.run(samples, request)) for _ in range(REPEATS)]
        plainly, speculatively = (_typical(outcomes) for outcomes in zip(*runs, strict=True))
        shown.append(Shown(path.name, text, plainly, speculatively))
        steps.advance()
    return shown


def _typical(outcomes: tuple[Any, ...]) -> Any:
    """The run that took the median time; another process may have disturbed the others."""
    return sorted(outcomes, key=lambda outcome: outcome.decode_s)[len(outcomes) // 2]


def _show(models: ModelSettings, shown: list[Shown]) -> None:
    from rich.console import Console

    from mmspec.bench.cases import word_error_rate
    from mmspec.render import percent, plain_text, report_table
    from mmspec.totals import total

    console = Console(highlight=False)
    console.print(plain_text(f"Heard by {models.target}, drafted by {models.draft}:", "bold"))
    for clip in shown:
        console.print(plain_text(f"{clip.name}", "cyan"), plain_text(clip.ours.text))
    console.print(_table(shown))
    whole = total([clip.ours.report for clip in shown])
    console.print(report_table(whole, "Speculative decoding, all clips"))
    wrong = percent(word_error_rate([(clip.reference, clip.ours.text) for clip in shown]))
    console.print(plain_text(f"Word error rate of the target, plain or not: {wrong}"))
    console.print(plain_text("Next: mmspec transcribe FILE -t DIR_OR_HUB_ID -d ngram --compare hf"))


def _table(shown: list[Shown]) -> Any:
    from rich.text import Text

    from mmspec.render import new_table, plain_text, times

    table = new_table("Plain and speculative decoding", show_footer=True)
    equal = sum(clip.plain.ids == clip.ours.ids for clip in shown)
    tokens, rounds = (sum(getattr(clip.ours.report, n) for clip in shown) for n in _COUNTS)
    speed = _speed([(clip.plain.decode_s, clip.ours.decode_s) for clip in shown])
    table.add_column("clip", footer="all", no_wrap=True)
    table.add_column("ids", footer=f"{equal} of {len(shown)} equal", no_wrap=True)
    for heading, footer in (("tokens", str(tokens)), ("rounds", str(rounds))):
        table.add_column(heading, footer=footer, justify="right")
    table.add_column("per round", footer=f"{tokens / max(1, rounds):.2f}", justify="right")
    table.add_column("decode speed", footer=times(speed), justify="right")
    for clip in shown:
        report = clip.ours.report
        same = clip.plain.ids == clip.ours.ids
        table.add_row(
            plain_text(clip.name),
            Text("equal", style="green") if same else Text("DIFFER", style="bold red"),
            str(report.tokens),
            str(report.rounds),
            f"{report.mean_acceptance_length:.2f}",
            times(_speed([(clip.plain.decode_s, clip.ours.decode_s)])),
        )
    return table


_COUNTS = ("tokens", "rounds")


def _speed(pairs: list[tuple[float, float]]) -> float | None:
    plain_s, ours_s = (sum(column) for column in zip(*pairs, strict=True))
    return plain_s / ours_s if ours_s > 0 else None

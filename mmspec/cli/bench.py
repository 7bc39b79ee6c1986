"""`mmspec bench asr`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from mmspec.cli import options as o
from mmspec.cli.console import (
    Steps,
    offline_if_unreachable,
    quiet_libraries,
    stderr,
    until_reader_leaves,
)

bench_app = typer.Typer(
    name="bench", help="Measure, by the benchmark contract.", no_args_is_help=True
)


@bench_app.callback()
def _bench() -> None:
    """Measure, by the benchmark contract."""


@bench_app.command("asr")
@until_reader_leaves
def asr(
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[FILE...]",
            help="Recordings; without any the embedded clips.",
            show_default=False,
        ),
    ] = None,
    target: Annotated[
        str,
        typer.Option(
            "--target",
            "-t",
            metavar="MODEL",
            help="Whose output it is.",
            rich_help_panel=o.MODELS,
        ),
    ] = "sample",
    draft: Annotated[
        list[str] | None,
        typer.Option(
            "--draft",
            "-d",
            metavar="DRAFT",
            help="As for transcribe; may be given several times. Without: none and ngram.",
            rich_help_panel=o.MODELS,
            show_default=False,
        ),
    ] = None,
    trust_remote_code: o.TrustRemoteCode = False,
    pairs: Annotated[
        int,
        typer.Option("--pairs", min=1, metavar="N", help="Interleaved passes; 5 or more count."),
    ] = 5,
    reference: Annotated[
        Path | None,
        typer.Option(
            "--reference",
            metavar="TSV",
            help="What is said, columns file and text; else transcripts.tsv beside the files.",
            show_default=False,
        ),
    ] = None,
    faster_whisper: Annotated[
        Path | None,
        typer.Option(
            "--faster-whisper",
            metavar="DIR",
            help="A CTranslate2 checkpoint to run with faster-whisper as one more peer.",
            rich_help_panel=o.MODELS,
            show_default=False,
        ),
    ] = None,
    faster_whisper_type: Annotated[
        str,
        typer.Option("--faster-whisper-type", metavar="T", rich_help_panel=o.MODELS),
    ] = "float32",
    language: o.Language = None,
    task: o.Task = None,
    timestamps: o.Timestamps = None,
    max_new_tokens: o.MaxNewTokens = None,
    gamma: o.Gamma = "adaptive",
    json: o.Json = None,
    markdown: Annotated[
        Path | None,
        typer.Option(
            "--markdown",
            metavar="FILE",
            help="Write the tables there, for a page.",
            rich_help_panel=o.OUTPUT,
            show_default=False,
        ),
    ] = None,
    verbose: o.Verbose = False,
    threads: o.Threads = None,
    device: o.Device = None,
    dtype: o.Dtype = None,
    packed: o.Packed = True,
) -> int:
    """Measure drafters against ordinary decoding and against transformers.

    All contenders run in one process on the same target in memory, interleaved,
    greedy, after a pass to warm up. A ratio is the peer's time over mmspec's, per
    pair of runs; below 1 it is a loss, and printed like a gain.

    \b
    mmspec bench asr
    mmspec bench asr *.wav -t DIR -d none -d ngram -l en --threads 1 --json out.json
    """
    offline_if_unreachable([target, *(draft or [])])
    with quiet_libraries(verbose):
        from mmspec.bench.asr import Plan
        from mmspec.contenders import Request

        plan = Plan(
            files=files or embedded_clips(),
            target=target,
            drafts=draft or ["none", "ngram"],
            request=Request(language, task, timestamps, max_new_tokens=max_new_tokens),
            pairs=pairs,
            gamma=gamma,
            packed=packed,
            device=device,
            dtype=dtype,
            threads=threads,
            reference=reference,
            faster_whisper=faster_whisper,
            faster_whisper_type=faster_whisper_type,
            trust_remote_code=trust_remote_code,
        )
        result = _measured(plan)
    _write(result, json, markdown)
    return 0


def embedded_clips() -> list[Path]:
    """The clips that come with mmspec."""
    from mmspec.cli.demo import demo_clips

    return [path for path, _ in demo_clips()]


def _measured(plan: Any) -> Any:
    from mmspec.bench.asr import run

    with Steps(0, stderr()) as steps:

        def say(what: str, total: int) -> None:
            steps.say(what, total)
            if total:
                steps.advance()

        return run(plan, say)


def _write(result: Any, json: Path | None, markdown: Path | None) -> None:
    from rich.console import Console

    from mmspec.bench.tables import notes, result_tables, to_markdown
    from mmspec.formats import dump_json, write_atomic

    console = Console(highlight=False)
    for part in [*result_tables(result), *notes(result)]:
        console.print(part)
    console.print(_frozen(result.settings))
    if json is not None:
        write_atomic(json, dump_json(result.to_dict()))
    if markdown is not None:
        write_atomic(markdown, to_markdown(result))


def _frozen(settings: dict[str, Any]) -> Any:
    from mmspec.render import plain_text

    versions = settings["versions"]
    facts = [
        f"target {settings['target']}",
        f"{settings['device']} ({settings['processor']})",
        f"{settings['threads']} thread(s)",
        settings["dtype"],
        f"attention {settings['attention']}",
        f"gamma {settings['gamma']}",
        f"torch {versions['torch']}",
        f"transformers {versions['transformers']}",
        "load {:.1f} to {:.1f}".format(*settings["load_average"]),
    ]
    return plain_text(", ".join(facts), "dim")

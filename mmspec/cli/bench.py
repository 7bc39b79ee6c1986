"""`mmspec bench asr`, `mmspec bench vlm` and `mmspec bench tts`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from mmspec.cli import options as o
from mmspec.cli.settings import OutputSettings, check_apart, check_place, peers_of
from mmspec.errors import OptionError
from mmspec.output.console import (
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


Target = Annotated[
    str,
    typer.Option(
        "--target", "-t", metavar="MODEL", help="Whose output it is.", rich_help_panel=o.MODELS
    ),
]
Drafts = Annotated[
    list[str] | None,
    typer.Option(
        "--draft",
        "-d",
        metavar="DRAFT",
        help="As for transcribe, or caption; may be given several times. Without: none and ngram.",
        rich_help_panel=o.MODELS,
        show_default=False,
    ),
]
Pairs = Annotated[
    int,
    typer.Option("--pairs", min=1, metavar="N", help="Interleaved passes; 5 or more count."),
]
Markdown = Annotated[
    Path | None,
    typer.Option(
        "--markdown",
        metavar="FILE",
        help="Write the tables there, for a page.",
        rich_help_panel=o.OUTPUT,
        show_default=False,
    ),
]


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
    target: Target = "sample",
    draft: Drafts = None,
    trust_remote_code: o.TrustRemoteCode = False,
    pairs: Pairs = 5,
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
    markdown: Markdown = None,
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
    _check_places(json, markdown)
    offline_if_unreachable([target, *(draft or [])])
    with quiet_libraries(verbose):
        from mmspec.tasks.asr.bench import Plan, run
        from mmspec.tasks.asr.peers import Request

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
        result = _measured(run, plan)
    _write(result, json, markdown)
    return 0


@bench_app.command("vlm")
@until_reader_leaves
def vlm(
    images: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[IMAGE...]",
            help="Images, or folders of them; without any the embedded ones.",
            show_default=False,
        ),
    ] = None,
    target: Target = "sample",
    draft: Drafts = None,
    trust_remote_code: o.TrustRemoteCode = False,
    task: Annotated[
        list[str] | None,
        typer.Option(
            "--task",
            metavar="TASK",
            help="caption or read; may be given twice. Without: what the truth tells of an "
            "image, else caption.",
            rich_help_panel=o.DECODING,
            show_default=False,
        ),
    ] = None,
    pairs: Pairs = 5,
    reference: Annotated[
        Path | None,
        typer.Option(
            "--reference",
            metavar="TSV",
            help="What is there, columns file, task and text; else truth.tsv beside the images.",
            show_default=False,
        ),
    ] = None,
    max_new_tokens: o.MaxNewTokens = None,
    grounding: o.LookGrounding = None,
    gamma: o.Gamma = "adaptive",
    compare: o.Compare = "plain,hf,hf-assisted",
    json: o.Json = None,
    markdown: Markdown = None,
    report: o.ReportPage = None,
    verbose: o.Verbose = False,
    threads: o.Threads = None,
    device: o.Device = None,
    dtype: o.Dtype = None,
    packed: o.Packed = True,
) -> int:
    """Measure drafters on images, for captions and for reading.

    As bench asr does it. Beside the speed: character error rate of what was read,
    share of the captions that are the truth, letter for letter.

    \b
    mmspec bench vlm
    mmspec bench vlm *.png -t DIR -d none -d DIR2 --task caption --threads 1
    """
    _check_places(json, markdown, report)
    offline_if_unreachable([target, *(draft or [])])
    with quiet_libraries(verbose):
        from mmspec.tasks.vlm.bench import Plan, run
        from mmspec.tasks.vlm.bench_cases import image_files

        plan = Plan(
            files=image_files(images or []),
            target=target,
            drafts=draft or ["none", "ngram"],
            tasks=tuple(task or ()),  # type: ignore[arg-type]
            peers=peers_of(compare),
            max_new_tokens=max_new_tokens,
            grounding=grounding,
            pairs=pairs,
            gamma=gamma,
            packed=packed,
            device=device,
            dtype=dtype,
            threads=threads,
            reference=reference,
            trust_remote_code=trust_remote_code,
        )
        result = _measured(run, plan)
        if report is not None:
            _write_page(result, report, grounding)
    _write(result, json, markdown)
    return 0


@bench_app.command("tts")
@until_reader_leaves
def tts(
    texts: Annotated[
        Path | None,
        typer.Option(
            "--texts",
            metavar="FILE",
            help="A sentence per line, behind a tab its seconds; without it the sample's.",
            show_default=False,
        ),
    ] = None,
    target: Target = "sample",
    draft: Annotated[
        list[str] | None,
        typer.Option(
            "--draft",
            "-d",
            metavar="DRAFT",
            help="As for speak; may be given several times. Without: none and lookup.",
            rich_help_panel=o.MODELS,
            show_default=False,
        ),
    ] = None,
    trust_remote_code: o.TrustRemoteCode = False,
    listener: Annotated[
        str | None,
        typer.Option(
            "--listener",
            metavar="MODEL",
            help="Let this one transcribe what was said, and count the words it gets wrong.",
            rich_help_panel=o.MODELS,
            show_default=False,
        ),
    ] = None,
    language: Annotated[
        str | None,
        typer.Option(
            "--language",
            "-l",
            metavar="L",
            help="What the listener is told to hear; detected where missing.",
            rich_help_panel=o.DECODING,
            show_default=False,
        ),
    ] = None,
    pairs: Pairs = 5,
    seconds: o.Seconds = None,
    guidance: o.Guidance = None,
    max_new_tokens: o.SpeakSteps = None,
    gamma: o.Gamma = "adaptive",
    compare: o.Compare = "plain,hf",
    json: o.Json = None,
    markdown: Markdown = None,
    report: o.ReportPage = None,
    verbose: o.Verbose = False,
    threads: o.Threads = None,
    device: o.Device = None,
    dtype: o.Dtype = None,
    packed: o.Packed = True,
) -> int:
    """Measure drafters on sentences that are said aloud.

    As bench asr does it, greedy. Decode is the loop from the first step to the
    last; end to end is from the text to the sound, the codec included.

    \b
    mmspec bench tts -d none -d sample -d lookup --threads 1
    mmspec bench tts --texts lines.txt -t DIR -d DIR2 --listener sample --json out.json
    """
    _check_places(json, markdown, report)
    if seconds is not None and max_new_tokens is not None:
        raise OptionError("--seconds, --max-new-tokens: found both, expected one of them")
    offline_if_unreachable([target, listener or "sample", *(draft or [])])
    with quiet_libraries(verbose):
        from mmspec.tasks.tts.bench import Plan, run, sentences_file
        from mmspec.tasks.tts.peers import SpeakRequest

        plan = Plan(
            files=[sentences_file(texts)],
            target=target,
            drafts=draft or ["none", "lookup"],
            request=SpeakRequest(seconds, 0.0, None, guidance, max_new_tokens),
            peers=peers_of(compare),
            listener=listener,
            language=language,
            pairs=pairs,
            gamma=gamma,
            packed=packed,
            device=device,
            dtype=dtype,
            threads=threads,
            trust_remote_code=trust_remote_code,
        )
        result = _measured(run, plan)
        if report is not None:
            _write_speeches(result, report)
    _write(result, json, markdown)
    return 0


def embedded_clips() -> list[Path]:
    """The clips that come with mmspec."""
    from mmspec.tasks.asr.demo import demo_clips

    return [path for path, _ in demo_clips()]


def _measured(run: Any, plan: Any) -> Any:
    with Steps(0, stderr()) as steps:

        def say(what: str, total: int) -> None:
            steps.say(what, total)
            if total:
                steps.advance()

        return run(plan, say)


def _check_places(json: Path | None, markdown: Path | None, report: Path | None = None) -> None:
    """What takes minutes to measure has somewhere to go, or isn't begun."""
    OutputSettings(json=json, report=report).check([])
    if markdown is not None:
        check_place("--markdown", markdown, folder=False)
    check_apart({"--json": json, "--markdown": markdown, "--report": report})


def _write(result: Any, json: Path | None, markdown: Path | None) -> None:
    from rich.console import Console

    from mmspec.bench.tables import notes, result_tables, to_markdown
    from mmspec.output.formats import dump_json, write_atomic

    # Files first: whoever reads standard output may go away.
    if json is not None:
        write_atomic(json, dump_json(result.to_dict()))
    if markdown is not None:
        write_atomic(markdown, to_markdown(result))
    console = Console(highlight=False)
    for part in [*result_tables(result), *notes(result)]:
        console.print(part)
    console.print(_frozen(result.settings))


def _write_page(result: Any, report: Path, grounding: float | None) -> None:
    from mmspec.output.formats import write_atomic
    from mmspec.page import render_page
    from mmspec.tasks.vlm.bench_page import page_of

    write_atomic(report, render_page(page_of(result, grounding)))


def _write_speeches(result: Any, report: Path) -> None:
    from mmspec.bench.page import say_again
    from mmspec.page.writing import write_page
    from mmspec.tasks.tts.page import SpeechEntries

    entries = SpeechEntries(result.contenders[0].contender.speaker)
    say_again(result, entries)
    write_page(report, result.settings, entries.made)


def _frozen(settings: dict[str, Any]) -> Any:
    from mmspec.output.render import plain_text

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

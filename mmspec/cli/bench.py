"""`mmspec bench asr`, `mmspec bench vlm` and `mmspec bench tts`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from mmspec.cli.groups import Only, argument, given, grouped
from mmspec.cli.settings import OutputSettings, check_apart, check_place, peers_of
from mmspec.errors import OptionError
from mmspec.modalities.base.options import option
from mmspec.modalities.vlm.request import VisionRequest
from mmspec.modalities.whisper.request import TranscriptionRequest
from mmspec.output.console import Steps, offline_if_unreachable, quiet_libraries, stderr
from mmspec.tasks.settings import ModelSettings
from mmspec.tasks.tts.request import SpeechRequest


@dataclass(frozen=True)
class BenchModels(ModelSettings):
    """One target, and every drafter that is measured.

    Attributes:
        target: Whose output it is.
        drafts: As for transcribe, or caption; may be given several times. Without: none and ngram.
    """

    target: str = option("sample", short="-t", metavar="MODEL")
    draft: str = "none"
    drafts: list[str] | None = option(None, name="--draft", short="-d", metavar="DRAFT")

    def frozen(self, *usual: str) -> dict[str, Any]:
        """What a plan holds of them.

        Args:
            *usual: drafters, where none is named.
        """
        names = ("target", "gamma", "packed", "device", "dtype", "threads", "trust_remote_code")
        return {
            **{name: getattr(self, name) for name in names},
            "drafts": self.drafts or list(usual),
        }


@dataclass(frozen=True)
class SpeakingBenchModels(BenchModels):
    """The same for models that speak.

    Attributes:
        drafts: As for speak; may be given several times. Without: none and lookup.
        listener: Let this one transcribe what was said, and count the words it gets wrong.
        language: What the listener is told to hear; detected where missing.
    """

    listener: str | None = option(None, metavar="MODEL")
    language: str | None = option(None, short="-l", metavar="L", panel="Decoding")


@dataclass(frozen=True)
class Measuring:
    """How it is measured.

    Attributes:
        pairs: Interleaved passes; 5 or more count.
        reference: What is said, columns file and text; else transcripts.tsv beside the files.
    """

    pairs: int = option(5, metavar="N", least=1, panel="Options")
    reference: Path | None = option(None, metavar="TSV", panel="Options")


@dataclass(frozen=True)
class LookMeasuring(Measuring):
    """The same for images.

    Attributes:
        reference: What is there, columns file, task and text; else truth.tsv beside the images.
    """


@dataclass(frozen=True)
class BenchOutput:
    """Where the figures go.

    Attributes:
        json: Write everything there: texts, ids, reports, comparisons.
        markdown: Write the tables there, for a page.
        report: Write a page there (HTML): every token and how it was obtained, rounds, times.
        compare: Decode with these as well, compare ids and time: plain (mmspec without
            speculation), hf (transformers), hf-assisted (its own speculation, same drafter).
        verbose: Let the libraries say what they have to say.
    """

    json: Path | None = option(None, metavar="FILE")
    markdown: Path | None = option(None, metavar="FILE")
    report: Path | None = option(None, metavar="FILE")
    compare: str = option("plain,hf,hf-assisted", metavar="PEERS")
    verbose: bool = option(False)

    def check(self) -> None:
        """What takes minutes to measure has somewhere to go, or isn't begun.

        Raises:
            MMSpecError: names the option.
        """
        OutputSettings(json=self.json, report=self.report).check([])
        if self.markdown is not None:
            check_place("--markdown", self.markdown, folder=False)
        places = {"--json": self.json, "--markdown": self.markdown, "--report": self.report}
        check_apart(places)


@dataclass(frozen=True)
class SpeakingBenchOutput(BenchOutput):
    """The same for what was said."""

    compare: str = option("plain,hf", metavar="PEERS")


@grouped
def asr(
    *files: Annotated[Path, argument("FILE", "Recordings; without any the embedded clips.")],
    models: BenchModels,
    measuring: Measuring,
    faster_whisper: Annotated[
        Path | None,
        given(
            "A CTranslate2 checkpoint to run with faster-whisper as one more peer.",
            panel="Models",
            metavar="DIR",
        ),
    ] = None,
    faster_whisper_type: Annotated[
        str, given("What it computes in.", "float32", panel="Models", metavar="T")
    ] = "float32",
    decoding: Annotated[
        TranscriptionRequest, Only("language", "task", "timestamps", "max_new_tokens")
    ],
    output: Annotated[BenchOutput, Only("json", "markdown", "verbose")],
) -> int:
    """Measure drafters against ordinary decoding and against transformers.

    All members run in one process on the same target in memory, interleaved,
    greedy, after a pass to warm up. A ratio is the peer's time over mmspec's, per
    pair of runs; below 1 it is a loss, and printed like a gain.

      mmspec bench asr
      mmspec bench asr *.wav -t DIR -d none -d ngram -l en --threads 1 --json out.json
    """
    output.check()
    offline_if_unreachable([models.target, *(models.drafts or [])])
    with quiet_libraries(output.verbose):
        from mmspec.tasks.asr.bench import Plan, run

        plan = Plan(
            files=list(files) or embedded_clips(),
            request=decoding,
            pairs=measuring.pairs,
            reference=measuring.reference,
            faster_whisper=faster_whisper,
            faster_whisper_type=faster_whisper_type,
            **models.frozen("none", "ngram"),
        )
        result = _measured(run, plan)
    _write(result, output.json, output.markdown)
    return 0


@grouped
def vlm(
    *images: Annotated[
        Path, argument("IMAGE", "Images, or folders of them; without any the embedded ones.")
    ],
    models: BenchModels,
    measuring: LookMeasuring,
    task: Annotated[
        list[str] | None,
        given(
            "caption or read; may be given twice. Without: what the truth tells of an image, else "
            "caption.",
            panel="Decoding",
            metavar="TASK",
        ),
    ] = None,
    decoding: Annotated[VisionRequest, Only("max_new_tokens", "grounding")],
    output: BenchOutput,
) -> int:
    """Measure drafters on images, for captions and for reading.

    As bench asr does it. Beside the speed: character error rate of what was read,
    share of the captions that are the truth, letter for letter.

      mmspec bench vlm
      mmspec bench vlm *.png -t DIR -d none -d DIR2 --task caption --threads 1
    """
    output.check()
    offline_if_unreachable([models.target, *(models.drafts or [])])
    with quiet_libraries(output.verbose):
        from mmspec.tasks.vlm.bench import Plan, run
        from mmspec.tasks.vlm.bench_cases import image_files

        plan = Plan(
            files=image_files(list(images)),
            tasks=tuple(task or ()),  # type: ignore[arg-type]
            peers=peers_of(output.compare),
            max_new_tokens=decoding.max_new_tokens,
            grounding=decoding.grounding,
            pairs=measuring.pairs,
            reference=measuring.reference,
            **models.frozen("none", "ngram"),
        )
        result = _measured(run, plan)
        if output.report is not None:
            _write_page(result, output.report, decoding.grounding)
    _write(result, output.json, output.markdown)
    return 0


@grouped
def tts(
    *,
    texts: Annotated[
        Path | None,
        given(
            "A sentence per line, behind a tab its seconds; without it the sample's.",
            metavar="FILE",
        ),
    ] = None,
    models: SpeakingBenchModels,
    measuring: Annotated[Measuring, Only("pairs")],
    decoding: Annotated[SpeechRequest, Only("seconds", "guidance", "max_new_tokens")],
    output: SpeakingBenchOutput,
) -> int:
    """Measure drafters on sentences that are said aloud.

    As bench asr does it, greedy. Decode is the loop from the first step to the
    last; end to end is from the text to the sound, the codec included.

      mmspec bench tts -d none -d sample -d lookup --threads 1
      mmspec bench tts --texts lines.txt -t DIR -d DIR2 --listener sample --json out.json
    """
    output.check()
    if decoding.seconds is not None and decoding.max_new_tokens is not None:
        raise OptionError("--seconds, --max-new-tokens: found both, expected one of them")
    offline_if_unreachable([models.target, models.listener or "sample", *(models.drafts or [])])
    with quiet_libraries(output.verbose):
        from mmspec.tasks.tts.bench import Plan, run, sentences_file

        plan = Plan(
            files=[sentences_file(texts)],
            request=replace(decoding, temperature=0.0),
            peers=peers_of(output.compare),
            listener=models.listener,
            language=models.language,
            pairs=measuring.pairs,
            **models.frozen("none", "lookup"),
        )
        result = _measured(run, plan)
        if output.report is not None:
            _write_speeches(result, output.report)
    _write(result, output.json, output.markdown)
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


def _write_page(result: Any, report: Path, grounding: bool | float | None) -> None:
    from mmspec.output.formats import write_atomic
    from mmspec.page import render_page
    from mmspec.tasks.vlm.bench_page import page_of

    write_atomic(report, render_page(page_of(result, grounding)))


def _write_speeches(result: Any, report: Path) -> None:
    from mmspec.bench.page import say_again
    from mmspec.page.writing import write_page
    from mmspec.tasks.tts.page import SpeechEntries

    entries = SpeechEntries(result.members[0].peer.speaker)
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

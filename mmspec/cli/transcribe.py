"""`mmspec transcribe`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from mmspec.cli import options as o
from mmspec.cli.settings import LiveSettings, OutputSettings, peers_of
from mmspec.errors import OptionError
from mmspec.tasks.settings import SPEECH_TASKS, THRESHOLDS, ModelSettings, retries


def transcribe(
    files: o.Files,
    target: o.Target = None,
    draft: o.Draft = "none",
    trust_remote_code: o.TrustRemoteCode = False,
    language: o.Language = None,
    task: o.Task = None,
    timestamps: o.Timestamps = None,
    prompt: o.Prompt = None,
    temperature: o.Temperature = 0.0,
    seed: o.Seed = None,
    carry_text: o.CarryText = None,
    fallback: o.Fallback = False,
    no_speech: o.NoSpeech = None,
    max_new_tokens: o.MaxNewTokens = None,
    chunks: o.Chunks = None,
    overlap: o.Overlap = None,
    word_timestamps: Annotated[
        bool,
        typer.Option(
            "--word-timestamps",
            help="Find out when each word was spoken: in vtt, srt and JSON.",
            rich_help_panel=o.DECODING,
        ),
    ] = False,
    grounding: Annotated[
        float | None,
        typer.Option(
            "--grounding",
            min=0.0,
            metavar="NATS",
            help="Find out which tokens rest on the audio: those whose log-probability falls by "
            "more than so much without it; 1 is a good start.",
            rich_help_panel=o.DECODING,
            show_default=False,
        ),
    ] = None,
    gamma: o.Gamma = "adaptive",
    format_: Annotated[
        str,
        typer.Option(
            "--format",
            "-f",
            metavar="txt|json|srt|vtt",
            help="txt: one line per recording, in order (an empty one where it failed).",
            rich_help_panel=o.OUTPUT,
        ),
    ] = "txt",
    output_dir: o.OutputDir = None,
    json: o.Json = None,
    report: o.ReportPage = None,
    compare: o.Compare = "",
    stream: Annotated[
        bool,
        typer.Option(
            "--stream",
            help="Hear FILE as it comes and print text as soon as it is certain; - is raw samples "
            "on standard input.",
            rich_help_panel=o.LIVE,
        ),
    ] = False,
    pace: o.Pace = None,
    step: o.Step = None,
    raw: o.Raw = None,
    table: o.Table = None,
    quiet: o.Quiet = False,
    verbose: o.Verbose = False,
    batch: o.Batch = 1,
    threads: o.Threads = None,
    device: o.Device = None,
    dtype: o.Dtype = None,
    packed: o.Packed = True,
) -> int:
    """Turn recordings into text.

    The text is exactly what the target would have written without a drafter;
    a drafter only decides how soon it comes. Standard output holds the results,
    standard error everything else. A recording that can't be used costs one line
    there, an empty line here, and exit code 2 at the end.

    \b
    With nothing downloaded:
      mmspec transcribe speech.wav -t sample -d sample
    A first pass with a small model, its text as the draft for a better one:
      mmspec transcribe *.wav -t openai/whisper-tiny.en > rough.txt
      mmspec transcribe *.wav -t openai/whisper-base -l en -d hypothesis:rough.txt
    Is it the same, and is it faster?
      mmspec transcribe *.wav -t DIR -d ngram -l en --compare plain,hf,hf-assisted
    Subtitles, one file per recording:
      mmspec transcribe talk.mp3 -t DIR --format srt --output-dir subtitles
    What a microphone hears, as it is said:
      arecord -q -t raw -f S16_LE -r 16000 | mmspec transcribe - -t DIR -l en --stream
    """
    from mmspec.cli.running import Run

    models = ModelSettings(target, draft, gamma, device, dtype, packed, threads, trust_remote_code)
    wanted = OutputSettings(format_, output_dir, json, stream, quiet, table, report)
    if task is not None and task not in SPEECH_TASKS:
        raise OptionError(f"--task: found {task!r}, expected {' or '.join(SPEECH_TASKS)}")
    request = {
        "language": language,
        "task": task,
        "timestamps": True if timestamps is None and format_ in ("srt", "vtt") else timestamps,
        "prompt": prompt,
        "seed": seed,
        "max_new_tokens": max_new_tokens,
        "condition_on_prev_tokens": carry_text,
        **thresholds(temperature, fallback, no_speech),
    }
    if word_timestamps and format_ == "txt" and json is None and report is None:
        raise OptionError(
            "--word-timestamps: --format txt has no place for them, expected srt, vtt, json, "
            "--json or --report"
        )
    looks = {"word_timestamps": word_timestamps, "grounding": grounding}
    looks |= chunking(chunks, overlap, compare)
    if chunks is not None:  # these are decoded side by side then, recording after recording
        looks["batch"], batch = batch, 1
    if batch > 1 and (compare or stream):
        raise OptionError(
            f"--batch {batch}: expected no {'--compare' if compare else '--stream'}, which takes "
            "one recording at a time"
        )
    live = live_settings(stream, pace=pace, step_s=step, raw=raw)
    if live is not None:
        from mmspec.cli.live import LiveRun

        whole = {
            "--compare": compare,
            "--report": report,
            "--chunks": chunks,
            "--overlap": overlap,
            "--word-timestamps": word_timestamps,
            "--grounding": grounding is not None,
            "--draft hypothesis": models.hypothesis_file,
        }
        wanted.check(files)
        live.check(files, [name for name, given in whole.items() if given])
        return LiveRun(files[0], models, wanted, request, live, verbose).go()
    return Run(files, models, wanted, request, peers_of(compare), verbose, looks, batch).go()


def live_settings(stream: bool, **given: Any) -> LiveSettings | None:
    """How a stream is heard, None where none is wanted.

    Raises:
        OptionError: an option of streams without `--stream`.

    Example:
        >>> live_settings(True, pace=1.0, step_s=None)
        LiveSettings(pace=1.0, step_s=1.0, raw='s16le')
    """
    said = {name: value for name, value in given.items() if value is not None}
    if stream:
        return LiveSettings(**said)
    for name in said:
        raise OptionError(f"--{name.removesuffix('_s')}: only with --stream")
    return None


def chunking(chunks: float | None, overlap: float | None, compare: str) -> dict[str, Any]:
    """How recordings are cut, as `transcribe` takes it; nothing where they aren't.

    Raises:
        OptionError: an option that doesn't go with the others.
    """
    if chunks is None:
        if overlap is not None:
            raise OptionError("--overlap: only chunks overlap, give --chunks too")
        return {}
    if compare:
        raise OptionError("--compare: peers decode recordings whole, not in --chunks")
    return {"chunk_s": chunks, "overlap_s": overlap}


def thresholds(temperature: float, fallback: bool, no_speech: float | None) -> dict[str, Any]:
    """When a window's text is thrown away, as `transcribe` takes it.

    Example:
        >>> thresholds(0.6, True, None)["temperature"], thresholds(0.6, False, None)["temperature"]
        ((0.6, 0.8, 1.0), 0.6)
    """
    asked: dict[str, Any] = dict.fromkeys(THRESHOLDS)
    if fallback:
        asked |= THRESHOLDS
    elif no_speech is not None:
        asked["logprob_threshold"] = THRESHOLDS["logprob_threshold"]
    if no_speech is not None:
        asked["no_speech_threshold"] = no_speech
    return {"temperature": retries(temperature) if fallback else temperature, **asked}

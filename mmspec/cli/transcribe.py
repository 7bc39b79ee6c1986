"""`mmspec transcribe`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from mmspec.cli.groups import Batch, argument, given, grouped
from mmspec.cli.settings import LiveOptions, OutputSettings
from mmspec.errors import OptionError
from mmspec.modalities.whisper.request import TASKS, THRESHOLDS, TranscriptionRequest
from mmspec.tasks.settings import ModelSettings


@grouped
def transcribe(
    *files: Annotated[
        Path,
        argument("FILE", "Recordings: wav, flac, ogg, mp3, m4a, any rate.", required=True),
    ],
    models: ModelSettings,
    decoding: TranscriptionRequest,
    fallback: Annotated[
        bool,
        given(
            "Where a window's text loops or is unlikely, decode it again, warmer each time; skip "
            "silent windows.",
            panel="Decoding",
        ),
    ] = False,
    output: OutputSettings,
    live: LiveOptions,
    batch: Batch = 1,
) -> int:
    """Turn recordings into text.

    The text is exactly what the target would have written without a drafter;
    a drafter only decides how soon it comes. Standard output holds the results,
    standard error everything else. A recording that can't be used costs one line
    there, an empty line here, and exit code 2 at the end.

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
    request = request_of(decoding, fallback, output)
    if request.chunk_s is None:
        side_by_side(batch, output, live)
    else:  # chunks are decoded side by side then, recording after recording
        request, batch = replace(request, batch=batch), 1
    if (how := live.settings()) is not None:
        from mmspec.cli.live import LiveRun

        check_live(models, request, output, files)
        return LiveRun(files, models, output, request, how).go()
    from mmspec.cli.running import Run

    return Run(files, models, output, request, batch).go()


def request_of(
    asked: TranscriptionRequest, fallback: bool, output: OutputSettings
) -> TranscriptionRequest:
    """What is asked of the recogniser.

    Raises:
        OptionError: options that don't go with each other.
    """
    if asked.task is not None and asked.task not in TASKS:
        raise OptionError(f"--task: found {asked.task!r}, expected {' or '.join(TASKS)}")
    if fallback:
        asked = asked.with_fallback
    elif asked.no_speech_threshold is not None:
        asked = replace(asked, logprob_threshold=THRESHOLDS["logprob_threshold"])
    if asked.timestamps is None and output.format in ("srt", "vtt"):
        asked = replace(asked, timestamps=True)
    elsewhere = output.json is not None or output.report is not None
    if asked.word_timestamps and output.format == "txt" and not elsewhere:
        raise OptionError(
            "--word-timestamps: --format txt has no place for them, expected srt, vtt, json, "
            "--json or --report"
        )
    if asked.chunk_s is None and asked.overlap_s is not None:
        raise OptionError("--overlap: only chunks overlap, give --chunks too")
    if asked.chunk_s is not None and output.compare:
        raise OptionError("--compare: peers decode recordings whole, not in --chunks")
    return asked


def side_by_side(batch: int, output: OutputSettings, live: LiveOptions) -> None:
    """Raise where recordings can't be decoded side by side.

    Raises:
        OptionError: names the option that takes one at a time.
    """
    if batch > 1 and (output.compare or live.stream):
        raise OptionError(
            f"--batch {batch}: expected no {'--compare' if output.compare else '--stream'}, which "
            "takes one recording at a time"
        )


def check_live(
    models: ModelSettings,
    request: TranscriptionRequest,
    output: OutputSettings,
    files: Sequence[Path],
) -> None:
    """Raise where what is wanted needs whole recordings.

    Raises:
        OptionError: names the option.
    """
    if output.format != "txt" or output.output_dir is not None:
        raise OptionError("--stream: expected --format txt on standard output")
    output.check(files)
    whole = {
        "--compare": output.compare,
        "--report": output.report,
        "--chunks": request.chunk_s,
        "--overlap": request.overlap_s,
        "--word-timestamps": request.word_timestamps,
        "--grounding": request.grounding is not None,
        "--draft hypothesis": models.hypothesis_file,
    }
    for name in (name for name, wanted in whole.items() if wanted):
        raise OptionError(f"--stream: expected no {name}, which needs a whole recording")

"""The part of the demo that listens: the embedded clips."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from functools import partial
from typing import Any

from mmspec.compare.side_by_side import SideBySide, in_turn, side_by_side
from mmspec.output.console import Steps, stderr
from mmspec.tasks.settings import ModelSettings


def demo_clips() -> list[tuple[Any, str]]:
    """The embedded clips in the voices that the sample target was trained on: (path, text)."""
    from mmspec.loading import sample_path

    with sample_path("audio", "transcripts.tsv").open(encoding="utf-8", newline="") as table:
        rows = list(csv.DictReader(table, delimiter="\t"))
    heard = [row for row in rows if row["voice"] != "LibriVox"]
    return [(sample_path("audio", row["file"]), row["text"]) for row in heard]


def hear(models: ModelSettings, console: Any, paged: bool) -> tuple[list[SideBySide], list[Any]]:
    """Decode the clips and show what came of it.

    Returns:
        What was compared; what a page shows of it, where one is wanted.
    """
    clips = demo_clips()
    with Steps(len(clips), stderr()) as steps:
        steps.say("loading the model that listens")
        with models.load() as transcriber:
            pairs = _decode(transcriber, clips, steps)
            entries = _entries(transcriber, clips, pairs) if paged else []
    _show(models, pairs, console)
    return pairs, entries


def _decode(transcriber: Any, clips: Sequence[tuple[Any, str]], steps: Steps) -> list[SideBySide]:
    from mmspec.modalities.media.audio import load_audio
    from mmspec.tasks.asr.peers import plain_of

    plain, drafter = plain_of(transcriber), transcriber.draft_name
    warm_up = load_audio(clips[0][0])
    for one in (plain, transcriber):
        one.transcribe(warm_up, sampling_rate=16_000)
    pairs = []
    for path, text in clips:
        steps.say(path.name)
        samples = load_audio(path)
        plainly, ours = in_turn(
            *(
                partial(one.transcribe, samples, sampling_rate=16_000)
                for one in (plain, transcriber)
            )
        )
        pairs.append(SideBySide(path.name, drafter, text, plainly, ours))
        steps.advance()
    return pairs


def _entries(
    transcriber: Any, clips: Sequence[tuple[Any, str]], pairs: Sequence[SideBySide]
) -> list[Any]:
    from mmspec.modalities.media.audio import load_audio
    from mmspec.tasks.asr.page import RecordingEntries

    entries = RecordingEntries(transcriber)
    for (path, _), pair in zip(clips, pairs, strict=True):
        entries.done(path, pair.ours, load_audio(path), pair.compared())
    return entries.made


def _show(models: ModelSettings, pairs: Sequence[SideBySide], console: Any) -> None:
    from mmspec.bench.cases import word_error_rate
    from mmspec.output.render import percent, plain_text, report_table
    from mmspec.report.totals import total

    console.print(plain_text(f"Heard by {models.target}, drafted by {models.draft}:", "bold"))
    for pair in pairs:
        console.print(plain_text(pair.name, "cyan"), plain_text(pair.ours.text))
    console.print(side_by_side("clip", pairs))
    whole = total([pair.ours.report for pair in pairs])
    console.print(report_table(whole, "Speculative decoding, all clips"))
    wrong = percent(word_error_rate([(pair.reference, pair.ours.text) for pair in pairs]))
    console.print(plain_text(f"Word error rate of the target, plain or not: {wrong}"))

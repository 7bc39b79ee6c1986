"""The part of the demo that speaks: a sentence, and the same once more."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mmspec.compare.side_by_side import SideBySide, in_turn, speed
from mmspec.errors import ModelError
from mmspec.output.console import Steps, stderr

TARGET = "voice-sample"
DRAFTERS = {"none": "none", "drafter": TARGET, "lookup": "lookup"}
"""Who drafts, by the name that the table uses."""

SOUND = "speech.wav"
"""What the sound of the sentence is called, here and on the page."""

SECOND_TIME = "What lookup drafts from is the same sentence, said before."


class Spoken(SideBySide):
    """A sentence in two ways: what parity compares of it are codes."""

    @property
    def equal(self) -> bool:
        """Whether the codes are, in all codebooks."""
        return np.array_equal(self.plain.codes, self.ours.codes)


def missing_sample() -> str | None:
    """Why the demo can't speak: what isn't installed."""
    from mmspec.loading import sample_path

    try:
        for name in ("target", "drafter", "sentences.txt"):
            sample_path(TARGET, name)
    except ModelError as error:
        return str(error)
    return None


def say(gamma: str, console: Any, paged: bool) -> tuple[list[SideBySide], list[Any]]:
    """Say the sentence, show what came of it, and write its sound to a temporary folder.

    Returns:
        What was compared; what a page shows of it, where one is wanted.
    """
    from mmspec.output.render import plain_text

    with Steps(1, stderr()) as steps:
        steps.say("loading the model that speaks")
        speakers = _speakers(gamma)
        pairs = _decode(speakers, steps)
        entries = _entries(next(iter(speakers.values())), pairs) if paged else []
    sound = Path(tempfile.mkdtemp(prefix="mmspec-demo-")) / SOUND
    pairs[0].ours.save(sound)
    console.print(plain_text(f"Said by {TARGET}:", "bold"))
    console.print(plain_text(SOUND, "cyan"), plain_text(pairs[0].reference))
    console.print(_table(pairs))
    console.print(plain_text(SECOND_TIME))
    console.print(plain_text(f"To be heard, its codes beside it: {sound}"), soft_wrap=True)
    return pairs, entries


def _speakers(gamma: str) -> dict[str, Any]:
    """A speaker per drafter, all on one target."""
    from mmspec import load
    from mmspec.loading import load_model

    target = load_model(TARGET, dtype="float32")  # in less, near ties are many
    how: dict[str, Any] = {
        "processor": target.processor,
        "gamma": gamma if gamma == "adaptive" else int(gamma),
    }
    return {name: load(target.model, draft, **how) for name, draft in DRAFTERS.items()}


def _decode(speakers: dict[str, Any], steps: Steps) -> list[SideBySide]:
    from mmspec.tasks.tts.bench import read_sentences, sentences_file
    from mmspec.tasks.tts.request import SpeechRequest

    sentence = read_sentences(sentences_file(None), SpeechRequest(temperature=0.0))[0]
    text, asked = sentence.subject, sentence.request
    steps.say(text)
    before = speakers["none"].speak(text, asked)
    calls = []
    for name, speaker in speakers.items():
        known = {"earlier": [before]} if name == "lookup" else {}
        speaker.speak(text, asked.few, **known)  # a first run measures costs
        calls.append(functools.partial(speaker.speak, text, asked, **known))
    plain, *drafted = in_turn(*calls)
    steps.advance()
    _, *drafters = speakers
    return [
        Spoken(SOUND, drafter, text, plain, ours)
        for drafter, ours in zip(drafters, drafted, strict=True)
    ]


def _table(pairs: Sequence[SideBySide]) -> Any:
    """A row per drafter. They aren't summed up: one of them has heard it before."""
    from rich.text import Text

    from mmspec.output.render import new_table, percent, plain_text, times

    table = new_table("Plain and speculative decoding")
    for heading in ("sentence", "drafted by", "codes"):
        table.add_column(heading, no_wrap=True)
    for heading in ("frames", "plain → drafted passes", "accepted", "decode speed"):
        table.add_column(heading, justify="right")
    for pair in pairs:
        report = pair.ours.report
        table.add_row(
            plain_text(pair.name),
            plain_text(pair.drafter),
            Text("equal", style="green") if pair.equal else Text("DIFFER", style="bold red"),
            str(len(pair.ours.codes)),
            f"{pair.plain.report.target_forwards} → {report.target_forwards}",
            percent(report.draft_acceptance_rate if report.proposed else None),
            times(speed([pair])),
        )
    return table


def _entries(speaker: Any, pairs: Sequence[SideBySide]) -> list[Any]:
    from mmspec.tasks.tts.page import SpeechEntries

    entries = SpeechEntries(speaker)
    for pair in pairs:
        entries.done(f"{pair.name}, {pair.drafter}", pair.ours, pair.compared())
    return entries.made

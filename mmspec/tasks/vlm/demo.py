"""The part of the demo that looks: a scene to describe, a line and a page to read."""

from __future__ import annotations

import csv
import functools
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mmspec.compare.side_by_side import SideBySide, in_turn, side_by_side
from mmspec.errors import ModelError, OptionError
from mmspec.output.console import Steps, stderr

IMAGES = {"scene-2.png": "caption", "line-2.png": "read", "page-2.png": "read"}
"""What is looked at, and what for."""

TASKS = {"describe": "caption", "read": "read"}
"""The tasks of the table of truths, as a viewer calls them."""

TARGET = "vision-sample"
DRAFTERS = {"none": "none", "Tesseract": "hypothesis", "drafter": TARGET, "n-gram": "ngram"}
"""Who drafts, by the name that the tables use."""


@dataclass(frozen=True)
class Subject:
    """An image of the demo.

    Attributes:
        name: of its file.
        image: upright, in RGB.
        truth: what it really shows or says.
        reading: another reader's, to draft with; None for scenes.
    """

    name: str
    image: Any
    task: str
    truth: str
    reading: str | None


def missing_sample() -> str | None:
    """Why the demo can't look: what isn't installed."""
    from mmspec.loading import sample_path

    tables = ("truth.tsv", "readings.tsv")
    files = [(TARGET, "target"), (TARGET, "drafter")]
    try:
        for parts in [*files, *(("images", name) for name in (*tables, *IMAGES))]:
            sample_path(*parts)
    except ModelError as error:
        return str(error)
    return None


def look(gamma: str, console: Any, paged: bool) -> tuple[list[SideBySide], list[Any]]:
    """Look at the images and show what came of it.

    Returns:
        What was compared; what a page shows of it, where one is wanted.
    """
    from mmspec.output.render import plain_text

    reader, subjects = _subjects()
    with Steps(len(subjects), stderr()) as steps:
        steps.say("loading the model that looks")
        viewers = _viewers(gamma)
        pairs = [pair for subject in subjects for pair in _decode(viewers, subject, steps)]
        entries = _entries(next(iter(viewers.values())), subjects, pairs) if paged else []
    console.print(plain_text(f"Seen by {TARGET}:", "bold"))
    for name, text in {pair.name: pair.ours.text for pair in pairs}.items():
        console.print(plain_text(name, "cyan"), plain_text(text))
    console.print(side_by_side("image", pairs))
    console.print(plain_text(reader), soft_wrap=True)
    console.print(plain_text(f"Wrong words of the target, plain or not: {_wrong_words(pairs)}"))
    return pairs, entries


def _subjects() -> tuple[str, list[Subject]]:
    """The images with their readings; who read, in a sentence."""
    from mmspec.loading import sample_path
    from mmspec.modalities.media.images import open_image

    images = {name: open_image(sample_path("images", name)) for name in IMAGES}
    truths = {
        (row["file"], TASKS[row["task"]]): _lines(row["text"])
        for row in _table("truth.tsv")
        if row["task"] in TASKS
    }
    reader, readings = _readings({n: image for n, image in images.items() if IMAGES[n] == "read"})
    return reader, [
        Subject(name, image, IMAGES[name], truths[name, IMAGES[name]], readings.get(name))
        for name, image in images.items()
    ]


def _readings(images: Mapping[str, Any]) -> tuple[str, dict[str, str]]:
    """What another reader says: Tesseract, or what it said when the sample was made."""
    from mmspec.tasks.vlm.ocr import read_image

    start = time.perf_counter()
    try:
        readings = {name: read_image(image).text for name, image in images.items()}
    except OptionError:
        prepared = {row["file"]: _lines(row["text"]) for row in _table("readings.tsv")}
        return "Tesseract isn't installed: its readings were made beforehand.", prepared
    seconds = time.perf_counter() - start
    return f"Tesseract read for {seconds:.2f} s, which isn't in the speeds.", readings


def _table(name: str) -> list[dict[str, str]]:
    from mmspec.loading import sample_path

    with sample_path("images", name).open(encoding="utf-8", newline="") as table:
        return list(csv.DictReader(table, delimiter="\t", quoting=csv.QUOTE_NONE))


def _lines(cell: str) -> str:
    return cell.replace("\\n", "\n")


def _viewers(gamma: str) -> dict[str, Any]:
    """A viewer per drafter, all on one target."""
    from mmspec import load
    from mmspec.loading import load_model

    target = load_model(TARGET)
    how: dict[str, Any] = {
        "processor": target.processor,
        "gamma": gamma if gamma == "adaptive" else int(gamma),
    }
    return {name: load(target.model, draft, **how) for name, draft in DRAFTERS.items()}


def _decode(viewers: dict[str, Any], subject: Subject, steps: Steps) -> list[SideBySide]:
    steps.say(subject.name)
    calls = {}
    for name, viewer in viewers.items():
        asked = {"task": subject.task}
        if viewer.draft_name == "hypothesis":
            if subject.reading is None:
                continue
            asked["hypothesis"] = subject.reading
        viewer.describe(subject.image, **asked, max_new_tokens=8)  # a first run measures costs
        calls[name] = functools.partial(viewer.describe, subject.image, **asked)
    plain, *drafted = in_turn(*calls.values())
    steps.advance()
    _, *drafters = calls
    return [
        SideBySide(subject.name, drafter, subject.truth, plain, ours)
        for drafter, ours in zip(drafters, drafted, strict=True)
    ]


def _entries(viewer: Any, subjects: Sequence[Subject], pairs: Sequence[SideBySide]) -> list[Any]:
    from mmspec.tasks.vlm.page import SightEntries

    images = {subject.name: subject.image for subject in subjects}
    entries = SightEntries(viewer)
    for pair in pairs:
        name = f"{pair.name}, {pair.drafter}"
        entries.done(name, pair.ours, [images[pair.name]], pair.compared())
    return entries.made


def _wrong_words(pairs: Sequence[SideBySide]) -> str:
    from mmspec.bench.cases import word_error_rate
    from mmspec.output.render import percent

    said = {pair.name: (pair.reference, pair.ours.text) for pair in pairs}
    return percent(word_error_rate(list(said.values())))

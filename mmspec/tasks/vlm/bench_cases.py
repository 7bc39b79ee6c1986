"""Images to measure on, what is wanted of them, and what is really there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mmspec.bench.cases import Case, digest, table_rows
from mmspec.errors import InputError
from mmspec.loading import sample_path
from mmspec.modalities.media.images import open_image
from mmspec.modalities.vlm.request import Task, VisionRequest

TRUTH_NAME = "truth.tsv"
TASKS: Mapping[str, Task] = {"read": "read", "caption": "caption", "describe": "caption"}
"""What a table's tasks are called here; its other ones aren't measured."""

SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff"})

Truth = Mapping[tuple[str, Task], str]
"""What is on an image, by file name and task."""


def image_files(given: Sequence[Path]) -> list[Path]:
    """Images as named, those of a folder in the order of their names; without any the sample's.

    Raises:
        InputError: a folder without images.
    """
    found: list[Path] = []
    for path in given or [sample_path("images")]:
        if not path.is_dir():
            found.append(path)
            continue
        inside = sorted(one for one in path.iterdir() if one.suffix.lower() in SUFFIXES)
        if not inside:
            raise InputError(f"{path}: found no image in this folder")
        found += inside
    return found


def read_truth(table: Path | None, files: Sequence[Path]) -> Truth:
    """What is on the images: from a table, or from one that lies beside the first of them.

    A table has tabs, a heading, and columns `file`, `task` and `text`; a line break in a text is
    written as a backslash and n.

    Raises:
        InputError: the named table can't be read or has other columns.
    """
    if table is None:
        table = files[0].parent / TRUTH_NAME
        if not table.is_file():
            return {}
    return {
        (Path(row["file"]).name, TASKS[row["task"]]): row["text"].replace("\\n", "\n")
        for row in table_rows(table, ("file", "task", "text"))
        if row["task"] in TASKS
    }


def load_cases(
    files: Sequence[Path],
    tasks: Sequence[Task],
    truth: Truth,
    hypotheses: Mapping[str, Sequence[Any]],
    max_new_tokens: int | None = None,
) -> list[Case]:
    """Read every image before anything is timed.

    Args:
        files: the images.
        tasks: what is wanted of them; none: what the truth tells, else a caption.
        truth: what is on them. A file with a truth for some task is asked for no other.
        hypotheses: by hypothesis file, one for each image.
        max_new_tokens: of every output.

    Raises:
        InputError: an image that can't be used, or nothing that is to be done with any.
    """
    cases = []
    for number, path in enumerate(files):
        image = open_image(path)
        mine = {name: entries[number] for name, entries in hypotheses.items()}
        told = [task for name, task in truth if name == path.name]
        for task in told or tasks or ["caption"]:
            if tasks and task not in tasks:
                continue
            request = VisionRequest(task, max_new_tokens=max_new_tokens)
            known = truth.get((path.name, task))
            facts = {"task": task, "size": list(image.size)}
            cases.append(Case(path, image, digest(path), known, mine, request, facts))
    if not cases:
        raise InputError(f"--task {', '.join(tasks)}: found no image with a truth for that")
    return cases

"""Reading a hypothesis file: one line per input, a table, or the JSON of an earlier run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mmspec.errors import InputError

Hypothesis = str | tuple[int, ...]


def read_hypotheses(
    file: Path, inputs: Sequence[Path], target: str | None = None
) -> list[Hypothesis | None]:
    """A hypothesis for every input, None where the file holds none for it.

    A text file has one line per input, in order; an empty line is no hypothesis. A table with tabs
    has the columns file and text (`\\n` in it ends a line); an input is found by its file's name.
    In the JSON of an earlier run a result is found by its path, then by its file name, then by its
    order. Ids are taken where the same target wrote them, else its text.

    Args:
        file: the text file, table or JSON file.
        inputs: the recordings or images, in order.
        target: what the target is called; its own ids are better than their text.

    Raises:
        InputError: the file can't be read, or has another number of lines than there are inputs.
    """
    try:
        content = file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is no UTF-8 text"
        raise InputError(
            f"hypothesis file {file}: found nothing readable ({reason}), expected one line per "
            "input or the JSON of an earlier run"
        ) from None
    if content.lstrip().startswith("{"):
        return _from_run(file, content, inputs, target)
    if content.startswith("file\t"):
        return _from_table(file, content, inputs)
    lines = content.split("\n")
    if lines[-1] == "":
        lines.pop()
    if len(lines) != len(inputs):
        raise InputError(
            f"hypothesis file {file}: found {len(lines)} lines, expected {len(inputs)}, one per "
            "input in their order"
        )
    return [line.strip() or None for line in lines]


def _from_table(file: Path, content: str, inputs: Sequence[Path]) -> list[Hypothesis | None]:
    head, *rows = [line.split("\t") for line in content.splitlines() if line.strip()]
    if "text" not in head or any(len(row) != len(head) for row in rows):
        raise InputError(
            f"hypothesis file {file}: found a table of {' '.join(head)}, expected the columns file "
            "and text, both in every line"
        )
    column = head.index("text")
    texts = {row[0]: row[column].replace("\\n", "\n").strip() or None for row in rows}
    return [texts.get(path.name) for path in inputs]


def _from_run(
    file: Path, content: str, inputs: Sequence[Path], target: str | None
) -> list[Hypothesis | None]:
    try:
        document = json.loads(content)
        entries = document["files"]
        same_target = target is not None and document["settings"].get("target") == target
        known = [(str(entry["path"]), _hypothesis(entry, same_target)) for entry in entries]
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        raise InputError(
            f"hypothesis file {file}: found JSON of another kind, expected what "
            "`mmspec transcribe --json` writes"
        ) from None
    return [_find(path, number, known, len(inputs)) for number, path in enumerate(inputs)]


def _hypothesis(entry: dict[str, Any], same_target: bool) -> Hypothesis | None:
    if same_target and entry.get("ids"):
        return tuple(int(token) for token in entry["ids"])
    text = entry.get("text")
    return str(text).strip() or None if text is not None else None


def _find(
    path: Path, number: int, known: list[tuple[str, Hypothesis | None]], inputs: int
) -> Hypothesis | None:
    for name, hypothesis in known:
        if name == str(path):
            return hypothesis
    by_name = [hypothesis for name, hypothesis in known if Path(name).name == path.name]
    if len(by_name) == 1:
        return by_name[0]
    return known[number][1] if len(known) == inputs else None

"""What is measured on: recordings or images, what is in them, and what marks them unmistakably."""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mmspec.errors import InputError
from mmspec.modalities.media.audio import duration_s, load_audio

REFERENCE_NAME = "transcripts.tsv"


@dataclass(frozen=True, eq=False)
class Case:
    """One recording, or an image with what is wanted of it.

    Attributes:
        subject: mono float32 samples at 16 kHz, or an image, read before anything is timed.
        reference: what is really said or to be seen, None where nobody wrote it down.
        hypotheses: a hypothesis by hypothesis file.
        request: what every peer is asked.
        facts: what else freezes the case in a result file.
    """

    path: Path
    subject: Any
    sha256: str
    reference: str | None
    hypotheses: Mapping[str, Any]
    request: Any = None
    facts: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """What freezes the case in a result file."""
        return {
            "path": str(self.path),
            "sha256": self.sha256,
            **self.facts,
            "reference": self.reference,
        }


def load_cases(
    files: Sequence[Path],
    references: Mapping[str, str],
    hypotheses: Mapping[str, Sequence[Any]],
    request: Any = None,
) -> list[Case]:
    """Read every recording before anything is timed.

    Args:
        files: the recordings.
        references: what is said, by file name.
        hypotheses: by hypothesis file, one for each recording.
        request: what is asked of all alike.

    Raises:
        InputError: a recording that can't be used.
    """
    cases = []
    for number, path in enumerate(files):
        samples = load_audio(path)
        mine = {name: entries[number] for name, entries in hypotheses.items()}
        facts = {"seconds": duration_s(samples)}
        known = references.get(path.name)
        cases.append(Case(path, samples, digest(path), known, mine, request, facts))
    return cases


def digest(path: Path) -> str:
    """SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def read_references(table: Path | None, files: Sequence[Path]) -> dict[str, str]:
    """What is said, by file name: from a table, or from one that lies beside the recordings.

    A table has tabs, a heading, and columns `file` and `text`.

    Raises:
        InputError: the named table can't be read or has other columns.
    """
    if table is None:
        beside = files[0].parent / REFERENCE_NAME
        if not beside.is_file():
            return {}
        table = beside
    return {Path(row["file"]).name: row["text"] for row in table_rows(table, ("file", "text"))}


def table_rows(table: Path, columns: Sequence[str]) -> list[dict[str, str]]:
    """The rows of a table with tabs and a heading.

    Raises:
        InputError: it can't be read, or lacks one of the columns.
    """
    try:
        with table.open(encoding="utf-8", newline="") as lines:
            rows = list(csv.DictReader(lines, delimiter="\t"))
        return [{name: row[name] for name in columns} for row in rows]
    except (OSError, UnicodeDecodeError, KeyError) as error:
        raise InputError(
            f"{table}: found no table of references ({type(error).__name__}), expected tabs and "
            f"columns named {', '.join(columns[:-1])} and {columns[-1]}"
        ) from None


def word_error_rate(pairs: Sequence[tuple[str, str]]) -> float | None:
    """WER over (reference, transcript) pairs, both lower-cased and without punctuation.

    Example:
        >>> word_error_rate([("A red house.", "a red  mouse")])
        0.3333333333333333
        >>> word_error_rate([]) is None
        True
    """
    if not pairs:
        return None
    import jiwer
    from transformers.models.whisper.english_normalizer import BasicTextNormalizer

    normalise = BasicTextNormalizer()
    references, transcripts = zip(*pairs, strict=True)
    return float(
        jiwer.wer([normalise(text) for text in references], [normalise(t) for t in transcripts])
    )

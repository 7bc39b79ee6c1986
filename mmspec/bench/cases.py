"""What is measured on: recordings, what is said in them, and what marks them unmistakably."""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mmspec.errors import InputError
from mmspec.modalities.audio import duration_s, load_audio

REFERENCE_NAME = "transcripts.tsv"


@dataclass(frozen=True, eq=False)
class Case:
    """One recording.

    Attributes:
        samples: mono float32 at 16 kHz.
        reference: what is really said, None where nobody wrote it down.
        hypotheses: a hypothesis by hypothesis file.
    """

    path: Path
    samples: np.ndarray
    sha256: str
    reference: str | None
    hypotheses: Mapping[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """What freezes the case in a result file."""
        return {
            "path": str(self.path),
            "sha256": self.sha256,
            "seconds": duration_s(self.samples),
            "reference": self.reference,
        }


def load_cases(
    files: Sequence[Path], references: Mapping[str, str], hypotheses: Mapping[str, Sequence[Any]]
) -> list[Case]:
    """Read every recording before anything is timed.

    Args:
        files: the recordings.
        references: what is said, by file name.
        hypotheses: by hypothesis file, one for each recording.

    Raises:
        InputError: a recording that can't be used.
    """
    cases = []
    for number, path in enumerate(files):
        samples = load_audio(path)
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        mine = {name: entries[number] for name, entries in hypotheses.items()}
        cases.append(Case(path, samples, digest, references.get(path.name), mine))
    return cases


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
    try:
        with table.open(encoding="utf-8", newline="") as lines:
            rows = list(csv.DictReader(lines, delimiter="\t"))
        return {Path(row["file"]).name: row["text"] for row in rows}
    except (OSError, UnicodeDecodeError, KeyError) as error:
        raise InputError(
            f"{table}: found no table of references ({type(error).__name__}), expected tabs and "
            "columns named file and text"
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

"""`mmspec transcribe --chunks`: as in Python, in the JSON too; one line where it can't be."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import soundfile

import mmspec
from tests.cli_support import Here
from tests.modalities.tiny import saved, speech, tiny


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("chunks")
    saved(root / "target", tiny(5))
    soundfile.write(root / "long.wav", speech(7, 2.1), 16_000)
    return root


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Here:
    return Here(capsys)


def test_chunks_and_what_each_said_are_in_the_json(run: Here, folder: Path, tmp_path: Path) -> None:
    where = ["transcribe", folder / "long.wav", "-t", folder / "target", "-l", "en", "-q"]
    cut = ["--chunks", 0.6, "--overlap", 0.2, "-d", "overlap", "--json", tmp_path / "out.json"]
    assert run(*where, *cut).code == 0
    document = json.loads((tmp_path / "out.json").read_text())
    with mmspec.load(str(folder / "target"), "overlap", device="cpu") as whole:
        said = whole.transcribe(folder / "long.wav", language="en", chunk_s=0.6, overlap_s=0.2)
    (entry,) = document["files"]
    assert entry["ids"] == list(said.ids)
    assert [(part["start"], part["ids"], part["kept"]) for part in entry["chunks"]] == [
        (chunk.start_s, list(chunk.ids), list(chunk.kept)) for chunk in said.chunks
    ]
    assert (document["settings"]["chunk_s"], document["settings"]["overlap_s"]) == (0.6, 0.2)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (["--overlap", 1], "--overlap: only chunks overlap, give --chunks too"),
        (["--chunks", 0.5, "--compare", "plain"], "--compare: peers decode recordings whole"),
        (["--chunks", 2], "chunk_s: found 2, expected more than 0 and at most 1"),
        (["--chunks", 0.5, "--overlap", 0.5], "overlap_s: found 0.5, expected 0 or more and less"),
        (["--chunks", 0.5, "--stream"], "stream"),
        (["-d", "overlap"], "draft 'overlap' drafts a chunk from the one before it"),
    ],
)
def test_what_does_not_go_together(given: list[object], says: str, run: Here, folder: Path) -> None:
    done = run("transcribe", folder / "long.wav", "-t", folder / "target", "-l", "en", *given)
    assert done.code == 2
    (line,) = done.complaints
    assert says in line

"""Where the manual's blocks run: a folder with what they name, and the hub's ids served locally."""

import copy
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import soundfile
import torch
import transformers

from mmspec.loading import sample_path
from tests.docs.pages import ROOT
from tests.modalities.pdfs import document, text

STAND_INS = {"openai/whisper-base": "target", "openai/whisper-tiny.en": "drafter"}
"""Hub ids of the manual, and the sample checkpoint that each gets its files from."""

LOADERS = ("AutoConfig", "WhisperForConditionalGeneration", "WhisperProcessor")


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with the manual's files; 100 columns; threads as before afterwards."""
    clips = sample_path("audio")
    (tmp_path / "samples").mkdir()
    shutil.copytree(clips, tmp_path / "samples" / "audio")
    shutil.copytree(sample_path("images"), tmp_path / "samples" / "images")
    (tmp_path / "paper.pdf").write_bytes(document(text("Shopping"), text("on Monday")))
    for name, clip in (("speech.wav", "1-slt.flac"), ("meeting.wav", "6-kal16.flac")):
        soundfile.write(tmp_path / name, *soundfile.read(clips / clip))
    soundfile.write(tmp_path / "talk.mp3", *soundfile.read(clips / "2-slt.flac"))
    (tmp_path / "notes.txt").write_text("Shopping on Monday.\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    threads = torch.get_num_threads()
    yield tmp_path
    torch.set_num_threads(threads)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> None:
    """All works as with the hub's checkpoints, but for the files that are read in the end."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    for name in LOADERS:
        loader = getattr(transformers, name)
        monkeypatch.setattr(loader, "from_pretrained", classmethod(_served(loader)))


_loaded: dict[tuple[Any, ...], Any] = {}


def _served(loader: Any) -> Any:
    """A loader that knows the manual's ids, reads each checkpoint once and hands out copies."""
    original = loader.from_pretrained.__func__

    def from_pretrained(cls: Any, name: Any, **options: Any) -> Any:
        if name in STAND_INS:
            name = str(sample_path("whisper-sample", STAND_INS[name]))
        key = (cls, name, *sorted(options.items()))
        if key not in _loaded:
            _loaded[key] = original(cls, name, **options)
        return copy.deepcopy(_loaded[key])

    return from_pretrained


@pytest.fixture(scope="session")
def root() -> Path:
    return ROOT

"""Where released checkpoints and real speech are; importing this skips a module without them.

`MMSPEC_CHECKPOINTS` names the folder with whisper-base and whisper-tiny.en, `MMSPEC_SPEECH` one
with clips (else the sample's).
"""

from __future__ import annotations

import functools
import os
from pathlib import Path

import pytest

import mmspec
from mmspec.loading import sample_path

FOLDER = os.environ.get("MMSPEC_CHECKPOINTS", "")
if not FOLDER:
    pytest.skip("MMSPEC_CHECKPOINTS names no folder", allow_module_level=True)

BASE, TINY = (str(Path(FOLDER) / name) for name in ("whisper-base", "whisper-tiny.en"))
SPEECH = os.environ.get("MMSPEC_SPEECH")
CLIPS = sorted((Path(SPEECH) if SPEECH else sample_path("audio")).glob("*.wav"))
RATE, END = 16_000, 50257


@functools.cache
def loaded(target: str, draft: str, gamma: int | str = "adaptive") -> mmspec.Transcriber:
    return mmspec.load(target, draft, gamma=gamma, device="cpu")


def ends_off(ids: tuple[int, ...]) -> tuple[int, ...]:
    """Without the end marks that transformers keeps."""
    return tuple(token for token in ids if token != END)

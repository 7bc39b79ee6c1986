"""Running the command line on tiny checkpoints, in this process or in another."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import soundfile

from mmspec.cli import main
from tests.modalities.tiny import saved, speech, tiny

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Done:
    """What a run left behind."""

    code: int
    out: str
    err: str

    @property
    def complaints(self) -> list[str]:
        return [line for line in self.err.splitlines() if line.startswith("mmspec: ")]


class Here:
    """Runs `mmspec` in this process."""

    def __init__(self, capture: pytest.CaptureFixture[str]) -> None:
        self._capture = capture

    def __call__(self, *arguments: object) -> Done:
        self._capture.readouterr()
        with pytest.raises(SystemExit) as left:
            main([str(argument) for argument in arguments])
        out, err = self._capture.readouterr()
        assert isinstance(left.value.code, int)
        return Done(left.value.code, out, err)


def there(*arguments: object) -> subprocess.Popen[str]:
    """Start `mmspec` in another process."""
    code = "from mmspec.cli import main; main()"
    return subprocess.Popen(
        [sys.executable, "-P", "-c", code, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        cwd=ROOT,
    )


@dataclass(frozen=True)
class Place:
    """Tiny checkpoints and short recordings."""

    target: Path
    drafter: Path
    files: tuple[Path, ...]


def make_place(folder: Path) -> Place:
    files = []
    for number in range(3):
        files.append(folder / f"clip{number}.wav")
        soundfile.write(files[-1], speech(seed=number), 16_000)
    return Place(
        saved(folder / "target", tiny(1)), saved(folder / "drafter", tiny(2)), tuple(files)
    )

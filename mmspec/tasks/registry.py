"""The one table of tasks: what a loaded model is for, and the room that does it.

Every task room holds the same files (`tasks.base` says what each answers), so that generic code
asks a room by name and never what kind of model it has before it.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from types import ModuleType
from typing import Any


@dataclass(frozen=True, slots=True)
class Task:
    """A row of the table.

    Attributes:
        face: module and class of what `mmspec.load` gives.
        verb: what a model of it does.
        commands: that let it.
        sample: the model that comes with mmspec, as `mmspec.load` knows it.
        default: what is decoded with where no target is named: small, permissively licensed, on
            the hub; or the sample.
    """

    face: tuple[str, str]
    verb: str
    commands: str
    sample: str
    default: str


TASKS = {
    "asr": Task(
        ("transcriber", "Transcriber"),
        verb="listens",
        commands="mmspec transcribe",
        sample="sample",
        default="openai/whisper-base",
    ),
    "vlm": Task(
        ("viewer", "Viewer"),
        verb="looks",
        commands="mmspec caption or ocr",
        sample="vision-sample",
        default="HuggingFaceTB/SmolVLM-256M-Instruct",
    ),
    "tts": Task(
        ("speaker", "Speaker"),
        verb="speaks",
        commands="mmspec speak",
        sample="voice-sample",
        default="voice-sample",
    ),
}


def room(task: str, file: str) -> ModuleType:
    """A file of a task's room, imported when it is first needed.

    Example:
        >>> room("asr", "result").__name__
        'mmspec.tasks.asr.result'
    """
    return importlib.import_module(f"mmspec.tasks.{task}.{file}")


def face_of(task: str) -> Any:
    """The class that a user gets for a task: `Transcriber`, `Viewer` or `Speaker`."""
    module, name = TASKS[task].face
    return getattr(room(task, module), name)

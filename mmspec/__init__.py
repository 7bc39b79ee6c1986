"""mmspec: exact speculative decoding for multimodal models, the same output sooner.

    >>> import mmspec
    >>> with mmspec.load("sample", draft="sample") as recogniser:  # doctest: +SKIP
    ...     print(recogniser.transcribe("speech.wav").text)

`load` gives a `Transcriber`, a `Viewer` where the model looks at images, a `Speaker` where it says
codes. `generate` decodes with a model that is loaded already, `custom_generate` is a drop-in for
transformers' `generate`. Heavy imports wait until they are needed, so that `import mmspec` and
`mmspec --help` are quick.
"""

from __future__ import annotations

import importlib
import sys
from importlib.machinery import SOURCE_SUFFIXES, FileFinder, ModuleSpec, SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from mmspec.errors import MMSpecError as MMSpecError

if TYPE_CHECKING:
    from mmspec.api import load as load
    from mmspec.drafting import TextOnly as TextOnly
    from mmspec.drafting import VisualTokenPruning as VisualTokenPruning
    from mmspec.generation import Generation as Generation
    from mmspec.generation import custom_generate as custom_generate
    from mmspec.generation import generate as generate
    from mmspec.report.report import Report as Report
    from mmspec.tasks.asr.request import TranscriptionRequest as TranscriptionRequest
    from mmspec.tasks.asr.result import Transcription as Transcription
    from mmspec.tasks.asr.streaming import SpeechStream as SpeechStream
    from mmspec.tasks.asr.streaming import stream as stream
    from mmspec.tasks.asr.transcriber import Transcriber as Transcriber
    from mmspec.tasks.tts.request import SpeechRequest as SpeechRequest
    from mmspec.tasks.tts.result import Speech as Speech
    from mmspec.tasks.tts.speaker import Speaker as Speaker
    from mmspec.tasks.vlm.request import VisionRequest as VisionRequest
    from mmspec.tasks.vlm.result import Description as Description
    from mmspec.tasks.vlm.viewer import Viewer as Viewer

__version__ = "0.1.0"


class _Beside:
    """A path entry for a clone, where two packages lie beside this one: those, and nothing else."""

    entry = str(Path(__file__).parents[1] / "beside mmspec")  # names no file
    packages = ("factorizations", "modalities")

    def __init__(self, entry: str) -> None:
        if entry != self.entry:
            raise ImportError(entry)  # a path hook's way to say: not mine
        self._files = FileFinder(str(Path(entry).parent), (SourceFileLoader, SOURCE_SUFFIXES))

    def find_spec(self, name: str, target: ModuleType | None = None) -> ModuleSpec | None:
        package = name.rpartition(".")[2]
        return self._files.find_spec(name, target) if package in self.packages else None

    def iter_modules(self, prefix: str = "") -> list[tuple[str, bool]]:
        return [(prefix + package, True) for package in self.packages]


if not Path(__file__).with_name("modalities").is_dir():  # it is there in a wheel
    sys.path_hooks.append(_Beside)
    __path__.append(_Beside.entry)

_LAZY = {
    "load": "mmspec.api",
    "Transcriber": "mmspec.tasks.asr.transcriber",
    "Transcription": "mmspec.tasks.asr.result",
    "TranscriptionRequest": "mmspec.tasks.asr.request",
    "VisionRequest": "mmspec.tasks.vlm.request",
    "SpeechRequest": "mmspec.tasks.tts.request",
    "Speaker": "mmspec.tasks.tts.speaker",
    "Speech": "mmspec.tasks.tts.result",
    "Viewer": "mmspec.tasks.vlm.viewer",
    "Description": "mmspec.tasks.vlm.result",
    "generate": "mmspec.generation",
    "custom_generate": "mmspec.generation",
    "Generation": "mmspec.generation",
    "TextOnly": "mmspec.drafting",
    "VisualTokenPruning": "mmspec.drafting",
    "Report": "mmspec.report.report",
    "stream": "mmspec.tasks.asr.streaming",
    "SpeechStream": "mmspec.tasks.asr.streaming",
}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'mmspec' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_LAZY])

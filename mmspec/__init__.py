"""mmspec: exact speculative decoding for multimodal models, the same output sooner.

    >>> import mmspec
    >>> with mmspec.load("sample", draft="sample") as recogniser:  # doctest: +SKIP
    ...     print(recogniser.transcribe("speech.wav").text)

`load` gives a recogniser, or a viewer where the model looks at images. `generate` decodes with a
model that is loaded already, and `custom_generate` is a drop-in for transformers' `generate`. Heavy
imports wait until they are needed, so that `import mmspec` and `mmspec --help` are quick.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mmspec.errors import MMSpecError as MMSpecError

if TYPE_CHECKING:
    from mmspec.api import load as load
    from mmspec.drafting import Blind as Blind
    from mmspec.drafting import Thinned as Thinned
    from mmspec.generation import Generation as Generation
    from mmspec.generation import custom_generate as custom_generate
    from mmspec.generation import generate as generate
    from mmspec.modalities.vlm.request import VisionRequest as VisionRequest
    from mmspec.modalities.vlm.result import Description as Description
    from mmspec.modalities.whisper.request import TranscriptionRequest as TranscriptionRequest
    from mmspec.modalities.whisper.result import Transcription as Transcription
    from mmspec.report.report import Report as Report
    from mmspec.tasks.asr.streaming import SpeechStream as SpeechStream
    from mmspec.tasks.asr.streaming import stream as stream
    from mmspec.tasks.asr.transcriber import Transcriber as Transcriber
    from mmspec.tasks.tts.request import SpeechRequest as SpeechRequest
    from mmspec.tasks.vlm.viewer import Viewer as Viewer

__version__ = "0.1.0"

# In a clone's folder Python finds this package where it lies, with two of its rooms beside it.
_clone = Path(__file__).parents[1]
if (_clone / "factorizations").is_dir() and (_clone / "pyproject.toml").is_file():
    __path__.append(str(_clone))

_LAZY = {
    "load": "mmspec.api",
    "Transcriber": "mmspec.tasks.asr.transcriber",
    "Transcription": "mmspec.modalities.whisper.result",
    "TranscriptionRequest": "mmspec.modalities.whisper.request",
    "VisionRequest": "mmspec.modalities.vlm.request",
    "SpeechRequest": "mmspec.tasks.tts.request",
    "Viewer": "mmspec.tasks.vlm.viewer",
    "Description": "mmspec.modalities.vlm.result",
    "generate": "mmspec.generation",
    "custom_generate": "mmspec.generation",
    "Generation": "mmspec.generation",
    "Blind": "mmspec.drafting",
    "Thinned": "mmspec.drafting",
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

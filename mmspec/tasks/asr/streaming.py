"""Live recognition: a stream that is fed with audio as it comes."""

from __future__ import annotations

from typing import Any

from mmspec.api import load
from mmspec.loading import DEFAULT_TARGET
from mmspec.modalities.whisper.stream import SpeechStream as SpeechStream
from mmspec.modalities.whisper.stream_record import Decode as Decode
from mmspec.modalities.whisper.stream_record import Spoken as Spoken
from mmspec.modalities.whisper.stream_record import StreamTotals as StreamTotals
from mmspec.modalities.whisper.stream_record import Update as Update
from mmspec.tasks.asr.transcriber import Transcriber

LOADING = ("device", "dtype", "gamma", "packed", "trust_remote_code", "processor")


def stream(target: Any = DEFAULT_TARGET, draft: Any = "hypothesis", **options: Any) -> SpeechStream:
    """Load a recogniser and open one stream of it.

    For several streams of one model load it once: `mmspec.load(...).live(...)`.

    Args:
        target: as `load` takes it.
        draft: "hypothesis" drafts every decode with the one before it; else as `load` takes it.
        **options: those of `load` and those of `Transcriber.live`.

    Raises:
        MMSpecError: a model or an option that can't be used, in one line.
    """
    loading = {name: options.pop(name) for name in LOADING if name in options}
    recogniser: Transcriber = load(target, draft, **loading)
    return recogniser.live(**options)

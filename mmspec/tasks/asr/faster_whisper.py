"""faster-whisper as a peer, what a CPU user picks today: end to end only, text instead of ids."""

from __future__ import annotations

import importlib.util
import time
from pathlib import Path
from typing import Any

import numpy as np

from mmspec.compare.peers import Outcome
from mmspec.modalities.whisper.request import TranscriptionRequest


class FasterWhisperPeer:
    """A CTranslate2 checkpoint behind faster-whisper, greedy.

    Args:
        directory: the checkpoint.
        compute_type: "float32", "int8", ...
        threads: CPU threads.
    """

    def __init__(self, directory: Path, compute_type: str, threads: int) -> None:
        self.name = f"faster-whisper {compute_type}"
        self.why_not: str | None = None
        self.remark: str | None = None
        self._model: Any = None
        if importlib.util.find_spec("faster_whisper") is None:
            self.why_not = "faster-whisper isn't installed"
            return
        try:
            from faster_whisper import WhisperModel  # type: ignore[import-not-found]

            self._model = WhisperModel(
                str(directory), device="cpu", compute_type=compute_type, cpu_threads=threads
            )
        except Exception as error:  # any release, any build
            self.why_not = f"faster-whisper can't open {directory}: {type(error).__name__}: {error}"

    def run(
        self, samples: np.ndarray, request: TranscriptionRequest, hypothesis: Any = None
    ) -> Outcome:
        """Decode; there are no ids of the target's to return."""
        start = time.perf_counter()
        segments, _ = self._model.transcribe(
            samples,
            language=request.language,
            task=request.task or "transcribe",
            beam_size=1,
            temperature=0.0,
            without_timestamps=not request.timestamps,
            condition_on_previous_text=False,
        )
        text = "".join(segment.text for segment in segments).strip()
        return Outcome((), text, 0.0, time.perf_counter() - start)

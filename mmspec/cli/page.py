"""The page of a run: what `--report` writes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mmspec.formats import write_atomic
from mmspec.page import Failure, PageData, Recording, TokenTexts, log_mel, recording_of, render_page


class RunPage:
    """Collects the recordings of a run and writes them as one page.

    Args:
        place: the file.
        transcriber: whose tokenizer and features these are.
        settings: of the run.
    """

    def __init__(self, place: Path, transcriber: Any, settings: Mapping[str, Any]) -> None:
        self._place, self._settings = place, settings
        self._processor = transcriber.processor
        self._texts = TokenTexts.of(transcriber)
        self._entries: list[Recording | Failure] = []

    def done(self, path: Path, said: Any, samples: Any, compared: Mapping[str, Any] | None) -> None:
        """A recording was transcribed; what is kept of its samples is a picture."""
        extractor = self._processor.feature_extractor
        self._entries.append(
            recording_of(
                path.name,
                said,
                self._texts,
                duration_s=len(samples) / extractor.sampling_rate,
                mel=log_mel(samples, extractor),
                compared=compared,
            )
        )

    def failed(self, path: Path, message: str) -> None:
        """A recording couldn't be transcribed."""
        self._entries.append(Failure(path.name, message))

    def write(self) -> None:
        """Write what there is.

        Raises:
            InputError: the place can't be written to.
        """
        write_atomic(self._place, render_page(PageData(self._settings, tuple(self._entries))))

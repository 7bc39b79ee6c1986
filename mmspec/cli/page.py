"""The page of a run: what `--report` writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mmspec.formats import write_atomic
from mmspec.page import (
    Decoded,
    Failure,
    PageData,
    TokenTexts,
    log_mel,
    picture_of,
    recording_of,
    render_page,
    sight_of,
)
from mmspec.page.pictures import COARSE, FINE, Picture
from mmspec.page.wording import READ, SEEN

FINE_PICTURES = 40
"""Further ones are coarser: a book has to stay a file that opens."""


class Collected:
    """Collects what a run makes and writes it as one page.

    Args:
        place: the file.
        settings: of the run.
        texts: turns the target's ids into text.
    """

    def __init__(self, place: Path, settings: Mapping[str, Any], texts: TokenTexts) -> None:
        self._place, self._settings, self._texts = place, settings, texts
        self._entries: list[Decoded | Failure] = []

    def write(self) -> None:
        """Write what there is.

        Raises:
            InputError: the place can't be written to.
        """
        write_atomic(self._place, render_page(PageData(self._settings, tuple(self._entries))))


class RunPage(Collected):
    """The page of recordings that were transcribed.

    Args:
        place: the file.
        transcriber: whose tokenizer and features these are.
        settings: of the run.
    """

    def __init__(self, place: Path, transcriber: Any, settings: Mapping[str, Any]) -> None:
        super().__init__(place, settings, TokenTexts.of(transcriber))
        self._processor = transcriber.processor

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


class LookPage(Collected):
    """The page of images that were looked at, and of documents page by page.

    Args:
        place: the file.
        viewer: whose tokenizer it is.
        settings: of the run, its task among them.
    """

    def __init__(self, place: Path, viewer: Any, settings: Mapping[str, Any]) -> None:
        super().__init__(place, settings, TokenTexts.of_viewer(viewer))
        self._words = READ if settings["task"] == "read" else SEEN
        self._pictures = 0

    def picture(self, image: Any) -> Picture:
        """What is kept of an image, however it is given."""
        from mmspec.modalities.images import open_image

        if isinstance(image, Picture):
            return image
        self._pictures += 1
        return picture_of(open_image(image), FINE if self._pictures <= FINE_PICTURES else COARSE)

    def done(
        self,
        name: str,
        said: Any,
        images: Sequence[Any],
        compared: Mapping[str, Any] | None = None,
    ) -> None:
        """Images were looked at; `name` says which, and of a document which page."""
        pictures = [self.picture(image) for image in images]
        self._entries.append(sight_of(name, said, self._texts, pictures, compared=compared))

    def failed(self, name: str, message: str) -> None:
        """They couldn't be."""
        self._entries.append(Failure(name, message, self._words))

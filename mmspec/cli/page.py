"""The page of a run: what `--report` writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mmspec.output.formats import write_atomic
from mmspec.page import (
    CodeTexts,
    Decoded,
    Failure,
    PageData,
    TokenTexts,
    log_mel,
    picture_of,
    recording_of,
    render_page,
    sight_of,
    utterance_of,
)
from mmspec.page.pictures import COARSE, FINE, Picture
from mmspec.page.wording import READ, SEEN, SPOKEN
from mmspec.tasks.tts.page import SOUND_ROOM

FINE_PICTURES = 40
"""Further ones are coarser: a book has to stay a file that opens."""


def write_page(
    place: Path, settings: Mapping[str, Any], entries: Sequence[Decoded | Failure]
) -> None:
    """Write a page of these.

    Raises:
        InputError: the place can't be written to.
    """
    write_atomic(place, render_page(PageData(settings, tuple(entries))))


class RecordingEntries:
    """What a page shows of recordings, as they are done.

    Args:
        transcriber: whose tokenizer and features these are.
    """

    def __init__(self, transcriber: Any) -> None:
        self.made: list[Decoded | Failure] = []
        self._processor, self._texts = transcriber.processor, TokenTexts.of(transcriber)

    def done(self, path: Path, said: Any, samples: Any, compared: Mapping[str, Any] | None) -> None:
        """A recording was transcribed; what is kept of its samples is a picture."""
        extractor = self._processor.feature_extractor
        self.made.append(
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
        self.made.append(Failure(path.name, message))


class SightEntries:
    """The same of images, and of documents page by page.

    Args:
        viewer: whose tokenizer it is.
        task: what it is asked to do, as `Viewer.describe` takes it.
    """

    def __init__(self, viewer: Any, task: str = "caption") -> None:
        self.made: list[Decoded | Failure] = []
        self._texts, self._words = TokenTexts.of_viewer(viewer), READ if task == "read" else SEEN
        self._pictures = 0

    def picture(self, image: Any) -> Picture:
        """What is kept of an image, however it is given."""
        from mmspec.modalities.media.images import open_image

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
        self.made.append(sight_of(name, said, self._texts, pictures, compared=compared))

    def failed(self, name: str, message: str) -> None:
        """They couldn't be."""
        self.made.append(Failure(name, message, self._words))


class SpeechEntries:
    """The same of texts that are said aloud.

    Args:
        speaker: whose codes they are.
    """

    def __init__(self, speaker: Any) -> None:
        self.made: list[Decoded | Failure] = []
        self._texts, self._room = CodeTexts.of(speaker), SOUND_ROOM

    def done(self, name: str, said: Any, compared: Mapping[str, Any] | None = None) -> None:
        """A text was said; its sound is kept as long as the page has room for it."""
        made = utterance_of(name, said, self._texts, compared=compared, room=self._room)
        self._room -= len(made.sound or "")
        self.made.append(made)

    def failed(self, name: str, message: str) -> None:
        """A text couldn't be said."""
        self.made.append(Failure(name, message, SPOKEN))


class RunPage:
    """The page of a run, written at its end.

    Args:
        place: the file.
        settings: of the run.
        entries: what it shows.
    """

    def __init__(
        self,
        place: Path,
        settings: Mapping[str, Any],
        entries: RecordingEntries | SightEntries | SpeechEntries,
    ) -> None:
        self._place, self._settings, self.entries = place, settings, entries

    def write(self) -> None:
        """Write what there is.

        Raises:
            InputError: the place can't be written to.
        """
        write_page(self._place, self._settings, self.entries.made)

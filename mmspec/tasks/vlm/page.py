"""An image on a page, or a page of a document: the picture and what was said of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mmspec.modalities.media.images import open_image
from mmspec.page.data import Decoded, Failure, decoding_of
from mmspec.page.pictures import COARSE, FINE, Picture, picture_of
from mmspec.page.pieces import TokenTexts
from mmspec.page.wording import READ, SEEN, Wording
from mmspec.tasks.vlm.result import Description

HEADINGS = {"caption": "Caption", "read": "Text", "answer": "Answer"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight(Decoded):
    """Images that were described, read or asked about; mostly one.

    Attributes:
        prompt: what the model was told; None where it was its own instruction.
        visual_tokens: positions that stand for the images.
        page: its number in a document; None where there is none.
    """

    task: str
    prompt: str | None
    pictures: tuple[Picture, ...]
    visual_tokens: int
    page: int | None = None

    @property
    def words(self) -> Wording:
        """What the page calls things."""
        return READ if self.task == "read" else SEEN

    @property
    def heading(self) -> str:
        """What its text is called."""
        return HEADINGS[self.task]

    @property
    def facts(self) -> str:
        """The sizes of its images."""
        return ", ".join("{} × {} pixels".format(*picture.given) for picture in self.pictures)

    @property
    def amount(self) -> float:
        """Visual tokens."""
        return self.visual_tokens


def sight_of(
    name: str,
    said: Description,
    texts: TokenTexts,
    pictures: Sequence[Picture],
    *,
    compared: Mapping[str, Any] | None = None,
) -> Sight:
    """A description as a page shows it.

    Args:
        name: of the image or the document.
        said: with grounding where that was asked for.
        texts: turns ids into text.
        pictures: what was looked at, as `picture_of` returns them.
        compared: peers' comparisons.
    """
    return Sight(
        name=name,
        task=said.task,
        prompt=said.prompt,
        pictures=tuple(pictures),
        visual_tokens=said.visual_tokens,
        page=said.page,
        **decoding_of(said, said.ids, texts, compared=compared),
    )


FINE_PICTURES = 40
"""Further ones are coarser: a book has to stay a file that opens."""


class SightEntries:
    """What a page shows of images, and of documents page by page, as they are done.

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

"""Pictures inside the page: as data URIs, no larger than a page needs them."""

from __future__ import annotations

import base64
import io
from dataclasses import dataclass
from typing import Any

from PIL import Image

FINE, COARSE = 1200, 500
"""Pixels of the longer side: type of a scanned page can be read at the first, seen at the other."""

JPEG_QUALITY = 80

SMALL = 240
"""Pixels of the longer side; smaller images are shown twice as large."""


@dataclass(frozen=True, slots=True)
class Picture:
    """An image as a page holds it.

    Attributes:
        source: a data URI.
        size: width and height of what the page holds, in pixels.
        given: the same of the image as it was opened.
    """

    source: str
    size: tuple[int, int]
    given: tuple[int, int]

    @property
    def shown(self) -> tuple[int, int]:
        """Width and height on the page, where there is room for it."""
        times = 2 if max(self.size) <= SMALL else 1
        return times * self.size[0], times * self.size[1]


def picture_of(image: Image.Image, longest: int = FINE) -> Picture:
    """An image for a page, scaled down where it is larger than needed.

    Args:
        image: upright, in RGB.
        longest: pixels of the longer side, at most.
    """
    scaled = image
    if max(image.size) > longest:
        scaled = image.copy()
        scaled.thumbnail((longest, longest))
    return Picture(_smaller(scaled), scaled.size, image.size)


def data_uri(image: Image.Image, kind: str, **options: Any) -> str:
    """An image as a data URI.

    Args:
        image: of a mode that the format knows.
        kind: "png" or "jpeg".
        **options: of Pillow's encoder.
    """
    file = io.BytesIO()
    image.save(file, kind, **options)
    return f"data:image/{kind};base64,{base64.b64encode(file.getvalue()).decode('ascii')}"


def _smaller(image: Image.Image) -> str:
    """A PNG, which changes nothing, unless a JPEG takes less than half the room."""
    exact = data_uri(image, "png", optimize=True)
    rough = data_uri(image, "jpeg", quality=JPEG_QUALITY)
    return rough if 2 * len(rough) < len(exact) else exact

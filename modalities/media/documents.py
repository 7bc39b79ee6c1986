"""Documents in: the pages of a PDF or of an image file, one at a time, as pictures with their text.

A page that can't be read is one bad page, not the end of the document.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import math
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import pypdfium2
from PIL import Image, ImageFile
from pypdfium2 import raw as pdfium

from mmspec.errors import InputError, OptionError
from mmspec.modalities.media.images import open_file, open_image, undecoded
from mmspec.modalities.media.inputs import door, one_line, refuse

if TYPE_CHECKING:
    from mmspec.modalities.media.images import ImageSource

POINTS_PER_INCH = 72
"""What a PDF measures in."""

MOST_PIXELS = 32_000_000
"""Of a rendered page: A3 at 400 dpi. Larger paper is rendered more coarsely."""

LONGEST_SIDE = 30_000
"""Pixels; a page one point high may be kilometres wide."""

PDF_STARTS_WITHIN = 1024
"""Bytes: a PDF may have others before its own first ones."""

LINE_END_HYPHENS = "\x02\ufffe"
"""What PDFium writes where a hyphen at the end of a line breaks a word, the line end included."""

_PDFIUM = threading.Lock()
"""PDFium can be used by one thread at a time only."""


@dataclass(frozen=True, slots=True, eq=False)
class Page:
    """One page to be read.

    Attributes:
        number: counted from 1.
        image: upright, in RGB.
        text: the text layer of a PDF, "" where there is none; lines end with a line feed.
        dpi: pixels per inch that a PDF was rendered at, None for an image.
    """

    number: int
    image: Image.Image = field(repr=False)
    text: str = ""
    dpi: float | None = None


@dataclass(frozen=True, slots=True, eq=False)
class BadPage:
    """A page that can't be read; the others may be fine.

    Attributes:
        number: counted from 1.
        error: one line that names the document and the page and says what is wrong.
    """

    number: int
    error: InputError


def pages(
    source: ImageSource, *, dpi: float = 200, password: str | None = None
) -> Iterator[Page | BadPage]:
    """The pages of a document, each decoded or rendered when it is asked for.

    Args:
        source: a PDF or a TIFF of any number of pages, as a path or as bytes; or anything that
            `open_image` reads, which makes one page.
        dpi: pixels per inch of a PDF's paper; less for a page that would have more than
            `MOST_PIXELS` (see `Page.dpi`).
        password: of an encrypted PDF.

    Raises:
        InputError: at the call: nothing there, no document, encrypted, no pages. What is wrong
            with a single page is in its `BadPage`.
        OptionError: a resolution that isn't above 0.

    Example:
        >>> [page.number for page in pages(Image.new("RGB", (30, 20)))]
        [1]
    """
    if not (isinstance(dpi, Real) and math.isfinite(dpi) and dpi > 0):
        raise OptionError(f"dpi={dpi!r}: expected a number above 0")
    if isinstance(source, str | Path):
        name = str(source)
        with open_file(source, name) as file:
            data = file.read()
    elif isinstance(source, bytes):
        name, data = "document", source
    else:
        return iter([Page(1, open_image(source))])
    if b"%PDF-" in data[:PDF_STARTS_WITHIN]:
        return _rendered_pages(_open_pdf(data, password, name), dpi, name)
    return _decoded_pages(undecoded(io.BytesIO(data), name), name)


def _decoded_pages(file: ImageFile.ImageFile, name: str) -> Iterator[Page | BadPage]:
    """Every picture of a TIFF; the first one of any other image."""
    several = file.format == "TIFF" and getattr(file, "is_animated", False)
    for number in itertools.count(1) if several else [1]:
        called = f"{name}, page {number}" if several else name
        try:
            file.seek(number - 1)
        except EOFError:
            return
        except Exception as error:  # without this page's directory nothing leads to the next one
            found = f"a damaged or truncated TIFF ({one_line(error)})"
            yield BadPage(number, InputError(f"{called}: found {found}, expected a whole one"))
            return
        try:
            yield Page(number, open_image(file, name=called))
        except InputError as error:
            yield BadPage(number, error)


def _open_pdf(data: bytes, password: str | None, name: str) -> pypdfium2.PdfDocument:
    with _PDFIUM:
        try:
            document = pypdfium2.PdfDocument(data, password=password)
        except pypdfium2.PdfiumError as error:
            _refuse_pdf(data, password, error, name)
        with contextlib.suppress(pypdfium2.PdfiumError):
            document.init_forms()  # what was filled in is to be seen; a broken form hides nothing
    return document


def _refuse_pdf(
    data: bytes, password: str | None, error: pypdfium2.PdfiumError, name: str
) -> NoReturn:
    # pypdfium2 also fails for an empty document, with the code of whatever failed before
    secret = None if password is None else f"{password}\0".encode()
    if empty := pdfium.FPDF_LoadMemDocument64(data, len(data), secret):
        pdfium.FPDF_CloseDocument(empty)
        refuse(name, "a PDF without pages", "at least one page")
    if error.err_code == pdfium.FPDF_ERR_PASSWORD:
        which = "a password" if password is None else "another password"
        refuse(name, "an encrypted PDF", f"{which} for it (password=)")
    if error.err_code == pdfium.FPDF_ERR_SECURITY:
        refuse(name, "a PDF encrypted in a way that PDFium doesn't know", "one that it can open")
    refuse(name, f"a damaged or truncated PDF ({one_line(error)})", "a whole one")


def _rendered_pages(
    document: pypdfium2.PdfDocument, dpi: float, name: str
) -> Iterator[Page | BadPage]:
    try:
        for number in range(1, len(document) + 1):
            try:
                with _PDFIUM:
                    page = _rendered(document, number, dpi, f"{name}, page {number}")
            except InputError as error:
                yield BadPage(number, error)
            else:
                yield page
    finally:
        with _PDFIUM:
            document.close()


def _rendered(document: pypdfium2.PdfDocument, number: int, dpi: float, name: str) -> Page:
    def unreadable(error: Exception) -> str:
        return f"a page that can't be rendered ({one_line(error)})"

    with (
        door(name, unreadable, "a whole page"),
        contextlib.closing(document[number - 1]) as page,
    ):
        if 0 in page.get_size():  # a crop box that lies outside: the whole sheet, as poppler does
            page.set_cropbox(*page.get_mediabox())
        width, height = page.get_size()
        scale = _scale(width, height, dpi)
        image = page.render(scale=scale, rev_byteorder=True).to_pil()
        return Page(number, image, _text_layer(page), scale * POINTS_PER_INCH)


def _scale(width: float, height: float, dpi: float) -> float:
    """Pixels per point for a page of this many points."""
    return min(
        dpi / POINTS_PER_INCH,
        LONGEST_SIDE / max(width, height),
        math.sqrt(MOST_PIXELS / (width * height)),
    )


def _text_layer(page: pypdfium2.PdfPage) -> str:
    try:
        with contextlib.closing(page.get_textpage()) as layer:
            text = layer.get_text_bounded()
    except Exception:  # the picture is what is to be read; the text only helps
        return ""
    for hyphen in LINE_END_HYPHENS:
        text = text.replace(hyphen, "-\n")
    return text.replace("\r\n", "\n")

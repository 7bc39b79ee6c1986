"""A reference reading: what a page says according to somebody who reads faster than the model.

It is only ever proposed to the model. A bad reading costs speed and changes nothing of the output.
"""

from __future__ import annotations

import io
import os
import re
import subprocess
from dataclasses import dataclass, replace
from typing import Literal

from PIL import Image

from mmspec.errors import DraftError, MMSpecError, OptionError
from mmspec.modalities.media.documents import Page
from mmspec.modalities.media.inputs import one_line

Source = Literal["tesseract", "pdf text layer", "caller"]

SMALL_PIXELS = 1_000_000
"""Smaller images are doubled first. Of clean 9 pixel type Tesseract gets 1 to 17 characters in 100
wrong as it is and 1 to 2 doubled; of noisy type of 14 to 19 pixels, 2 and none. Three or four times
the size is no better. Taken apart like a page (layout 3), an image of one short word reads empty.
"""

AS_A_READER_WRITES = str.maketrans(
    {
        "\f": "\n",
        "\u00a0": " ",
        "\u00ad": "",
        "ﬀ": "ff",
        "ﬁ": "fi",
        "ﬂ": "fl",
        "ﬃ": "ffi",
        "ﬄ": "ffl",
    }
)
"""Marks of the printer: page ends, spaces that don't break, hyphens unseen, joined letters."""

INSTALL = "apt install tesseract-ocr, brew install tesseract, or see tesseract-ocr.github.io"

TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class Reading:
    """A text to propose.

    Attributes:
        text: lines as they stand on the page; "" where nothing could be read.
        source: who read it.
        reason: why there is no text, if something went wrong.
    """

    text: str
    source: Source
    reason: str = ""


def given_reading(text: str) -> Reading:
    """The caller's own text, tidied.

    Example:
        >>> given_reading("One \\r\\ntwo\\n\\n\\f").text
        'One\\ntwo'
    """
    return Reading(tidy(text), "caller")


def read_page(
    page: Page,
    reader: Literal["auto", "tesseract", "pdf text layer"] = "auto",
    *,
    language: str = "eng",
    layout: int | None = None,
    timeout_s: float = TIMEOUT_S,
) -> Reading:
    """What a page says.

    Args:
        page: picture and text layer.
        reader: "auto" takes the text layer where there is one and asks Tesseract where not; it
            never fails, see `Reading.reason`.
        language: Tesseract's name of it, several joined by "+".
        layout: as in `read_image`.
        timeout_s: how long Tesseract may take.

    Raises:
        OptionError: a reader that doesn't exist; Tesseract or its language isn't installed.
        DraftError: Tesseract failed.
    """
    if reader not in ("auto", "tesseract", "pdf text layer"):
        known = "'auto', 'tesseract' or 'pdf text layer'"
        raise OptionError(f"reader={reader!r}: expected {known}")
    if reader == "pdf text layer" or (reader == "auto" and page.text.strip()):
        layer = Reading(tidy(page.text), "pdf text layer")
        return layer if layer.text else replace(layer, reason="the page has no text layer")
    try:
        return read_image(page.image, language=language, layout=layout, timeout_s=timeout_s)
    except MMSpecError as error:
        if reader == "auto":
            return Reading("", "tesseract", reason=str(error))
        raise


def read_image(
    image: Image.Image,
    *,
    language: str = "eng",
    layout: int | None = None,
    timeout_s: float = TIMEOUT_S,
) -> Reading:
    """What Tesseract reads.

    Args:
        image: an upright one, as `open_image` returns it.
        language: Tesseract's name of it, several joined by "+".
        layout: its page segmentation mode (`tesseract --help-psm`); by default a whole page is
            taken apart (3), a small image is taken for one block of text (6).
        timeout_s: how long it may take.

    Raises:
        OptionError: Tesseract or its language isn't installed; a layout that it doesn't know.
        DraftError: it failed or took too long.
    """
    small = image.width * image.height < SMALL_PIXELS
    layout = layout if layout is not None else (6 if small else 3)
    if layout not in (1, *range(3, 14)):  # the others don't read
        raise OptionError(f"layout={layout}: expected 1 or 3 to 13 (tesseract --help-psm)")
    if small:
        image = image.resize((2 * image.width, 2 * image.height), Image.Resampling.BICUBIC)
    picture = io.BytesIO()
    image.convert("L").save(picture, "PPM")
    arguments = ["stdin", "stdout", "-l", language, "--psm", str(layout)]
    done = _tesseract(arguments, picture.getvalue(), timeout_s)
    said = done.stderr.decode("utf-8", "replace")
    missing = re.findall(r"Failed loading language '(.*?)'", said)
    if missing:  # of several languages one is enough for Tesseract to go on without the others
        raise OptionError(
            f"language={language!r}: Tesseract has no data for {', '.join(missing)}; "
            f"installed are {', '.join(languages())} (apt install tesseract-ocr-LANGUAGE)"
        )
    if done.returncode:
        reason = one_line(RuntimeError(said)) if said.strip() else f"exit code {done.returncode}"
        raise DraftError(f"Tesseract failed: {reason}")
    return Reading(tidy(done.stdout.decode("utf-8", "replace")), "tesseract")


def languages() -> list[str]:
    """The languages that Tesseract has data for.

    Raises:
        OptionError: Tesseract isn't installed.
        DraftError: it failed or took too long.
    """
    listed = _tesseract(["--list-langs"], b"", TIMEOUT_S).stdout.decode("utf-8", "replace")
    return listed.splitlines()[1:]  # the first line is a heading


def tidy(text: str) -> str:
    """Text as a reader would write it down: its lines, at most one empty one between two of them.

    Example:
        >>> tidy("\\n  a ﬁle \\n \\n \\nnext\\f")
        '  a file\\n\\nnext'
    """
    lines = [line.rstrip() for line in text.translate(AS_A_READER_WRITES).splitlines()]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip("\n")


def _tesseract(
    arguments: list[str], given: bytes, timeout_s: float
) -> subprocess.CompletedProcess[bytes]:
    # its own threads mostly wait for each other, and the model wants the cores
    environment = {**os.environ, "OMP_THREAD_LIMIT": "1"}
    try:
        return subprocess.run(
            ["tesseract", *arguments],
            input=given,
            capture_output=True,
            timeout=timeout_s,
            env=environment,
            check=False,
        )
    except FileNotFoundError:
        raise OptionError(f"Tesseract isn't installed: {INSTALL}") from None
    except subprocess.TimeoutExpired:
        raise DraftError(
            f"Tesseract took longer than {timeout_s:g} s: a larger timeout_s="
        ) from None
    except (OSError, ValueError) as error:
        raise DraftError(f"Tesseract can't be run: {one_line(error)}") from None


def reading_of(page: Page, reader: str | None) -> str | None:
    """What is known of a page before it is read, as `Viewer.read` takes it.

    Args:
        page: of a document.
        reader: "pdf", "tesseract", "none", a text, or None: the text layer where there is one.

    Example:
        >>> from PIL import Image
        >>> nothing = Image.new("RGB", (1, 1))
        >>> layered, bare = Page(1, nothing, "One."), Page(2, nothing)
        >>> [reading_of(layered, reader) for reader in (None, "pdf", "tesseract", "none")]
        ['One.', 'One.', 'tesseract', '']
        >>> [reading_of(bare, reader) for reader in (None, "pdf")]
        [None, '']
    """
    layer = tidy(page.text)
    known = {None: layer or None, "pdf": layer, "none": ""}
    return known.get(reader, reader)

"""Images in: any file or array becomes one upright, opaque RGB picture.

Processors take what they are given: a photo that lies on its side, transparency turned into noise,
16-bit values clipped to white. A model describes those just as confidently, and nothing downstream
would notice.
"""

from __future__ import annotations

import io
import math
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from PIL import ExifTags, Image, ImageFile, UnidentifiedImageError

from mmspec.errors import InputError, OptionError
from mmspec.modalities.media.inputs import check_readable, is_tensor, is_text, one_line, refuse

if TYPE_CHECKING:
    import torch

    ImageSource = str | Path | bytes | Image.Image | np.ndarray | torch.Tensor

FORMATS = "png, jpeg, webp, tiff, gif or bmp"
EXPECTED_FILE = f"an image file ({FORMATS})"

UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
"""What undoes each EXIF orientation; 1 is upright."""

UNMULTIPLIED = {"La": "LA", "RGBa": "RGBA"}
"""The modes whose colours are already multiplied by their alpha."""

NO_PIXELS = {
    b"%PDF-": "a PDF document",
    b"%!PS": "a PostScript drawing",
    b"\xc5\xd0\xd3\xc6": "a PostScript drawing",
}
"""Beginnings of files that would have to be rendered first."""

_FILTERS = threading.Lock()
"""Python's warning filters belong to the whole process: one thread at a time changes them."""


def open_image(
    source: ImageSource, *, name: str | None = None, max_pixels: int | None = None
) -> Image.Image:
    """Read an image as a model is to see it: decoded, turned upright, on white, in RGB.

    Args:
        source: an image file (its name doesn't matter, its content does), the bytes of one, a PIL
            image of any mode, a NumPy array `[h, w]` or `[h, w, channels]` or a torch tensor
            `[h, w]` or `[channels, h, w]` with 1, 3 or 4 channels. Bytes go from 0 to 255, 16-bit
            values to 65535, floats to 1 or to 255. Of an animation or a document of several
            pages: the first one.
        name: what messages call it; by default the path.
        max_pixels: a larger image is scaled down to this many pixels, with a warning.

    Returns:
        A new image of mode RGB, without metadata that could turn it once more.

    Raises:
        InputError: names the source, what was found and what was expected. Also for more pixels
            than `PIL.Image.MAX_IMAGE_PIXELS`, which no file is decoded for.

    Example:
        >>> image = open_image(np.zeros((20, 30), dtype=np.uint8))
        >>> image.mode, image.size
        ('RGB', (30, 20))
    """
    name = name or _name(source)
    if isinstance(source, str | Path):
        with open_file(source, name) as file:
            image = _seen(undecoded(file, name), name)
    elif isinstance(source, bytes):
        image = _seen(undecoded(io.BytesIO(source), name), name)
    elif isinstance(source, Image.Image):
        image = _seen(source, name)
    else:
        image = _seen(_from_array(source, name), name)
    return image if max_pixels is None else _within(image, max_pixels, name)


def open_images(
    sources: Sequence[ImageSource] | None, *, max_pixels: int | None = None
) -> list[Image.Image]:
    """Read several images; none at all is fine, and so is None.

    Raises:
        InputError: as `open_image` does it; an image without a name is called by its number.

    Example:
        >>> open_images([])
        []
    """
    sources = sources or ()
    names = [_name(source, f"image {n} of {len(sources)}") for n, source in enumerate(sources, 1)]
    return [
        open_image(source, name=name, max_pixels=max_pixels)
        for source, name in zip(sources, names, strict=True)
    ]


def open_file(path: str | Path, name: str) -> IO[bytes]:
    """A file that is there and isn't empty.

    Raises:
        InputError: nothing to read.
    """
    if str(path).startswith(("http://", "https://", "data:")):
        refuse(name, "an address", f"{EXPECTED_FILE}; download it first")
    check_readable(Path(path), name, EXPECTED_FILE)
    return Path(path).open("rb")


def undecoded(file: IO[bytes], name: str) -> ImageFile.ImageFile:
    """An image of which only the header has been read.

    Raises:
        InputError: no image, or one that is too large.
    """
    head = file.read(1024)
    if not head:
        refuse(name, "nothing (0 bytes)", EXPECTED_FILE)
    for beginning, kind in NO_PIXELS.items():
        if head.startswith(beginning):
            refuse(name, kind, f"{EXPECTED_FILE}; render it first")
    try:
        with _without_warnings():
            image = Image.open(file)
    except Image.DecompressionBombError as error:
        refuse(name, f"too large an image ({one_line(error)})", _size_expected())
    except UnidentifiedImageError:
        refuse(name, _kind_of_junk(head), EXPECTED_FILE)
    except Exception as error:  # a decoder stumbles over junk in many ways
        refuse(name, f"a damaged or truncated image ({one_line(error)})", "a whole one")
    _check_size(*image.size, name)
    return image


def _name(source: object, nameless: str = "image") -> str:
    if isinstance(source, Image.Image):
        source = getattr(source, "filename", "")
    return str(source) if isinstance(source, str | Path) and str(source) else nameless


@contextmanager
def _without_warnings() -> Iterator[None]:
    """Pillow warns of odd metadata, which changes no pixel, and of sizes that are checked here."""
    with _FILTERS, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _kind_of_junk(head: bytes) -> str:
    if head[4:8] == b"ftyp" and head[8:12] in (b"heic", b"heix", b"hevc", b"mif1", b"msf1"):
        return "a HEIC photo, which Pillow reads only with pillow-heif"
    if b"<svg" in head:
        return "an SVG drawing, which has no pixels"
    if is_text(head):
        return "a text file"
    return "nothing that Pillow can read (damaged, truncated or no image)"


def _size_expected() -> str:
    return f"at most {Image.MAX_IMAGE_PIXELS} pixels (PIL.Image.MAX_IMAGE_PIXELS)"


def _check_size(width: int, height: int, name: str) -> None:
    if not width or not height:
        refuse(name, f"an image without pixels ({width}x{height})", "at least one pixel")
    most = Image.MAX_IMAGE_PIXELS  # None where the user has taken the limit away
    if most is not None and width * height > most:
        refuse(name, f"too large an image ({width}x{height} pixels)", _size_expected())


def _seen(image: Image.Image, name: str) -> Image.Image:
    _check_size(*image.size, name)
    try:
        with _without_warnings():
            image.load()
            turn = UPRIGHT.get(_orientation(image))
            rgb = _on_white(image, name)
    except InputError:
        raise
    except Exception as error:  # a decoder stumbles over junk in many ways
        refuse(name, f"a damaged or truncated image ({one_line(error)})", "a whole one")
    return rgb if turn is None else rgb.transpose(turn)


def _orientation(image: Image.Image) -> int:
    try:
        return image.getexif().get(ExifTags.Base.Orientation, 1)
    except Exception:  # unreadable metadata turns nothing and hides no pixel
        return 1


def _on_white(image: Image.Image, name: str) -> Image.Image:
    """A new RGB image without metadata; what can be seen through is white behind it."""
    if image.mode[0] in "IF":
        image = _of_bytes(image, name)
    image = image.convert(UNMULTIPLIED.get(image.mode, image.mode))
    if image.has_transparency_data:
        colours = image.convert("RGBA")
        rgb = Image.new("RGB", image.size, "white")
        rgb.paste(colours, mask=colours.getchannel("A"))
    else:
        rgb = image.convert("RGB")
    rgb.info = {}
    return rgb


def _of_bytes(image: Image.Image, name: str) -> Image.Image:
    """A grey image of more than 8 bits, scaled to 8."""
    values = np.asarray(image)
    grey = Image.fromarray(_scaled(values, name))
    if "transparency" in image.info:  # the one value that a 16-bit PNG calls transparent
        opaque = (values != image.info["transparency"]).astype(np.uint8) * 255
        grey.putalpha(Image.fromarray(opaque))
    return grey


def _scaled(values: np.ndarray, name: str) -> np.ndarray:
    """Values of any type as bytes `0..255`, from the full range of their scale."""
    if values.dtype == np.uint8:
        return values
    if values.dtype == bool:
        return values.astype(np.uint8) * 255
    if values.dtype.kind not in "uif":
        refuse(name, f"values of type {values.dtype}", "bytes, 16-bit integers or floats")
    floats = values.dtype.kind == "f"
    bad = np.count_nonzero(~np.isfinite(values))
    if bad:
        refuse(name, f"{bad} values that are NaN or infinite", "finite values")
    low, high = values.min(), values.max()
    scales = [1, 255] if floats else [255, 65535]
    if values.dtype.kind == "u" and values.dtype.itemsize == 2:  # in either byte order
        scales = [65535]
    white = next((scale for scale in scales if high <= scale), 0)
    if low < 0 or not white:
        ranges = " or ".join(f"0..{scale}" for scale in scales)
        refuse(name, f"values from {low:.5g} to {high:.5g}", f"values in {ranges}")
    return np.rint(values * (255.0 / white)).astype(np.uint8)


def _from_array(source: object, name: str) -> Image.Image:
    channels_first = is_tensor(source)
    array = _to_numpy(source, name)
    if array.ndim == 3:
        ends = (0, -1) if channels_first else (-1, 0)
        axis = next((end for end in ends if array.shape[end] in (1, 3, 4)), None)
        array = array if axis is None else np.moveaxis(array, axis, -1)
    shape = "x".join(map(str, array.shape)) or "a single number"
    if array.ndim not in (2, 3) or (array.ndim == 3 and array.shape[-1] not in (1, 3, 4)):
        refuse(name, f"an array of shape {shape}", "[h, w] or [h, w, channels] with 1, 3 or 4")
    if array.size == 0:
        refuse(name, f"an array without pixels ({shape})", "at least one pixel")
    if array.ndim == 3 and array.shape[-1] == 1:
        array = array[..., 0]
    return Image.fromarray(np.ascontiguousarray(_scaled(array, name)))


def _to_numpy(source: Any, name: str) -> np.ndarray:
    if is_tensor(source):
        tensor: Any = source.detach().cpu()
        return np.asarray((tensor.float() if tensor.is_floating_point() else tensor).numpy())
    if not isinstance(source, np.ndarray):
        expected = "a path, bytes, a PIL image, a NumPy array or a torch tensor"
        refuse(name, type(source).__name__, expected)
    return source


def _within(image: Image.Image, max_pixels: int, name: str) -> Image.Image:
    if max_pixels < 1:
        raise OptionError(f"max_pixels={max_pixels}: expected at least 1")
    width, height = image.size
    if width * height <= max_pixels:
        return image
    shrink = math.sqrt(max_pixels / (width * height))
    short = max(1, int(min(image.size) * shrink))
    long = min(int(max(image.size) * shrink), max_pixels // short)
    size = (short, long) if width < height else (long, short)
    warnings.warn(
        f"{name}: {width}x{height} pixels scaled down to {size[0]}x{size[1]}", stacklevel=3
    )
    return image.resize(size, Image.Resampling.LANCZOS)

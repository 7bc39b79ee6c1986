"""I: images that processors take without a word, or stumble over, seen through real ones."""

from __future__ import annotations

import io
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import ExifTags, Image
from transformers import CLIPImageProcessorPil, LlavaNextImageProcessorPil, Qwen2VLImageProcessorPil

from mmspec.errors import InputError
from mmspec.modalities.media.documents import BadPage, pages
from mmspec.modalities.media.images import open_image, open_images
from tests.test_generation import one_line

PROCESSORS = {
    "CLIP": CLIPImageProcessorPil(size={"shortest_edge": 32}, crop_size=32),
    "LLaVA-Next": LlavaNextImageProcessorPil(
        size={"shortest_edge": 32}, crop_size=32, image_grid_pinpoints=[[32, 64], [64, 32]]
    ),
    "Qwen2-VL": Qwen2VLImageProcessorPil(),
}


def heard(processor: str, image: Image.Image) -> np.ndarray:
    """What a model gets of an image."""
    return np.asarray(PROCESSORS[processor]([image], return_tensors="np")["pixel_values"])


def photo(width: int = 280, height: int = 140) -> Image.Image:
    """Bright on top, dark below."""
    rows = np.linspace(255, 0, height).astype(np.uint8)
    return Image.fromarray(np.repeat(rows[:, None], width, axis=1)).convert("RGB")


def encoded(image: Image.Image, kind: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


@pytest.mark.parametrize("processor", PROCESSORS)
@pytest.mark.parametrize("entry", ["path", "bytes", "PIL", "page"])
def test_I1_a_photo_that_lies_on_its_side(tmp_path: Path, entry: str, processor: str) -> None:
    upright = photo()
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = 6  # to be turned clockwise
    data = encoded(upright.transpose(Image.Transpose.ROTATE_90), "PNG", exif=exif)
    path = tmp_path / "photo.png"
    path.write_bytes(data)
    with Image.open(io.BytesIO(data)) as lying:
        lying.load()
        if entry == "page":
            (page,) = pages(path)
            assert not isinstance(page, BadPage)
            seen = page.image
        else:
            seen = open_image({"path": path, "bytes": data, "PIL": lying}[entry])
        expected = heard(processor, upright)
        np.testing.assert_array_equal(heard(processor, seen), expected)
        as_given = heard(processor, lying)  # the fault: a PIL image is taken as it lies
        assert as_given.shape != expected.shape or (as_given != expected).any()


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P", "PA"])
def test_I2_transparency_is_paper_not_the_colour_behind_it(mode: str) -> None:
    picture = Image.new("RGBA", (56, 56), (255, 0, 0, 0))  # red that nobody sees
    if mode == "P":
        picture = Image.new("P", (56, 56), 0)
        picture.putpalette([255, 0, 0])
        picture.info["transparency"] = 0
    elif mode == "PA":
        picture = Image.new("P", (56, 56), 0).convert("PA")
        picture.putalpha(0)
    else:
        picture = picture.convert(mode)
    assert picture.mode == mode
    assert picture.convert("RGB").getextrema() != ((255, 255),) * 3  # the fault
    files = [] if mode == "PA" else [encoded(picture, "PNG")]  # no file format has PA
    for source in (picture, *files):
        assert open_image(source).getextrema() == ((255, 255),) * 3


@pytest.mark.parametrize("size", [(1, 1), (1, 50), (50, 1), (3, 3)])
@pytest.mark.parametrize("processor", ["CLIP", "LLaVA-Next"])
def test_I3_the_thinnest_images_have_three_channels(processor: str, size: tuple[int, int]) -> None:
    for source in (Image.new("L", size), np.zeros(size[::-1], np.uint8)):
        assert np.isfinite(heard(processor, open_image(source))).all()


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF"])
def test_I5_half_a_file_fails_at_the_door_in_one_way(tmp_path: Path, kind: str) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)
    data = encoded(Image.fromarray(noise), kind)
    path = tmp_path / "half"
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(InputError, match="half: found a damaged or truncated image") as error:
        open_image(path)
    one_line(error.value)


@pytest.mark.parametrize("junk", [b"", b"hello", b"\xff\xd8\xff\xe0", bytes(1000)])
def test_I5_junk_fails_in_the_same_way(junk: bytes) -> None:
    with pytest.raises(InputError, match=r"^image: found ") as error:
        open_image(junk)
    one_line(error.value)


@pytest.mark.parametrize("size", [(20_000, 10_000), (20_000, 20_000), (60_000, 60_000)])
def test_I6_a_tiny_file_that_promises_a_huge_image(size: tuple[int, int]) -> None:
    def chunk(kind: bytes, body: bytes) -> bytes:
        checksum = struct.pack(">I", zlib.crc32(kind + body))
        return struct.pack(">I", len(body)) + kind + body + checksum

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", *size, 8, 0, 0, 0, 0))
    body = chunk(b"IDAT", zlib.compress(bytes(size[0] + 1))) + chunk(b"IEND", b"")
    bomb = b"\x89PNG\r\n\x1a\n" + header + body
    assert len(bomb) < 1000
    for door in (open_image, pages):
        with pytest.raises(InputError, match="found too large an image") as error:
            door(bomb)
        one_line(error.value)


@pytest.mark.parametrize("processor", PROCESSORS)
@pytest.mark.parametrize(
    "shape", [(56, 84), (56, 84, 1), (56, 84, 3), (56, 84, 4), (1, 56, 84), (3, 56, 84)]
)
def test_I7_arrays_of_any_number_of_channels(processor: str, shape: tuple[int, ...]) -> None:
    array = np.full(shape, 255, np.uint8)
    white = Image.new("RGB", (84, 56), "white")
    np.testing.assert_array_equal(heard(processor, open_image(array)), heard(processor, white))


@pytest.mark.parametrize("nothing", [None, [], ()])
def test_I10_no_images_are_no_images(nothing: Any) -> None:
    assert open_images(nothing) == []
    with pytest.raises((ValueError, IndexError)):  # the fault: this must not reach a processor
        PROCESSORS["Qwen2-VL"](list(nothing or []), return_tensors="np")

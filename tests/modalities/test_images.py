"""Images in: what every file, mode and array becomes, and every input that is refused."""

from __future__ import annotations

import colorsys
import io
import os
import struct
import threading
import warnings
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import ExifTags, Image, ImageFile

from mmspec.errors import InputError, OptionError
from mmspec.modalities.media.images import open_image, open_images

HEIGHT, WIDTH = 5, 7


def noise(*shape: int, top: int = 256, dtype: Any = np.uint8) -> np.ndarray:
    return np.random.default_rng(7).integers(0, top, shape, dtype=dtype)


COLOURS = noise(HEIGHT, WIDTH, 3)
GREY = noise(HEIGHT, WIDTH)
ALPHA = noise(HEIGHT, WIDTH, 1) // 2 * 2
ALPHA[0, :3] = [[0], [255], [128]]
DEEP = noise(HEIGHT, WIDTH, top=65536, dtype=np.uint16)
PALETTE = noise(16, 3)
INDICES = noise(HEIGHT, WIDTH, top=16)


def on_white(colours: np.ndarray, alpha: np.ndarray = ALPHA) -> np.ndarray:
    return np.rint((colours * (alpha / 255)) + 255 * (1 - alpha / 255)).astype(np.uint8)


def grey(values: np.ndarray) -> np.ndarray:
    return np.repeat(np.rint(values).astype(np.uint8)[..., None], 3, axis=2)


def palette_image(mode: str = "P") -> Image.Image:
    image = Image.fromarray(INDICES).convert("P")
    image.putpalette(PALETTE.tobytes())
    image.putdata(INDICES.ravel().tolist())
    return image if mode == "P" else image.convert("PA")


def with_palette_alpha(image: Image.Image, alpha: bytes | int) -> Image.Image:
    image.info["transparency"] = alpha
    return image


def index_alpha(*opaque: int) -> np.ndarray:
    """Alpha `[h, w, 1]` where every palette index has its own."""
    return np.array(opaque)[INDICES][..., None]


def pa_image() -> Image.Image:
    image = palette_image("PA")
    image.putalpha(Image.fromarray(ALPHA[..., 0]))
    return image


def of_raw(mode: str, data: np.ndarray) -> Image.Image:
    return Image.frombytes(mode, (WIDTH, HEIGHT), data.tobytes())


def from_ycbcr(values: np.ndarray) -> np.ndarray:
    y, cb, cr = (values[..., n].astype(float) for n in range(3))
    blue, red = cb - 128, cr - 128
    rgb = [y + 1.402 * red, y - 0.344136 * blue - 0.714136 * red, y + 1.772 * blue]
    return np.clip(np.rint(np.stack(rgb, axis=2)), 0, 255).astype(np.uint8)


def from_hsv(values: np.ndarray) -> np.ndarray:
    flat = [colorsys.hsv_to_rgb(*(pixel / 255)) for pixel in values.reshape(-1, 3)]
    return np.rint(np.array(flat).reshape(values.shape) * 255).astype(np.uint8)


def from_cmyk(values: np.ndarray) -> np.ndarray:
    ink = 255 - values.astype(float)
    return np.rint(ink[..., :3] * ink[..., 3:] / 255).astype(np.uint8)


def lab_grey(lightness: np.ndarray) -> np.ndarray:
    """sRGB of neutral CIE L* given as bytes (0..255 stands for 0..100)."""
    level = lightness / 255 * 100
    linear = np.where(level > 8, ((level + 16) / 116) ** 3, level / 903.3)
    curved = np.where(linear > 0.0031308, 1.055 * linear ** (1 / 2.4) - 0.055, 12.92 * linear)
    return grey(curved * 255)


CMYK = noise(HEIGHT, WIDTH, 4)
HALVES = np.where(GREY > 127, 255, 0)
THREE_OPAQUE = (0, 128, 255, *[255] * 13)

# name: the image, the RGB that it shows, and how far a conversion may be off by rounding
MODES: dict[str, tuple[Callable[[], Image.Image], np.ndarray, int]] = {
    "1": (lambda: Image.fromarray(GREY > 127), grey(HALVES), 0),
    "L": (lambda: of_raw("L", GREY), grey(GREY), 0),
    "L, one value transparent": (
        lambda: with_palette_alpha(of_raw("L", INDICES), 3),
        on_white(grey(INDICES), 255 * (INDICES != 3)[..., None]),
        0,
    ),
    "LA": (
        lambda: of_raw("LA", np.dstack([GREY, ALPHA])),
        on_white(grey(GREY)),
        0,
    ),
    "La": (lambda: of_raw("LA", np.dstack([GREY, ALPHA])).convert("La"), on_white(grey(GREY)), 1),
    "RGB": (lambda: of_raw("RGB", COLOURS), COLOURS, 0),
    "RGB, one colour transparent": (
        lambda: with_palette_alpha(of_raw("RGB", COLOURS), tuple(COLOURS[1, 2].tolist())),
        on_white(COLOURS, 255 * (COLOURS - COLOURS[1, 2]).any(axis=2, keepdims=True)),
        0,
    ),
    "RGBX": (lambda: of_raw("RGBX", np.dstack([COLOURS, ALPHA])), COLOURS, 0),
    "RGBA": (lambda: of_raw("RGBA", np.dstack([COLOURS, ALPHA])), on_white(COLOURS), 0),
    "RGBa": (
        lambda: of_raw("RGBA", np.dstack([COLOURS, ALPHA])).convert("RGBa"),
        on_white(COLOURS),
        1,
    ),
    "P": (palette_image, PALETTE[INDICES], 0),
    "P, one index transparent": (
        lambda: with_palette_alpha(palette_image(), 3),
        on_white(PALETTE[INDICES], index_alpha(*[255 * (n != 3) for n in range(16)])),
        0,
    ),
    "P, alpha by index": (
        lambda: with_palette_alpha(palette_image(), bytes(THREE_OPAQUE)),
        on_white(PALETTE[INDICES], index_alpha(*THREE_OPAQUE)),
        0,
    ),
    "PA": (pa_image, on_white(PALETTE[INDICES]), 0),
    "CMYK": (lambda: of_raw("CMYK", CMYK), from_cmyk(CMYK), 1),
    "YCbCr": (lambda: of_raw("YCbCr", COLOURS), from_ycbcr(COLOURS), 1),
    "HSV": (lambda: of_raw("HSV", COLOURS), from_hsv(COLOURS), 3),
    "LAB": (
        lambda: of_raw("LAB", np.dstack([GREY, 0 * GREY, 0 * GREY])),
        lab_grey(GREY),
        2,
    ),
    "I;16": (lambda: of_raw("I;16", DEEP.astype("<u2")), grey(DEEP / 257), 0),
    "I;16L": (lambda: of_raw("I;16L", DEEP.astype("<u2")), grey(DEEP / 257), 0),
    "I;16B": (lambda: of_raw("I;16B", DEEP.astype(">u2")), grey(DEEP / 257), 0),
    "I;16N": (lambda: of_raw("I;16N", DEEP), grey(DEEP / 257), 0),
    "I;16, one value transparent": (
        lambda: with_palette_alpha(of_raw("I;16", DEEP.astype("<u2")), int(DEEP[2, 2])),
        on_white(grey(DEEP / 257), 255 * (DEEP - DEEP[2, 2] > 0)[..., None]),
        0,
    ),
    "I of 16 bits": (lambda: Image.fromarray(DEEP.astype(np.int32)), grey(DEEP / 257), 0),
    "I of 8 bits": (lambda: Image.fromarray(GREY.astype(np.int32)), grey(GREY), 0),
    "F up to 255": (lambda: Image.fromarray(GREY.astype(np.float32)), grey(GREY), 0),
    "F up to 1": (lambda: Image.fromarray((GREY / 255).astype(np.float32)), grey(GREY), 0),
}


ORIENTATIONS = range(1, 9)


def stored(upright: np.ndarray, orientation: int) -> np.ndarray:
    """How a camera stores what it saw, after the table of the Exif standard: which visual side
    the first row is, and which the first column."""
    rows_go, columns_go = {
        1: ("down", "right"),
        2: ("down", "left"),
        3: ("up", "left"),
        4: ("up", "right"),
        5: ("right", "down"),
        6: ("left", "down"),
        7: ("left", "up"),
        8: ("right", "up"),
    }[orientation]
    if rows_go in ("right", "left"):
        upright = upright.swapaxes(0, 1)
    backwards = ("up", "left")
    return upright[:: -1 if rows_go in backwards else 1, :: -1 if columns_go in backwards else 1]


def exif_of(orientation: int) -> Image.Exif:
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = orientation
    return exif


def pixels(image: Image.Image) -> np.ndarray:
    assert image.mode == "RGB"
    return np.asarray(image)


def off_by(image: Image.Image, expected: np.ndarray) -> int:
    found = pixels(image)
    assert found.shape == expected.shape
    return int(np.abs(found.astype(int) - expected.astype(int)).max())


def encoded(image: Image.Image, kind: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def refused(source: Any, *words: str, **options: Any) -> str:
    with pytest.raises(InputError, match=r"found .+, expected ") as caught:
        open_image(source, **options)
    message = str(caught.value)
    assert "\n" not in message
    for word in words:
        assert word in message
    return message


class TestModes:
    @pytest.mark.parametrize("mode", MODES)
    def test_every_mode_shows_its_colours(self, mode: str) -> None:
        make, expected, tolerance = MODES[mode]
        image = make()
        assert image.mode == mode.split(",")[0].split(" ")[0]
        assert off_by(open_image(image), expected) <= tolerance

    def test_no_mode_of_pillow_is_left_out(self) -> None:
        assert {make().mode for make, _, _ in MODES.values()} == set(Image.MODES)

    @pytest.mark.parametrize("orientation", ORIENTATIONS)
    @pytest.mark.parametrize("mode", MODES)
    def test_every_mode_is_turned_upright(self, mode: str, orientation: int) -> None:
        make, expected, tolerance = MODES[mode]
        image = make()
        image.info["exif"] = exif_of(orientation).tobytes()
        # what is stored is the expected picture, so upright it is its inverse
        upright = open_image(image)
        assert off_by(Image.fromarray(stored(pixels(upright), orientation)), expected) <= tolerance

    def test_the_callers_image_stays_as_it_was(self) -> None:
        image = MODES["P, one index transparent"][0]()
        image.info["exif"] = exif_of(6).tobytes()
        before = (image.mode, image.size, image.tobytes(), dict(image.info))
        seen = open_image(image)
        seen.paste("red", (0, 0, 2, 2))
        assert (image.mode, image.size, image.tobytes(), dict(image.info)) == before

    def test_an_rgb_image_is_copied_not_shared(self) -> None:
        image = of_raw("RGB", COLOURS)
        seen = open_image(image)
        seen.paste("red", (0, 0, 2, 2))
        np.testing.assert_array_equal(np.asarray(image), COLOURS)

    @pytest.mark.parametrize("mode", MODES)
    def test_nothing_is_left_that_could_turn_it_again(self, mode: str) -> None:
        image = MODES[mode][0]()
        image.info["exif"] = exif_of(6).tobytes()
        seen = open_image(image)
        assert seen.info == {}
        assert dict(seen.getexif()) == {}
        np.testing.assert_array_equal(pixels(open_image(seen)), pixels(seen))


class TestOrientation:
    @pytest.mark.parametrize("orientation", ORIENTATIONS)
    @pytest.mark.parametrize("kind", ["PNG", "TIFF", "WEBP"])
    @pytest.mark.parametrize("entry", ["path", "str", "bytes", "PIL"])
    def test_a_file_is_upright_on_every_way_in(
        self, tmp_path: Path, kind: str, orientation: int, entry: str
    ) -> None:
        path = tmp_path / "photo"
        options = {"lossless": True} if kind == "WEBP" else {}
        photo = Image.fromarray(np.ascontiguousarray(stored(COLOURS, orientation)))
        photo.save(path, kind, exif=exif_of(orientation), **options)
        source: Any = {"path": path, "str": str(path), "bytes": path.read_bytes()}.get(entry)
        if entry == "PIL":
            with Image.open(path) as source:
                seen = open_image(source)
        else:
            seen = open_image(source)
        np.testing.assert_array_equal(pixels(seen), COLOURS)

    @pytest.mark.parametrize("orientation", ORIENTATIONS)
    @pytest.mark.parametrize("kind", ["JPEG", "AVIF"])
    def test_a_lossy_file_is_upright(self, kind: str, orientation: int) -> None:
        upright = np.zeros((32, 64, 3), np.uint8)
        upright[:16, :32] = 255  # the bright corner is top left
        photo = Image.fromarray(np.ascontiguousarray(stored(upright, orientation)))
        seen = open_image(encoded(photo, kind, exif=exif_of(orientation), quality=90))
        assert seen.size == (64, 32)
        assert off_by(seen, upright) < 60

    def test_the_orientation_of_xmp_counts(self) -> None:
        image = of_raw("RGB", COLOURS)
        image.info["xmp"] = b'<rdf:Description tiff:Orientation="6"/>'
        np.testing.assert_array_equal(stored(pixels(open_image(image)), 6), COLOURS)

    @pytest.mark.parametrize("broken", [b"", b"Exif\0\0junk", b"Exif\0\0II*\0\xff\xff\xff\xff"])
    def test_broken_metadata_hides_no_pixel(self, broken: bytes) -> None:
        image = of_raw("RGB", COLOURS)
        image.info["exif"] = broken
        np.testing.assert_array_equal(pixels(open_image(image)), COLOURS)
        np.testing.assert_array_equal(
            pixels(open_image(encoded(of_raw("RGB", COLOURS), "PNG", exif=broken))), COLOURS
        )

    @pytest.mark.parametrize("orientation", [0, 9, 4711])
    def test_an_orientation_that_is_none_turns_nothing(self, orientation: int) -> None:
        image = of_raw("RGB", COLOURS)
        image.info["exif"] = exif_of(orientation).tobytes()
        np.testing.assert_array_equal(pixels(open_image(image)), COLOURS)


class TestFiles:
    @pytest.mark.parametrize("kind", ["PNG", "TIFF", "BMP", "PPM", "GIF", "QOI", "TGA", "PCX"])
    def test_a_lossless_format_comes_in_pixel_by_pixel(self, tmp_path: Path, kind: str) -> None:
        path = tmp_path / "image"
        image = palette_image() if kind == "GIF" else of_raw("RGB", COLOURS)
        image.save(path, kind)
        expected = PALETTE[INDICES] if kind == "GIF" else COLOURS
        np.testing.assert_array_equal(pixels(open_image(path)), expected)

    @pytest.mark.parametrize("kind", ["JPEG", "WEBP", "AVIF", "JPEG2000"])
    def test_a_lossy_format_comes_in_nearly(self, kind: str) -> None:
        flat = np.full((32, 32, 3), (200, 120, 40), np.uint8)
        options = {} if kind == "JPEG2000" else {"quality": 95}
        assert off_by(open_image(encoded(Image.fromarray(flat), kind, **options)), flat) < 8

    @pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGBA", "I;16", "P, alpha by index"])
    def test_a_png_of_every_kind(self, tmp_path: Path, mode: str) -> None:
        make, expected, _ = MODES[mode]
        path = tmp_path / "image.png"
        make().save(path)
        np.testing.assert_array_equal(pixels(open_image(path)), expected)

    @pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGBA", "I;16", "I;16B", "CMYK", "LAB"])
    def test_a_tiff_of_every_kind(self, mode: str) -> None:
        make, expected, tolerance = MODES[mode]
        assert off_by(open_image(encoded(make(), "TIFF")), expected) <= tolerance

    def test_cmyk_jpegs_of_adobe_are_not_a_negative(self) -> None:
        flat = np.full((32, 32, 4), (0, 255, 255, 0), np.uint8)  # magenta and yellow make red
        cmyk = Image.frombytes("CMYK", (32, 32), flat.tobytes())
        data = encoded(cmyk, "JPEG", quality=95)
        assert b"Adobe" in data  # Pillow writes them inverted, as Photoshop does
        assert off_by(open_image(data), from_cmyk(flat)) < 12

    @pytest.mark.parametrize("kind", ["GIF", "PNG", "WEBP", "TIFF", "AVIF"])
    def test_an_animation_shows_its_first_frame(self, kind: str) -> None:
        frames = [Image.new("RGB", (32, 32), colour) for colour in ("red", "lime", "blue")]
        options: dict[str, Any] = {"lossless": True} if kind == "WEBP" else {}
        data = encoded(frames[0], kind, save_all=True, append_images=frames[1:], **options)
        with Image.open(io.BytesIO(data)) as animation:
            assert animation.n_frames == 3
        assert off_by(open_image(data), np.asarray(frames[0])) < 8

    def test_a_pil_animation_shows_the_frame_it_stands_at(self) -> None:
        frames = [Image.new("RGB", (8, 8), colour) for colour in ("red", "lime", "blue")]
        data = encoded(frames[0], "TIFF", save_all=True, append_images=frames[1:])
        with Image.open(io.BytesIO(data)) as animation:
            animation.seek(2)
            assert open_image(animation).getpixel((0, 0)) == (0, 0, 255)

    def test_what_a_file_is_called_doesnt_matter(self, tmp_path: Path) -> None:
        path = tmp_path / "really a png.jpg"
        of_raw("RGB", COLOURS).save(path, "PNG")
        np.testing.assert_array_equal(pixels(open_image(path)), COLOURS)

    @pytest.mark.parametrize("size", [(1, 1), (1, 10_000), (10_000, 1), (3, 2)])
    @pytest.mark.parametrize("mode", ["RGB", "L", "RGBA", "1", "P"])
    def test_every_shape_opens(self, size: tuple[int, int], mode: str) -> None:
        seen = open_image(encoded(Image.new(mode, size), "PNG"))
        assert (seen.mode, seen.size) == ("RGB", size)

    def test_the_file_is_closed_and_may_change(self, tmp_path: Path) -> None:
        path = tmp_path / "image.bmp"  # Pillow maps such files into memory
        of_raw("RGB", COLOURS).save(path)
        seen = open_image(path)
        path.write_bytes(b"\0" * path.stat().st_size)
        np.testing.assert_array_equal(pixels(seen), COLOURS)


class TestArrays:
    @pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.int32, np.int64])
    def test_grey_bytes_of_any_integer_type(self, dtype: type) -> None:
        values = GREY.astype(dtype) * (257 if dtype == np.uint16 else 1)
        np.testing.assert_array_equal(pixels(open_image(values)), grey(GREY))
        np.testing.assert_array_equal(pixels(open_image(values[..., None])), grey(GREY))

    @pytest.mark.parametrize("dtype", ["<u2", ">u2"])
    def test_16_bits_are_scaled_not_clipped(self, dtype: str) -> None:
        np.testing.assert_array_equal(pixels(open_image(DEEP.astype(dtype))), grey(DEEP / 257))

    @pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
    @pytest.mark.parametrize("white", [1, 255])
    def test_floats_go_to_1_or_to_255(self, dtype: type, white: int) -> None:
        values = (COLOURS / 255 * white).astype(dtype)
        np.testing.assert_array_equal(pixels(open_image(values)), COLOURS)

    def test_colours_alpha_and_booleans(self) -> None:
        np.testing.assert_array_equal(pixels(open_image(COLOURS)), COLOURS)
        see_through = np.dstack([COLOURS, ALPHA])
        np.testing.assert_array_equal(pixels(open_image(see_through)), on_white(COLOURS))
        np.testing.assert_array_equal(pixels(open_image(GREY > 127)), grey(HALVES))

    def test_views_and_channels_first_are_read_right(self) -> None:
        first = np.moveaxis(COLOURS, -1, 0)
        np.testing.assert_array_equal(pixels(open_image(first)), COLOURS)
        np.testing.assert_array_equal(pixels(open_image(COLOURS[::-1, ::2])), COLOURS[::-1, ::2])

    def test_where_both_ends_could_be_channels_the_custom_decides(self) -> None:
        cube = noise(3, 6, 4)
        alpha = cube[..., 3:]
        np.testing.assert_array_equal(pixels(open_image(cube)), on_white(cube[..., :3], alpha))
        seen = open_image(torch.from_numpy(cube))
        np.testing.assert_array_equal(pixels(seen), np.moveaxis(cube, 0, -1))

    @pytest.mark.parametrize("dtype", [torch.uint8, torch.float32, torch.float64])
    def test_torch_tensors(self, dtype: torch.dtype) -> None:
        tensor = torch.from_numpy(COLOURS).permute(2, 0, 1).to(dtype)
        if dtype.is_floating_point:
            tensor = (tensor / 255).requires_grad_()
        np.testing.assert_array_equal(pixels(open_image(tensor)), COLOURS)

    def test_a_bfloat16_tensor(self) -> None:
        tensor = (torch.from_numpy(GREY) > 127).to(torch.bfloat16)
        np.testing.assert_array_equal(pixels(open_image(tensor)), grey(HALVES))

    @pytest.mark.parametrize(
        ("array", "words"),
        [
            (np.zeros((0, 5)), ("without pixels", "0x5")),
            (np.zeros((5, 0, 3), np.uint8), ("without pixels", "5x0x3")),
            (np.zeros(5), ("shape 5,",)),
            (np.zeros(()), ("a single number",)),
            (np.zeros((5, 6, 2)), ("shape 5x6x2",)),
            (np.zeros((2, 5, 6, 3)), ("shape 2x5x6x3", "1, 3 or 4")),
            (np.full((5, 6), np.nan), ("30 values that are NaN or infinite",)),
            (np.full((5, 6), np.inf, np.float16), ("30 values",)),
            (np.full((5, 6), -0.5), ("-0.5", "0..1 or 0..255")),
            (np.full((5, 6), 256.0), ("256", "0..1 or 0..255")),
            (np.full((5, 6), -1), ("-1", "0..255 or 0..65535")),
            (np.full((5, 6), 65536), ("65536", "0..255 or 0..65535")),
            (np.full((5, 6), 1j), ("complex128",)),
            (np.full((5, 6), "x"), ("<U1",)),
            (np.full((5, 6), None), ("object",)),
            ([[1, 2]], ("list", "a NumPy array")),
            (None, ("NoneType",)),
            (7, ("int",)),
        ],
    )
    def test_what_is_no_image_is_refused(self, array: Any, words: tuple[str, ...]) -> None:
        refused(array, *words)

    def test_pil_images_of_floats_are_checked_too(self) -> None:
        refused(Image.fromarray(np.full((5, 6), np.nan, np.float32)), "30 values that are NaN")
        refused(Image.fromarray(np.full((5, 6), 70_000, np.int32)), "70000", "0..65535")


def png_of(width: int, height: int) -> bytes:
    """A PNG that promises this size and holds one row of it, written by hand."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return (
            struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        )

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    data = zlib.compress(b"\0" * (1 + width))
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", data) + chunk(b"IEND", b"")
    )


class TestRefused:
    @pytest.mark.parametrize("kind", ["PNG", "JPEG", "GIF", "WEBP", "TIFF", "BMP", "PPM", "AVIF"])
    @pytest.mark.parametrize("part", [0.1, 0.5, 0.9])
    def test_a_truncated_file_fails_at_the_door(
        self, tmp_path: Path, kind: str, part: float
    ) -> None:
        data = encoded(Image.fromarray(noise(64, 64, 3)), kind)
        path = tmp_path / f"cut.{kind.lower()}"
        path.write_bytes(data[: int(len(data) * part)])
        message = refused(path, str(path))
        assert "truncated" in message
        refused(path.read_bytes(), "image: ")

    def test_a_truncated_pil_image_fails_at_the_door_too(self, tmp_path: Path) -> None:
        data = encoded(Image.fromarray(noise(64, 64, 3)), "JPEG")
        path = tmp_path / "cut.jpg"
        path.write_bytes(data[: len(data) // 2])
        with Image.open(path) as lazy:
            refused(lazy, str(path), "truncated")

    def test_a_closed_pil_image_is_refused(self, tmp_path: Path) -> None:
        path = tmp_path / "image.png"
        of_raw("RGB", COLOURS).save(path)
        with Image.open(path) as image:
            pass
        refused(image, str(path))

    @pytest.mark.parametrize(
        ("content", "words"),
        [
            (b"", ("0 bytes",)),
            (b"what a nice picture\n", ("a text file",)),
            ("ein schönes Bild: €".encode(), ("a text file",)),
            (bytes(range(128, 256)), ("nothing that Pillow can read",)),
            (b'<svg xmlns="http://www.w3.org/2000/svg"/>', ("an SVG drawing",)),
            (b"<?xml version='1.0'?>\n<!-- a -->\n<svg>", ("an SVG drawing",)),
            (b"%PDF-1.7\n", ("a PDF document",)),
            (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", ("a PostScript drawing",)),
            (b"\0\0\0\x18ftypheic\0\0\0\0mif1heic", ("a HEIC photo", "pillow-heif")),
            (b"\xff\xd8\xff", ("truncated",)),
            (b"\x89PNG\r\n\x1a\n", ("truncated",)),
        ],
    )
    def test_a_file_of_something_else(
        self, tmp_path: Path, content: bytes, words: tuple[str, ...]
    ) -> None:
        path = tmp_path / "image.png"
        path.write_bytes(content)
        refused(path, str(path), *words)
        refused(content, "image: ", *words)

    def test_an_open_file_is_named_and_stays_open(self, tmp_path: Path) -> None:
        data = encoded(of_raw("RGB", COLOURS), "PNG")
        refused(io.BytesIO(data), "BytesIO", "a path, bytes")
        path = tmp_path / "image.png"
        path.write_bytes(data)
        with path.open("rb") as file:
            refused(file, "BufferedReader", "a path, bytes")
            assert file.read() == data

    def test_paths_that_lead_nowhere(self, tmp_path: Path) -> None:
        refused(tmp_path, str(tmp_path), "a directory")
        refused(tmp_path / "none.png", "no such file")
        refused("https://example.org/cat.png", "an address", "download it first")
        refused("data:image/png;base64," + "A" * 10_000, "an address", "...")
        refused("", "a directory")
        refused("a\0b", "'a\\x00b'")
        os.mkfifo(tmp_path / "pipe")
        refused(tmp_path / "pipe", "a pipe or a device")

    def test_a_name_of_two_lines_stays_on_one(self, tmp_path: Path) -> None:
        refused(tmp_path / "two\nlines.png", "two\\nlines.png")

    def test_messages_use_the_name_they_are_given(self) -> None:
        assert refused(b"junk", name="page 3").startswith("page 3: ")

    @pytest.mark.parametrize("size", [(0, 0), (0, 5), (5, 0)])
    def test_an_image_without_pixels(self, size: tuple[int, int]) -> None:
        refused(Image.new("RGB", size), "without pixels", f"{size[0]}x{size[1]}")


class TestSize:
    @pytest.mark.parametrize("size", [(20_000, 20_000), (10_000, 10_000)])
    def test_a_bomb_is_refused_by_its_header(self, tmp_path: Path, size: tuple[int, int]) -> None:
        data = png_of(*size)
        assert len(data) < 1000
        path = tmp_path / "bomb.png"
        path.write_bytes(data)
        for source in (path, data):
            refused(source, "too large an image", "PIL.Image.MAX_IMAGE_PIXELS")

    def test_a_lazy_pil_bomb_is_refused_undecoded(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            bomb = Image.open(io.BytesIO(png_of(10_000, 10_000)))
        refused(bomb, "too large an image (10000x10000 pixels)")

    def test_the_limit_is_pillows_and_the_users(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", HEIGHT * WIDTH - 1)
        refused(COLOURS, f"{WIDTH}x{HEIGHT} pixels", f"at most {HEIGHT * WIDTH - 1} pixels")
        monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", HEIGHT * WIDTH)
        assert open_image(COLOURS).size == (WIDTH, HEIGHT)
        monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", None)
        assert open_image(encoded(of_raw("RGB", COLOURS), "PNG")).size == (WIDTH, HEIGHT)

    @pytest.mark.parametrize(
        ("size", "most", "expected"),
        [
            ((100, 50), 5000, (100, 50)),
            ((100, 50), 1250, (50, 25)),
            ((50, 100), 1250, (25, 50)),
            ((1, 10_000), 2500, (1, 2500)),
            ((10_000, 1), 2500, (2500, 1)),
            ((7, 7), 1, (1, 1)),
        ],
    )
    def test_a_large_image_is_scaled_down_and_says_so(
        self, size: tuple[int, int], most: int, expected: tuple[int, int]
    ) -> None:
        image = Image.new("RGB", size, (10, 20, 30))
        if size == expected:
            assert open_image(image, max_pixels=most).size == expected
            return
        told = rf"photo: {size[0]}x{size[1]} pixels scaled down to {expected[0]}x{expected[1]}"
        with pytest.warns(UserWarning, match=told):
            small = open_image(image, name="photo", max_pixels=most)
        assert small.size == expected
        assert small.getpixel((0, 0)) == (10, 20, 30)

    def test_a_limit_below_one_is_no_limit(self) -> None:
        with pytest.raises(OptionError, match="max_pixels=0: expected at least 1"):
            open_image(COLOURS, max_pixels=0)


class TestTheRestOfTheProcess:
    def test_no_switch_of_pillow_and_no_filter_is_left_changed(self) -> None:
        before = (Image.MAX_IMAGE_PIXELS, ImageFile.LOAD_TRUNCATED_IMAGES, list(warnings.filters))
        open_image(COLOURS)
        refused(png_of(10_000, 10_000))
        refused(b"junk")
        after = (Image.MAX_IMAGE_PIXELS, ImageFile.LOAD_TRUNCATED_IMAGES, list(warnings.filters))
        assert after == before

    def test_threads_leave_the_filters_as_they_were(self) -> None:
        before, data = list(warnings.filters), encoded(of_raw("RGB", COLOURS), "PNG")
        seen: list[np.ndarray] = []
        work = lambda: seen.extend(pixels(open_image(data)) for _ in range(20))  # noqa: E731
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert list(warnings.filters) == before
        assert len(seen) == 80
        assert all((image == COLOURS).all() for image in seen)


class TestSeveral:
    @pytest.mark.parametrize("nothing", [None, [], ()])
    def test_no_images_are_no_images(self, nothing: Any) -> None:
        assert open_images(nothing) == []

    def test_each_is_opened_in_order(self, tmp_path: Path) -> None:
        path = tmp_path / "image.png"
        of_raw("RGB", COLOURS).save(path)
        opened = open_images([path, GREY, of_raw("RGB", COLOURS)])
        expected = [COLOURS, grey(GREY), COLOURS]
        for image, colours in zip(opened, expected, strict=True):
            np.testing.assert_array_equal(pixels(image), colours)

    def test_a_bad_one_is_named_by_path_or_number(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match=r"^image 2 of 3: found list"):
            open_images([GREY, [1], GREY])
        with pytest.raises(InputError, match=r"none\.png: found nothing there"):
            open_images([GREY, tmp_path / "none.png"])

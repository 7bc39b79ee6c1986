"""Documents in: PDFs, TIFFs and images page by page, and every way in which a page can be bad."""

from __future__ import annotations

import io
import math
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import ExifTags, Image

from mmspec.errors import InputError, OptionError
from mmspec.modalities.media import documents
from mmspec.modalities.media.documents import BadPage, Page, pages
from tests.modalities.pdfs import (
    CATALOG,
    document,
    encrypted,
    kids,
    leaf,
    pdf,
    stream,
    text,
)

RED_CORNER = b"1 0 0 rg 0 692 100 100 re f"  # upper left of a letter page: PDF counts from below


def good(page: Page | BadPage) -> Page:
    assert isinstance(page, Page)
    assert page.image.mode == "RGB"
    return page


def bad(page: Page | BadPage, *words: str) -> str:
    assert isinstance(page, BadPage)
    message = str(page.error)
    assert "\n" not in message
    for word in ("found ", "expected ", *words):
        assert word in message
    return message


def refused(source: Any, *words: str, **options: Any) -> None:
    """At the call, before any page is asked for."""
    with pytest.raises(InputError, match=r"found .+, expected ") as caught:
        pages(source, **options)
    message = str(caught.value)
    assert "\n" not in message
    for word in words:
        assert word in message


def tiff(*images: Image.Image, **options: Any) -> bytes:
    buffer = io.BytesIO()
    images[0].save(buffer, "TIFF", save_all=True, append_images=images[1:], **options)
    return buffer.getvalue()


def plain(*colours: str) -> list[Image.Image]:
    return [Image.new("RGB", (30 + n, 20), colour) for n, colour in enumerate(colours)]


class TestPdfs:
    @pytest.mark.parametrize("as_path", [True, False])
    def test_pages_come_with_picture_and_text(self, tmp_path: Path, as_path: bool) -> None:
        data = document(text("One", "line two"), RED_CORNER, text("Three"))
        path = tmp_path / "paper.pdf"
        path.write_bytes(data)
        found = [good(page) for page in pages(path if as_path else data)]
        assert [page.number for page in found] == [1, 2, 3]
        assert [page.text.strip() for page in found] == ["One\nline two", "", "Three"]
        assert [page.dpi for page in found] == [pytest.approx(200)] * 3
        assert {page.image.size for page in found} == {(1700, 2200)}

    def test_the_picture_is_what_is_drawn(self) -> None:
        (page,) = pages(document(RED_CORNER), dpi=72)
        pixels = np.asarray(good(page).image)
        assert pixels.shape == (792, 612, 3)
        expected = np.full((792, 612, 3), 255, np.uint8)
        expected[:100, :100] = (255, 0, 0)
        np.testing.assert_array_equal(pixels, expected)

    def test_a_page_that_lies_on_its_side_is_turned(self) -> None:
        (page,) = pages(document(RED_CORNER, more=b"/Rotate 90"), dpi=72)
        pixels = np.asarray(good(page).image)
        assert pixels.shape == (612, 792, 3)
        assert (pixels[:100, -100:] == (255, 0, 0)).all()  # turned clockwise

    @pytest.mark.parametrize("dpi", [36, 72, 150.5])
    def test_the_resolution_is_the_callers(self, dpi: float) -> None:
        (page,) = pages(document(RED_CORNER), dpi=dpi)
        assert good(page).dpi == pytest.approx(dpi)
        expected = (math.ceil(612 * dpi / 72), math.ceil(792 * dpi / 72))
        assert page.image.size == expected

    @pytest.mark.parametrize("dpi", [0, -1, math.nan, math.inf])
    def test_no_resolution_at_all(self, dpi: float) -> None:
        with pytest.raises(OptionError, match="expected a number above 0"):
            pages(document(RED_CORNER), dpi=dpi)

    def test_pages_are_rendered_one_at_a_time(self, monkeypatch: pytest.MonkeyPatch) -> None:
        rendered = []
        really = documents._rendered
        monkeypatch.setattr(
            documents, "_rendered", lambda *args: rendered.append(args[1]) or really(*args)
        )
        found = pages(document(*[RED_CORNER] * 3), dpi=10)
        assert rendered == []
        assert next(found).number == 1
        assert rendered == [1]
        found.close()
        assert rendered == [1]

    @pytest.mark.parametrize("box", [(0, 0, 1e6, 1e6), (0, 0, 1e9, 1), (0, 0, 1, 1e9)])
    def test_a_page_of_gigantic_size_stays_within_memory(
        self, monkeypatch: pytest.MonkeyPatch, box: tuple[float, ...]
    ) -> None:
        monkeypatch.setattr(documents, "MOST_PIXELS", 1_000_000)
        (page,) = pages(document(b"", box=box))
        width, height = good(page).image.size
        assert width * height < 1_003_000  # a side is rounded up
        assert max(width, height) <= documents.LONGEST_SIDE
        assert page.dpi is not None
        assert page.dpi < 200

    def test_a_hyphen_at_the_end_of_a_line_stays_there(self) -> None:
        (page,) = pages(document(text("hyphen-", "ated word", "and more")))
        assert good(page).text.strip() == "hyphen-\nated word\nand more"

    def test_bytes_before_the_header_are_allowed(self) -> None:
        (page,) = pages(b"from a mail\n" + document(text("Hello")), dpi=10)
        assert good(page).text == "Hello"

    def test_what_was_filled_into_a_form_is_seen(self) -> None:
        look = stream(b"0 0 1 rg 0 0 100 100 re f").replace(
            b"<<", b"<</Type/XObject/Subtype/Form/BBox[0 0 100 100]", 1
        )
        field = (
            b"<</Type/Annot/Subtype/Widget/FT/Tx/T(name)/F 4/P 3 0 R"
            b"/Rect[0 692 100 792]/V(x)/AP<</N 6 0 R>>>>"
        )
        catalog = b"<</Type/Catalog/Pages 2 0 R/AcroForm<</Fields[5 0 R]>>>>"
        page = leaf(4, more=b"/Annots[5 0 R]")
        (seen,) = pages(pdf([catalog, kids(3), page, stream(b""), field, look]), dpi=72)
        assert good(seen).image.getpixel((50, 50)) == (0, 0, 255)

    def test_pdfs_that_pillow_writes(self) -> None:
        buffer = io.BytesIO()
        first, second = plain("red", "blue")
        first.save(buffer, "PDF", save_all=True, append_images=[second], resolution=72)
        found = [good(page) for page in pages(buffer.getvalue(), dpi=72)]
        assert [page.image.size for page in found] == [(30, 20), (31, 20)]
        assert [page.text for page in found] == ["", ""]
        red, _, blue = found[1].image.getpixel((15, 10))
        assert (red, blue) == pytest.approx((0, 255), abs=5)

    def test_threads_take_turns(self) -> None:
        data, found = document(*[text(f"page {n}") for n in range(5)]), []
        work = lambda: found.append([page.text for page in pages(data, dpi=20)])  # noqa: E731
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert found == [[f"page {n}" for n in range(5)]] * 4


class TestBadPdfs:
    @pytest.mark.parametrize("missing", [9, 6])  # no such object; an object that is no page
    def test_the_other_pages_go_on(self, tmp_path: Path, missing: int) -> None:
        objects = [CATALOG, kids(3, missing, 5), leaf(4), stream(text("fine")), leaf(4), b"42"]
        path = tmp_path / "paper.pdf"
        path.write_bytes(pdf(objects))
        first, second, third = pages(path)
        assert (good(first).text, good(third).text) == ("fine", "fine")
        assert (first.number, second.number, third.number) == (1, 2, 3)
        bad(second, f"{path}, page 2: ", "can't be rendered")

    def test_a_page_without_content_is_white(self) -> None:
        (page,) = pages(pdf([CATALOG, kids(3), leaf(9)]), dpi=10)
        assert good(page).image.getextrema() == ((255, 255),) * 3

    def test_a_page_without_a_size_is_letter_paper(self) -> None:
        (page,) = pages(document(b"", box=(0, 0, 0, 0)), dpi=72)
        assert good(page).image.size == (612, 792)

    @pytest.mark.parametrize("part", [0.1, 0.5, 0.8])
    def test_a_truncated_file(self, tmp_path: Path, part: float) -> None:
        data = document(text("Hello"))
        path = tmp_path / "cut.pdf"
        path.write_bytes(data[: int(part * len(data))])
        refused(path, str(path), "a damaged or truncated PDF")

    def test_no_pages(self) -> None:
        refused(pdf([CATALOG, kids()]), "document: ", "a PDF without pages")

    def test_a_password(self) -> None:
        data = encrypted("open sesame", text("secret"))
        refused(data, "an encrypted PDF", "a password for it (password=)")
        refused(data, "an encrypted PDF", "another password", password="open barley")
        (page,) = pages(data, password="open sesame")
        assert good(page).text == "secret"

    def test_a_password_that_isnt_needed(self) -> None:
        (page,) = pages(document(text("public")), password="x")
        assert good(page).text == "public"

    def test_a_lock_that_nobody_knows(self) -> None:
        objects = [CATALOG, kids(3), leaf(4), stream(b""), b"<</Filter/Foo/V 1>>"]
        refused(pdf(objects, b"/Encrypt 5 0 R"), "encrypted in a way that PDFium doesn't know")


class TestImages:
    @pytest.mark.parametrize("as_path", [True, False])
    def test_every_page_of_a_tiff(self, tmp_path: Path, as_path: bool) -> None:
        images = plain("red", "lime", "blue")
        path = tmp_path / "fax"
        path.write_bytes(tiff(*images))
        found = [good(page) for page in pages(path if as_path else path.read_bytes())]
        assert [page.number for page in found] == [1, 2, 3]
        for page, image in zip(found, images, strict=True):
            assert page.image.size == image.size
            assert page.image.getpixel((3, 3)) == image.getpixel((3, 3))
            assert (page.text, page.dpi) == ("", None)

    def test_each_page_has_its_own_orientation(self) -> None:
        first, second = plain("red", "red")
        first.encoderinfo = {"tiffinfo": {ExifTags.Base.Orientation: 1}}
        second.encoderinfo = {"tiffinfo": {ExifTags.Base.Orientation: 6}}
        found = [good(page).image.size for page in pages(tiff(first, second))]
        assert found == [(30, 20), (20, 31)]

    @pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "TIFF", "GIF"])
    def test_any_image_is_one_page(self, kind: str) -> None:
        buffer = io.BytesIO()
        plain("red")[0].save(buffer, kind)
        (page,) = pages(buffer.getvalue())
        assert (page.number, good(page).image.size) == (1, (30, 20))

    def test_an_animation_is_one_page(self) -> None:
        buffer = io.BytesIO()
        first, *others = plain("black", "white", "white")
        first.save(buffer, "GIF", save_all=True, append_images=others)
        (page,) = pages(buffer.getvalue())
        assert good(page).image.getextrema() == ((0, 0),) * 3

    def test_pictures_and_arrays_are_one_page(self) -> None:
        for source in (plain("red")[0], np.zeros((20, 30), np.uint8)):
            (page,) = pages(source)
            assert good(page).image.size == (30, 20)

    def test_a_damaged_page_of_a_tiff(self, tmp_path: Path) -> None:
        noise = np.random.default_rng(3).integers(0, 256, (3, 40, 40, 3), np.uint8)
        path = tmp_path / "fax.tif"
        data = bytearray(tiff(*map(Image.fromarray, noise), compression="tiff_deflate"))
        with Image.open(io.BytesIO(data)) as file:
            file.seek(1)
            at = file.tag_v2[ExifTags.Base.StripOffsets][0]
        data[at : at + 40] = b"\xff" * 40
        path.write_bytes(data)
        first, second, third = pages(path)
        np.testing.assert_array_equal(np.asarray(good(first).image), noise[0])
        bad(second, f"{path}, page 2: ", "damaged or truncated")
        np.testing.assert_array_equal(np.asarray(good(third).image), noise[2])

    def test_a_tiff_that_ends_too_soon(self) -> None:
        data = tiff(*plain("red", "lime", "blue"))
        found = list(pages(data[: len(data) * 3 // 5]))
        assert isinstance(found[0], Page)
        bad(found[-1], "document, page ", "truncated")

    def test_a_truncated_image_is_a_bad_page(self) -> None:
        buffer = io.BytesIO()
        noise = np.random.default_rng(3).integers(0, 256, (64, 64, 3), np.uint8)
        Image.fromarray(noise).save(buffer, "JPEG")
        (page,) = pages(buffer.getvalue()[:1000])
        bad(page, "document: ", "truncated")

    def test_what_is_no_document_is_refused_at_the_call(self, tmp_path: Path) -> None:
        (tmp_path / "empty.pdf").touch()
        refused(tmp_path / "empty.pdf", "0 bytes")
        refused(tmp_path / "none.pdf", "no such file")
        refused(tmp_path, "a directory")
        refused(b"Dear Sir,", "document: ", "a text file")
        refused(b"", "0 bytes")
        refused(7, "int")
        refused("https://example.org/paper.pdf", "an address")


def test_a_crop_box_outside_the_sheet_shows_the_whole_sheet() -> None:
    outside = b"/CropBox[900 900 990 990]"
    sheets = [
        pdf([CATALOG, kids(3, 4), leaf(5), leaf(5, more=more), stream(RED_CORNER)])
        for more in (b"", outside)
    ]
    for sheet in sheets:
        first, second = map(good, pages(sheet, dpi=36))
        assert first.image.size == second.image.size
        np.testing.assert_array_equal(np.asarray(first.image), np.asarray(second.image))


def test_a_page_that_a_library_stumbles_over_is_one_bad_page(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real, calls = documents._scale, []

    def stumbling(*args: float) -> float:
        calls.append(args)
        return real(*args) if len(calls) != 2 else 1 // 0

    monkeypatch.setattr(documents, "_scale", stumbling)
    found = list(pages(document(RED_CORNER, RED_CORNER, RED_CORNER), dpi=36))
    assert [type(page) for page in found] == [Page, BadPage, Page]
    bad(found[1], "can't be rendered")

"""What Tesseract, a text layer or the caller says of a page, and every way not to be able to."""

from __future__ import annotations

import difflib
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from PIL import Image, ImageDraw, ImageFont

from mmspec.errors import DraftError, MMSpecError, OptionError
from mmspec.modalities.media.documents import Page, pages
from mmspec.tasks.vlm.ocr import (
    Reading,
    given_reading,
    languages,
    read_image,
    read_page,
    tidy,
)
from tests.modalities.pdfs import document, text

needs_tesseract = pytest.mark.skipif(
    shutil.which("tesseract") is None, reason="Tesseract isn't installed (tesseract-ocr)"
)


def written(*lines: str, size: int = 13, margin: int = 3) -> Image.Image:
    font = ImageFont.load_default(size)
    width = round(max(font.getlength(line) for line in lines)) + 2 * margin
    image = Image.new("RGB", (width, round(1.3 * size) * len(lines) + 2 * margin), "white")
    draw = ImageDraw.Draw(image)
    for n, line in enumerate(lines):
        draw.text((margin, margin + n * round(1.3 * size)), line, font=font, fill="black")
    return image


def alike(read: str, written: str) -> float:
    """1 where they are equal; how well Tesseract reads is not what is tested."""
    return difflib.SequenceMatcher(None, read, written).ratio()


BLANK = Image.new("RGB", (40, 20), "white")


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Puts a script in the place of Tesseract, or nothing at all."""

    def put(script: str | None) -> Path:
        (tmp_path / "bin").mkdir()
        if script is not None:
            program = tmp_path / "bin" / "tesseract"
            program.write_text(f"#!/bin/sh\n{script}\n")
            program.chmod(0o755)
        # the shell's own tools stay where they are: a script names them by their full path
        monkeypatch.setenv("PATH", str(tmp_path / "bin"))
        return tmp_path

    return put


def refused(error: type[MMSpecError], *words: str, **options: Any) -> None:
    with pytest.raises(error, match=words[0]) as caught:
        read_image(BLANK, **options)
    message = str(caught.value)
    assert "\n" not in message
    for word in words:
        assert word in message


@needs_tesseract
class TestTesseract:
    @pytest.mark.parametrize("size", [9, 13, 16, 40])
    def test_a_line_is_read(self, size: int) -> None:
        line = "Invoice 42 is due in March"
        reading = read_image(written(line, size=size))
        assert reading.source == "tesseract"
        assert alike(reading.text, line) > 0.9

    @pytest.mark.parametrize("word", ["Hi", "cat", "No"])
    def test_one_short_word_is_read(self, word: str) -> None:
        assert read_image(written(word)).text == word

    def test_lines_are_kept(self) -> None:
        lines = ["The quick brown fox", "jumps over the lazy dog", "near seven old mills"]
        read = read_image(written(*lines, size=16)).text.splitlines()
        assert len(read) == 3
        assert min(map(alike, read, lines)) > 0.9

    def test_a_page_is_read(self) -> None:
        (page,) = pages(document(text("Dear reader,", "this is a whole page.")))
        assert isinstance(page, Page)
        read = read_page(page, "tesseract").text
        assert alike(read, "Dear reader,\nthis is a whole page.") > 0.9

    def test_an_empty_page_is_empty(self) -> None:
        assert read_image(BLANK) == Reading("", "tesseract")

    @pytest.mark.parametrize("size", [(1, 1), (1, 3000), (3000, 1)])
    def test_odd_shapes_are_empty_too(self, size: tuple[int, int]) -> None:
        assert read_image(Image.new("RGB", size, "white")).text == ""

    @pytest.mark.parametrize("language", ["klingon", "eng+klingon"])
    def test_a_language_that_isnt_there(self, language: str) -> None:
        refused(OptionError, "no data for klingon", "installed are", "eng", language=language)

    def test_the_languages_that_are_there(self) -> None:
        assert "eng" in languages()
        assert not any(" " in language for language in languages())

    def test_an_image_that_is_too_wide_for_it(self) -> None:
        with pytest.raises(DraftError, match="Tesseract failed: Image too large"):
            read_image(Image.new("RGB", (40_000, 60), "white"))


class TestHowItIsAsked:
    def asked(self, stand_in: Any, image: Image.Image, **options: Any) -> tuple[list[str], bytes]:
        folder = stand_in('echo "$@" > "${0%/bin/*}/asked"; /bin/cat > "${0%/bin/*}/given"')
        read_image(image, **options)
        return (folder / "asked").read_text().split(), (folder / "given").read_bytes()

    def test_a_small_image_is_doubled_and_one_block(self, stand_in: Any) -> None:
        arguments, picture = self.asked(stand_in, BLANK)
        assert arguments == ["stdin", "stdout", "-l", "eng", "--psm", "6"]
        assert picture.startswith(b"P5\n80 40\n255\n")

    def test_a_page_is_taken_as_it_is(self, stand_in: Any) -> None:
        arguments, picture = self.asked(stand_in, Image.new("RGB", (1000, 1000)))
        assert arguments[-2:] == ["--psm", "3"]
        assert picture.startswith(b"P5\n1000 1000\n255\n")

    def test_the_caller_may_know_better(self, stand_in: Any) -> None:
        arguments, _ = self.asked(stand_in, BLANK, language="deu+eng", layout=7)
        assert arguments == ["stdin", "stdout", "-l", "deu+eng", "--psm", "7"]

    def test_it_takes_one_core(self, stand_in: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("OMP_THREAD_LIMIT", raising=False)
        stand_in('echo "$OMP_THREAD_LIMIT"')
        assert read_image(BLANK).text == "1"
        assert "OMP_THREAD_LIMIT" not in os.environ


class TestFailures:
    def test_not_installed(self, stand_in: Any) -> None:
        stand_in(None)
        refused(OptionError, "Tesseract isn't installed", "apt install tesseract-ocr")
        with pytest.raises(OptionError, match="isn't installed"):
            languages()

    def test_too_slow(self, stand_in: Any) -> None:
        stand_in("exec /bin/sleep 20")
        refused(DraftError, "longer than 0.05 s", "timeout_s=", timeout_s=0.05)

    @pytest.mark.parametrize(
        ("script", "words"),
        [
            ("echo 'out of\nluck' >&2; exit 3", "Tesseract failed: out of luck"),
            ("exit 3", "Tesseract failed: exit code 3"),
            ("kill -9 $$", "Tesseract failed: exit code -9"),
        ],
    )
    def test_it_fails(self, stand_in: Any, script: str, words: str) -> None:
        stand_in(script)
        refused(DraftError, words)

    def test_it_cant_be_run(self, stand_in: Any) -> None:
        program = stand_in("exit") / "bin" / "tesseract"
        program.write_bytes(b"no program")
        refused(DraftError, "Tesseract can't be run")

    @pytest.mark.parametrize("layout", [-1, 0, 2, 14])
    def test_a_layout_that_reads_nothing(self, layout: int) -> None:
        refused(OptionError, f"layout={layout}: expected", layout=layout)

    def test_a_reader_that_doesnt_exist(self) -> None:
        with pytest.raises(OptionError, match="reader='eyes': expected 'auto', 'tesseract' or"):
            read_page(Page(1, BLANK), "eyes")  # type: ignore[arg-type]


class TestWhoReads:
    def test_the_text_layer_goes_first(self, stand_in: Any) -> None:
        stand_in("echo misread")
        page = Page(1, BLANK, text="as it is written \n")
        assert read_page(page) == Reading("as it is written", "pdf text layer")
        assert read_page(page, "tesseract") == Reading("misread", "tesseract")
        assert read_page(page, "pdf text layer").source == "pdf text layer"

    @pytest.mark.parametrize("layer", ["", " \n\n", "\f"])
    def test_without_one_tesseract_reads(self, stand_in: Any, layer: str) -> None:
        stand_in("echo seen")
        page = Page(1, BLANK, text=layer)
        assert read_page(page) == Reading("seen", "tesseract")
        nothing = read_page(page, "pdf text layer")
        assert nothing == Reading("", "pdf text layer", "the page has no text layer")

    @pytest.mark.parametrize("script", [None, "exit 3", "exec /bin/sleep 20"])
    def test_auto_never_fails_and_says_why(self, stand_in: Any, script: str | None) -> None:
        stand_in(script)
        reading = read_page(Page(1, BLANK), timeout_s=0.1)
        assert (reading.text, reading.source) == ("", "tesseract")
        assert reading.reason.startswith("Tesseract ")
        with pytest.raises(MMSpecError, match="Tesseract"):
            read_page(Page(1, BLANK), "tesseract", timeout_s=0.1)

    def test_the_callers_text_is_tidied(self) -> None:
        assert given_reading("One \r\n two\f") == Reading("One\n two", "caller")


@pytest.mark.parametrize(
    ("messy", "neat"),
    [
        ("", ""),
        (" \n\f\n ", ""),
        ("one  \ntwo\t\n", "one\ntwo"),
        ("one\r\ntwo\rthree", "one\ntwo\nthree"),
        ("one\n \n\n \ntwo", "one\n\ntwo"),
        ("one\n\ntwo", "one\n\ntwo"),
        ("  indented\n  code", "  indented\n  code"),
        ("page\fnext", "page\nnext"),
        ("e\ufb03cient \ufb02uff\u00a0here hy\u00adphen", "efficient fluff here hyphen"),
        ("x² ½ é", "x² ½ é"),
    ],
)
def test_tidy(messy: str, neat: str) -> None:
    assert tidy(messy) == neat
    assert tidy(neat) == neat

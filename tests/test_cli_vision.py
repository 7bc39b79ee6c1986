"""`mmspec caption` and `mmspec ocr`: texts in order, one line per fault, the rest done."""

from __future__ import annotations

import io
import json
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import mmspec
from mmspec.modalities import ADAPTERS
from mmspec.output.formats import one_line
from tests.cli_support import Here
from tests.modalities.pdfs import document, encrypted, text
from tests.modalities.tiny_looking import picture, saved

FEW = ("--max-new-tokens", 6)


@dataclass(frozen=True)
class Place:
    """Tiny checkpoints, images, a document of two pages."""

    target: Path
    drafter: Path
    images: tuple[Path, ...]
    document: Path


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    folder = tmp_path_factory.mktemp("place")
    images = tuple(folder / f"image{number}.png" for number in range(3))
    for seed, path in enumerate(images):
        picture(seed).save(path)
    (folder / "paper.pdf").write_bytes(document(text("one"), text("two")))
    return Place(
        saved(folder / "target", "qwen2_vl"),
        saved(folder / "drafter", "qwen2_vl", seed=1, layers=2),
        images,
        folder / "paper.pdf",
    )


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Here:
    return Here(capsys)


@pytest.fixture(scope="module")
def said(place: Place) -> dict[str, list[str]]:
    """What Python says of the images, by task."""
    with mmspec.load(place.target) as viewer:
        return {
            task: [
                viewer.describe(image, task=task, max_new_tokens=6).text for image in place.images
            ]
            for task in ("caption", "read")
        }


class TestCaption:
    def test_one_line_per_image_in_order(
        self, run: Here, place: Place, said: dict[str, list[str]]
    ) -> None:
        done = run("caption", *place.images, "-t", place.target, *FEW)
        assert (done.code, done.err) == (0, "")
        assert done.out.splitlines() == [one_line(line) for line in said["caption"]]

    def test_drafters_and_company_change_nothing(self, run: Here, place: Place) -> None:
        plain = run("caption", *place.images, "-t", place.target, *FEW)
        for how in (("-d", place.drafter, "--gamma", 2), ("-d", "ngram", "--batch", 2)):
            assert run("caption", *place.images, "-t", place.target, *FEW, *how).out == plain.out

    def test_a_question(self, run: Here, place: Place) -> None:
        done = run("caption", place.images[0], "-t", place.target, *FEW, "--prompt", "Who?")
        with mmspec.load(place.target) as viewer:
            want = viewer.answer(place.images[0], "Who?", max_new_tokens=6).text
        assert done.out == one_line(want) + "\n"

    def test_json(self, run: Here, place: Place, tmp_path: Path) -> None:
        out = tmp_path / "out.json"
        missing = tmp_path / "missing.png"
        files = (place.images[0], missing)
        run("caption", *files, "-t", place.target, *FEW, "--json", out, "--grounding", 1)
        found = json.loads(out.read_text())
        assert found["settings"]["task"] == "caption"
        one, other = found["files"]
        assert (one["task"], one["sizes"]) == ("caption", [[24, 16]])
        assert len(one["grounding"]["drops"]) == len(one["ids"]) == one["report"]["tokens"]
        assert other["error"].startswith(f"{missing}: found nothing there")

    def test_an_earlier_run_drafts(self, run: Here, place: Place, tmp_path: Path) -> None:
        lines, out = tmp_path / "lines.txt", tmp_path / "out.json"
        plain = run("caption", *place.images, "-t", place.target, *FEW)
        lines.write_text(plain.out)
        how = ("-d", f"hypothesis:{lines}", "--gamma", 3, "--json", out)
        assert run("caption", *place.images, "-t", place.target, *FEW, *how).out == plain.out
        reports = [entry["report"] for entry in json.loads(out.read_text())["files"]]
        assert sum(report["accepted"] for report in reports) > 3

    def test_a_file_per_image(self, run: Here, place: Place, tmp_path: Path) -> None:
        plain = run("caption", *place.images, "-t", place.target, *FEW)
        done = run("caption", *place.images, "-t", place.target, *FEW, "-o", tmp_path)
        assert done.out == ""
        written = [(tmp_path / f"image{number}.txt").read_text() for number in range(3)]
        assert "".join(written) == plain.out

    def test_tables(self, run: Here, place: Place) -> None:
        one = run("caption", place.images[0], "-t", place.target, *FEW, "--table")
        assert "acceptance length" in one.err
        more = run("caption", *place.images, "-t", place.target, *FEW, "--table")
        assert "24×16" in more.err


class TestCompare:
    def test_peers_say_the_same(self, run: Here, place: Place, tmp_path: Path) -> None:
        out = tmp_path / "out.json"
        how = ("-d", place.drafter, "--gamma", 2, "--compare", "plain,hf,hf-assisted")
        done = run("caption", *place.images[:2], "-t", place.target, *FEW, *how, "--json", out)
        assert done.code == 0
        assert "The peer's time over mmspec's" in done.err
        for entry in json.loads(out.read_text())["files"]:
            assert set(entry["compare"]) == {"plain", "hf", "hf-assisted"}
            for peer in ("plain", "hf"):
                assert entry["compare"][peer]["ids_equal"] is True
                assert entry["compare"][peer]["end_to_end_ratio"] > 0

    def test_pages_are_compared_too(self, run: Here, place: Place, tmp_path: Path) -> None:
        how = ("--dpi", 20, "--compare", "hf-assisted", "--json", tmp_path / "out.json")
        assert run("ocr", place.document, "-t", place.target, *FEW, *how).code == 0
        entries = json.loads((tmp_path / "out.json").read_text())["files"]
        assert [entry["compare"]["hf-assisted"]["why"] for entry in entries] == [
            "no drafter to assist with"
        ] * 2


class TestOcr:
    def test_pages_are_set_apart(
        self, run: Here, place: Place, said: dict[str, list[str]], tmp_path: Path
    ) -> None:
        done = run("ocr", *place.images, "-t", place.target, *FEW)
        assert [page.rstrip("\n") for page in done.out.split("\f")] == said["read"]
        paper = ("ocr", place.document, "-t", place.target, *FEW, "--dpi", 20)
        pages = run(*paper).out
        assert pages.count("\f") == 1
        assert run(*paper, "-o", tmp_path).code == 0
        assert (tmp_path / "paper.txt").read_text() == pages
        assert run(*paper, "--batch", 2).out == pages

    def test_readings_draft(self, run: Here, place: Place, tmp_path: Path) -> None:
        paper = ("ocr", place.document, place.images[0], "-t", place.target, *FEW, "--dpi", 20)
        file, out = tmp_path / "text.txt", tmp_path / "out.json"
        plain = run(*paper, "--json", out)
        file.write_text(plain.out)
        first = tmp_path / "first.json"
        first.write_text(out.read_text())
        for reading, drafted in (("pdf", 1), ("none", 0), (file, 3), (first, 3)):
            how = ("-d", "hypothesis", "--gamma", 3, "--reading", reading, "--json", out)
            assert run(*paper, *how).out == plain.out
            entries = json.loads(out.read_text())["files"]
            proposing = [entry["report"]["proposed"] > 0 for entry in entries]
            assert sum(proposing) >= drafted
            assert any(proposing) == bool(drafted)
        assert [entry.get("page") for entry in entries] == [1, 2, None]

    def test_a_reading_needs_its_drafter(self, run: Here, place: Place) -> None:
        done = run("ocr", place.document, "-t", place.target, "--reading", "pdf")
        assert (done.code, len(done.complaints)) == (2, 1)
        assert "only --draft hypothesis" in done.err

    def test_a_reading_that_is_not_there(self, run: Here, place: Place, tmp_path: Path) -> None:
        how = ("-d", "hypothesis", "--reading", tmp_path / "nothing.txt")
        done = run("ocr", place.document, "-t", place.target, *how)
        assert done.code == 2
        assert "found nothing readable" in done.err


def bad_files(folder: Path) -> dict[str, str]:
    """Bad inputs, and what has to be said of each."""
    whole = io.BytesIO()
    picture().save(whole, "PNG")
    data = whole.getvalue()
    size = b"IHDR" + struct.pack(">II", 40_000, 40_000) + data[24:29]
    bomb = data[:12] + size + struct.pack(">I", zlib.crc32(size)) + data[33:]
    files = {
        "bomb.png": (bomb, "too large an image"),
        "zero.png": (b"", "0 bytes"),
        "cut.png": (data[:200], "damaged or truncated"),
        "text.png": (b"hello\n" * 99, "a text file"),
        "cut.pdf": (document(text("one"))[:100], "damaged or truncated PDF"),
        "empty.pdf": (document(), "a PDF without pages"),
        "secret.pdf": (encrypted("secret", text("one")), "an encrypted PDF"),
    }
    for name, (content, _) in files.items():
        (folder / name).write_bytes(content)
    picture(width=10_000, height=1).save(folder / "long.png")
    words = {name: says for name, (_, says) in files.items()}
    return words | {"long.png": "aspect ratio"}


class TestBadInputs:
    @pytest.mark.parametrize("command", ["caption", "ocr"])
    def test_each_is_one_line_and_the_rest_is_done(
        self, run: Here, place: Place, tmp_path: Path, command: str
    ) -> None:
        words = bad_files(tmp_path)
        if command == "caption":
            words = {name: says for name, says in words.items() if not name.endswith(".pdf")}
            words["paper.pdf"] = "a PDF document"
            (tmp_path / "paper.pdf").write_bytes(place.document.read_bytes())
        bad = [tmp_path / name for name in words]
        small = tmp_path / "dot.jpeg"
        picture(width=1, height=1).save(small, "PNG")  # mislabelled, and still an image
        files = (place.images[0], *bad, small)
        done = run(command, *files, "-t", place.target, *FEW)
        assert done.code == 2
        assert len(done.complaints) == len(done.err.splitlines()) == len(bad)
        for line, path, says in zip(done.complaints, bad, words.values(), strict=True):
            assert line.startswith(f"mmspec: {path}")
            assert says in line
        texts = done.out.split("\f" if command == "ocr" else "\n")
        there = [bool(one.strip()) for one in texts[: len(files)]]
        assert there == [True, *[False] * len(bad), True]

    def test_side_by_side(self, run: Here, place: Place, tmp_path: Path) -> None:
        junk = tmp_path / "junk.png"
        junk.write_bytes(b"\x00junk")
        files = (junk, place.images[0], junk, place.images[1], junk)
        alone = run("caption", *files, "-t", place.target, *FEW)
        together = run("caption", *files, "-t", place.target, *FEW, "--batch", 2)
        assert (together.code, together.out, together.err) == (2, alone.out, alone.err)
        assert len(alone.complaints) == 3

    @pytest.mark.parametrize(
        ("how", "says"),
        [
            (("--prompt", "Is <|image_pad|> there?"), "in the prompt, which stands for an image"),
            (("--format", "srt"), "--format: found 'srt', expected one of txt, json"),
            (("--draft", "hypothesis"), "expected hypothesis:FILE"),
            (("--draft", "overlap"), "only recordings are decoded in chunks"),
            (("--compare", "plain", "--batch", 2), "expected no --compare"),
            (("--compare", "nobody"), "found 'nobody'"),
        ],
    )
    def test_an_option_that_no_image_can_be_captioned_with(
        self, run: Here, place: Place, how: tuple[Any, ...], says: str
    ) -> None:
        done = run("caption", *place.images, "-t", place.target, *how)
        assert (done.code, done.out, len(done.complaints)) == (2, "", 1)
        assert says in done.err

    def test_models_that_do_something_else(self, run: Here, place: Place, tmp_path: Path) -> None:
        (tmp_path / "config.json").write_text('{"model_type": "gpt2"}')
        done = run("caption", place.images[0], "-t", tmp_path)
        assert done.code == 2
        assert "no adapter for model type 'gpt2'; mmspec knows: " in done.err
        assert "gpt2 reads and writes text only" in done.err
        assert "which listens: mmspec transcribe" in run("ocr", place.document, "-t", SPEECH).err
        assert "which looks" in run("transcribe", place.images[0], "-t", place.target).err
        found = run("caption", place.images[0]).err
        assert "its default was tried: target: HuggingFaceTB/SmolVLM-256M-Instruct" in found


class TestInfo:
    def test_what_a_model_can_do(self, run: Here, place: Place) -> None:
        drafts = ("--draft", "ngram", "--draft", place.drafter, "--draft", "early-exit:9")
        done = run("info", place.target, *drafts)
        assert done.code == 0
        shown = " ".join(done.out.split())
        for words in ("'Read the text.'", "100 ids", "same vocabulary; it looks for itself"):
            assert words in shown
        assert "so 1 to 2" in shown

    def test_every_family_is_listed(self, run: Here) -> None:
        shown = run("info").out
        assert set(ADAPTERS) - {"blip_text_model"} == {line.split()[0] for line in rows(shown)}
        assert "mmspec.generate" in next(line for line in rows(shown) if "qwen2_audio" in line)


def rows(table: str) -> list[str]:
    return [line for line in table.splitlines()[1:] if line.strip()]


SPEECH = Path(__file__).parents[1] / "samples" / "whisper-sample" / "target"

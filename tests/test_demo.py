"""`mmspec demo`: what it does where samples are missing, and its looking part on tiny models."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from mmspec import loading
from mmspec.cli import demo_hearing, demo_looking, side_by_side
from mmspec.cli.side_by_side import Pair, in_turn, speed
from mmspec.page import PageData, render_page
from tests.cli_support import Here
from tests.modalities import tiny_looking
from tests.modalities.tiny_looking import picture, saved
from tests.page_support import Page

TRUTH = "file\ttask\ttext\nscene-2.png\tcount\ttwo\nscene-2.png\tdescribe\ta cat\n"


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Samples in the shape of those that come with mmspec."""
    folder = tmp_path_factory.mktemp("samples")
    images = folder / "images"
    images.mkdir()
    for seed, name in enumerate(demo_looking.IMAGES):
        picture(seed).save(images / name)
    pages = [name for name, task in demo_looking.IMAGES.items() if task == "read"]
    truths = "".join(f"{name}\tread\tone\\ntwo\n" for name in pages)
    (images / "truth.tsv").write_text(TRUTH + truths, encoding="utf-8")
    readings = "".join(f'{name}\t"one\\ntwo\n' for name in pages)
    (images / "readings.tsv").write_text("file\ttext\n" + readings, encoding="utf-8")
    for role, seed in (("target", 0), ("drafter", 1)):
        place = saved(folder / "vision-sample" / role, "qwen2_vl", seed=seed)
        config = tiny_looking.model("qwen2_vl").generation_config.to_dict()
        type(tiny_looking.model("qwen2_vl").generation_config)(
            **(config | {"max_new_tokens": 8})
        ).save_pretrained(place)
    return folder


@pytest.fixture
def installed(samples: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(loading, "SAMPLES", samples)
    monkeypatch.setattr(loading, "CHECKOUT_SAMPLES", samples)
    monkeypatch.setattr(side_by_side, "REPEATS", 1)
    monkeypatch.setenv("PATH", "")  # no Tesseract
    return samples


class TestLooking:
    def test_plain_and_speculative(self, installed: Path) -> None:
        shown = io.StringIO()
        pairs, entries = demo_looking.look("3", Console(file=shown, width=80), True)
        assert [(pair.name, pair.drafter) for pair in pairs] == [
            ("scene-2.png", "drafter"),
            ("scene-2.png", "n-gram"),
            ("line-2.png", "Tesseract"),
            ("line-2.png", "drafter"),
            ("line-2.png", "n-gram"),
            ("page-2.png", "Tesseract"),
            ("page-2.png", "drafter"),
            ("page-2.png", "n-gram"),
        ]
        assert all(pair.equal and len(pair.ours.ids) == 8 for pair in pairs)
        assert {pair.name: pair.reference for pair in pairs} == {
            "scene-2.png": "a cat",
            "line-2.png": "one\ntwo",
            "page-2.png": "one\ntwo",
        }
        read = [pair for pair in pairs if pair.drafter == "Tesseract"]
        assert all("hypothesis" in pair.ours.report.drafters for pair in read)
        assert "Tesseract isn't installed" in shown.getvalue()
        assert "8 of 8 equal" in shown.getvalue()
        page = Page(render_page(PageData({}, tuple(entries))))
        assert len(page.of("img")) == 8
        assert page.source.count("= plain") == 8

    def test_what_is_missing_is_named(
        self, installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert demo_looking.missing_sample() is None
        for place in ("SAMPLES", "CHECKOUT_SAMPLES"):
            monkeypatch.setattr(loading, place, tmp_path)
        missing = demo_looking.missing_sample()
        assert missing == "the samples aren't installed: vision-sample/target is missing"


class TestCommand:
    @pytest.fixture(autouse=True)
    def deaf(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(demo_hearing, "hear", lambda *_: ([], []))

    @pytest.fixture
    def run(self, capsys: pytest.CaptureFixture[str]) -> Here:
        return Here(capsys)

    def test_without_the_vision_sample(self, run: Here, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(demo_looking, "missing_sample", lambda: "x is missing")
        done = run("demo")
        assert (done.code, done.err) == (0, "")
        assert done.out.splitlines()[0] == "Images are left out: x is missing"

    def test_other_models_only_listen(self, run: Here, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(demo_looking, "missing_sample", lambda: "x is missing")
        assert "Images" not in run("demo", "-d", "ngram").out

    def test_its_page(self, run: Here, installed: Path, tmp_path: Path) -> None:
        out = tmp_path / "demo.html"
        assert run("demo", "--gamma", 3, "--report", out).code == 0
        page = Page(out.read_text(encoding="utf-8"))
        assert page.of("h1")[0].text == "How 8 inputs were decoded"

    def test_ids_that_differ_are_an_error(self, run: Here, monkeypatch: pytest.MonkeyPatch) -> None:
        pair = Pair("a", "b", "", said((1, 2), 1.0), said((1, 3), 1.0))
        monkeypatch.setattr(demo_hearing, "hear", lambda *_: ([pair], []))
        assert run("demo", "-d", "ngram").code == 1


class Report:
    """As much of one as a table needs."""

    tokens = rounds = 2
    mean_acceptance_length = 1.0

    def __init__(self, seconds: float) -> None:
        self.decode_seconds = self.total_seconds = seconds


class Said:
    """A result that took so long."""

    def __init__(self, ids: tuple[int, ...], seconds: float) -> None:
        self.ids, self.report = ids, Report(seconds)


def said(ids: tuple[int, ...], seconds: float) -> Any:
    return Said(ids, seconds)


class TestSideBySide:
    def test_the_typical_run_is_taken(self) -> None:
        slow = iter([5.0, 1.0, 3.0])
        fast = iter([2.0, 2.0, 9.0])
        one, other = in_turn(lambda: said((), next(slow)), lambda: said((), next(fast)))
        assert (one.report.decode_seconds, other.report.decode_seconds) == (3.0, 2.0)

    def test_differences_are_said(self) -> None:
        pairs = [
            Pair("same", "d", "", said((1, 2), 4.0), said((1, 2), 1.0)),
            Pair("other", "d", "", said((1, 2), 4.0), said((1, 3), 3.0)),
        ]
        shown = io.StringIO()
        Console(file=shown, width=100).print(side_by_side.side_by_side("thing", pairs))
        assert "DIFFER" in shown.getvalue()
        assert "1 of 2 equal" in shown.getvalue()
        assert "drafted by" not in shown.getvalue()
        assert speed(pairs) == 2.0
        assert pairs[1].compared()["plain"].ids_equal is False

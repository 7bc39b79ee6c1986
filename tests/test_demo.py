"""`mmspec demo`: what it does where samples are missing; looking and speaking with tiny models."""

from __future__ import annotations

import io
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from rich.console import Console

from mmspec import loading
from mmspec.compare import side_by_side
from mmspec.compare.side_by_side import SideBySide, in_turn, speed
from mmspec.page import PageData, render_page
from mmspec.tasks.asr import demo as demo_hearing
from mmspec.tasks.tts import demo as demo_speaking
from mmspec.tasks.tts.code_files import read_codes
from mmspec.tasks.tts.demo import Spoken
from mmspec.tasks.vlm import demo as demo_looking
from tests import speaking_support
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
    speaking_support.saved(folder / "voice-sample")
    sentences = folder / "voice-sample" / "sentences.txt"
    sentences.write_text("a red cat\t0.2\nfive doors\t0.3\n", encoding="utf-8")
    return folder


@pytest.fixture
def installed(samples: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(loading, "SAMPLES", samples)
    monkeypatch.setattr(loading, "CHECKOUT_SAMPLES", samples)
    monkeypatch.setattr(side_by_side, "REPEATS", 1)
    monkeypatch.setenv("PATH", "")  # no Tesseract
    return samples


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the demo makes its temporary folder."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


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


class TestSpeaking:
    def test_plain_and_speculative(self, installed: Path, temporary: Path) -> None:
        shown = io.StringIO()
        pairs, entries = demo_speaking.say("3", Console(file=shown, width=80), True)
        assert [(pair.reference, pair.drafter) for pair in pairs] == [
            ("a red cat", "drafter"),
            ("a red cat", "lookup"),
        ]
        assert all(pair.equal and len(pair.ours.codes) == 20 for pair in pairs)
        assert [pair.plain.report.proposed for pair in pairs] == [0, 0]
        drafted, again = (pair.ours.report for pair in pairs)
        assert set(drafted.drafters) == {"voice-sample"}
        assert again.draft_acceptance_rate == 1.0
        assert again.target_forwards < pairs[1].plain.report.target_forwards
        assert shown.getvalue().count("equal") == 2
        assert "same sentence, said before" in shown.getvalue()
        page = Page(render_page(PageData({}, tuple(entries))))
        assert page.source.count("= plain") == 2

    def test_its_sound_stays(self, installed: Path, temporary: Path) -> None:
        shown = io.StringIO()
        pairs, entries = demo_speaking.say("3", Console(file=shown, width=80), False)
        (sound,) = temporary.glob("*/*.wav")
        assert str(sound) in shown.getvalue()
        assert soundfile.info(sound).frames == 20 * speaking_support.FRAME_SAMPLES
        np.testing.assert_array_equal(read_codes(sound).codes, pairs[0].plain.codes)
        assert entries == []

    def test_other_codes_are_not_equal(self) -> None:
        frames = np.zeros((3, 4), np.int64)
        assert Spoken("a", "b", "", spoken(frames), spoken(frames.copy())).equal
        other = frames.copy()
        other[2, 3] = 1
        for ours in (other, frames[:2]):
            pair = Spoken("a", "b", "", spoken(frames), spoken(ours))
            assert not pair.equal
            assert pair.compared()["plain"].ids_equal is False

    def test_what_is_missing_is_named(
        self, installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert demo_speaking.missing_sample() is None
        for place in ("SAMPLES", "CHECKOUT_SAMPLES"):
            monkeypatch.setattr(loading, place, tmp_path)
        missing = demo_speaking.missing_sample()
        assert missing == "the samples aren't installed: voice-sample/target is missing"


class TestCommand:
    @pytest.fixture(autouse=True)
    def deaf(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(demo_hearing, "hear", lambda *_: ([], []))

    @pytest.fixture
    def run(self, capsys: pytest.CaptureFixture[str]) -> Here:
        return Here(capsys)

    @pytest.fixture
    def alone(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Only the sample that listens is there."""
        monkeypatch.setattr(demo_looking, "missing_sample", lambda: "x is missing")
        monkeypatch.setattr(demo_speaking, "missing_sample", lambda: "y is missing")

    def test_without_the_other_samples(self, run: Here, alone: None) -> None:
        done = run("demo")
        assert (done.code, done.err) == (0, "")
        assert done.out.splitlines()[:2] == [
            "Images are left out: x is missing",
            "Speech is left out: y is missing",
        ]

    def test_other_models_only_listen(self, run: Here, alone: None) -> None:
        assert "left out" not in run("demo", "-d", "ngram").out

    def test_its_page(self, run: Here, installed: Path, tmp_path: Path) -> None:
        out = tmp_path / "demo.html"
        assert run("demo", "--gamma", 3, "--report", out).code == 0
        page = Page(out.read_text(encoding="utf-8"))
        assert page.of("h1")[0].text == "How 10 inputs were decoded"

    def test_ids_that_differ_are_an_error(self, run: Here, monkeypatch: pytest.MonkeyPatch) -> None:
        pair = SideBySide("a", "b", "", said((1, 2), 1.0), said((1, 3), 1.0))
        monkeypatch.setattr(demo_hearing, "hear", lambda *_: ([pair], []))
        assert run("demo", "-d", "ngram").code == 1

    def test_so_are_codes(
        self, run: Here, installed: Path, alone: None, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def with_a_fault(*decoders: Any) -> list[Any]:
            *others, last = in_turn(*decoders)
            return [*others, replace(last, codes=last.codes ^ 1)]

        monkeypatch.setattr(demo_speaking, "missing_sample", lambda: None)
        monkeypatch.setattr(demo_speaking, "in_turn", with_a_fault)
        done = run("demo")
        assert (done.code, done.out.count("DIFFER"), done.out.count("equal")) == (1, 1, 1)


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


class Sounding:
    """A result whose codes are compared."""

    def __init__(self, codes: Any) -> None:
        self.codes, self.report = codes, Report(1.0)


def spoken(codes: Any) -> Any:
    return Sounding(codes)


class TestSideBySide:
    def test_the_typical_run_is_taken(self) -> None:
        slow = iter([5.0, 1.0, 3.0])
        fast = iter([2.0, 2.0, 9.0])
        one, other = in_turn(lambda: said((), next(slow)), lambda: said((), next(fast)))
        assert (one.report.decode_seconds, other.report.decode_seconds) == (3.0, 2.0)

    def test_differences_are_said(self) -> None:
        pairs = [
            SideBySide("same", "d", "", said((1, 2), 4.0), said((1, 2), 1.0)),
            SideBySide("other", "d", "", said((1, 2), 4.0), said((1, 3), 3.0)),
        ]
        shown = io.StringIO()
        Console(file=shown, width=100).print(side_by_side.side_by_side("thing", pairs))
        assert "DIFFER" in shown.getvalue()
        assert "1 of 2 equal" in shown.getvalue()
        assert "drafted by" not in shown.getvalue()
        assert speed(pairs) == 2.0
        assert pairs[1].compared()["plain"].ids_equal is False

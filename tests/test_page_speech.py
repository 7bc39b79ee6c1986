"""The page of texts that were said: every code where it belongs, and what decided it."""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from PIL import Image

import mmspec
from mmspec.compare.code_parity import when_decided
from mmspec.compare.comparison import Comparison
from mmspec.compare.differences import Difference
from mmspec.factorizations import Codebook, DelayedFrames
from mmspec.page import Failure, PageData, code_grid, render_page
from mmspec.page.code_grid import CELL_PX, HEAD_PX, STRIP_FRAMES
from mmspec.page.spectrogram import colours
from mmspec.page.wording import SPOKEN
from mmspec.report.by_codebook import CodeShare
from mmspec.report.grounding import Grounding, share_by_class
from mmspec.report.trace import Round
from mmspec.tasks.tts.page import CodeTexts, SpeechEntries, Utterance, utterance_of
from mmspec.tasks.tts.result import Speech
from tests.cli_support import Here
from tests.page_support import Element, Page, round_of, tallied
from tests.speaking_support import SHORT, saved

RATE_HZ, FRAMES_HZ, MARK = 16_000, 50.0, 8
STEPS = DelayedFrames((Codebook(9, codes=8, start=MARK, pad=MARK),) * 2, delays=(0, 1))
TEXTS = CodeTexts(STEPS.codebooks)
TEXT = "a red cat"


def rounds_of(rows: Sequence[Any]) -> list[Round]:
    """Two kept and one replaced, one by itself, one kept to the end, by three drafters."""
    frames: list[Any] = list(rows)
    wrong: Any = (7, 7)
    chain = round_of((*frames[:2], wrong), (0, 1), frames[2], drafter="model")
    last = round_of(tuple(frames[4:]), tuple(range(len(frames[4:]))), None, drafter="lookup")
    return [chain, round_of((), (), frames[3]), last]


def tone(frames: int, silent: int = 0) -> np.ndarray:
    """A tone behind silence; each in frames."""
    times = np.arange(round(frames * RATE_HZ / FRAMES_HZ)) / RATE_HZ
    loud = 0.5 * np.sin(2 * np.pi * 440 * times)
    return np.where(times < silent / FRAMES_HZ, 0.0, loud).astype(np.float32)


def speech_of(frames: int = 6, **changes: Any) -> Speech:
    """A speech of these frames; row r of the model holds codes of two frames."""
    grid = [((3 * t + 1) % 8, (5 * t + 2) % 8) for t in range(frames)]
    rounds = rounds_of(STEPS.from_grid(grid)[1:])
    _, origins, report = tallied(*rounds)
    known: dict[str, Any] = {
        "text": TEXT,
        "codes": np.array(grid, np.int64),
        "samples": tone(frames),
        "sample_rate_hz": RATE_HZ,
        "frame_rate_hz": FRAMES_HZ,
        "codebook_sizes": (8, 8),
        "family": "musicgen",
        "report": report,
        "origins": origins,
        "trace": tuple(rounds),
        "decided_at": when_decided(STEPS, frames),
        "decision": when_decided(STEPS, frames),
    }
    return Speech(**(known | changes))


SAID = speech_of()


def utterance(said: Speech = SAID, name: str = "said.wav", **facts: Any) -> Utterance:
    return utterance_of(name, said, TEXTS, **facts)


def page(*entries: Utterance | Failure, **settings: Any) -> Page:
    return Page(render_page(PageData({"target": "t", "draft": "d"} | settings, entries)))


def words_of(shown: Page) -> str:
    return " ".join(shown.of("main")[0].text.split())


def cells(shown: Page) -> dict[tuple[int, int], Element]:
    """Every code's element by its frame and codebook, as its facts name them."""
    found = {}
    for element in shown.of("td", "code"):
        frame, codebook = re.findall(
            r"frame (\d+), codebook (\d+)", element.attributes["data-tip"]
        )[0]
        found[int(frame), int(codebook)] = element
    assert len(found) == len(shown.of("td", "code"))
    return found


class TestGrid:
    def test_every_code_with_the_step_that_decided_it(self) -> None:
        looks = {"accepted": {"by0", "by1"}, "recovered": {"instead"}, "bonus": {"own-code"}}
        found = cells(page(utterance()))
        assert found.keys() == set(np.ndindex(SAID.codes.shape))
        for (frame, codebook), element in found.items():
            origin = SAID.origins[frame + codebook]  # one codebook is one step late
            tip = element.attributes["data-tip"]
            assert element.text == str(SAID.codes[frame, codebook])
            assert tip.startswith(f"code {element.text} · frame {frame}, codebook {codebook} · ")
            assert f"step {frame + codebook} · {origin.kind}" in tip
            assert f"round {origin.round_number + 1}" in tip
            assert len(element.classes & looks[origin.kind]) == 1
            if origin.kind == "accepted":
                assert f"drafted by {origin.drafter} ·" in tip

    def test_rows_are_codebooks_in_order(self) -> None:
        (table,) = page(utterance()).of("table", "codes")
        rows = [list(map(str, (k, *SAID.codes[:, k]))) for k in range(2)]
        body = table.text.split()
        assert body == [*rows[0], *rows[1], "0"]  # the number of a frame below

    def test_drafters_are_told_apart(self) -> None:
        found = cells(page(utterance()))
        assert "by0" in found[0, 0].classes
        assert "by1" in found[5, 1].classes

    def test_a_line_where_another_round_begins(self) -> None:
        found = cells(page(utterance()))
        begun = {place for place, element in found.items() if "begins" in element.classes}
        assert begun == {(3, 0), (2, 1), (4, 0), (3, 1)}  # steps 3 and 4, where the row goes on

    def test_what_no_step_decided(self) -> None:
        given = SAID.decided_at.copy()  # type: ignore[union-attr]
        given[0], given[1, 1] = -1, -1
        found = cells(page(utterance(replace(SAID, decided_at=given))))
        undecided = {place for place, element in found.items() if "given" in element.classes}
        assert undecided == {(0, 0), (0, 1), (1, 1)}
        for place in undecided:
            assert "step" not in found[place].attributes["data-tip"]
            assert "given with the prompt" in found[place].attributes["data-tip"]

    def test_what_is_filled(self) -> None:
        filled = SAID.decided_at.copy()  # type: ignore[union-attr]
        filled[:, 1], filled[0, 0] = -1, -1
        said = replace(SAID, decided_at=filled, filled="the second codebook is <filled>")
        shown = page(utterance(said))
        looks = {
            place: element.classes & {"given", "filled"} for place, element in cells(shown).items()
        }
        assert looks[0, 0] == looks[0, 1] == {"given"}  # a prompt's frame is given whole
        assert looks[1, 0] == set()
        assert all(looks[frame, 1] == {"filled"} for frame in range(1, 6))
        assert "no decision: the second codebook is <filled>" in words_of(shown)

    def test_an_order_whose_decisions_are_unknown(self) -> None:
        shown = page(utterance(replace(SAID, decided_at=None, decision=None)))
        assert all("unknown" in element.classes for element in cells(shown).values())
        assert "isn't known for this order" in words_of(shown)

    def test_classes_where_they_are_known(self) -> None:
        drops = tuple(float(step) for step in range(7))
        grounding = Grounding(2.5, drops)
        report = replace(SAID.report, by_class=share_by_class(grounding, SAID.origins))
        shown = page(utterance(replace(SAID, grounding=grounding, report=report)))
        for (frame, codebook), element in cells(shown).items():
            step = frame + codebook
            assert ("rests" in element.classes) == (step > 2)
            told = f"{grounding.classes[step]} · {drops[step]:.2f} nats lost without the text"
            assert told in element.attributes["data-tip"]
        assert "Steps that depend on the text, and those that the codes before" in words_of(shown)
        assert not [e for e in cells(page(utterance())).values() if "rests" in e.classes]

    def test_looks_differ_without_colour(self) -> None:
        (style,) = page(utterance()).of("style")
        names = "by0|by1|by2|by3|instead|own-code|given|filled|unknown"
        rules = dict(re.findall(rf"\n\.({names}) (\{{[^}}]*\}})", style.text))
        assert set(rules) == set(names.split("|"))
        shapes = {re.sub(r"var\(--[\w-]+\)", "", rule) for rule in rules.values()}
        plain = {name for name, rule in rules.items() if "gradient" not in rule}
        assert plain == {"by0", "unknown"}  # never on one page: one needs steps, the other has none
        assert len(shapes) == len(rules) - 1


class TestStrips:
    def test_they_hold_every_frame_once(self) -> None:
        strips = utterance(speech_of(2 * STRIP_FRAMES + 30)).strips
        assert [strip.frames for strip in strips] == [
            range(100),
            range(100, 200),
            range(200, 230),
        ]
        for strip in strips:
            codes = np.array([[cell.code for cell in row] for row in strip.rows]).T
            assert np.array_equal(codes, speech_of(230).codes[strip.frames])

    def test_time_and_frames_share_an_axis(self) -> None:
        shown = page(utterance(speech_of(130)))
        second = utterance(speech_of(130)).strips[1]
        assert second.ticks == ((0.0, "2"), (100.0, "2.2"), (200.0, "2.4"), (300.0, "2.6"))
        for x, text in second.ticks:
            frame = float(text) * FRAMES_HZ - second.frames[0]
            assert x == pytest.approx(frame * CELL_PX)
        for svg, table in zip(shown.of("svg", "above"), shown.of("table", "codes"), strict=True):
            lengths = (
                f"width: {svg.attributes['width']}px; --head: {HEAD_PX}px; --cell: {CELL_PX}px"
            )
            assert table.attributes["style"] == lengths
            assert svg.attributes["viewbox"].startswith(f"-{HEAD_PX} 0 ")

    def test_the_spectrogram_is_of_these_frames(self) -> None:
        silent = STRIP_FRAMES + 20
        first, second = utterance(speech_of(140, samples=tone(140, silent))).strips
        quiet = np.unique(pixels(first.image)[:, :-5].reshape(-1, 3), axis=0)
        assert quiet.tolist() == [list(colours(code_grid.SHADES)[0])]
        levels = pixels(second.image).sum(axis=(0, 2))
        begin = int(np.argmax(levels > levels.mean())) / len(levels)
        assert begin == pytest.approx(0.5, abs=0.05)  # frame 120 of 100 to 140

    def test_without_a_rate_there_is_no_time(self) -> None:
        said = replace(SAID, samples=None, sample_rate_hz=None, frame_rate_hz=None)
        made = utterance(said)
        assert (made.seconds, made.strips[0].ticks, made.strips[0].image) == (None, (), None)
        shown = page(made)
        assert len(cells(shown)) == SAID.codes.size
        assert not shown.of("svg", "above")
        assert made.facts == "6 × 2 codes"

    def test_many_are_folded(self) -> None:
        shown = page(utterance(speech_of(9 * STRIP_FRAMES)))
        assert "1 more row, from frame 800" in shown.source

    def test_too_many_are_left_out_and_that_is_said(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(code_grid, "MOST_CELLS", 20)
        shown = page(utterance(speech_of(16)))
        assert len(cells(shown)) == 20
        assert "6 frames more are not shown" in words_of(shown)
        assert "not shown" not in words_of(page(utterance()))

    def test_nothing_was_said(self) -> None:
        none = np.zeros((0, 2), np.int64)
        said = speech_of(codes=none, decided_at=none, samples=np.zeros(0, np.float32))
        shown = page(utterance(said))
        assert not shown.of("table", "codes")
        assert "Nothing was said: there are no codes." in shown.source


def pixels(source: str | None) -> np.ndarray:
    assert source is not None
    data = base64.b64decode(source.removeprefix("data:image/png;base64,"), validate=True)
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB")).astype(int)


class TestSound:
    @pytest.mark.parametrize("channels", [1, 2])
    def test_it_is_what_was_made_of_the_codes(self, channels: int) -> None:
        samples = tone(6) if channels == 1 else np.stack([tone(6), tone(6, silent=3)])
        (element,) = page(utterance(replace(SAID, samples=samples))).of("audio")
        data = element.attributes["src"].removeprefix("data:audio/flac;base64,")
        heard, rate_hz = soundfile.read(io.BytesIO(base64.b64decode(data, validate=True)))
        assert rate_hz == RATE_HZ
        np.testing.assert_allclose(heard.T, samples, atol=2 / 2**15)

    @pytest.mark.parametrize("level", [0.0, 4.0])
    def test_silence_and_what_is_too_loud(self, level: float) -> None:
        shown = page(utterance(replace(SAID, samples=level * tone(6))))
        assert len(shown.of("audio")) == 1

    def test_of_a_single_frame(self) -> None:
        whole = speech_of()
        said = replace(whole, codes=whole.codes[:1], decided_at=whole.decided_at[:1])  # type: ignore[index]
        shown = page(utterance(replace(said, samples=tone(1))))
        assert len(cells(shown)) == 2
        assert len(shown.of("image")) == 1

    def test_none_was_made(self) -> None:
        shown = page(utterance(replace(SAID, samples=None)))
        assert not shown.of("audio")
        assert "No sound was made of its codes." in shown.source

    def test_a_page_has_room_for_so_much(self, monkeypatch: pytest.MonkeyPatch) -> None:
        size = len(utterance().sound or "")
        monkeypatch.setattr("mmspec.tasks.tts.page.SOUND_ROOM", 2 * size + 1)
        monkeypatch.setattr(CodeTexts, "of", lambda speaker: TEXTS)
        entries = SpeechEntries(None)
        for name in "abc":
            entries.done(name, SAID)
        shown = page(*entries.made)  # type: ignore[arg-type]
        assert len(shown.of("audio")) == 2
        assert shown.source.count("This page has no room for its sound.") == 1
        assert len(shown.of("image")) == 3  # it is still seen


class TestRounds:
    def test_steps_with_their_numbers_and_codes(self) -> None:
        shown = page(utterance())
        rows = STEPS.from_grid(SAID.codes.tolist())[1:]
        spelt = [f"{n}: {a} {b}".replace(f" {MARK}", " ·") for n, (a, b) in enumerate(rows)]
        spelt = [text.replace(f" {MARK} ", " · ") for text in spelt]
        kept, dropped, own = ([e.text for e in shown.of(tag)] for tag in ("b", "s", "em"))
        kept = kept[kept.index("Kept") + 1 :][:5]
        assert kept == [spelt[0], spelt[1], *spelt[4:]]
        assert dropped == ["dropped", "2: 7 7"]
        assert own == ["the target's own", spelt[2], spelt[3]]
        assert spelt[0].endswith("·")
        assert spelt[-1].split()[1] == "·"

    def test_of_wide_frames_the_first_codes_are_written_out(self) -> None:
        texts = CodeTexts([Codebook(2000, codes=2000)] * 32)
        assert texts.alone(tuple(range(32))) == " ".join(map(str, range(12))) + " …"

    def test_single_units(self) -> None:
        slots = CodeTexts([Codebook(40, codes=8, first=first) for first in (10, 20)])
        assert [slots.alone(token) for token in (12, 27, 5)] == ["2", "7", "⟨5⟩"]
        shared = CodeTexts([Codebook(8, codes=8), Codebook(8, codes=8, first=0)])
        assert shared.alone(3) == "3"

    def test_figures_are_the_report_s(self) -> None:
        share = CodeShare(decided=12, proposed=(6, 6), judged=(6, 5), agreed=(5, 3))
        text = words_of(
            page(utterance(replace(SAID, report=replace(SAID.report, by_codebook=share))))
        )
        report = SAID.report
        assert f"{report.tokens} steps = {report.accepted} accepted" in text
        assert f"{report.accepted} of {report.proposed} drafted steps were kept" in text
        assert "0 83 % 5 of 6 1 60 % 3 of 5" in text
        assert "By codebook" not in words_of(page(utterance()))
        assert not re.search(r"\btokens?\b", text)

    def test_the_first_difference_is_a_code(self) -> None:
        found = Difference(3, 7, 5, None, False, codebook=1)
        compared = {"hf": Comparison(True, None, False, 1.5, 1.25, found)}
        text = words_of(page(utterance(compared=compared)))
        assert "hf ≠ differ 1.50× 1.25× frame 3, codebook 1: 7 here, 5 there" in text
        assert "One run of one text is a hint" in text


class TestPage:
    def test_nothing_is_asked_of_anyone(self) -> None:
        shown = page(utterance(), Failure("b", "gone", SPOKEN))
        for element in shown.elements:
            for name in ("src", "href", "xlink:href", "srcset", "action", "data"):
                place = element.attributes.get(name, "#")
                assert place.startswith(("#", "data:image/png;", "data:audio/flac;")), element
            assert not [name for name in element.attributes if name.startswith("on")]
        assert not shown.of("script", "link")
        assert not re.search(r"url\(|@import|https?:", shown.source)
        policies = [m.attributes.get("content", "") for m in shown.of("meta")]
        assert any("default-src 'none'" in p and "media-src data:" in p for p in policies)

    def test_links_lead_somewhere_and_ids_are_unique(self) -> None:
        shown = page(utterance(), Failure("b", "gone", SPOKEN), utterance(speech_of(8)))
        ids = [e.attributes["id"] for e in shown.elements if "id" in e.attributes]
        assert len(ids) == len(set(ids))
        assert {link.attributes["href"][1:] for link in shown.of("a")} <= set(ids)

    def test_names_and_texts_are_text(self) -> None:
        evil = '"><img src=x onerror=alert(1)>\u202e'
        said = replace(SAID, text=evil, filled=evil, decided_at=None)
        shown = page(utterance(said, name=evil), Failure(evil, evil, SPOKEN), target=evil)
        assert not shown.of("img")
        assert "\u202e" not in shown.source
        assert shown.of("q")[0].text == evil.replace("\u202e", "\ufffd")

    def test_its_heading(self) -> None:
        assert page(utterance()).of("h1")[0].text == f"“{TEXT}”"
        assert page(utterance(), utterance()).of("h1")[0].text == "How 2 texts were said"
        long = page(utterance(replace(SAID, text="word " * 40))).of("h1")[0].text
        assert long.endswith("word…”")
        assert len(long) < 95

    def test_overview(self) -> None:
        shown = page(utterance(), utterance(), Failure("c", "c: no words", SPOKEN))
        heads = [element.text for element in shown.of("th")[:3]]
        assert heads == ["text", "frames", "steps"]
        (total,) = shown.of("tr", "total")
        assert total.text.split()[:4] == ["all", "12", "14", "6"]  # frames, steps, rounds
        assert "0.12 s, 6 × 2 codes · 7 steps in 3 rounds" in words_of(shown)


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(tmp_path_factory.mktemp("voice")).target


class TestSpeaker:
    def test_what_a_model_says(self, target: Path) -> None:
        with mmspec.load(target, draft="ngram") as speaker:
            said = speaker.speak(TEXT, seconds=0.2, grounding=True)
            entries = SpeechEntries(speaker)
        entries.done("said.wav", said, None)
        entries.failed("other", "other: no words")
        shown = page(*entries.made)  # type: ignore[arg-type]
        found = cells(shown)
        assert {place: element.text for place, element in found.items()} == {
            (t, k): str(code) for (t, k), code in np.ndenumerate(said.codes)
        }
        for (frame, codebook), element in found.items():
            origin = said.origins[frame + codebook]  # MusicGen: each codebook one step later
            assert origin.kind in element.attributes["data-tip"]
        assert len(shown.of("audio")) == len(shown.of("image")) == 1
        assert "By codebook" in words_of(shown) or not said.report.proposed

    def test_the_page_of_a_command(
        self, target: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        out = tmp_path / "page.html"
        how = ("-t", target, *SHORT, "-o", tmp_path, "--report", out)
        assert Here(capsys)("speak", TEXT, "no!", *how).code == 2
        shown = Page(out.read_text(encoding="utf-8"))
        assert len(shown.of("table", "codes")) == 1
        assert "speech-2.wav" in shown.of("tr", "bad")[0].text

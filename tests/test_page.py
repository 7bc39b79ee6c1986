"""The page of a run: whole, safe, needing nothing from outside, and saying what the report says."""

from __future__ import annotations

import html
import json
import re
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from mmspec.cli.running import Run
from mmspec.compare.comparison import Comparison
from mmspec.compare.differences import Difference
from mmspec.modalities.whisper.words import Word
from mmspec.page import Failure, PageData, TokenTexts, log_mel, render_page
from mmspec.page.figures import strip_figures
from mmspec.page.pieces import PART
from mmspec.page.recordings import Recording
from mmspec.page.spectrogram import colours, picture
from mmspec.report.grounding import Grounding, share_by_class
from mmspec.report.ledger import DistanceLedger
from mmspec.report.trace import Round
from mmspec.tasks.asr.page import recording_of
from mmspec.tasks.asr.result import SpokenSegment, Transcription
from tests.cli_support import Here, Place, make_place
from tests.page_support import END, Page, Tokenizer, round_of, tallied

TIME_BEGIN = 1000
TEXTS = TokenTexts(Tokenizer(), TIME_BEGIN, lambda id_: (id_ - TIME_BEGIN) * 0.02)


def said_of(*rounds: Round, **changes: Any) -> Transcription:
    """A transcription of these rounds; the end mark isn't among its ids."""
    tokens, origins, report = tallied(*rounds, **changes)
    ids = tuple(id_ for id_ in tokens if id_ != END)
    text = Tokenizer().decode([id_ for id_ in ids if id_ < TIME_BEGIN])
    return Transcription(
        text=text,
        ids=ids,
        segments=(SpokenSegment(0.0, 3.0, ids, text),),
        language="en",
        report=report,
        origins=tuple(o for o, id_ in zip(origins, tokens, strict=True) if id_ != END),
        trace=rounds,
    )


def with_words(*words: Word) -> Transcription:
    (segment,) = SAID.segments
    times = (0.0,) * len(SAID.ids)
    return replace(SAID, segments=(replace(segment, words=words),), token_times=times)


CHAIN = round_of((1, 2, 9), (0, 1), 3)
PLAIN = round_of((), (), TIME_BEGIN + 50)
LAST = round_of((1, END), (0, 1), None, drafter="model")
SAID = said_of(CHAIN, PLAIN, LAST)


def recording(said: Transcription = SAID, name: str = "clip.wav", **facts: Any) -> Recording:
    return recording_of(name, said, TEXTS, **({"duration_s": 3.0} | facts))


def page(*entries: Recording | Failure, **settings: Any) -> Page:
    return Page(render_page(PageData({"target": "t", "draft": "d"} | settings, entries)))


def mel(duration_s: float, frames_per_s: float = 100) -> tuple[np.ndarray, float]:
    levels = np.random.default_rng(0).integers(0, 256, (8, round(duration_s * frames_per_s)))
    return levels.astype(np.uint8), frames_per_s


class TestSelfContained:
    def test_nothing_is_asked_of_anyone(self) -> None:
        shown = page(recording(mel=mel(3.0)))
        for element in shown.elements:
            for name in ("src", "href", "xlink:href", "srcset", "action", "data"):
                place = element.attributes.get(name, "#")
                assert place.startswith(("#", "data:image/png;base64,")), element
        assert not shown.of("script")
        assert not shown.of("link")
        assert not re.search(r"url\(|@import|https?:", shown.source)
        policies = [m.attributes.get("content", "") for m in shown.of("meta")]
        assert any("default-src 'none'" in policy for policy in policies)

    def test_no_handler(self) -> None:
        names = {name for element in page(recording()).elements for name in element.attributes}
        assert not [name for name in names if name.startswith("on")]

    def test_links_lead_somewhere_and_ids_are_unique(self) -> None:
        shown = page(recording(), Failure("b.wav", "gone"), recording())
        ids = Counter(e.attributes["id"] for e in shown.elements if "id" in e.attributes)
        assert set(ids.values()) == {1}
        for link in shown.of("a"):
            assert link.attributes["href"][1:] in ids


class TestTokens:
    def test_every_id_in_order_with_how_it_was_obtained(self) -> None:
        shown = page(recording())
        assert len(shown.tokens) == len(SAID.ids)
        for element, id_, origin in zip(shown.tokens, SAID.ids, SAID.origins, strict=True):
            tip = element.attributes["data-tip"]
            assert tip.startswith(f"id {id_} · ")
            assert {origin.kind} == element.classes & {"accepted", "recovered", "bonus"}
            assert f"round {origin.round_number + 1}" in tip
            assert element.attributes["tabindex"] == "0"
            if origin.kind == "accepted":
                assert f"drafted by {origin.drafter}" in tip

    def test_drafters_are_told_apart(self) -> None:
        first, *_, last = page(recording()).tokens
        assert "d0" in first.classes
        assert "d1" in last.classes

    def test_times_are_shown_as_times(self) -> None:
        (time,) = [token for token in page(recording()).tokens if "time" in token.classes]
        assert time.text == "1.00"

    def test_class_drop_and_time_where_they_are_known(self) -> None:
        count = len(SAID.ids)
        grounding = Grounding(1.0, (1.25, 0.5, 3.0, 0.0, -1.0)[:count])
        times = tuple(float(time) for time in np.linspace(0, 2, count))
        shown = page(recording(replace(SAID, grounding=grounding, token_times=times)))
        for token, label, drop in zip(
            shown.tokens, grounding.classes, grounding.drops, strict=True
        ):
            assert label in token.classes
            assert f"{drop:.2f} nats" in token.attributes["data-tip"]
        assert "at 2.00 s" in shown.tokens[-1].attributes["data-tip"]

    def test_no_class_is_made_up(self) -> None:
        shown = page(recording())
        assert not [t for t in shown.tokens if t.classes & {"grounded", "syntactic"}]

    @pytest.mark.parametrize("id_", [1, 4, 5, 6, 7, 10, 11, 12])
    def test_every_token_is_seen_and_is_only_text(self, id_: int) -> None:
        shown = page(recording(said_of(round_of((), (), id_))))
        (token,) = shown.tokens
        assert token.text.strip()
        assert any(c.isprintable() and not c.isspace() for c in token.text)
        for text in (shown.source, *(e.text for e in shown.elements if e.name != "style")):
            assert all(c.isprintable() or c in "\n\u200d\xa0" for c in text)
        assert not shown.of("script")

    def test_markup_is_shown_as_it_was_said(self) -> None:
        (token,) = page(recording(said_of(round_of((), (), 4)))).tokens
        assert token.text == "<script>alert(1)</script>"

    def test_a_long_transcript_has_paragraphs(self) -> None:
        said = said_of(*[round_of((), (), 1)] * 130, PLAIN, *[round_of((), (), 2)] * 130)
        shown = page(recording(said))
        first, second = (p.text.strip() for p in shown.of("p", "transcript"))
        assert first == " ".join(["so"] * 130) + "1.00"
        assert second == " ".join(["far"] * 130)
        assert len(shown.tokens) == len(said.ids)

    def test_a_character_of_two_tokens_is_shown_once(self) -> None:
        one, other = page(recording(said_of(round_of((), (), 8), round_of((), (), 9)))).tokens
        assert (one.text, other.text) == (PART, "語")

    def test_half_a_character_is_shown_as_that(self) -> None:
        (token,) = page(recording(said_of(round_of((), (), 8)))).tokens
        assert token.text == "\ufffd"


class TestRounds:
    def row(self, done: Round) -> tuple[list[str], list[str], list[str]]:
        shown = page(recording(said_of(done)))
        kept, dropped, own = ([e.text for e in shown.of(tag)] for tag in ("b", "s", "em"))
        legend = ["Kept"], ["dropped"], ["the target's own"]
        index = kept.index("Kept")
        assert (dropped[0], own[0]) == (legend[1][0], legend[2][0])
        return kept[index + 1 : index + 1 + len(done.path)], dropped[1:], own[1:]

    def test_a_chain(self) -> None:
        assert self.row(CHAIN) == (["so", "far"], ["⟨9⟩"], ["away"])

    def test_an_ordinary_step(self) -> None:
        assert self.row(PLAIN) == ([], [], ["1.00"])

    def test_a_stop_inside_the_block(self) -> None:
        assert self.row(LAST) == (["so", "<|endoftext|>"], [], [])

    def test_of_a_tree_the_path_is_kept(self) -> None:
        tree = round_of((1, 2, 3, 2), (0, 2), 3, depth=2, branches=2, rejected=False)
        assert self.row(tree) == (["so", "away"], ["far", "far"], ["away"])
        assert "2 branches, dropped:" in page(recording(said_of(tree))).source

    def test_the_first_are_shown_the_others_folded(self) -> None:
        shown = page(recording(said_of(*[PLAIN] * 205)))
        assert "5 more rounds, from 201" in shown.source
        assert len(shown.of("em", "own")) == 205 + 1  # and the legend's


class TestFigures:
    def test_counts_are_the_report_s(self) -> None:
        text = " ".join(page(recording()).of("main")[0].text.split())
        report = SAID.report
        assert (
            f"{report.tokens} tokens = {report.accepted} accepted + {report.recovered} recovered "
            f"+ {report.bonus} bonus" in text
        )
        assert f"{report.accepted} of {report.proposed} drafted tokens were kept" in text
        for share, count in zip(
            report.acceptance_by_offset, report.proposed_by_offset, strict=True
        ):
            assert f"{100 * share:.0f} % {round(share * count)} of {count}" in text
        for name, drafter in report.drafters.items():
            assert re.search(
                rf"{name} {100 * drafter.accepted / drafter.proposed:.0f} % "
                rf"{drafter.accepted} of {drafter.proposed}",
                text,
            )

    def test_totals(self) -> None:
        shown = page(recording(), recording(), Failure("c.wav", "c.wav: nothing there"))
        (total,) = shown.of("tr", "total")
        assert total.text.split()[:7] == ["all", "6.0", "s", "12", "6", "2.00", "8"]

    def test_what_an_approximate_run_has_spent(self) -> None:
        spent = DistanceLedger((0.25, 0.0, 0.5))
        report = replace(SAID.report, exact=False, parity="L3", distance=spent)
        shown = " ".join(page(recording(replace(SAID, report=report))).of("body")[0].text.split())
        assert "Exactness L3: approximate: codes have another distribution" in shown
        assert "Distance spent, in total variation: 0.7500 on 2 of 3 steps." in shown
        assert "Distance spent" not in page(recording()).of("body")[0].text

    def test_classes(self) -> None:
        grounding = Grounding(1.0, (1.25, 0.5, 3.0, 0.0, -1.0))
        shares = share_by_class(grounding, SAID.origins)
        report = replace(SAID.report, by_class=shares)
        said = replace(SAID, report=report, grounding=grounding)
        text = " ".join(page(recording(said)).of("main")[0].text.split())
        for name, share in shares.items():
            counts = f"{share.tokens} {share.accepted} {share.recovered} {share.bonus}"
            assert f"{name} {counts}" in text

    def test_words_stand_where_they_begin(self) -> None:
        words = Word(" so far", 0.5, 1.0, (1, 2)), Word(" away", 1.5, 2.0, (3,))
        made = recording(with_words(*words))
        (figure,) = strip_figures(made)
        assert [label.at / figure.width for label in figure.labels] == [0.5 / 3, 1.5 / 3]
        assert [[m[2] for m in label.marks] for label in figure.labels] == [[0, 1], [2]]
        assert [e.text for e in page(made).of("text", "word")] == ["so far", "away"]

    def test_labels_never_overlap(self) -> None:
        words = [Word(" lengthy", i / 10, i / 10, ()) for i in range(30)]
        (figure,) = strip_figures(recording(with_words(*words)))
        for lane in range(figure.lanes):
            there = [label for label in figure.labels if label.lane == lane]
            for one, other in pairwise(there):
                assert one.x + one.width <= other.x
        assert len(figure.labels) == 30

    def test_without_words_segments_have_times(self) -> None:
        made = recording()
        (figure,) = strip_figures(made)
        assert figure.spans == ((0.0, figure.width),)
        assert "--word-timestamps" in page(made).source

    def test_long_recordings_are_cut_into_rows(self) -> None:
        made = recording(duration_s=400.0, mel=mel(400.0))
        assert len(made.strips) == 14
        assert all(strip.image for strip in made.strips)
        assert "6 more rows, from 4:00" in page(made).source

    def test_an_hour_stays_small(self) -> None:
        strips = [strip.image or "" for strip in recording(duration_s=300.0, mel=mel(300.0)).strips]
        assert sum(map(len, strips)) * 12 < 15e6  # noise: a real one is far smaller

    def test_lightness_grows_evenly(self) -> None:
        rgb = np.array(colours(64)) / 255
        linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
        lightness = 116 * np.cbrt(linear @ [0.2126, 0.7152, 0.0722]) - 16
        steps = np.diff(lightness)
        assert steps.min() > 0.6 * steps.mean()
        assert steps.max() < 1.6 * steps.mean()

    def test_a_picture_is_low_at_the_bottom(self) -> None:
        import base64
        import io

        levels = np.zeros((8, 40), np.uint8)
        levels[0] = 255
        data = picture(levels, 20, 16).partition(",")[2]
        image = Image.open(io.BytesIO(base64.b64decode(data))).convert("RGB")
        assert image.size == (20, 8)
        assert image.getpixel((0, 7)) == colours(16)[-1]
        assert image.getpixel((0, 0)) == colours(16)[0]

    def test_features_cover_the_recording(self) -> None:
        from transformers import WhisperFeatureExtractor

        extractor = WhisperFeatureExtractor(feature_size=8, chunk_length=1)
        for samples in (50, 16_000, 16_000 * 31):
            noise = np.random.default_rng(0).normal(size=samples).astype(np.float32)
            levels, per_s = log_mel(noise, extractor)
            assert levels.shape == (8, -(-samples // 160))
            assert levels.dtype == np.uint8
            assert per_s == 100


class TestTime:
    def test_share_of_decoding(self) -> None:
        text = " ".join(page(recording()).of("main")[0].text.split())
        assert "Decoding took 1.50 s of 3.00 s, 50 %" in text

    def test_says_how_to_compare(self) -> None:
        assert "--compare plain,hf" in page(recording()).source

    def test_measured_beside_predicted(self) -> None:
        compared = {
            "plain": Comparison(True, None, True, 1.5, 1.25),
            "hf": Comparison(True, None, False, 0.5, 0.75, Difference(3, 7, None, 1e-4, True)),
            "hf-assisted": Comparison(False, "nothing <like> it"),
        }
        shown = page(
            recording(
                replace(SAID, report=replace(SAID.report, predicted_speedup=2.0)), compared=compared
            )
        )
        text = " ".join(shown.of("main")[0].text.split())
        assert "Predicted 2.00×" in text
        assert "plain = equal 1.50× 1.25× –" in text
        assert "hf ≠ differ 0.50× 0.75× token 4: 7 here, end there, gap 1.0e-04, a tie" in text
        assert "not available: nothing <like> it" in text
        assert "decodes with these as well" not in text

    def test_faults_are_named(self) -> None:
        report = replace(SAID.report, faults=("drafter <x> raised",))
        assert "drafter &lt;x&gt; raised" in page(recording(replace(SAID, report=report))).source


def luminance(colour: str) -> float:
    """Relative luminance of `#rrggbb`, as WCAG defines it."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return sum(c * w for c, w in zip(linear, (0.2126, 0.7152, 0.0722), strict=True))


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


class TestStyle:
    def schemes(self) -> list[dict[str, str]]:
        (style,) = page(recording()).of("style")
        blocks = re.findall(r":root \{([^}]*--paper[^}]*)\}", style.text)
        return [dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", block)) for block in blocks]

    def test_text_can_be_read_in_light_and_dark(self) -> None:
        light, dark = self.schemes()
        assert light.keys() == dark.keys()
        grounds = ("d0-bg", "d1-bg", "d2-bg", "d3-bg", "wrong-bg")
        pairs = [("ink", ground) for ground in ("paper", "card", *grounds)]
        pairs += [(text, ground) for text in ("soft", "link") for ground in ("paper", "card")]
        pairs += [("soft", ground) for ground in grounds]  # times are tokens too
        pairs += [("d0", "card"), ("wrong", "card")]
        for colours_of in (light, dark):
            for text, ground in pairs:
                ratio = contrast(colours_of[text], colours_of[ground])
                assert ratio >= 4.5, f"{text} on {ground}: {ratio:.2f}"

    def test_kinds_differ_without_colour(self) -> None:
        (style,) = page(recording()).of("style")
        looks = [
            re.sub(r"var\(--[\w-]+\)", "", rule)
            for rule in re.findall(r"\n\.(?:accepted\.d\d|recovered|bonus) (\{[^}]*\})", style.text)
        ]
        assert len(looks) == len(set(looks)) == 6


class TestEdges:
    def test_an_empty_transcript(self) -> None:
        shown = page(recording(said_of(round_of((), (), END))))
        assert not shown.tokens
        assert "the transcript is empty" in shown.source

    def test_no_rounds(self) -> None:
        assert "No rounds." in page(recording(said_of())).source

    def test_only_failures(self) -> None:
        shown = page(Failure("<b>.wav", "<b>.wav: found & lost"))
        assert "<b>.wav: found & lost" in html.unescape(shown.source)
        assert not shown.of("b", "x")

    def test_names_and_settings_are_text(self) -> None:
        evil = '"><img src=x onerror=alert(1)>\u202e'
        shown = page(recording(name=evil), Failure(evil, evil), target=evil, prompt=evil)
        assert not shown.of("img")
        assert "\u202e" not in shown.source

    def test_settings_are_shown(self) -> None:
        text = page(recording(), threads=3, versions={"torch": "9.9"}, prompt=None).source
        assert "<dt>threads</dt><dd>3</dd>" in text
        assert "<dt>torch</dt><dd>9.9</dd>" in text
        assert "not set" in text


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return make_place(tmp_path_factory.mktemp("page"))


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Here:
    return Here(capsys)


class TestCommandLine:
    def test_a_page_of_the_run(self, run: Here, place: Place, tmp_path: Path) -> None:
        out = tmp_path / "deep" / "out.html"
        files = [place.files[0], "missing.wav", place.files[1]]
        options = ("-t", place.target, "-d", "early-exit:1", "--gamma", "2", "-l", "en")
        looks = ("--word-timestamps", "--grounding", "1", "--compare", "plain")
        done = run("transcribe", *files, *options, *looks, "--report", out, "-f", "json")
        shown = Page(out.read_text(encoding="utf-8"))
        entries = json.loads(done.out)["files"]
        heard = [entry for entry in entries if "ids" in entry]
        assert done.code == 2  # the missing one
        assert len(heard) == 2
        tokens = [id_ for entry in heard for id_ in entry["ids"]]
        tips = [token.attributes["data-tip"] for token in shown.tokens]
        assert [int(re.findall(r"id (\d+)", tip)[0]) for tip in tips] == tokens
        assert all("nats" in tip and " s · " in tip for tip in tips)
        assert len(shown.of("image")) == 2
        assert "missing.wav" in shown.of("tr", "bad")[0].text
        accepted = [token for token in shown.tokens if "accepted" in token.classes]
        assert bool(accepted) == any(entry["report"]["accepted"] for entry in heard)

    def test_text_is_the_same_with_a_page(self, run: Here, place: Place, tmp_path: Path) -> None:
        plain = run("transcribe", *place.files, "-t", place.target)
        paged = run("transcribe", *place.files, "-t", place.target, "--report", tmp_path / "p.html")
        assert (paged.code, paged.out) == (plain.code, plain.out) == (0, plain.out)

    @pytest.mark.parametrize("spot", [".", "file/page.html"])
    def test_a_place_that_cannot_be_is_one_line_at_once(
        self, run: Here, place: Place, spot: str, tmp_path: Path
    ) -> None:
        (tmp_path / "file").write_text("")
        done = run("transcribe", *place.files, "-t", place.target, "--report", tmp_path / spot)
        assert (done.code, done.out) == (2, "")
        assert len(done.complaints) == len(done.err.splitlines()) == 1
        assert "--report" in done.err

    def test_an_interrupted_run_leaves_what_was_finished(
        self, run: Here, place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        whole, calls = Run._transcribe, iter((False, True))

        def interrupted(self: Run, *arguments: Any) -> Any:
            if next(calls):
                raise KeyboardInterrupt
            return whole(self, *arguments)

        monkeypatch.setattr(Run, "_transcribe", interrupted)
        out = tmp_path / "page.html"
        done = run("transcribe", *place.files, "-t", place.target, "--report", out)
        assert done.code == 130
        shown = Page(out.read_text(encoding="utf-8"))
        assert len(shown.of("details", "entry")) == 1

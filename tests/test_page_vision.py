"""The page of images and documents: the picture, the text, and how each token came about."""

from __future__ import annotations

import base64
import html
import io
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from mmspec.compare.comparison import Comparison
from mmspec.page import Failure, PageData, TokenTexts, picture_of, render_page
from mmspec.page.pictures import FINE, SMALL
from mmspec.page.wording import READ, SEEN
from mmspec.report.grounding import Grounding, share_by_class
from mmspec.report.trace import Round
from mmspec.tasks.vlm.page import Sight, sight_of
from mmspec.tasks.vlm.result import Description
from tests.cli_support import Here
from tests.modalities.pdfs import document, text
from tests.modalities.tiny_looking import picture, saved
from tests.page_support import END, WORDS, Page, Tokenizer, round_of, tallied

TEXTS = TokenTexts(Tokenizer(), END + 1)


def said_of(*rounds: Round, **changes: Any) -> Description:
    """A caption of these rounds; unlike a transcript's, its ids hold the end."""
    ids, origins, report = tallied(*rounds)
    known: dict[str, Any] = {
        "text": Tokenizer().decode(list(ids)),
        "ids": ids,
        "task": "caption",
        "prompt": None,
        "sizes": ((24, 16),),
        "prompt_tokens": 9,
        "visual_tokens": 6,
        "report": report,
        "origins": origins,
        "trace": rounds,
    }
    return Description(**(known | changes))


CHAIN = round_of((1, 2, 9), (0, 1), 3)
PLAIN = round_of((), (), 2)
LAST = round_of((1, END), (0, 1), None, drafter="model")
SAID = said_of(CHAIN, PLAIN, LAST)


def sight(said: Description = SAID, name: str = "cat.png", **facts: Any) -> Sight:
    pictures = facts.pop("pictures", [picture_of(picture())])
    return sight_of(name, said, TEXTS, pictures, **facts)


def page(*entries: Any, **settings: Any) -> Page:
    return Page(render_page(PageData({"target": "t", "draft": "d"} | settings, entries)))


def words_of(shown: Page) -> str:
    return " ".join(shown.of("main")[0].text.split())


def decoded(source: str) -> Image.Image:
    kind, data = re.fullmatch(r"data:image/(png|jpeg);base64,(.*)", source).groups()  # type: ignore[union-attr]
    image = Image.open(io.BytesIO(base64.b64decode(data, validate=True)))
    assert image.format == kind.upper()
    image.load()
    return image


class TestPicture:
    def test_it_is_the_image_that_was_given(self) -> None:
        (element,) = page(sight()).of("img")
        image = decoded(element.attributes["src"])
        assert np.array_equal(np.asarray(image), np.asarray(picture()))
        assert element.attributes["alt"] == "cat.png, as the model was given it"

    def test_large_ones_are_scaled_and_keep_their_shape(self) -> None:
        large = picture_of(Image.new("RGB", (4 * FINE, 2 * FINE), "red"))
        assert (large.size, large.given) == ((FINE, FINE // 2), (4 * FINE, 2 * FINE))
        assert decoded(large.source).size == large.shown == large.size
        assert "4800 × 2400 pixels, shown as 1200 × 600" in page(sight(pictures=[large])).source

    def test_small_ones_are_shown_larger(self) -> None:
        small = picture_of(Image.new("RGB", (SMALL, 10)))
        assert (small.size, small.shown) == ((SMALL, 10), (2 * SMALL, 20))
        assert decoded(small.source).size == (SMALL, 10)

    def test_a_line_of_pixels(self) -> None:
        assert picture_of(Image.new("RGB", (9000, 1))).size == (FINE, 1)

    def test_a_photo_is_a_jpeg_and_a_drawing_a_png(self) -> None:
        photo = picture_of(picture(width=300, height=200))
        drawing = picture_of(Image.new("RGB", (300, 200), "white"))
        assert photo.source.startswith("data:image/jpeg")
        assert drawing.source.startswith("data:image/png")

    def test_several(self) -> None:
        shown = page(sight(pictures=[picture_of(picture(seed)) for seed in (0, 1)]))
        alts = [element.attributes["alt"] for element in shown.of("img")]
        assert alts == [f"cat.png, image {n} of 2, as the model was given it" for n in (1, 2)]
        assert "24 × 16 pixels, 24 × 16 pixels" in shown.source


class TestSelfContained:
    def test_nothing_is_asked_of_anyone(self) -> None:
        shown = page(sight(), Failure("b.png", "gone", SEEN))
        for element in shown.elements:
            for name in ("src", "href", "xlink:href", "srcset", "action", "data"):
                place = element.attributes.get(name, "#")
                assert place.startswith(("#", "data:image/png;", "data:image/jpeg;")), element
            assert not [name for name in element.attributes if name.startswith("on")]
        assert not shown.of("script", "link")
        assert not re.search(r"url\(|@import|https?:", shown.source)
        policies = [m.attributes.get("content", "") for m in shown.of("meta")]
        assert any("default-src 'none'; img-src data:" in policy for policy in policies)

    def test_links_lead_somewhere_and_ids_are_unique(self) -> None:
        shown = page(sight(), Failure("b.png", "gone", SEEN), sight(said_of(PLAIN)))
        ids = [e.attributes["id"] for e in shown.elements if "id" in e.attributes]
        assert len(ids) == len(set(ids))
        assert {link.attributes["href"][1:] for link in shown.of("a")} <= set(ids)


class TestText:
    def test_every_id_in_order_with_how_it_was_obtained(self) -> None:
        shown = page(sight())
        assert [token.text for token in shown.tokens] == [
            "so",
            "far",
            "away",
            "far",
            "so",
            "<|endoftext|>",
        ]
        for element, id_, origin in zip(shown.tokens, SAID.ids, SAID.origins, strict=True):
            tip = element.attributes["data-tip"]
            assert tip.startswith(f"id {id_} · ")
            assert {origin.kind} == element.classes & {"accepted", "recovered", "bonus"}
            assert f"round {origin.round_number + 1}" in tip
        assert "d0" in shown.tokens[0].classes
        assert "d1" in shown.tokens[-1].classes

    def test_classes_and_what_they_rest_on(self) -> None:
        grounding = Grounding(1.0, (4.0, 0.5, 3.0, 0.0, -1.0, 2.0))
        shares = share_by_class(grounding, SAID.origins)
        report = replace(SAID.report, by_class=shares)
        shown = page(sight(replace(SAID, grounding=grounding, report=report)))
        for token, label in zip(shown.tokens, grounding.classes, strict=True):
            assert label in token.classes
            assert "nats lost without the image" in token.attributes["data-tip"]
        assert "nat without the image; syntactic" in words_of(shown)
        assert "audio" not in shown.source

    @pytest.mark.parametrize("id_", sorted(set(WORDS) - {8, 9}))
    def test_every_token_is_seen_and_is_only_text(self, id_: int) -> None:
        shown = page(sight(said_of(round_of((id_,), (), id_)), name=WORDS[id_].decode()))
        (token,) = shown.tokens
        assert any(c.isprintable() and not c.isspace() for c in token.text)
        for written in (shown.source, *(e.text for e in shown.elements if e.name != "style")):
            assert all(c.isprintable() or c in "\n\u200d\xa0" for c in written)
        assert not shown.of("script")

    def test_what_it_was_told_is_text(self) -> None:
        evil = '"><img src=x onerror=alert(1)>\u202e'
        shown = page(sight(replace(SAID, task="answer", prompt=evil), name=evil), prompt=evil)
        assert len(shown.of("img")) == 1
        assert "\u202e" not in shown.source
        assert "It was told: " in shown.source
        assert shown.of("q")[0].text == evil.replace("\u202e", "\ufffd")

    def test_lines_of_a_page_stay_lines(self) -> None:
        said = said_of(*[round_of((), (), id_) for id_ in (1, 12, 2, 10, 3)], task="read")
        source = page(sight(said)).source
        (paragraph,) = re.findall(r'<p class="transcript".*?</p>', source, flags=re.S)
        marks = re.findall(r">([^<>\s]+)</span>(<br>|<wbr>)?", paragraph)
        assert marks == [("so", ""), ("↵", "<br>"), ("far", ""), ("␣", "<wbr>"), ("away", "")]

    def test_nothing_was_said(self) -> None:
        empty = said_of(round_of((), (), END))
        assert [token.text for token in page(sight(empty)).tokens] == ["<|endoftext|>"]
        nothing = replace(empty, ids=(), origins=())
        assert "Nothing was said" in page(sight(nothing)).source
        assert "Nothing was read" in page(sight(replace(nothing, task="read"))).source

    @pytest.mark.parametrize(
        ("task", "heading"), [("caption", "Caption"), ("read", "Text"), ("answer", "Answer")]
    )
    def test_its_heading(self, task: str, heading: str) -> None:
        shown = page(sight(replace(SAID, task=task)))
        assert heading in [element.text for element in shown.of("h3")]


class TestRun:
    def test_overview(self) -> None:
        shown = page(sight(), sight(said_of(PLAIN, visual_tokens=4)), Failure("b", "gone", SEEN))
        assert shown.of("h1")[0].text == "How 3 images were looked at"
        heads = [element.text for element in shown.of("th")[:2]]
        assert heads == ["image", "visual tokens"]
        (total,) = shown.of("tr", "total")
        assert total.text.split()[:3] == ["all", "10", "7"]  # visual tokens, tokens

    def test_pages_of_a_document(self) -> None:
        pages = [sight(replace(SAID, task="read", page=n), name=f"a.pdf, page {n}") for n in (1, 3)]
        shown = page(pages[0], Failure("a.pdf, page 2", "a.pdf, page 2: damaged", READ), pages[1])
        assert shown.of("h1")[0].text == "How 3 pages were read"
        names = [element.text for element in shown.of("h2")]
        assert names[1:4] == ["a.pdf, page 1", "a.pdf, page 2", "a.pdf, page 3"]

    def test_kinds_may_be_mixed(self) -> None:
        shown = page(sight(), sight(replace(SAID, task="read")), Failure("c.wav", "gone"))
        assert shown.of("h1")[0].text == "How 3 inputs were decoded"
        assert "24 × 16 pixels" in shown.of("table")[0].text

    def test_figures_are_the_report_s(self) -> None:
        text = words_of(page(sight()))
        report = SAID.report
        assert f"{report.tokens} tokens = {report.accepted} accepted" in text
        assert "pixels and encoder" in text
        assert "6 positions stand for it" in text

    def test_measured_beside_predicted(self) -> None:
        compared = {"hf": Comparison(True, None, True, 1.5, 1.25)}
        said = replace(SAID, report=replace(SAID.report, predicted_speedup=2.0))
        text = words_of(page(sight(said, compared=compared)))
        assert "Predicted 2.00×" in text
        assert "hf = equal 1.50× 1.25× –" in text
        assert "One run of one image is a hint" in text


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("page")
    for seed in range(2):
        picture(seed).save(folder / f"image{seed}.png")
    (folder / "paper.pdf").write_bytes(document(text("one"), text("two")))
    saved(folder / "target", "qwen2_vl")
    return folder


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Here:
    return Here(capsys)


class TestCommandLine:
    @pytest.mark.parametrize("batch", [1, 2])
    def test_captions(self, run: Here, place: Path, tmp_path: Path, batch: int) -> None:
        out = tmp_path / "deep" / "page.html"
        files = (place / "image0.png", place / "missing.png", place / "image1.png")
        looks = ("--grounding", 1, "--batch", batch, "--max-new-tokens", 6)
        options = ("-t", place / "target", "-d", "ngram", "-f", "json", *looks, "--report", out)
        done = run("caption", *files, *options)
        shown = Page(out.read_text(encoding="utf-8"))
        entries = [entry for entry in json.loads(done.out)["files"] if "ids" in entry]
        assert (done.code, len(entries)) == (2, 2)
        tips = [token.attributes["data-tip"] for token in shown.tokens]
        tokens = [id_ for entry in entries for id_ in entry["ids"]]
        assert [int(re.findall(r"id (\d+)", tip)[0]) for tip in tips] == tokens
        assert all("nats lost without the image" in tip for tip in tips)
        seen = [np.asarray(decoded(image.attributes["src"])) for image in shown.of("img")]
        assert all(
            np.array_equal(pixels, picture(seed)) for seed, pixels in zip((0, 1), seen, strict=True)
        )
        assert "missing.png" in shown.of("tr", "bad")[0].text

    @pytest.mark.parametrize("batch", [1, 2])
    def test_a_document(self, run: Here, place: Path, tmp_path: Path, batch: int) -> None:
        out = tmp_path / "page.html"
        options = ("-t", place / "target", "--max-new-tokens", 4, "--dpi", 10, "--batch", batch)
        plain = run("ocr", place / "paper.pdf", *options)
        done = run("ocr", place / "paper.pdf", *options, "--report", out)
        assert (done.code, done.out) == (plain.code, plain.out) == (0, plain.out)
        shown = Page(out.read_text(encoding="utf-8"))
        names = [e.text for e in shown.of("h2")][1:3]
        assert names == ["paper.pdf, page 1", "paper.pdf, page 2"]
        assert [decoded(e.attributes["src"]).size for e in shown.of("img")] == [(85, 110)] * 2
        assert html.unescape(shown.source).count("110 pixels") == 4  # in a heading, at a picture

    def test_a_place_that_cannot_be_is_one_line_at_once(
        self, run: Here, place: Path, tmp_path: Path
    ) -> None:
        done = run("caption", place / "image0.png", "-t", place / "target", "--report", tmp_path)
        assert (done.code, done.out) == (2, "")
        assert len(done.complaints) == len(done.err.splitlines()) == 1
        assert "--report" in done.err

    def test_what_was_measured(self, run: Here, place: Path, tmp_path: Path) -> None:
        out = tmp_path / "page.html"
        drafts = ("-d", "none", "-d", "ngram", "--compare", "plain", "--pairs", 2)
        options = ("-t", place / "target", *drafts, "--max-new-tokens", 4, "--grounding", 1)
        assert run("bench", "vlm", place / "image0.png", *options, "--report", out).code == 0
        shown = Page(out.read_text(encoding="utf-8"))
        names = [element.text for element in shown.of("h2")][1:3]
        assert names == ["image0.png, none", "image0.png, ngram"]
        assert len(shown.of("span", "same")) == 2 + 2  # in the overview and beside the times
        assert "Medians of 2 pairs of runs." in shown.source
        assert all("nats lost" in token.attributes["data-tip"] for token in shown.tokens)

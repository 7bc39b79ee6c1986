"""Reading pages back: every element of one, and made-up rounds and tokens to put on it."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any

from mmspec.report.report import Report, RoundStats
from mmspec.report.trace import Origin, Round

END = 999
VOID = {"meta", "link", "br", "img", "input", "hr", "wbr"}

WORDS = {
    1: b" so",
    2: b" far",
    3: b" away",
    4: b"<script>alert(1)</script>",
    5: b" & \"quoted\" 'text'",
    6: b"\xe2\x80\xaedesrever",  # a right-to-left override
    7: b"\x1b[31m\x00",
    8: b"\xe8\xaa",  # the first two bytes of one character ...
    9: b"\x9e",  # ... and the third
    10: b" ",
    11: b"\xe2\x80\x8d",  # a joiner, invisible
    12: b"\n",
}


class Tokenizer:
    """Decodes byte pieces, as Whisper's does."""

    all_special_ids = (END,)

    def decode(self, ids: list[int], **_: Any) -> str:
        return b"".join(WORDS.get(token, b"") for token in ids).decode("utf-8", errors="replace")

    def convert_ids_to_tokens(self, token: int) -> str:
        return "<|endoftext|>"


@dataclass
class Element:
    name: str
    attributes: dict[str, str]
    text: str = ""

    @property
    def classes(self) -> set[str]:
        return set(self.attributes.get("class", "").split())


@dataclass
class Page(HTMLParser):
    """Every element of a page; raises where it isn't well-formed."""

    source: str
    elements: list[Element] = field(default_factory=list)
    open: list[Element] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.feed(self.source)
        self.close()
        assert not self.open, f"never closed: {self.open}"

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), f"an attribute twice in {tag}: {names}"
        element = Element(tag, {name: value or "" for name, value in attrs})
        self.elements.append(element)
        if tag in ("td", "th", "li"):
            self.handle_data(" ")  # cells stand apart
        if tag not in VOID:
            self.open.append(element)

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        self.elements.append(Element(tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"nothing to close with </{tag}>"
        assert self.open[-1].name == tag, f"</{tag}> where <{self.open[-1].name}> is open"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        for element in self.open:
            element.text += data

    def of(self, name: str, of_class: str = "") -> list[Element]:
        return [
            element
            for element in self.elements
            if element.name == name and (not of_class or of_class in element.classes)
        ]

    @property
    def tokens(self) -> list[Element]:
        """The transcript's tokens, the legend's samples left out."""
        return [element for element in self.of("span", "token") if "data-tip" in element.attributes]


def round_of(
    proposal: tuple[int, ...], path: tuple[int, ...], own: int | None, **facts: Any
) -> Round:
    kept = tuple(proposal[i] for i in path)
    known = {
        "drafter": "ngram" if proposal else "none",
        "context": "",
        "rejected": own is not None and len(path) < len(proposal),
        "depth": len(proposal),
        "branches": int(bool(proposal)),
        "branch": 0 if path else None,
        "block": len(proposal) + 1,
        "draft_s": 0.001,
        "verify_s": 0.01,
    }
    emitted = kept if own is None else (*kept, own)
    return Round(proposal=proposal, path=path, emitted=emitted, **(known | facts))


def tallied(*rounds: Round, **changes: Any) -> tuple[tuple[int, ...], tuple[Origin, ...], Report]:
    """What these rounds emit, where each token is from, and the report of it all."""
    tally = RoundStats()
    for done in rounds:
        tally.add(done)
    report = tally.report(
        target_forwards=len(rounds),
        drafter_forwards=0,
        conditioning="none",
        encoder_runs=1,
        drafter_encoder_runs=0,
        seconds=dict.fromkeys(("encode", "prefill", "draft", "verify", "reconcile", "post"), 0.5),
        parity="L0",
        finish_reason="stop",
        **changes,
    )
    tokens = tuple(token for done in rounds for token in done.emitted)
    return tokens, tuple(tally.origins()), report

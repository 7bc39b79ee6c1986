"""The manual as data: pages, their code blocks, headings and links."""

import re
from dataclasses import dataclass
from pathlib import Path

from markdown.extensions.toc import slugify  # type: ignore[import-untyped,unused-ignore]

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A fenced code block: its kind, its text, and the line where the text starts."""

    kind: str
    text: str
    line: int


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def read(page: Path | str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def blocks(page: Path) -> list[Block]:
    text = read(page)
    return [
        Block(found[1], found[2], text.count("\n", 0, found.start()) + 2)
        for found in _FENCE.finditer(text)
    ]


def prose(page: Path | str) -> str:
    """A page without its code blocks."""
    return _FENCE.sub("", read(page))


def anchors(page: Path) -> set[str]:
    """What a link to a heading of this page may name."""
    headings = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {slugify(heading.replace("`", ""), "-") for heading in headings}


def links(page: Path) -> list[str]:
    return re.findall(r"\]\(([^)\s]+)\)", prose(page))


def section(page: Path | str, heading: str) -> str:
    """The text under a heading, up to the next one of its level."""
    _, found, rest = prose(page).partition(f"\n## {heading}\n")
    if not found:
        raise AssertionError(f"{page} has no section {heading!r}")
    return rest.partition("\n## ")[0]


def first_cells(text: str) -> list[str]:
    """The first cell of every table row, headings left out."""
    rows = [line.split("|")[1].strip() for line in text.splitlines() if line.startswith("|")]
    return [row for row in rows if "`" in row]

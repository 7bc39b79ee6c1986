"""English prose from Debian packages, as lines to be spoken.

    apt install anarchism bible-kjv bible-kjv-text debian-handbook dict-devil dict-gcide fortunes \
        jargon-text wordnet-base
    python samples/recipe/ctc/texts.py --data DATA

Writes `DATA/texts.tsv`: `train` or `held`, the source, and one to three neighbouring sentences. A
sentence stands in one line at most, and a hash of its letters decides on which side, so that what
is held out stays held out whatever is drawn.
"""

import argparse
import gzip
import hashlib
import html
import random
import re
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path

HELD_SHARE = 0.03
_LONGEST = 230  # characters of a line: some 15 s of speech
_GOOD = re.compile(r"[A-Z][A-Za-z0-9',!?.\- ]{14,170}[.?!]")
_ODD = re.compile(
    r"\d{5}|\d[A-Za-z]|[a-z][A-Z]|[A-Z]{4}|\b[b-hj-z]\b|'(?!\w)|(?<!\w)'| -|- |,,|\w\.\w|\.\."
)
_MOST = {"bible": 6000, "gcide": 20000, "wordnet": 20000, "jargon": 6000}  # lines


def sentences(paragraph: str) -> Iterator[list[str]]:
    """Runs of neighbouring sentences that can be read aloud as they stand."""
    text = re.sub(r"\[[^\]]*\]|\([^)]*\)|[\"“”*]|``|''", "", paragraph)
    text = text.replace("\u2019", "'").replace("_", "")
    # Whisper seldom writes a colon or a dash; a comma is what it hears.
    text = re.sub(r"\s*(?:--+|—|–|;|:)\s*", ", ", text)
    text = re.sub(r"\s+", " ", text).strip()
    run: list[str] = []
    for sentence in re.split(r"(?<=[a-z0-9',][.?!]) (?=[A-Z])", text):
        words = sentence.split()
        if _GOOD.fullmatch(sentence) and not _ODD.search(sentence) and 4 <= len(words) <= 34:
            run.append(re.sub(r" ([,.?!])|,(?=[,.?!])", r"\1", sentence))
        elif run:
            yield run
            run = []
    if run:
        yield run


def _pages(folder: str) -> Iterator[str]:
    for path in sorted(Path(folder).rglob("*.html")):
        text = re.sub(r"(?s)<(script|style|pre).*?</\1>", " ", path.read_text(errors="ignore"))
        text = re.sub(r"</?(p|br|h\d|li|div|td|blockquote)\b[^>]*>", "\n\n", text)
        yield from html.unescape(re.sub(r"<[^>]+>", "", text)).split("\n\n")


def _unpacked(path: str) -> str:
    return gzip.decompress(Path(path).read_bytes()).decode("utf-8", "ignore")


def _dictionary(name: str) -> Iterator[str]:
    text = _unpacked(f"/usr/share/dictd/{name}.dict.dz")
    for entry in re.split(r"\n\s*\n", text):
        entry = re.sub(r"^\S.*\n", "", entry) if name == "gcide" else entry
        entry = re.sub(r"--\s*[A-Z][\w. ]+|\b\d+\.\s", " ", entry)
        yield re.sub(r"[{}]", "", entry)


def _bible() -> Iterator[str]:
    command = ["bible", "-l100000", "gen1:1-rev22:21"]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    for chapter in re.split(r"(?m)^\S.*$", text):
        yield from re.split(r"\d+ ", chapter.replace("LORD", "Lord").replace("GOD", "God"))


def _fortunes() -> Iterator[str]:
    for path in sorted(Path("/usr/share/games/fortunes").glob("*.u8")):
        for entry in path.read_text(errors="ignore").split("\n%\n"):
            yield re.sub(r"(?m)^\s*--.*(\n\s.*)*", "", entry)


def _jargon() -> Iterator[str]:
    yield from _unpacked("/usr/share/doc/jargon-text/jargon.txt.gz").split("\n\n")


def _wordnet() -> Iterator[str]:
    for kind in ("noun", "verb", "adj", "adv"):
        for line in Path(f"/usr/share/wordnet/data.{kind}").read_text().splitlines():
            for example in re.findall(r'"([^"]+)"', line.partition("|")[2]):
                end = "" if example[-1] in ".?!" else "."
                yield example[0].upper() + example[1:] + end


SOURCES = {
    "anarchism": lambda: _pages("/usr/share/doc/anarchism/html"),
    "bible": _bible,
    "devil": lambda: _dictionary("devil"),
    "fortunes": _fortunes,
    "gcide": lambda: _dictionary("gcide"),
    "handbook": lambda: _pages("/usr/share/doc/debian-handbook/html/en-US"),
    "jargon": _jargon,
    "wordnet": _wordnet,
}


def held_out(sentence: str) -> bool:
    """Whether a sentence is kept for validation: a function of its letters alone."""
    letters = re.sub(r"[^a-z]", "", sentence.lower())
    return hashlib.sha256(letters.encode()).digest()[0] < 256 * HELD_SHARE


def lines(
    paragraphs: Iterable[str], seen: set[str], draw: random.Random
) -> Iterator[tuple[bool, str]]:
    """Whether held out, and one to three neighbouring sentences, none of them in `seen`."""
    for paragraph in paragraphs:
        for run in sentences(paragraph):
            side, line, wanted = False, "", draw.choice((1, 1, 2, 3))
            for sentence in run:
                letters = re.sub(r"[^a-z]", "", sentence.lower())
                if letters in seen:
                    continue
                seen.add(letters)
                longer, other_side = f"{line} {sentence}", held_out(sentence) != side
                if (line and not wanted) or other_side or len(longer) > _LONGEST:
                    if line:
                        yield side, line
                    side, line, wanted = held_out(sentence), "", draw.choice((1, 1, 2, 3))
                line, wanted = f"{line} {sentence}".strip(), wanted - 1
            if line:
                yield side, line


def main() -> None:
    """Writes the lines."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--data", type=Path, required=True)
    data: Path = options.parse_args().data
    data.mkdir(parents=True, exist_ok=True)
    draw, seen, rows = random.Random(1), set[str](), []
    for source, paragraphs in SOURCES.items():
        found = list(lines(paragraphs(), seen, draw))
        draw.shuffle(found)
        found = found[: _MOST.get(source)]
        rows += [f"{'held' if held else 'train'}\t{source}\t{line}" for held, line in found]
        words = sum(line.count(" ") + 1 for _, line in found)
        print(f"{source}: {len(found)} lines, {words} words", flush=True)
    draw.shuffle(rows)
    (data / "texts.tsv").write_text("\n".join(rows) + "\n")


if __name__ == "__main__":
    main()

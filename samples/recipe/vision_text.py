"""The texts of the vision sample: what is printed on the images, and what is said of the scenes.

A line of print mixes ordinary words, strings of letters no language has, numbers and the sentences
of `grammar.py`, so that a model which spells instead of reading loses. What is held out is a
function of the text alone: a word, a clause or a caption is on one side of the split for good. (A
training sentence of the grammar may have a word that is held out as a word.)
"""

import random
import string
import zlib
from dataclasses import dataclass
from pathlib import Path

from grammar import utterance, vocabulary

READ, DESCRIBE = "Read the text.", "Describe the image."
COUNT, COLOURS_OF = "How many shapes?", "Which colours?"
INSTRUCTIONS = (READ, DESCRIBE, COUNT, COLOURS_OF)

SHAPES = ("circle", "square", "triangle", "cross")
COLOURS = {
    "red": (214, 38, 38),
    "green": (36, 150, 52),
    "blue": (40, 72, 214),
    "yellow": (240, 214, 40),
    "orange": (245, 136, 24),
    "black": (24, 24, 24),
    "pink": (248, 150, 192),
}
SIZES = ("small", "large")
_NUMBERS = ("no", "one", "two", "three")
_HELD_OUT_SHARE = 0.1
_MARKED = ("({})", '"{}"', "'{}'", "{}-", "{}%", "{}/", "&{}", "${}", "{}+", "#{}")

_WORDS = (Path(__file__).parent / "vision_words.txt").read_text().split()
_EVERY_WORD = sorted({*_WORDS, *vocabulary()})


def is_held_out(text: str) -> bool:
    """Whether training must never see this word or caption."""
    return zlib.crc32(text.lower().encode()) < _HELD_OUT_SHARE * 2**32


_TRAINING_WORDS = [word for word in _EVERY_WORD if not is_held_out(word)]
_HELD_OUT_WORDS = [word for word in _EVERY_WORD if is_held_out(word)]


def _letters(rng: random.Random) -> str:
    return "".join(rng.choices(string.ascii_lowercase, k=rng.randint(2, 8)))


def _word(rng: random.Random, held_out: bool) -> str:
    """A word with its capitals and punctuation."""
    kind = rng.random()
    if kind < 0.06:
        return str(rng.randint(0, 10 ** rng.randint(1, 5)))
    if kind < 0.3:
        word = _letters(rng)
        while is_held_out(word) != held_out:
            word = _letters(rng)
    else:
        word = rng.choice(_HELD_OUT_WORDS if held_out else _TRAINING_WORDS)
    style = rng.random()
    if style < 0.15:
        word = word.capitalize()
    elif style < 0.19:
        word = word.upper()
    mark = rng.random()
    if mark < 0.14:
        word += rng.choice(".,.,.,;:!?")
    elif mark < 0.17:
        word = rng.choice(_MARKED).format(word)
    return word


def words(rng: random.Random, longest: int, *, held_out: bool) -> str:
    """A line of mixed words of at most `longest` characters.

    In a held-out line every word of letters is held out.
    """
    line = _word(rng, held_out)[:longest].strip()
    while len(longer := f"{line} {_word(rng, held_out)}") <= longest:
        line = longer
    return line


def sentences(rng: random.Random, longest: int, lines: int, *, held_out: bool) -> list[str]:
    """`lines` lines of at most `longest` characters, filled with the sentences of the grammar."""
    filled: list[str] = [""]
    while True:
        for word in " ".join(utterance(rng, held_out=held_out)).split():
            longer = f"{filled[-1]} {word}".strip()
            if len(longer) <= longest:
                filled[-1] = longer
            elif len(filled) == lines:
                return filled
            else:
                filled.append(word[:longest])


def paragraph(rng: random.Random, longest: int, lines: int, *, held_out: bool) -> list[str]:
    """A paragraph of one kind: sentences of the grammar, or mixed words."""
    if longest >= 12 and rng.random() < 0.5:
        return sentences(rng, longest, lines, held_out=held_out)
    return [words(rng, longest, held_out=held_out) for _ in range(lines)]


@dataclass(frozen=True, slots=True)
class Thing:
    """One shape of a scene."""

    size: str
    colour: str
    shape: str

    def __str__(self) -> str:
        """The thing with its article."""
        return f"a {self.size} {self.colour} {self.shape}"


@dataclass(frozen=True, slots=True)
class Scene:
    """One to three things, in a row from left to right or in a column from the top down."""

    things: tuple[Thing, ...]
    in_row: bool

    @property
    def caption(self) -> str:
        """The one right description."""
        if len(self.things) == 1:
            return str(self.things[0])
        if len(self.things) == 2:
            return f" {'left of' if self.in_row else 'above'} ".join(map(str, self.things))
        first, second, third = self.things
        return f"{first}, {second} and {third} in a {'row' if self.in_row else 'column'}"

    def answer(self, instruction: str) -> str:
        """The right answer to one of the instructions about scenes."""
        if instruction == COUNT:
            return _NUMBERS[len(self.things)]
        if instruction == COLOURS_OF:
            return " and ".join(dict.fromkeys(thing.colour for thing in self.things))
        return self.caption


def scene(rng: random.Random, *, held_out: bool) -> Scene:
    """A scene whose caption is on the wanted side of the split."""
    while True:
        things = tuple(
            Thing(rng.choice(SIZES), rng.choice(list(COLOURS)), rng.choice(SHAPES))
            for _ in range(rng.choices([1, 2, 3], [1, 3, 2])[0])
        )
        drawn = Scene(things, rng.random() < 0.5)
        if is_held_out(drawn.caption) == held_out:
            return drawn

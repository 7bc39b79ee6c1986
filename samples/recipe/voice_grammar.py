"""The closed domain of the voice sample: short commands and reports, two to three seconds each.

The words are ones that a listener can't mistake for each other. A hash of a sentence's text decides
whether it is held out, so training and test never share a sentence, whatever the seed.
"""

import random
import re
import zlib

from grammar import normalize

RULES: dict[str, list[str]] = {
    "sentence": [
        "{Keep} the {adjective} {thing} {where} the {room}.",
        "Please {keep} the {thing} {where} the {adjective} {furniture}.",
        "The {person} {found} the {adjective} {thing} {when}.",
        "The {person} {found} the {thing} {where} the {place}.",
        "Please bring the {adjective} {thing} to the {place}.",
        "The {vehicle} to the {place} leaves {when}.",
        "We need {number} {things} for the {place}.",
        "Open the {room} {opening} {when}.",
    ],
    "Keep": ["Keep", "Leave", "Hide"],
    "keep": ["keep", "leave", "hide"],
    "found": ["found", "lost", "sold", "painted"],
    "where": ["in", "behind", "under", "beside"],
    "person": ["doctor", "teacher", "driver", "farmer", "captain"],
    "adjective": ["red", "blue", "green", "yellow", "black", "small", "heavy", "broken"],
    "thing": ["bottle", "letter", "basket", "blanket", "camera", "hammer", "jacket", "ticket",
              "mirror", "pencil"],
    "things": ["bottles", "letters", "baskets", "blankets", "cameras", "jackets", "tickets",
               "mirrors", "pencils"],
    "furniture": ["table", "sofa", "piano"],
    "opening": ["window", "door"],
    "room": ["kitchen", "bedroom", "garage", "office", "garden"],
    "place": ["station", "market", "museum", "village", "hospital", "airport", "school", "library"],
    "vehicle": ["train", "bus", "ferry"],
    "number": ["two", "three", "four", "seven", "nine", "ten"],
    "when": ["today", "tonight", "tomorrow", "on Monday", "on Friday", "on Sunday",
             "before lunch", "after dinner", "this morning", "this evening"],
}  # fmt: skip

CHARACTERS = " .abcdefghijklmnopqrstuvwxyz"
_HELD_OUT_SHARE = 0.1


def vocabulary() -> set[str]:
    """The different words of the domain, in lower case."""
    alternatives = (text for rule in RULES.values() for text in rule)
    return {
        word for text in alternatives for word in normalize(re.sub(r"\{\w+\}", "", text)).split()
    }


def is_held_out(sentence: str) -> bool:
    """Whether training must never see this sentence."""
    return zlib.crc32(normalize(sentence).encode()) < _HELD_OUT_SHARE * 2**32


def _expand(symbol: str, rng: random.Random) -> str:
    text = rng.choice(RULES[symbol])
    return re.sub(r"\{(\w+)\}", lambda match: _expand(match[1], rng), text)


def sentences(count: int, *, held_out: bool, seed: int = 0) -> list[str]:
    """`count` different sentences of one side of the split."""
    rng = random.Random(f"voice-{held_out}-{seed}")
    drawn: dict[str, None] = {}
    while len(drawn) < count:
        sentence = _expand("sentence", rng)
        if is_held_out(sentence) == held_out:
            drawn[sentence] = None
    return list(drawn)

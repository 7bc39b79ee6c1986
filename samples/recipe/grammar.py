"""The closed domain of the sample models: everyday commands and reports.

A rule is a list of alternatives; `{name}` in one stands for an alternative of that rule. Whether a
sentence belongs to training or is held out is a function of its text alone, so the two never share
a sentence, whatever the seed and however many are drawn.
"""

import random
import re
import zlib
from collections.abc import Iterable

RULES: dict[str, list[str]] = {
    "clause": [
        "{put} the {adjective} {thing} {where} the {room}",
        "please {put} the {thing} {where} the {adjective} {furniture}",
        "turn {on_off} the {device} in the {room}",
        "please {open} the {room} {opening} {when}",
        "the {vehicle} to the {place} leaves at {hour} {minutes}",
        "{name} {moved} {number} {adjective} {things} to the {place}",
        "the {person} {found} the {adjective} {thing} {where} the {place}",
        "we {need} {number} {containers} of {food} for {meal}",
        "there will be {weather} near the {place} {when}",
        "{name} {wants} to visit the {place} with {owner} {relative}",
        "{owner} {relative} {saw} {number} {animals} {where} the {place}",
        "the {room} is too {state} for the {animals}",
        "remember to call the {person} {when}",
        "{do} the {adjective} {thing} before {meal}",
    ],
    "joint": ["and", "but", "and then"],
    "put": ["put", "leave", "hide", "keep", "place"],
    "open": ["open", "close", "lock", "clean", "check"],
    "do": ["repair", "wash", "bring", "carry", "sell", "paint"],
    "moved": ["carried", "moved", "brought", "sent", "returned"],
    "found": ["found", "lost", "bought", "sold", "broke", "forgot", "repaired", "painted"],
    "need": ["need", "ordered", "prepared", "want", "have"],
    "wants": ["wants", "hopes", "plans", "promised", "decided"],
    "saw": ["saw", "heard", "fed", "followed", "counted"],
    "on_off": ["on", "off"],
    "where": ["in", "behind", "under", "beside", "near", "above"],
    "owner": ["my", "your", "our", "her", "his"],
    "name": ["Peter", "Maria", "Thomas", "Julia", "Robert", "Susan", "Oliver", "Emma", "Daniel"],
    "person": [
        "doctor", "teacher", "driver", "farmer", "captain", "lawyer", "painter", "singer",
        "visitor", "neighbor", "manager", "sailor", "engineer",
    ],
    "relative": ["sister", "brother", "mother", "father", "uncle", "cousin", "daughter", "friend"],
    "adjective": [
        "red", "blue", "green", "yellow", "black", "white", "brown", "orange", "purple", "silver",
        "golden", "small", "large", "heavy", "broken", "empty", "dirty", "wooden", "old", "new",
    ],
    "thing": [
        "bottle", "box", "letter", "basket", "blanket", "jacket", "camera", "hammer", "ladder",
        "ticket", "umbrella", "bucket", "mirror", "pencil", "notebook", "suitcase", "guitar",
        "candle", "carpet", "pillow", "teapot", "bicycle", "engine", "picture",
    ],
    "things": [
        "bottles", "boxes", "letters", "baskets", "blankets", "cameras", "ladders", "tickets",
        "mirrors", "pencils", "candles", "pictures", "suitcases", "chairs",
    ],
    "furniture": ["table", "chair", "shelf", "sofa", "cupboard", "desk", "piano"],
    "device": ["lamp", "radio", "heater", "music", "television", "oven", "fan", "computer"],
    "opening": ["window", "door", "gate", "curtain"],
    "room": [
        "kitchen", "bedroom", "garage", "office", "cellar", "hallway", "bathroom", "garden",
        "library", "attic",
    ],
    "place": [
        "station", "market", "museum", "village", "hospital", "harbor", "airport", "theater",
        "school", "bakery", "castle", "forest", "river", "mountain", "bridge", "library", "garden",
        "factory", "island",
    ],
    "vehicle": ["train", "bus", "ferry", "plane", "taxi"],
    "hour": ["six", "seven", "eight", "nine", "ten", "eleven"],
    "minutes": ["fifteen", "twenty", "thirty", "forty", "fifty"],
    "number": [
        "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "twelve",
        "twenty", "thirty", "a hundred",
    ],
    "containers": ["bottles", "boxes", "bags", "pounds", "buckets", "cups"],
    "food": ["bread", "butter", "coffee", "sugar", "soup", "cheese", "honey", "pepper", "rice",
             "potatoes", "apples", "milk", "water"],
    "meal": ["breakfast", "lunch", "dinner", "the party", "the journey"],
    "weather": ["rain", "snow", "wind", "fog", "a storm", "sunshine", "thunder"],
    "state": ["cold", "warm", "dark", "noisy", "crowded", "hot"],
    "animals": ["dogs", "cats", "horses", "ducks", "rabbits", "birds", "sheep", "chickens"],
    "when": [
        "today", "tonight", "tomorrow", "on {day}", "on {day} {part}", "tomorrow {part}",
        "before {meal}", "after {meal}", "this {part}",
    ],
    "day": ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"],
    "part": ["morning", "afternoon", "evening"],
}  # fmt: skip

_HELD_OUT_SHARE = 0.1


def vocabulary() -> set[str]:
    """The different words of the domain, in lower case."""
    alternatives = (text for rule in RULES.values() for text in rule)
    return {word.lower() for text in alternatives for word in re.sub(r"\{\w+\}", " ", text).split()}


def normalize(text: str) -> str:
    """Text as it is scored: lower case, words only.

    >>> normalize(" Turn on the lamp, and call Emma.")
    'turn on the lamp and call emma'
    """
    return " ".join(re.findall(r"[a-z]+", text.lower()))


def is_held_out(clause: str) -> bool:
    """Whether training must never see this clause."""
    return zlib.crc32(normalize(clause).encode()) < _HELD_OUT_SHARE * 2**32


def _expand(symbol: str, rng: random.Random) -> str:
    text = rng.choice(RULES[symbol])
    return re.sub(r"\{(\w+)\}", lambda match: _expand(match[1], rng), text)


def _clause(rng: random.Random, held_out: bool) -> str:
    while True:
        clause = _expand("clause", rng)
        if is_held_out(clause) == held_out:
            return clause


def utterance(rng: random.Random, *, held_out: bool) -> list[str]:
    """One or two sentences, each a segment; a sentence has one or two clauses.

    Every clause of an utterance lies on the same side of the split.
    """
    kind = rng.choices(["one clause", "two clauses", "two sentences"], [4, 3, 3])[0]
    if kind == "two clauses":
        joint = _expand("joint", rng)
        parts = [f"{_clause(rng, held_out)}, {joint} {_clause(rng, held_out)}"]
    else:
        parts = [_clause(rng, held_out) for _ in range(2 if kind == "two sentences" else 1)]
    return [part[0].upper() + part[1:] + "." for part in parts]


def corpus(count: int, *, seed: int, held_out: bool) -> Iterable[str]:
    """`count` utterances as Whisper writes them: each segment begins with a space."""
    for index in range(count):
        rng = random.Random(f"corpus-{seed}-{index}")
        yield "".join(f" {segment}" for segment in utterance(rng, held_out=held_out))

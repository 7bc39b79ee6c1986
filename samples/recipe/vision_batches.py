"""Training batches of the vision sample: a function of the seed and the step alone.

All images of a batch have one size. Shapes: B images, N patches, T text positions (the characters
of the text and its end).
"""

import random
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from vision_images import (
    END_WIDTH,
    FACES,
    FONT_SIZES,
    PATCH,
    Drawn,
    characters_within,
    draw_lines,
    draw_scene,
    shorten,
)
from vision_text import (
    COLOURS,
    COLOURS_OF,
    COUNT,
    DESCRIBE,
    INSTRUCTIONS,
    SHAPES,
    SIZES,
    paragraph,
    scene,
)

IGNORED = -100
# What is known of a patch, in the order of the dense head's outputs: the characters in its thirds,
# the three before its middle and the one after; or colour, shape and size of the thing there.
OFFSETS = (None, None, None, -1, -2, -3, 1)
_ROWS, _PATCHES = 24, 2000  # of a batch, at most
BLANK = 0  # class of no character; others are the byte plus one
END = 128  # of the text; the text itself is ASCII
CHARACTER_CLASSES = 130
THING_CLASSES = tuple(1 + len(kind) for kind in (COLOURS, SHAPES, SIZES))


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Bytes [B, H, W, 3], instruction numbers [B], text [B, T] and what is known of the patches.

    `text` holds bytes, then `END`, then `IGNORED`. `dense` is [B, N, 7] for print and [B, N, 3] for
    scenes. `cover` [B, T, N] marks where a text position is to be seen.
    """

    images: Tensor
    instructions: Tensor
    text: Tensor
    cover: Tensor
    dense: Tensor
    is_print: bool


def page(
    rng: random.Random,
    height: int,
    width: int,
    lines: int,
    *,
    held_out: bool,
    unrest: float = 1.0,
    face: str = "",
) -> Drawn:
    """`lines` lines of print on an image of this size."""
    face = face or rng.choice(list(FACES))
    size = rng.choice(FONT_SIZES)
    room = width - 4 - END_WIDTH
    longest = characters_within(face, size, room)
    if rng.random() < 0.3:
        longest = rng.randint(2, longest)
    texts = paragraph(rng, longest, lines, held_out=held_out)
    texts = [shorten(text, face, size, room) for text in texts]
    return draw_lines(texts, face, size, height, width, rng, unrest=unrest)


def collate(drawn: list[Drawn]) -> Batch:
    """Puts images of one size and one kind together."""
    longest = max(len(d.cover) for d in drawn)
    patches = drawn[0].cover.shape[1]
    text = np.full((len(drawn), longest), IGNORED)
    cover = np.zeros((len(drawn), longest, patches), bool)
    dense = []
    for row, d in enumerate(drawn):
        sequence = np.array([*d.text.encode("ascii"), END])
        text[row, : len(sequence)] = sequence
        cover[row, : len(d.cover)] = d.cover
        dense.append(d.things if d.places is None else _characters(d.places, sequence + 1))
    return Batch(
        torch.from_numpy(np.stack([d.image for d in drawn])),
        torch.tensor([INSTRUCTIONS.index(d.instruction) for d in drawn]),
        torch.from_numpy(text),
        torch.from_numpy(cover),
        torch.from_numpy(np.stack(dense)),
        drawn[0].places is not None,
    )


def _characters(places: np.ndarray, classes: np.ndarray) -> np.ndarray:
    left, middle, right = places.T
    middle = np.where(middle >= 0, middle, np.where(left >= 0, left, right))
    known = []
    for kind, offset in enumerate(OFFSETS):
        position = places[:, kind] if offset is None else middle + offset
        inside = (position >= 0) & (position < len(classes)) & (middle >= 0)
        value = np.where(inside, classes[np.clip(position, 0, len(classes) - 1)], BLANK)
        # The surroundings of a place without print are nobody's business.
        known.append(value if offset is None else np.where(middle >= 0, value, IGNORED))
    return np.stack(known, -1)


def draw_batch(
    seed: int, step: int, growth: float = 1.0, unrest: float = 1.0, *, held_out: bool = False
) -> Batch:
    """The batch of a step; `growth` from 0 to 1 is how long print may be, `unrest` how unruly."""
    rng = random.Random(f"vision-{seed}-{step}")
    shares = {"line": 0.45 - 0.2 * growth, "page": 0.05 + 0.6 * growth, "scene": 0.2}
    kind = rng.choices(list(shares), list(shares.values()))[0]
    if kind == "scene":
        height, width = (PATCH * rng.randint(8, 10) for _ in range(2))
        wanted = [rng.choices([DESCRIBE, COUNT, COLOURS_OF], [7, 2, 2])[0] for _ in range(_ROWS)]
        scenes = [scene(rng, held_out=held_out) for _ in wanted]
        pairs = zip(scenes, wanted, strict=True)
        return collate([draw_scene(s, height, width, rng, w) for s, w in pairs])
    if kind == "line":
        lines, columns = 1, rng.randint(6, round(12 + 18 * growth))
    else:
        lines, columns = (
            rng.randint(2, round(2 + 2 * growth)),
            rng.randint(9, round(12 + 14 * growth)),
        )
    rows = 2 * lines + rng.choice([0, 0, 1])
    shape = PATCH * rows, PATCH * columns
    size = min(_ROWS, max(4, _PATCHES // (rows * columns)))
    return collate(
        [page(rng, *shape, lines, held_out=held_out, unrest=unrest) for _ in range(size)]
    )

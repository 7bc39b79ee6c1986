"""Draws the images of the vision sample, and knows what lies where on them.

Shapes: N patches of an image in reading order (rows from the top), T text positions: the
characters of the text and one more for its end.
"""

import math
import random
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

import numpy as np
from PIL import Image, ImageDraw, ImageFont
from vision_text import COLOURS, DESCRIBE, READ, SHAPES, SIZES, Scene, Thing

PATCH = 12
MEAN, SPREAD = 0.8, 0.3  # of pixels from 0 to 1: paper near 0
FONT_FOLDER = "/usr/share/fonts/truetype"
FACES = {
    "DejaVu Sans": "dejavu/DejaVuSans.ttf",
    "DejaVu Sans Mono": "dejavu/DejaVuSansMono.ttf",
    "Liberation Sans": "liberation/LiberationSans-Regular.ttf",
    "Liberation Serif": "liberation/LiberationSerif-Regular.ttf",
}
FONT_SIZES = range(15, 19)
LINE_PITCH = 2 * PATCH
_BASELINE = 20  # of the first line; small letters then lie in one row of patches
END_WIDTH = PATCH  # free pixels after a line, where its end is to be seen
_SUPERSAMPLING = 4
_RADII = {"small": (6.0, 7.0), "large": (11.0, 13.0)}


@dataclass(frozen=True, slots=True, eq=False)
class Drawn:
    """An image [H, W, 3] of bytes and what is to be said of it.

    `places` [N, 3] is for print: the text position in the left, middle and right third of each
    patch, -1 where there is none. `things` [N, 3] is for scenes: colour, shape and size at each
    patch, counted from 1. `cover` [T, N] marks the patches on which each text position is seen.
    """

    image: np.ndarray
    instruction: str
    text: str
    cover: np.ndarray
    places: np.ndarray | None = None
    things: np.ndarray | None = None


@cache
def font(face: str, size: int) -> ImageFont.FreeTypeFont:
    """The face at a size in pixels."""
    return ImageFont.truetype(f"{FONT_FOLDER}/{FACES[face]}", size)


@cache
def _advance(face: str, size: int) -> float:
    return font(face, size).getlength("abcdefghijklmnopqrstuvwxyz in the") / 33


@cache
def _letter_width(face: str, size: int, letter: str) -> float:
    return font(face, size).getlength(letter)


def characters_within(face: str, size: int, width: int) -> int:
    """About how many characters fit `width` pixels."""
    return max(2, int(width / _advance(face, size)))


def shorten(text: str, face: str, size: int, width: int) -> str:
    """As many of the words, or of the first word's letters, as fit `width` pixels."""
    written = font(face, size)
    while written.getlength(text) > width:
        text = text.rpartition(" ")[0] or text[:-1]
    return text


def _ink(rng: random.Random) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Colours of letters and paper, far apart in brightness."""
    dark, light = rng.randint(0, 60), rng.randint(205, 245)
    ink = tuple(dark + rng.randint(0, 20) for _ in range(3))
    return ink, tuple(light + rng.randint(0, 10) for _ in range(3))


def _finish(image: Image.Image, rng: random.Random, noisiest: float = 10.0) -> np.ndarray:
    pixels = np.asarray(image, np.float32)
    if rng.random() < 0.6:
        noise = np.random.default_rng(rng.getrandbits(62))
        spread = rng.uniform(1, noisiest)
        pixels = pixels + spread * noise.standard_normal((*pixels.shape[:2], 1), np.float32)
    return np.clip(pixels, 0, 255).astype(np.uint8)


@cache
def _centres(height: int, width: int, x_offset: float) -> np.ndarray:
    """A point [N, 2] (x, y) in each patch."""
    y, x = np.mgrid[0 : height // PATCH, 0 : width // PATCH]
    return np.stack([PATCH * x + x_offset, PATCH * y + PATCH / 2], -1).reshape(-1, 2)


def _turn(points: np.ndarray, angle: float, height: int, width: int) -> np.ndarray:
    """Points turned by `angle` degrees, clockwise on the screen, about the middle."""
    middle = np.array([width / 2, height / 2])
    cos, sin = math.cos(math.radians(angle)), math.sin(math.radians(angle))
    return (points - middle) @ np.array([[cos, sin], [-sin, cos]]) + middle


def _lay_out(lines: list[str], face: str, size: int, left: float, baseline: float) -> np.ndarray:
    """The box [T, 4] (left, right, top, bottom) of every text position, unturned."""
    written = font(face, size)
    boxes = []
    for row, line in enumerate(lines):
        # Letter by letter and then stretched: kerning moves an edge by less than a pixel.
        edges = np.cumsum([0.0] + [_letter_width(face, size, letter) for letter in line])
        edges *= written.getlength(line) / max(edges[-1], 1.0)
        edges = [*(left + edges), left + edges[-1] + END_WIDTH]
        middle = baseline + row * LINE_PITCH
        # One row of patches says what the letter is; the row above holds only what rises higher.
        top, bottom = middle - 0.5 * size, middle + 0.2 * size
        boxes += [(a, b, top, bottom) for a, b in pairwise(edges)]
    return np.array(boxes)


def draw_lines(
    lines: list[str],
    face: str,
    size: int,
    height: int,
    width: int,
    rng: random.Random,
    *,
    unrest: float = 1.0,
    rows_above: int | None = None,
) -> Drawn:
    """Prints lines `LINE_PITCH` pixels apart; they must fit `width - 4 - END_WIDTH` pixels.

    Without `rows_above`, chance says how many of the free rows of patches are above the print.
    `unrest` from 0 to 1 is how far print may be off its rows of patches, turned and noisy.
    """
    written = font(face, size)
    ink, paper = _ink(rng)
    image = Image.new("RGB", (width, height), paper)
    pen = ImageDraw.Draw(image)
    widest = max(written.getlength(line) for line in lines)
    left = 2 + rng.random() * min(PATCH, max(0, width - 4 - END_WIDTH - widest))
    if rows_above is None:
        rows_above = rng.randint(0, (height - len(lines) * LINE_PITCH) // PATCH)
    baseline = _BASELINE + PATCH * rows_above + unrest * rng.uniform(-0.8, 0.5)
    for row, line in enumerate(lines):
        pen.text((left, baseline + row * LINE_PITCH), line, ink, written, anchor="ls")
    angle = 0.0
    if rng.random() < 0.25 * unrest:
        # At the ends of a line the turn moves the print by at most one and a half pixels.
        angle = rng.uniform(-1, 1) * math.degrees(3 / width)
        image = image.rotate(angle, Image.Resampling.BILINEAR, fillcolor=paper)
    boxes = _lay_out(lines, face, size, left, baseline)
    places = np.stack(
        [
            _which(boxes, _turn(_centres(height, width, x), angle, height, width))
            for x in (PATCH / 6, PATCH / 2, 5 * PATCH / 6)
        ],
        -1,
    )
    middles = np.stack([boxes[:, :2].mean(1), boxes[:, 2:].mean(1)], -1)
    cover = _cover(places, _turn(middles, -angle, height, width), height, width)
    pixels = _finish(image, rng, 3 + 5 * unrest)
    return Drawn(pixels, READ, "\n".join(lines), cover, places=places)


def _which(boxes: np.ndarray, points: np.ndarray) -> np.ndarray:
    """The index of the box around each point, or -1; boxes don't overlap."""
    x, y = points[:, :1], points[:, 1:]
    inside = (boxes[:, 0] <= x) & (x < boxes[:, 1]) & (boxes[:, 2] <= y) & (y < boxes[:, 3])
    return np.where(inside.any(1), inside.argmax(1), -1)


def _cover(places: np.ndarray, middles: np.ndarray, height: int, width: int) -> np.ndarray:
    columns, rows = width // PATCH, height // PATCH
    cover = np.zeros((len(middles), rows * columns), bool)
    # A letter may be narrower than the distance of two sampled points; its middle is never missed.
    x = np.clip(middles[:, 0] // PATCH, 0, columns - 1).astype(int)
    y = np.clip(middles[:, 1] // PATCH, 0, rows - 1).astype(int)
    cover[np.arange(len(middles)), y * columns + x] = True
    for third in places.T:
        patches = np.flatnonzero(third >= 0)
        cover[third[patches], patches] = True
    return cover


def _outline(shape: str, x: float, y: float, radius: float, turn: float) -> list[tuple]:
    """Corners of a shape about its middle."""
    if shape == "square":
        polar = [(1.15, 45 + 90 * k) for k in range(4)]
    elif shape == "triangle":
        polar = [(1.2, -90 + 120 * k) for k in range(3)]
    else:
        arm = math.degrees(math.atan2(0.33, 1.1))
        polar = []
        for k in range(4):
            polar += [(1.15, 90 * k - arm), (1.15, 90 * k + arm), (0.47, 90 * k + 45)]
    corners = ((r * radius, math.radians(angle + turn)) for r, angle in polar)
    return [(x + r * math.cos(a), y + r * math.sin(a)) for r, a in corners]


def _positions(
    drawn: Scene, radii: list[float], height: int, width: int, rng: random.Random
) -> list[tuple[float, float]]:
    """Middles of the things, apart along the row or column and at most half as far across."""
    along, across = (width, height) if drawn.in_row else (height, width)
    cell = along / len(radii)
    while True:
        main = [
            cell * k + rng.uniform(min(1.2 * r, cell / 2), max(cell - 1.2 * r, cell / 2))
            for k, r in enumerate(radii)
        ]
        cross = [rng.uniform(1.25 * r, across - 1.25 * r) for r in radii]
        pairs = zip(main, main[1:], cross, cross[1:], radii, radii[1:], strict=False)
        if all(abs(d - c) < 0.5 * (b - a) and b - a > 1.15 * (r + s) for a, b, c, d, r, s in pairs):
            points = list(zip(main, cross, strict=True))
            return points if drawn.in_row else [(x, y) for y, x in points]


def draw_scene(
    drawn: Scene, height: int, width: int, rng: random.Random, instruction: str = DESCRIBE
) -> Drawn:
    """Paints a scene and answers an instruction about it."""
    scale = _SUPERSAMPLING
    light = rng.randint(205, 240)
    image = Image.new(
        "RGB", (scale * width, scale * height), tuple(light + rng.randint(0, 15) for _ in range(3))
    )
    pen = ImageDraw.Draw(image)
    radii = [rng.uniform(*_RADII[thing.size]) for thing in drawn.things]
    points = _positions(drawn, radii, height, width, rng)
    middles = _centres(height, width, PATCH / 2)
    near = np.zeros((len(drawn.things), len(middles)), bool)
    seen = np.zeros((len(middles), 3), np.int64)
    for k, (thing, radius, (x, y)) in enumerate(zip(drawn.things, radii, points, strict=True)):
        _paint(pen, thing, scale * x, scale * y, scale * radius, rng)
        distance = np.hypot(*(middles - (x, y)).T)
        near[k] = distance < max(radius, 0.75 * PATCH)
        seen[near[k]] = (
            1 + list(COLOURS).index(thing.colour),
            1 + SHAPES.index(thing.shape),
            1 + SIZES.index(thing.size),
        )
    text = drawn.answer(instruction)
    cover = np.zeros((len(text) + 1, len(middles)), bool)
    if instruction == DESCRIBE:
        start = 0
        for k, thing in enumerate(drawn.things):
            start = text.index(str(thing), start)
            cover[start : start + len(str(thing))] = near[k]
            start += len(str(thing))
    return Drawn(_finish(image.reduce(scale), rng), instruction, text, cover, things=seen)


def _paint(
    pen: ImageDraw.ImageDraw, thing: Thing, x: float, y: float, radius: float, rng: random.Random
) -> None:
    colour = tuple(
        max(0, min(255, value + rng.randint(-12, 12))) for value in COLOURS[thing.colour]
    )
    if thing.shape == "circle":
        pen.ellipse((x - radius, y - radius, x + radius, y + radius), colour)
    else:
        pen.polygon(_outline(thing.shape, x, y, radius, rng.uniform(-4, 4)), colour)

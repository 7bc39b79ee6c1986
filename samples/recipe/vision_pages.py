"""Writes the held-out images of `samples/images` and `truth.tsv`.

python samples/recipe/vision_pages.py
"""

import random
from pathlib import Path

from PIL import Image
from vision_batches import page
from vision_images import END_WIDTH, PATCH, Drawn, characters_within, draw_lines, draw_scene
from vision_text import COLOURS_OF, COUNT, DESCRIBE, READ, Scene, scene, sentences

IMAGES = Path(__file__).parents[1] / "images"
_TASKS = {READ: "read", DESCRIBE: "describe", COUNT: "count", COLOURS_OF: "colours"}
_LINES = ("DejaVu Sans", "Liberation Serif", "DejaVu Sans Mono")
_PAGES = (
    ("DejaVu Sans", 16, 4, 21),
    ("Liberation Serif", 18, 4, 20),
    ("DejaVu Sans Mono", 16, 4, 23),
)


def draw_page(face: str, size: int, lines: int, columns: int, rng: random.Random) -> Drawn:
    """A paragraph of held-out sentences, as Tesseract can read it too."""
    width = PATCH * columns
    longest = characters_within(face, size, width - 4 - END_WIDTH) - 1
    texts = sentences(rng, longest, lines, held_out=True)
    height = PATCH * (2 * lines + 1)
    # Tesseract needs the free row below the last line's descenders.
    return draw_lines(texts, face, size, height, width, rng, unrest=0.4, rows_above=0)


def main() -> None:
    """Draws everything anew; the seeds are fixed."""
    IMAGES.mkdir(exist_ok=True)
    rows = []

    def keep(name: str, drawn: list[Drawn]) -> None:
        Image.fromarray(drawn[0].image).save(IMAGES / name, optimize=True)
        for d in drawn:
            text = d.text.replace("\n", "\\n")
            rows.append(f"{name}\t{_TASKS[d.instruction]}\t{text}\n")

    for index, face in enumerate(_LINES, 1):
        rng = random.Random(f"image-line-{index}")
        keep(f"line-{index}.png", [page(rng, 24, 300, 1, held_out=True, face=face)])
    for index, (face, size, lines, columns) in enumerate(_PAGES, 1):
        rng = random.Random(f"image-page-{index}")
        keep(f"page-{index}.png", [draw_page(face, size, lines, columns, rng)])
    for index in range(1, 4):
        drawn = _scene_of(index)
        instructions = (DESCRIBE, COUNT, COLOURS_OF)
        # The same seed paints the same picture for every instruction.
        keep(
            f"scene-{index}.png",
            [
                draw_scene(drawn, 108, 108, random.Random(f"image-scene-{index}"), instruction)
                for instruction in instructions
            ],
        )
    (IMAGES / "truth.tsv").write_text("file\ttask\ttext\n" + "".join(rows))


def _scene_of(things: int) -> Scene:
    """A held-out scene of so many things."""
    rng = random.Random(f"image-things-{things}")
    while len((drawn := scene(rng, held_out=True)).things) != things:
        pass
    return drawn


if __name__ == "__main__":
    main()

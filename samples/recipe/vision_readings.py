"""What Tesseract reads on the lines and pages of the sample, for where it isn't installed.

    python samples/recipe/vision_readings.py

Writes `samples/images/readings.tsv`. Needs mmspec and Tesseract.
"""

from __future__ import annotations

from pathlib import Path

from mmspec.modalities.media.images import open_image
from mmspec.tasks.vlm.ocr import read_image

IMAGES = Path(__file__).parents[1] / "images"


def main() -> None:
    """Read them all."""
    rows = ["file\ttext"]
    for path in sorted([*IMAGES.glob("line-*.png"), *IMAGES.glob("page-*.png")]):
        text = read_image(open_image(path)).text
        rows.append(path.name + "\t" + text.replace("\t", " ").replace("\n", "\\n"))
    (IMAGES / "readings.tsv").write_text("\n".join(rows) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

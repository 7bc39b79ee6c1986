"""How well a vision sample reads and describes held-out images.

    python samples/recipe/vision_evaluate.py samples/vision-sample/target
    python samples/recipe/vision_evaluate.py samples/vision-sample/drafter \
        --target samples/vision-sample/target

Greedy decoding by transformers' own `generate` in float32. Then the image-blind control: the share
of next characters that are right, given the right text so far, with the image and with a blank one.
"""

import argparse
import random
import time
from collections.abc import Iterator
from pathlib import Path

import jiwer
import torch
from PIL import Image
from transformers import Qwen2VLForConditionalGeneration
from vision_batches import IGNORED, draw_batch, page
from vision_checkpoint import StillProcessor
from vision_forward import Reader, see
from vision_images import FACES, PATCH, Drawn, draw_scene
from vision_text import COLOURS_OF, COUNT, DESCRIBE, scene
from vision_train import looks

_AT_ONCE = 12
_AGREEMENT_SEED = 1001


def held_out_print(lines: tuple[int, int], columns: tuple[int, int], count: int) -> Iterator[Drawn]:
    """`count` images of print of each face in turn; `lines` and `columns` give the ranges."""
    for index in range(count):
        for face in FACES:
            rng = random.Random(f"held-out-{lines}-{face}-{index}")
            rows = rng.randint(*lines)
            shape = PATCH * (2 * rows + rng.randint(0, 1)), PATCH * rng.randint(*columns)
            yield page(rng, *shape, rows, held_out=True, face=face)


def held_out_scenes(instruction: str, count: int) -> Iterator[Drawn]:
    """`count` scenes under one instruction."""
    for index in range(count):
        rng = random.Random(f"held-out-{instruction}-{index}")
        height, width = (PATCH * rng.randint(8, 10) for _ in range(2))
        yield draw_scene(scene(rng, held_out=True), height, width, rng, instruction)


@torch.no_grad()
def answer(
    model: Qwen2VLForConditionalGeneration, processor: StillProcessor, drawn: list[Drawn]
) -> list[str]:
    """What the model says to each image."""
    said = []
    for start in range(0, len(drawn), _AT_ONCE):
        part = drawn[start : start + _AT_ONCE]
        prompts = [
            processor.apply_chat_template(
                [
                    {
                        "role": "user",
                        "content": [{"type": "image"}, {"type": "text", "text": d.instruction}],
                    }
                ],
                add_generation_prompt=True,
            )
            for d in part
        ]
        images = [[Image.fromarray(d.image)] for d in part]
        inputs = processor(
            text=prompts, images=images, padding=True, padding_side="left", return_tensors="pt"
        )
        ids = model.generate(**inputs, max_new_tokens=max(len(d.text) for d in part) + 24)
        new = ids[:, inputs["input_ids"].shape[1] :]
        said += processor.batch_decode(new, skip_special_tokens=True)
    return said


def report_print(title: str, drawn: list[Drawn], said: list[str]) -> None:
    """Character error rates by face, and of all."""
    texts = [d.text for d in drawn]
    faces = list(FACES)
    for rank, face in enumerate(faces):
        rate = jiwer.cer(texts[rank :: len(faces)], said[rank :: len(faces)])
        print(f"{title:10} {face:18} {len(texts[rank :: len(faces)]):4}  CER {100 * rate:5.1f} %")
    whole = sum(text == heard for text, heard in zip(texts, said, strict=True)) / len(texts)
    rate = 100 * jiwer.cer(texts, said)
    print(f"{title:10} {'all':18} {len(texts):4}  CER {rate:5.1f} %  without error {whole:.3f}")


def report_scenes(title: str, drawn: list[Drawn], said: list[str]) -> None:
    """Exact matches by the number of things, and of all."""
    right: dict[str, list[bool]] = {}
    for d, heard in zip(drawn, said, strict=True):
        count = d.text.count("small") + d.text.count("large")
        things = f"{count} things" if d.instruction == DESCRIBE else "any"
        for kind in {things, "all"}:
            right.setdefault(kind, []).append(heard == d.text)
    for kind, hits in sorted(right.items()):
        print(f"{title:10} {kind:18} {len(hits):4}  exact {100 * sum(hits) / len(hits):5.1f} %")


@torch.no_grad()
def agreement(drafter: Reader, target: Reader) -> dict[str, float]:
    """Share of held-out text positions at which the two models' first choices are the same."""
    same: dict[str, list[float]] = {}
    for step in range(24):
        batch = draw_batch(_AGREEMENT_SEED, step, held_out=True)
        ours, theirs = (
            reader.read(batch, see(reader.model, batch.images)).argmax(-1)
            for reader in (drafter, target)
        )
        share = (ours == theirs)[batch.text != IGNORED].float().mean().item()
        same.setdefault("print" if batch.is_print else "scenes", []).append(share)
    return {kind: sum(shares) / len(shares) for kind, shares in same.items()}


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--target", type=Path, help="compare first choices with this model's")
    parser.add_argument("--lines", type=int, default=50, help="of each face")
    parser.add_argument("--paragraphs", type=int, default=12, help="of each face")
    parser.add_argument("--scenes", type=int, default=200)
    parser.add_argument("--errors", type=int, default=0, help="wrong answers to show of each kind")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    started = time.monotonic()
    load = Qwen2VLForConditionalGeneration.from_pretrained
    model = load(arguments.model, dtype=torch.float32).eval()
    processor = StillProcessor.from_pretrained(arguments.model)
    few = arguments.scenes // 4
    kinds = [
        ("lines", list(held_out_print((1, 1), (16, 30), arguments.lines))),
        ("paragraphs", list(held_out_print((2, 4), (14, 26), arguments.paragraphs))),
        ("captions", list(held_out_scenes(DESCRIBE, arguments.scenes))),
        ("how many", list(held_out_scenes(COUNT, few))),
        ("colours", list(held_out_scenes(COLOURS_OF, few))),
    ]
    for title, drawn in kinds:
        if not drawn:
            continue
        said = answer(model, processor, drawn)
        report = report_print if drawn[0].places is not None else report_scenes
        report(title, drawn, said)
        wrong = [(d.text, s) for d, s in zip(drawn, said, strict=True) if d.text != s]
        for text, heard in wrong[: arguments.errors]:
            print(f"   there {text!r}\n   said  {heard!r}")
    print(f"next character right: {looks(Reader(model, ()))}")
    if arguments.target:
        target = load(arguments.target, dtype=torch.float32).eval()
        for kind, share in agreement(Reader(model, ()), Reader(target, ())).items():
            print(f"first choice is the target's, {kind}: {100 * share:.1f} %")
    print(f"{time.monotonic() - started:.0f} s")


if __name__ == "__main__":
    main()

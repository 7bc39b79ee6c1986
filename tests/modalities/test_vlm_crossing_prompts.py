"""From images and words to what crossing families take, through processors of their own."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers as hf

import mmspec
from mmspec.errors import OptionError

from . import tiny_crossing
from .crossing_runs import model_of
from .tiny_looking import picture, tokenizer

PLACE = "<image>"
TEMPLATE = (
    "{% for turn in messages %}{{ bos_token }}{% for part in turn['content'] %}"
    "{% if part['type'] == 'image' %}<image>{% else %}{{ part['text'] }}{% endif %}"
    "{% endfor %}{% endfor %}: "
)
NEW = {"max_new_tokens": 8}


class FewPatches(hf.Pix2StructProcessor):
    """A processor for a small model; it would make 2048 patches, whatever its part is told."""

    def __call__(self, *given: Any, **options: Any) -> Any:
        return super().__call__(*given, max_patches=tiny_crossing.PATCHES, **options)


def processor_of(name: str) -> Any:
    words = tokenizer()
    words.add_special_tokens({"extra_special_tokens": [PLACE]}, replace_extra_special_tokens=False)
    words.image_token, words.image_token_id = PLACE, words.convert_tokens_to_ids(PLACE)
    if name == "florence2":
        eyes = hf.CLIPImageProcessorPil(
            size={"height": 16, "width": 16}, crop_size={"height": 16, "width": 16}
        )
        eyes.image_seq_length = tiny_crossing.FLORENCE_STATES
        return hf.Florence2Processor(eyes, words)
    if name == "mllama":
        eyes = hf.MllamaImageProcessorPil(
            size={"height": tiny_crossing.TILE, "width": tiny_crossing.TILE},
            max_image_tiles=tiny_crossing.TILES,
        )
        return hf.MllamaProcessor(eyes, words, chat_template=TEMPLATE)
    return FewPatches(hf.Pix2StructImageProcessorPil(patch_size={"height": 2, "width": 2}), words)


def made_by_hand(name: str, processor: Any, words: str | None) -> dict[str, Any]:
    """What a caller of transformers would write."""
    if name == "mllama":
        told = f"<bos>{PLACE}{words}: "
        made = processor(
            images=[picture()], text=told, add_special_tokens=False, return_tensors="pt"
        )
    elif words is None:
        made = processor(images=picture(), return_tensors="pt")
    else:
        made = processor(images=picture(), text=words, return_tensors="pt")
    return dict(made)


@pytest.mark.parametrize(
    ("name", "task", "words"),
    [
        ("florence2", "caption", "<CAPTION>"),
        ("florence2", "read", "<OCR>"),
        ("mllama", "caption", "Describe the image."),
        ("pix2struct", "caption", None),
        ("pix2struct", "read", None),
    ],
)
def test_a_task_is_asked_for_in_the_familys_words(name: str, task: str, words: str | None) -> None:
    processor, model = processor_of(name), model_of(name)
    inputs = made_by_hand(name, processor, words)
    want = model.generate(**inputs, **NEW, num_beams=1, do_sample=False)[0].tolist()
    with mmspec.load(model, "ngram", processor=processor, gamma=3) as viewer:
        said = viewer.describe(picture(), task=task, **NEW)
    assert list(said.ids) == want[-len(said.ids) :]
    assert len(want) == len(said.ids) + (inputs["input_ids"].shape[1] if name == "mllama" else 1)
    assert said.report.encoder_runs == 1


def test_words_of_ones_own() -> None:
    """Florence-2 reads them beside the image, Pix2Struct's decoder begins with them."""
    for name in ("florence2", "pix2struct"):
        processor, model = processor_of(name), model_of(name)
        inputs = made_by_hand(name, processor, "who?")
        want = model.generate(**inputs, **NEW, num_beams=1, do_sample=False)[0].tolist()
        with mmspec.load(model, processor=processor) as viewer:
            said = viewer.answer(picture(), "who?", **NEW)
        assert list(said.ids) == want[-len(said.ids) :]
        begins = inputs.get("decoder_input_ids", torch.empty(1, 0))
        assert len(want) == 1 + begins.shape[1] + len(said.ids)


def test_a_task_that_a_family_wasnt_made_for_is_an_error() -> None:
    viewer = mmspec.load(model_of("blip"), processor=processor_of("pix2struct"))
    with viewer, pytest.raises(OptionError, match="blip isn't made to read: expected caption"):
        viewer.read(picture(), **NEW)

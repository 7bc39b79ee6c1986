"""Tiny models that look, saved with a tokenizer of characters and a processor of their family."""

from __future__ import annotations

import functools
import string
from pathlib import Path
from typing import Any

import numpy as np
import transformers
from PIL import Image
from tokenizers import Tokenizer, decoders, models
from transformers import PreTrainedTokenizerFast, Qwen2VLProcessor

from mmspec.modalities.base.processors import _without_films
from tests.modalities import tiny_prefix
from tests.modalities.tiny_prefix import WORDS

MARKS = {
    "<pad>": tiny_prefix.PAD,
    "<end>": tiny_prefix.EOS,
    "<bos>": tiny_prefix.BOS,
    "<open>": tiny_prefix.OPEN,
    "<close>": tiny_prefix.CLOSE,
    "<|video_pad|>": tiny_prefix.VIDEO,
    "<|image_pad|>": tiny_prefix.MEDIA,
}
CHARACTERS = [c for c in string.printable[:95] if c not in "^`{|}~$%"]

TEMPLATE = (
    "{% for turn in messages %}{{ bos_token }}{% for part in turn['content'] %}"
    "{% if part['type'] == 'image' %}<open><|image_pad|><close>"
    "{% else %}{{ part['text'] }}{% endif %}{% endfor %}{% endfor %}: "
)


def tokenizer(
    characters: str | list[str] = CHARACTERS, image: str = "<|image_pad|>"
) -> PreTrainedTokenizerFast:
    """An id per character, in the order of the tiny models' words."""
    marks = {image if mark == "<|image_pad|>" else mark: token for mark, token in MARKS.items()}
    vocabulary = {**marks, **dict(zip(characters, WORDS, strict=False))}
    for token in range(tiny_prefix.VOCAB):
        if token not in vocabulary.values():
            vocabulary[f"<unused{token}>"] = token
    core = Tokenizer(models.BPE(vocab=vocabulary, merges=[], unk_token=None))
    core.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        pad_token="<pad>",
        eos_token="<end>",
        bos_token="<bos>",
        extra_special_tokens=list(marks)[3:],
    )


def processor(name: str, characters: str | list[str] = CHARACTERS, **more: Any) -> Any:
    """Of "qwen2_vl" (with a chat template) or "llava" (without)."""
    if name == "qwen2_vl":
        eyes = transformers.Qwen2VLImageProcessorPil(
            patch_size=4, temporal_patch_size=2, merge_size=2, min_pixels=64, max_pixels=1024
        )
        kind = _without_films(Qwen2VLProcessor)
        return kind(eyes, tokenizer(characters), **{"chat_template": TEMPLATE, **more})
    eyes = transformers.CLIPImageProcessorPil(
        size={"shortest_edge": 8}, crop_size={"height": 8, "width": 8}
    )
    return transformers.LlavaProcessor(
        eyes,
        tokenizer(characters),
        patch_size=4,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        image_token="<|image_pad|>",
        **more,
    )


@functools.cache
def model(name: str, seed: int = 0, layers: int = 3) -> Any:
    """A model that writes for a while; shared, so never written to."""
    return tiny_prefix.tiny(name, seed, layers)


def saved(folder: Path, name: str, seed: int = 0, layers: int = 3, **processing: Any) -> Path:
    """A checkpoint on disk."""
    model(name, seed, layers).save_pretrained(folder)
    processor(name, **processing).save_pretrained(folder)
    return folder


def picture(seed: int = 0, width: int = 24, height: int = 16) -> Image.Image:
    """Noise, another one by seed."""
    random = np.random.default_rng(seed)
    return Image.fromarray(random.integers(0, 256, (height, width, 3), dtype=np.uint8))

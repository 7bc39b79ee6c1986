"""A tiny MusicGen in a folder, with a tokenizer of characters: what a command can be given."""

from __future__ import annotations

import string
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import Regex, Tokenizer, models, pre_tokenizers, processors
from transformers import EncodecFeatureExtractor, MusicgenProcessor, PreTrainedTokenizerFast

from mmspec.compat import quiet
from mmspec.modalities.speech.heads import FrameHeads, HeadsConfig
from tests.modalities.speech.bed_musicgen import CODES, tiny, tiny_decoder

SHORT = ("--seconds", 0.2)
RATE_HZ, FRAME_SAMPLES = 1600, 16
LONGEST = 20
"""Characters of a text and its end."""


@dataclass(frozen=True)
class Voice:
    """Folders of a target, of a smaller model and of heads."""

    target: Path
    drafter: Path
    heads: Path


def tokenizer() -> PreTrainedTokenizerFast:
    """An id per small letter, and one for a space."""
    marks = {"<pad>": 0, "</s>": 1, "<unk>": 2}
    vocabulary = marks | {c: i for i, c in enumerate(" " + string.ascii_lowercase, len(marks))}
    core = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    core.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    core.post_processor = processors.TemplateProcessing(
        single="$A </s>", special_tokens=[("</s>", 1)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        pad_token="<pad>",
        eos_token="</s>",
        unk_token="<unk>",
        model_max_length=LONGEST,
    )


def processor() -> Any:
    return MusicgenProcessor(EncodecFeatureExtractor(sampling_rate=RATE_HZ), tokenizer())


def saved(folder: Path) -> Voice:
    """Random models, saved below a folder."""
    voice = Voice(folder / "target", folder / "drafter", folder / "heads")
    with quiet():
        tiny().save_pretrained(voice.target)
        processor().save_pretrained(voice.target)
        tiny_decoder(width=16).save_pretrained(voice.drafter)
    FrameHeads(HeadsConfig(offsets=2, codebooks=4, vocab=CODES, hidden=16, rank=4)).save_pretrained(
        voice.heads
    )
    return voice

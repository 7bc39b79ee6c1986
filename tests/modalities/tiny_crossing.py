"""Tiny vision models whose decoder attends to the image across, with random weights.

One row of `FAMILIES` per family. Special ids stand to each other as in the published checkpoints
(a start that is the end or the pad, for instance), and every bias and gate is drawn as well: what
forgets one of them says something else.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import transformers as hf
from torch import Tensor
from transformers.models.mllama import processing_mllama
from transformers.models.mllama.configuration_mllama import MllamaTextConfig, MllamaVisionConfig

BOS, PAD, EOS, CLS, SEP, TASK = range(6)
WORDS = (8, 60)
"""Ids that prompts are drawn from."""
PROMPT = 4
"""Words of a prompt, as long as rows aren't to differ."""
TILES, TILE = 2, 8
"""Mllama: tiles an image can have, and their height and width."""
PATCH, PATCHES = 12, 8
"""Pix2Struct: values in a patch, patches that an image is padded to."""
FLORENCE_STATES = 17
"""Florence-2: placeholders of an image, the pooled one and a grid of 4 times 4."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What a builder may be asked for; Mllama's `layers` are those with self-attention."""

    layers: int = 2
    width: int = 32
    vocab: int = 100
    context: int = 64

    @property
    def image_token(self) -> int:
        return self.vocab  # behind all words; Mllama's head can't even say it

    def common(self, **names: str) -> dict[str, Any]:
        """Decoder settings, under the names by which a config class knows them."""
        values = {
            "layers": ("num_hidden_layers", self.layers),
            "heads": ("num_attention_heads", 2),
            "inner": ("intermediate_size", 2 * self.width),
            "width": ("hidden_size", self.width),
            "context": ("max_position_embeddings", self.context),
        }
        named = {names.get(key, name): value for key, (name, value) in values.items()}
        return {**named, "vocab_size": self.vocab}


BART_NAMES = {
    "layers": "decoder_layers",
    "heads": "decoder_attention_heads",
    "inner": "decoder_ffn_dim",
    "width": "d_model",
}
VIT = {
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "image_size": 8,
    "patch_size": 4,
}


def _mllama(shape: Shape) -> Any:
    text = MllamaTextConfig(
        **{**shape.common(), "num_hidden_layers": shape.layers + 1},
        num_key_value_heads=1,
        cross_attention_layers=[1],
        rope_parameters={"rope_type": "default", "rope_theta": 10_000.0},
        bos_token_id=BOS,
        pad_token_id=PAD,
        eos_token_id=EOS,
    )
    vision = MllamaVisionConfig(
        hidden_size=16,
        attention_heads=2,
        intermediate_size=32,
        num_hidden_layers=1,
        num_global_layers=1,
        intermediate_layers_indices=[0],
        vision_output_dim=32,
        image_size=8,
        patch_size=4,
        max_num_tiles=TILES,
        supported_aspect_ratios=[[1, 1], [1, 2], [2, 1]],
    )
    config = hf.MllamaConfig(
        text_config=text, vision_config=vision, image_token_index=shape.image_token
    )
    return hf.MllamaForConditionalGeneration(config)


def _florence2(shape: Shape) -> Any:
    text = hf.BartConfig(
        **{**shape.common(**BART_NAMES), "vocab_size": shape.vocab + 1},
        encoder_layers=1,
        encoder_attention_heads=2,
        encoder_ffn_dim=32,
        bos_token_id=BOS,
        pad_token_id=PAD,
        eos_token_id=EOS,
        decoder_start_token_id=EOS,
    )
    vision = {
        "depths": (1,),
        "patch_size": (7,),
        "patch_stride": (4,),
        "patch_padding": (3,),
        "patch_prenorm": (False,),
        "embed_dim": (16,),
        "num_heads": (2,),
        "num_groups": (2,),
        "window_size": 2,
        "projection_dim": shape.width,
        "drop_path_rate": 0.0,
    }
    config = hf.Florence2Config(
        text_config=text.to_dict(), vision_config=vision, image_token_id=shape.image_token
    )
    return hf.Florence2ForConditionalGeneration(config)


def _blip_config(shape: Shape) -> Any:
    text = {**shape.common(), "bos_token_id": BOS, "pad_token_id": PAD, "sep_token_id": SEP}
    vision = {**VIT, "hidden_size": shape.width}
    return hf.BlipConfig(text_config={**text, "eos_token_id": EOS}, vision_config=vision)


def _pix2struct(shape: Shape) -> Any:
    names = {"layers": "num_layers", "heads": "num_heads", "inner": "d_ff"}
    text = shape.common(**names)
    del text["max_position_embeddings"]  # distances only
    text |= {"d_kv": shape.width // 2, "relative_attention_num_buckets": 8}
    text |= {"relative_attention_max_distance": 16, "use_cache": True}
    text |= {"pad_token_id": PAD, "eos_token_id": EOS, "decoder_start_token_id": PAD}
    vision = {
        "hidden_size": shape.width,
        "patch_embed_hidden_size": PATCH,
        "d_ff": 32,
        "d_kv": shape.width // 2,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "seq_len": PATCHES,
    }
    config = hf.Pix2StructConfig(text_config=text, vision_config=vision)
    return hf.Pix2StructForConditionalGeneration(config)


def _pair(encoder: Any, decoder: Any) -> Any:
    config = hf.VisionEncoderDecoderConfig.from_encoder_decoder_configs(encoder, decoder)
    return hf.VisionEncoderDecoderModel(config)


def _trocr(shape: Shape) -> Any:
    encoder = hf.DeiTConfig(**VIT, hidden_size=16)
    decoder = hf.TrOCRConfig(
        **shape.common(**BART_NAMES),
        cross_attention_hidden_size=16,
        scale_embedding=True,
        bos_token_id=BOS,
        pad_token_id=PAD,
        eos_token_id=EOS,
    )
    return _pair(encoder, decoder)


def _donut(shape: Shape) -> Any:
    encoder = hf.DonutSwinConfig(
        image_size=16,
        patch_size=4,
        embed_dim=shape.width // 2,
        depths=(1, 1),
        num_heads=(2, 2),
        window_size=2,
        drop_path_rate=0.0,
    )
    decoder = hf.MBartConfig(
        **shape.common(**BART_NAMES),
        encoder_layers=shape.layers + 1,  # a left-over, as in the checkpoints
        scale_embedding=True,
        bos_token_id=BOS,
        pad_token_id=PAD,
        eos_token_id=EOS,
    )
    return _pair(encoder, decoder)


def _vit_gpt2(shape: Shape) -> Any:
    encoder = hf.ViTConfig(**VIT, hidden_size=16)  # another width: states are projected
    decoder = hf.GPT2Config(
        vocab_size=shape.vocab,
        n_positions=shape.context,
        n_embd=shape.width,
        n_layer=shape.layers,
        n_head=2,
        bos_token_id=EOS,
        eos_token_id=EOS,
    )
    return _pair(encoder, decoder)


def _drawn(seed: int, *shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def _words(seed: int, count: int) -> list[int]:
    generator = torch.Generator().manual_seed(1000 + seed)
    return torch.randint(*WORDS, (count,), generator=generator).tolist()


def _images(side: int, seeds: Sequence[int]) -> dict[str, Tensor]:
    return {"pixel_values": torch.stack([_drawn(seed, 3, side, side) for seed in seeds])}


def _padded(rows: list[list[int]], *, left: bool = False, prefix: str = "") -> dict[str, Tensor]:
    """Ids and mask of prompts, padded where the family's tokenizer pads."""
    longest = max(map(len, rows))
    ids, mask = [], []
    for row in rows:
        gap = longest - len(row)
        pads, ones = [PAD] * gap, [1] * len(row)
        ids.append(pads + row if left else row + pads)
        mask.append([0] * gap + ones if left else ones + [0] * gap)
    return {
        f"{prefix}input_ids": torch.tensor(ids),
        f"{prefix}attention_mask": torch.tensor(mask),
    }


def _mllama_inputs(
    case: str, seeds: Sequence[int], lengths: Sequence[int], model: Any
) -> dict[str, Tensor]:
    image = model.config.image_token_index
    rows = []
    for seed, length in zip(seeds, lengths, strict=True):
        words = _words(seed, length)
        shown = {"text": [], "image": [image], "images": [image, *words[:2], image]}[case]
        rows.append([BOS, *shown, *words])  # nothing is seen from the first position
    given = _padded(rows, left=True)
    if case == "text":
        return given
    images = 2 if case == "images" else 1
    pixels = [_drawn(seed, images, TILES, 3, TILE, TILE) for seed in seeds]
    # an even seed's last image has all its tiles, an odd one's only the first
    tiles = [[1] * (images - 1) + [TILES if seed % 2 == 0 else 1] for seed in seeds]
    mask = [[[1] * n + [0] * (TILES - n) for n in row] for row in tiles]
    seen = [
        processing_mllama.get_cross_attention_token_mask(row, image)
        for row in given["input_ids"].tolist()
    ]
    dense = processing_mllama.convert_sparse_cross_attention_mask_to_dense(
        seen, tiles, TILES, given["input_ids"].shape[1]
    )
    tile_mask = torch.tensor(mask)
    return {
        **given,
        "pixel_values": torch.stack(pixels) * tile_mask[..., None, None, None],
        "aspect_ratio_ids": torch.tensor(tiles),
        "aspect_ratio_mask": tile_mask,
        "cross_attention_mask": torch.from_numpy(dense),
    }


def _florence2_inputs(
    case: str, seeds: Sequence[int], lengths: Sequence[int], model: Any
) -> dict[str, Tensor]:
    shown = [model.config.image_token_id] * (FLORENCE_STATES if case == "image" else 0)
    rows = [
        [*shown, BOS, *_words(seed, length), EOS]
        for seed, length in zip(seeds, lengths, strict=True)
    ]
    return {**_padded(rows), **(_images(16, seeds) if case == "image" else {})}


def _blip_inputs(
    case: str, seeds: Sequence[int], lengths: Sequence[int], model: Any
) -> dict[str, Tensor]:
    if case == "image":
        return _images(8, seeds)
    rows = [[CLS, *_words(seed, length), SEP] for seed, length in zip(seeds, lengths, strict=True)]
    return {**_images(8, seeds), **_padded(rows)}


def _pix2struct_inputs(
    case: str, seeds: Sequence[int], lengths: Sequence[int], model: Any
) -> dict[str, Tensor]:
    patches = torch.zeros(len(seeds), PATCHES, 2 + PATCH)
    for row, seed in enumerate(seeds):
        places = torch.cartesian_prod(torch.arange(1, 3), torch.arange(1, 4 - seed % 2))
        used = len(places)
        patches[row, :used] = torch.cat([places, _drawn(seed, used, PATCH)], dim=1)
    given = {"flattened_patches": patches, "attention_mask": (patches[..., 0] > 0).float()}
    return given if case == "image" else {**given, **_said(seeds, lengths)}


def _said(seeds: Sequence[int], lengths: Sequence[int], first: tuple[int, ...] = ()) -> Any:
    rows = [[*first, *_words(seed, length)] for seed, length in zip(seeds, lengths, strict=True)]
    return _padded(rows, prefix="decoder_")


def _pair_inputs(
    case: str, seeds: Sequence[int], lengths: Sequence[int], model: Any
) -> dict[str, Tensor]:
    given = _images(model.config.encoder.image_size, seeds)
    if case == "image":
        return given
    ids = _said(seeds, lengths, (TASK,))["decoder_input_ids"]  # the processors give no mask
    return {**given, "decoder_input_ids": ids}


@dataclass(frozen=True, slots=True)
class Family:
    """How a family is built and spoken to.

    Attributes:
        build: a model of a shape.
        inputs: (case, a seed per row, words of a prompt per row, model) to what `generate` takes.
        cases: what `inputs` can be asked for.
        ids: entries of the generation config.
        spread: standard deviation of its weights.
        attention: that of queries and keys; wide, they look at something in particular.
    """

    build: Callable[[Shape], Any]
    inputs: Callable[[str, Sequence[int], Sequence[int], Any], dict[str, Tensor]]
    cases: tuple[str, ...]
    ids: dict[str, int]
    spread: float
    attention: float


ALL_THREE = {"bos_token_id": BOS, "pad_token_id": PAD, "eos_token_id": EOS}
FAMILIES = {
    "mllama": Family(_mllama, _mllama_inputs, ("image", "images", "text"), ALL_THREE, 0.3, 0.3),
    "florence2": Family(
        _florence2,
        _florence2_inputs,
        ("image", "text"),
        {**ALL_THREE, "decoder_start_token_id": EOS},
        0.15,
        1.2,
    ),
    "blip": Family(
        lambda shape: hf.BlipForConditionalGeneration(_blip_config(shape)),
        _blip_inputs,
        ("image", "prompted"),
        {**ALL_THREE, "eos_token_id": SEP},
        0.15,
        1.2,
    ),
    "blip-vqa": Family(
        lambda shape: hf.BlipForQuestionAnswering(_blip_config(shape)),
        _blip_inputs,
        ("prompted",),
        {**ALL_THREE, "eos_token_id": SEP},
        0.15,
        1.2,
    ),
    "pix2struct": Family(
        _pix2struct,
        _pix2struct_inputs,
        ("image", "prompted"),
        {"pad_token_id": PAD, "eos_token_id": EOS, "decoder_start_token_id": PAD},
        0.3,
        0.2,
    ),
    "trocr": Family(
        _trocr, _pair_inputs, ("image",), {**ALL_THREE, "decoder_start_token_id": EOS}, 0.2, 1.2
    ),
    "donut": Family(
        _donut, _pair_inputs, ("prompted",), {**ALL_THREE, "decoder_start_token_id": TASK}, 0.2, 1.2
    ),
    "vit-gpt2": Family(
        _vit_gpt2,
        _pair_inputs,
        ("image", "prompted"),
        {name: EOS for name in (*ALL_THREE, "decoder_start_token_id")},
        0.2,
        0.6,
    ),
}
CASES = [(name, case) for name, family in FAMILIES.items() for case in family.cases]


def _draw(model: Any, seed: int, family: Family) -> None:
    """Draw every weight, so that what is said varies and hangs on the image."""
    generator = torch.Generator().manual_seed(seed)
    spreads = (
        ("position|wpe|relative_attention_bias", 1.8),
        ("q_proj|k_proj|query|key|q_attn|c_attn", family.attention),
        ("embed_tokens|word_embeddings|wte|shared|lm_head|predictions.bias", 0.3),
        (".*bias", 0.05),
        (".*", family.spread),
    )
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "gate" in name and weight.numel() == 1:
                weight.fill_(0.7)  # they start closed
            elif weight.dim() > 1 or name.endswith("bias"):
                spread = next(found for part, found in spreads if re.search(part, name))
                weight.normal_(std=spread, generator=generator)


def tiny(name: str, seed: int = 0, *, says: dict[str, Any] | None = None, **changes: int) -> Any:
    """A model of its own.

    Args:
        name: one of `FAMILIES`.
        seed: of the weights.
        says: overrides of its generation config.
        **changes: fields of `Shape`.
    """
    family = FAMILIES[name]
    with torch.random.fork_rng():
        model = family.build(Shape(**changes))
    _draw(model, seed, family)
    speaker = getattr(model, "text_decoder", model)  # BLIP's `generate` calls its decoder's
    speaker.generation_config = hf.GenerationConfig(**{**family.ids, **(says or {})})
    return model.eval()


def inputs(
    name: str, model: Any, case: str, rows: int = 1, *, seed: int = 0, ragged: bool = False
) -> dict[str, Tensor]:
    """What `model.generate(**inputs)` takes, as the family's processor makes it.

    Args:
        name: one of `FAMILIES`.
        model: what the ids of placeholders are taken from.
        case: one of the family's `cases`.
        rows: of the batch; each has an image and a prompt of its own.
        seed: of the first row; the next ones count on from it.
        ragged: every row's prompt is a word longer than the one before it.
    """
    family = FAMILIES[name]
    if case not in family.cases:
        raise ValueError(f"{name} knows {family.cases}, not {case!r}")
    seeds = range(seed, seed + rows)
    lengths = [PROMPT + (row if ragged else 0) for row in range(rows)]
    return family.inputs(case, seeds, lengths, model)

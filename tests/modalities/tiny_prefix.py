"""Tiny models of the families that read an image or a sound as a prefix, with random weights.

The models are the library's own classes, `inputs` makes what a family's processor would make. The
weights are drawn wide, as in `tiny.py`: else every output is one token over and over, or a near
tie.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import transformers
from torch import Tensor
from transformers import GenerationConfig

VOCAB, WIDTH, EYE = 100, 32, 16
"""Of the decoder: vocabulary and width; width of what sees or hears."""
PAD, EOS, BOS = range(3)
WORDS = range(3, 90)
TILE, WHOLE, NEWLINE, OPEN, CLOSE, VIDEO, MEDIA = range(93, 100)
"""Marks around an image, and what stands for each of its positions."""

Size = tuple[int, int]
SMALL: Size = (1, 1)
WIDE: Size = (1, 2)
"""Height and width of an image in tiles (8 pixels each way); of a sound, how long it is."""

CASES: dict[str, tuple[int | Size, ...]] = {
    "image": (3, SMALL, 5),
    "images": (2, SMALL, 3, WIDE, 4),
    "text": (9,),
    "middle": (12, SMALL, 12),
    "long": (30, WIDE, 30),
}
"""Numbers of words and sizes of images (for an ear: sounds), in the prompt's order."""

TEXT: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": WIDTH,
    "intermediate_size": 2 * WIDTH,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 512,
    "pad_token_id": PAD,
    "bos_token_id": BOS,
    "eos_token_id": EOS,
}
VISION: dict[str, Any] = {
    "hidden_size": EYE,
    "intermediate_size": 2 * EYE,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "image_size": 8,
    "patch_size": 4,
}
MROPE = {"rope_parameters": {"rope_type": "default", "mrope_section": [2, 1, 1]}}
MARKS = {
    "image_token_id": MEDIA,
    "video_token_id": VIDEO,
    "vision_start_token_id": OPEN,
    "vision_end_token_id": CLOSE,
}

Media = list[tuple[Size, Tensor]]
"""The images of a row: size in tiles, pixels."""


@dataclass(frozen=True)
class Family:
    """What one family is made of, and how it takes its images.

    Args:
        model: class name.
        eye: configuration of what sees or hears.
        parts: the rest of the configuration.
        text: configuration of the decoder, beside `TEXT`.
        marks: ids that stand for an image, by size and number of images in the row.
        shape: shape of an image's pixels, by the same two.
        pack: makes one batch of the rows' images.
        typed: what the processor returns beside the ids, made of them.
        echo: factor on the embeddings, where the decoder's own scale would drown its layers.
        start: seed of its first model, one whose outputs vary and are no near ties.
    """

    model: str
    eye: dict[str, Any]
    parts: dict[str, Any]
    marks: Callable[[Size, int], list[int]]
    shape: Callable[[Size, int], tuple[int, ...]]
    pack: Callable[[list[Media]], dict[str, Tensor]]
    text: dict[str, Any] | None = None
    typed: Callable[[Tensor], dict[str, Tensor]] = lambda ids: {}
    echo: float = 1.0
    start: int = 0


def marked(*before: int, each: Callable[[Size, int], int], after: Sequence[int] = ()) -> Any:
    """Marks around a number of placeholders that the size decides."""
    return lambda size, together: [*before, *each(size, together) * [MEDIA], *after]


def one(size: Size, together: int) -> int:
    """Every image is resized to one tile."""
    return 1


def cropped(size: Size, together: int) -> int:
    """The tiles and, if there are several, a view of the whole."""
    tiles = size[0] * size[1]
    return tiles if tiles == 1 else tiles + 1


def anyres(size: Size, together: int) -> int:
    """The whole and its tiles; among several images, the whole only."""
    return 1 + size[0] * size[1] if together == 1 else 1


def anyres_positions(size: Size, together: int) -> int:
    """Of each tile 2 × 2, and a mark where a line ends."""
    height, width = (2 * side for side in size)
    return 4 + height * (width + 1) if together == 1 else 4 + 1


def split_marks(size: Size, together: int) -> list[int]:
    """Rows and columns of tiles, then the whole."""
    height, width = size
    whole = [OPEN, WHOLE, *4 * [MEDIA], OPEN]
    if height * width == 1:
        return whole
    row = width * [OPEN, TILE, *4 * [MEDIA]]
    return [*height * [*row, NEWLINE], NEWLINE, *whole]


def tiles(count: Callable[[Size, int], int]) -> Any:
    return lambda size, together: (count(size, together), 3, 8, 8)


def patches(*shape: int) -> Any:
    return lambda size, together: (16 * size[0] * size[1], *shape)


def pixels(media: list[Media]) -> list[Tensor]:
    return [image for row in media for _, image in row]


def joined(media: list[Media]) -> dict[str, Tensor]:
    """All tiles of all rows, one after the other."""
    return {"pixel_values": torch.cat(pixels(media))}


def padded(images: Sequence[Tensor]) -> Tensor:
    """Images `[tiles, ...]` as one tensor `[images, most tiles, ...]`, zeros behind."""
    return torch.nn.utils.rnn.pad_sequence(list(images), batch_first=True)


def by_row(media: list[Media]) -> dict[str, Tensor]:
    """`[rows, most tiles, 3, height, width]`, and which pixels are an image's."""
    nothing = torch.zeros(0, 3, 8, 8)
    values = padded([torch.cat([nothing, *(image for _, image in row)]) for row in media])
    return {"pixel_values": values, "pixel_attention_mask": (values != 0).any(2).long()}


def by_image(media: list[Media]) -> dict[str, Tensor]:
    """`[images, most tiles, 3, height, width]`, with true sizes and each row's number of images."""
    sizes = [[8 * side for side in size] for row in media for size, _ in row]
    return {
        "pixel_values": padded(pixels(media)),
        "image_sizes": torch.tensor(sizes),
        "batch_num_images": torch.tensor([len(row) for row in media]),
    }


def by_patch(media: list[Media]) -> dict[str, Tensor]:
    """All patches of all rows, with every image's grid."""
    grids = [(1, 4 * height, 4 * width) for row in media for (height, width), _ in row]
    return {"pixel_values": torch.cat(pixels(media)), "image_grid_thw": torch.tensor(grids)}


def heard(media: list[Media]) -> dict[str, Tensor]:
    """Windows of 32 frames, a short sound being silence at the end."""
    frames = [32 if size == WIDE else 20 for row in media for size, _ in row]
    inside = torch.arange(32) < torch.tensor(frames)[:, None]
    features = torch.cat(pixels(media)) * inside[:, None]
    return {"input_features": features, "feature_attention_mask": inside.long()}


def all_prefix(ids: Tensor) -> dict[str, Tensor]:
    """Nothing of a prompt is an answer, so there is nothing to learn from it either."""
    return {"token_type_ids": torch.zeros_like(ids), "labels": torch.full_like(ids, -100)}


EAR = {
    "d_model": EYE,
    "encoder_ffn_dim": 4 * EYE,
    "encoder_layers": 2,
    "encoder_attention_heads": 2,
    "num_mel_bins": 8,
    "max_source_positions": 16,
}

SPLIT: dict[str, Any] = {
    "eye": VISION | {"patch_size": 2},
    "parts": {"image_token_id": MEDIA, "scale_factor": 2},
    "marks": split_marks,
    "shape": tiles(cropped),
    "pack": by_row,
    "start": 1,
}
"""Idefics 3 and SmolVLM."""

GRID: dict[str, Any] = {
    "parts": MARKS,
    "marks": marked(OPEN, each=lambda size, _: 4 * size[0] * size[1], after=[CLOSE]),
    "pack": by_patch,
    "text": MROPE,
    "typed": lambda ids: {"mm_token_type_ids": (ids == MEDIA).long()},
}
"""Families with positions in three axes."""

QWEN_EYE = {"depth": 2, "num_heads": 2, "patch_size": 4, "temporal_patch_size": 2}

FAMILIES: dict[str, Family] = {
    "llava": Family(
        model="LlavaForConditionalGeneration",
        eye=VISION | {"projection_dim": EYE},
        parts={"image_token_index": MEDIA, "image_seq_length": 4},
        marks=marked(each=lambda *_: 4),
        shape=tiles(one),
        pack=joined,
        start=1,
    ),
    "llava_onevision": Family(
        model="LlavaOnevisionForConditionalGeneration",
        eye=VISION | {"vision_use_head": False},
        parts={
            "image_token_index": MEDIA,
            "video_token_index": VIDEO,
            "image_grid_pinpoints": [[8, 8], [8, 16], [16, 8]],
        },
        marks=marked(each=anyres_positions),
        shape=tiles(anyres),
        pack=by_image,
        start=1,
    ),
    "qwen2_vl": Family(
        model="Qwen2VLForConditionalGeneration",
        eye=QWEN_EYE | {"embed_dim": EYE, "hidden_size": WIDTH, "mlp_ratio": 2},
        shape=patches(2 * 3 * 16),
        **GRID,
    ),
    "qwen2_5_vl": Family(
        model="Qwen2_5_VLForConditionalGeneration",
        eye=QWEN_EYE
        | {
            "hidden_size": EYE,
            "out_hidden_size": WIDTH,
            "intermediate_size": 2 * EYE,
            "window_size": 16,
            "fullatt_block_indexes": [1],
        },
        shape=patches(2 * 3 * 16),
        start=1,
        **GRID,
    ),
    "qwen3_vl": Family(
        model="Qwen3VLForConditionalGeneration",
        eye=QWEN_EYE
        | {
            "hidden_size": EYE,
            "out_hidden_size": WIDTH,
            "intermediate_size": 2 * EYE,
            "num_position_embeddings": 16,
            "deepstack_visual_indexes": [0],
        },
        shape=patches(2 * 3 * 16),
        **GRID,
    ),
    "idefics3": Family(model="Idefics3ForConditionalGeneration", **SPLIT),
    "smolvlm": Family(model="SmolVLMForConditionalGeneration", **SPLIT),
    "paligemma": Family(
        model="PaliGemmaForConditionalGeneration",
        eye=VISION | {"vision_use_head": False},
        parts={"image_token_index": MEDIA, "projection_dim": WIDTH, "hidden_size": WIDTH},
        marks=marked(each=lambda *_: 4, after=[BOS]),
        shape=tiles(one),
        pack=joined,
        typed=all_prefix,
    ),
    "gemma3": Family(
        model="Gemma3ForConditionalGeneration",
        eye=VISION | {"patch_size": 2, "vision_use_head": False},
        parts={
            "image_token_index": MEDIA,
            "boi_token_index": OPEN,
            "eoi_token_index": CLOSE,
            "mm_tokens_per_image": 4,
            "tie_word_embeddings": False,  # tied and scaled, it would say its last unit again
        },
        text={
            "sliding_window": 16,
            "sliding_window_pattern": 2,
            "query_pre_attn_scalar": 8,
        },
        marks=marked(OPEN, each=lambda *_: 4, after=[CLOSE]),
        shape=tiles(one),
        pack=joined,
        typed=lambda ids: {"token_type_ids": (ids == MEDIA).long()},
        echo=0.2,
        start=1,
    ),
    "internvl": Family(
        model="InternVLForConditionalGeneration",
        eye=VISION | {"patch_size": 2},
        parts={"image_token_id": MEDIA, "image_seq_length": 4},
        marks=marked(OPEN, each=lambda *image: 4 * cropped(*image), after=[CLOSE]),
        shape=tiles(cropped),
        pack=joined,
    ),
    "got_ocr2": Family(
        model="GotOcr2ForConditionalGeneration",
        eye=VISION
        | {
            "patch_size": 1,
            "output_channels": EYE,
            "mlp_dim": 2 * EYE,
            "window_size": 2,
            "global_attn_indexes": [1],
        },
        parts={"image_token_index": MEDIA, "image_seq_length": 4},
        marks=marked(OPEN, each=lambda *image: 4 * cropped(*image), after=[CLOSE]),
        shape=tiles(cropped),
        pack=joined,
    ),
    "paddleocr_vl": Family(
        model="PaddleOCRVLForConditionalGeneration",
        eye=VISION | {"image_size": 16},
        shape=patches(3, 4, 4),
        **GRID,
    ),
    "qwen2_audio": Family(
        model="Qwen2AudioForConditionalGeneration",
        eye=EAR,
        parts={"audio_token_index": MEDIA},
        marks=marked(OPEN, each=lambda size, _: 8 if size == WIDE else 5, after=[CLOSE]),
        shape=lambda *_: (1, 8, 32),
        pack=heard,
        start=3,
    ),
    "voxtral": Family(
        model="VoxtralForConditionalGeneration",
        eye=EAR,
        parts={"audio_token_id": MEDIA},
        marks=marked(OPEN, each=lambda size, _: 4 * size[0] * size[1]),
        shape=lambda size, _: (size[0] * size[1], 8, 32),
        pack=lambda media: {"input_features": torch.cat(pixels(media))},
    ),
}

NAMES = tuple(FAMILIES)


def tiny(name: str, seed: int = 0, layers: int = 3, **changes: Any) -> Any:
    """A model of its own; `changes` are of the decoder's configuration.

    With another seed and fewer layers it is a drafter for the first one.
    """
    family = FAMILIES[name]
    kind = getattr(transformers, family.model)
    text = {**TEXT, **(family.text or {}), "num_hidden_layers": layers, **changes}
    eye = "audio_config" if family.eye is EAR else "vision_config"
    with torch.random.fork_rng():
        torch.manual_seed(seed + family.start)
        model = kind(kind.config_class(text_config=text, **{eye: family.eye}, **family.parts))
        for weight in model.parameters():
            if weight.dim() > 1:
                torch.nn.init.normal_(weight, std=0.4)
    with torch.no_grad():
        model.get_input_embeddings().weight *= family.echo
        head = model.get_output_embeddings().weight
        head[EOS] *= 0.8  # else some are over before they began
        head[TILE:] *= 0.3  # marks are for prompts: a trained model says none
    model.generation_config = GenerationConfig(pad_token_id=PAD, eos_token_id=EOS, bos_token_id=BOS)
    return model.eval()


def _row(family: Family, case: str, seed: int) -> tuple[list[int], Media]:
    """Ids and images of a prompt; a few words more or less by seed."""
    random = torch.Generator().manual_seed(seed)
    together = sum(isinstance(piece, tuple) for piece in CASES[case])
    ids, media = [BOS], Media()
    for piece in (seed % 3, *CASES[case]):
        if isinstance(piece, int):
            ids += torch.randint(WORDS[0], WORDS[-1], (piece,), generator=random).tolist()
        else:
            ids += family.marks(piece, together)
            image = torch.randn(family.shape(piece, together), generator=random)
            media.append((piece, image))
    return ids, media


def inputs(
    name: str, model: Any, case: str | Sequence[str], rows: int = 1, seed: int = 0
) -> dict[str, Tensor]:
    """What the family's processor would hand to `model.generate`.

    Args:
        name: the family.
        model: the model of it, for its device.
        case: a name of `CASES`; or one for each row.
        rows: rows of the batch, each with a prompt of its own, padded on the left.
        seed: of the first row; the next row is the one that the next seed makes.
    """
    family = FAMILIES[name]
    cases = [case] * rows if isinstance(case, str) else case
    made = [_row(family, case, seed + row) for row, case in enumerate(cases)]
    longest = max(len(ids) for ids, _ in made)
    ids = torch.tensor([[PAD] * (longest - len(row)) + row for row, _ in made])
    there = [[0] * (longest - len(row)) + [1] * len(row) for row, _ in made]
    found = {"input_ids": ids, "attention_mask": torch.tensor(there)}
    found |= family.typed(ids)
    if any(media for _, media in made):
        found |= family.pack([media for _, media in made])
    return {key: value.to(model.device) for key, value in found.items()}

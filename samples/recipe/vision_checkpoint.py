"""What the vision sample is made of: tokenizer, processor, configurations, the folder on disk."""

import json
from pathlib import Path

import torch
from tokenizers import AddedToken, pre_tokenizers
from transformers import (
    GenerationConfig,
    Qwen2Tokenizer,
    Qwen2VLConfig,
    Qwen2VLForConditionalGeneration,
    Qwen2VLProcessor,
)
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil
from vision_images import MEAN, PATCH, SPREAD
from vision_text import INSTRUCTIONS

END, PAD, IMAGE = "<|end|>", "<|pad|>", "<|image_pad|>"
USER, ASSISTANT, SYSTEM = "<|user|>", "<|assistant|>", "<|system|>"
VISION_START, VISION_END, VIDEO = "<|vision_start|>", "<|vision_end|>", "<|video_pad|>"
_CONTROL = [END, PAD, USER, ASSISTANT, SYSTEM, VISION_START, VISION_END, IMAGE, VIDEO]
_CONTEXT = 8192
_MOST_PATCHES = 4096
_CHAT_TEMPLATE = """\
{%- for message in messages -%}
{{ '<|' + message['role'] + '|>' }}
{%- if message['content'] is string -%}
{{ message['content'] }}
{%- else -%}
{%- for part in message['content'] -%}
{%- if part['type'] == 'text' -%}
{{ part['text'] }}
{%- elif part['type'] in ('image', 'image_url') -%}
{{ '<|vision_start|><|image_pad|><|vision_end|>' }}
{%- elif part['type'] == 'video' -%}
{{ '<|vision_start|><|video_pad|><|vision_end|>' }}
{%- endif -%}
{%- endfor -%}
{%- endif -%}
{%- if message['role'] == 'assistant' -%}
{{ '<|end|>' }}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{ '<|assistant|>' }}
{%- endif -%}
"""
_ROLES = {
    "target": {
        "text": {"hidden_size": 128, "num_hidden_layers": 6, "intermediate_size": 352},
        "vision": {"embed_dim": 128, "depth": 5, "num_heads": 4},
    },
    "drafter": {
        "text": {"hidden_size": 128, "num_hidden_layers": 2, "intermediate_size": 352},
        "vision": {"embed_dim": 128, "depth": 5, "num_heads": 4},
    },
}


def byte_ids() -> dict[str, int]:
    """The ids of the 256 bytes, each under the character byte-level tokenizers write it as."""
    printed = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printed]
    names = {byte: chr(byte) for byte in printed}
    names |= {byte: chr(256 + rank) for rank, byte in enumerate(others)}
    assert {*names.values()} == {*pre_tokenizers.ByteLevel.alphabet()}
    return {names[byte]: byte for byte in range(256)}


def build_tokenizer() -> Qwen2Tokenizer:
    """Bytes without merges (an id is the byte's value), control tokens, instructions as tokens."""
    tokenizer = Qwen2Tokenizer(
        vocab=byte_ids(),
        merges=[],
        unk_token=None,
        eos_token=END,
        pad_token=PAD,
        model_max_length=_CONTEXT,
        processor_class="Qwen2VLProcessor",
    )
    tokenizer.add_special_tokens({"additional_special_tokens": _CONTROL})
    tokenizer.add_tokens([AddedToken(text, normalized=False) for text in INSTRUCTIONS])
    return tokenizer


def build_model(tokenizer: Qwen2Tokenizer, role: str) -> Qwen2VLForConditionalGeneration:
    """A target or drafter with fresh weights."""
    ids = {token: tokenizer.convert_tokens_to_ids(token) for token in _CONTROL}
    text, vision = _ROLES[role]["text"], _ROLES[role]["vision"]
    spread = 0.07  # 0.02 is made for wide layers
    config = Qwen2VLConfig(
        text_config={
            **text,
            "vocab_size": len(tokenizer),
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "max_position_embeddings": _CONTEXT,
            "initializer_range": spread,
            # Low frequencies alone would stand for the column (the last section has the lowest), so
            # the base is small: a period from 6 to 90 positions.
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 16.0,
                "mrope_section": [3, 5, 8],
            },
            "bos_token_id": None,
            "eos_token_id": ids[END],
            "pad_token_id": ids[PAD],
        },
        vision_config={
            **vision,
            "hidden_size": text["hidden_size"],
            "mlp_ratio": 3,
            "patch_size": PATCH,
            "spatial_merge_size": 1,
            "temporal_patch_size": 2,
            "initializer_range": spread,
        },
        image_token_id=ids[IMAGE],
        video_token_id=ids[VIDEO],
        vision_start_token_id=ids[VISION_START],
        vision_end_token_id=ids[VISION_END],
        tie_word_embeddings=True,
    )
    model = Qwen2VLForConditionalGeneration(config)
    model.generation_config = GenerationConfig(
        eos_token_id=ids[END], pad_token_id=ids[PAD], do_sample=False, max_new_tokens=512
    )
    return model


class StillProcessor(Qwen2VLProcessor):
    """Qwen2-VL's processor for images alone: without torchvision there is no video processor."""

    @classmethod
    def get_attributes(cls) -> list[str]:
        """The parts a processor is made of."""
        return [name for name in super().get_attributes() if name != "video_processor"]


def build_processor(tokenizer: Qwen2Tokenizer) -> StillProcessor:
    """Native resolution: an image is only stretched to whole patches."""
    images = Qwen2VLImageProcessorPil(
        patch_size=PATCH,
        merge_size=1,
        temporal_patch_size=2,
        min_pixels=4 * PATCH**2,
        max_pixels=_MOST_PATCHES * PATCH**2,
        image_mean=[MEAN] * 3,
        image_std=[SPREAD] * 3,
    )
    return StillProcessor(images, tokenizer, chat_template=_CHAT_TEMPLATE)


def save(model: Qwen2VLForConditionalGeneration, role: str, out: Path) -> None:
    """Writes a checkpoint folder: float16 weights, configurations, tokenizer, processor."""
    out.mkdir(parents=True, exist_ok=True)
    tokenizer = build_tokenizer()
    half = build_model(tokenizer, role)
    half.load_state_dict(model.state_dict())
    half.to(torch.float16).save_pretrained(out)
    build_processor(tokenizer).save_pretrained(out)
    _name_both_kinds(out)


def _name_both_kinds(out: Path) -> None:
    """Makes the folder one that `AutoProcessor` loads too, which wants a video processor."""
    path = out / "processor_config.json"
    parts = json.loads(path.read_text())
    images = parts["image_processor"]
    videos = {**images, "video_processor_type": "Qwen2VLVideoProcessor"}
    del videos["image_processor_type"]
    whole = {
        "image_processor": images,
        "processor_class": "Qwen2VLProcessor",
        "video_processor": videos,
    }
    path.write_text(json.dumps(whole, indent=2, sort_keys=True) + "\n")
    path = out / "tokenizer_config.json"
    path.write_text(path.read_text().replace("StillProcessor", "Qwen2VLProcessor"))
    # Readers older than transformers 5 look for the image processor here.
    old = {**images, "processor_class": "Qwen2VLProcessor"}
    text = json.dumps(old, indent=2, sort_keys=True) + "\n"
    (out / "preprocessor_config.json").write_text(text)

"""Tiny CSM models with random weights, and what transformers makes them say."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import transformers as hf
from torch import Tensor

BOOKS, CODES, END, PAD = 4, 16, 0, 18
VOCAB, WIDTH = 19, 32
AUDIO, AUDIO_END, SILENT = 50, 51, 52
"""Ids of the text: a frame of a recording, its end, padding."""
HOP, RATE = 8, 160

Rows = list[tuple[int, ...]]


def config(layers: int = 2, *, books: int = BOOKS, **changes: Any) -> hf.CsmConfig:
    """Its codec has a hop of 8; `changes` are of the backbone."""
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 48}
    depth = {
        **heads,
        "num_codebooks": books,
        "vocab_size": VOCAB,
        "backbone_hidden_size": WIDTH,
        "hidden_size": 24,
        "num_hidden_layers": 2,
        "max_position_embeddings": books + 1,
    }
    codec = {
        "model_type": "mimi",
        "sampling_rate": RATE,
        "hidden_size": 16,
        "num_filters": 4,
        "upsampling_ratios": [2, 2],
        "codebook_size": CODES,
        "codebook_dim": 8,
        "num_quantizers": books,
        "vector_quantization_hidden_dimension": 8,
        "upsample_groups": 1,
        "num_hidden_layers": 1,
        "intermediate_size": 16,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "head_dim": 8,
    }
    return hf.CsmConfig(
        **{
            **heads,
            "num_codebooks": books,
            "vocab_size": VOCAB,
            "text_vocab_size": 60,
            "hidden_size": WIDTH,
            "num_hidden_layers": layers,
            "max_position_embeddings": 128,
            "pad_token_id": SILENT,
            "codebook_pad_token_id": PAD,
            "codebook_eos_token_id": END,
            "bos_token_id": 1,
            "audio_token_id": AUDIO,
            "audio_eos_token_id": AUDIO_END,
            "depth_decoder_config": depth,
            "codec_config": codec,
            **changes,
        }
    )


def tiny(seed: int = 0, layers: int = 2, *, books: int = BOOKS, chained: float = 1.0) -> Any:
    """A model of its own, whose weights are drawn wide: else near ties abound.

    Args:
        seed: of the weights.
        layers: of the backbone.
        books: codebooks.
        chained: how much the depth decoder's layers say; at 0 each code depends on the one before
            it alone.
    """
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = hf.CsmForConditionalGeneration(config(layers, books=books))
        for parameter in model.parameters():
            if parameter.ndim > 1:
                torch.nn.init.normal_(parameter, std=0.35)
    depth = model.depth_decoder
    with torch.no_grad():
        for layer in depth.model.layers:
            layer.self_attn.o_proj.weight *= chained
            layer.mlp.down_proj.weight *= chained
        model.lm_head.weight[CODES:] = 0.0  # a trained model says no marks
        depth.codebooks_head.weight[:, :, CODES:] = 0.0
    return model.eval()


def ending(seed: int = 0, eager: float = 1.2) -> Any:
    """A model that likes its end mark: its outputs stop by themselves."""
    model = tiny(seed)
    with torch.no_grad():
        model.lm_head.weight[END] *= eager
        model.depth_decoder.codebooks_head.weight[:, :, END] *= eager
    return model


shared = functools.cache(tiny)


def text(length: int = 9, seed: int = 0) -> dict[str, Tensor]:
    """Ids of some words."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(2, 49, (1, length), generator=generator)
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


@functools.cache
def processor() -> Any:
    """Letters for words, as the library puts tokenizer and feature extractor together."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    letters = "abcdefghijklmnopqrstuvwxyz [0123]"
    vocabulary = {"<bos>": 1, **{letter: 2 + at for at, letter in enumerate(letters)}}
    vocabulary |= {"<|AUDIO|>": AUDIO, "<|audio_eos|>": AUDIO_END, "<pad>": SILENT, "<unk>": 49}
    words = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer = hf.PreTrainedTokenizerFast(
        tokenizer_object=words,
        pad_token="<pad>",
        bos_token="<bos>",
        unk_token="<unk>",
        additional_special_tokens=["<|AUDIO|>", "<|audio_eos|>"],
    )
    return hf.CsmProcessor(hf.EncodecFeatureExtractor(sampling_rate=RATE), tokenizer)


def voiced(frames: Sequence[int] = (6,), seed: int = 0) -> dict[str, Tensor]:
    """Words behind recordings of so many frames each."""
    generator = torch.Generator().manual_seed(seed)
    ids, ends = [1], [0]
    for count in frames:
        ids += [*torch.randint(2, 49, (3,), generator=generator).tolist()]
        ids += [AUDIO] * count + [AUDIO_END]
        ends.append(ends[-1] + count * HOP)
    ids += torch.randint(2, 49, (4,), generator=generator).tolist()
    found = torch.tensor([ids])
    return {
        "input_ids": found,
        "attention_mask": torch.ones_like(found),
        "input_values": torch.randn(1, 1, ends[-1], generator=generator),
        "input_values_cutoffs": torch.tensor([ends[1:]]),
    }


def batch(rows: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Rows as the library's processor puts them together: padded on the left."""
    widest = max(row["input_ids"].shape[1] for row in rows)

    def left(row: Mapping[str, Tensor], name: str, value: int) -> Tensor:
        return torch.nn.functional.pad(row[name], (widest - row[name].shape[1], 0), value=value)

    found = {
        "input_ids": torch.cat([left(row, "input_ids", SILENT) for row in rows]),
        "attention_mask": torch.cat([left(row, "attention_mask", 0) for row in rows]),
    }
    if any("input_values" in row for row in rows):
        nothing = {"input_values": torch.zeros(1, 1, 0), "input_values_cutoffs": torch.zeros(1, 0)}
        for name, value in (("input_values", 0), ("input_values_cutoffs", -1)):
            parts = [row.get(name, nothing[name]) for row in rows]
            longest = max(part.shape[-1] for part in parts)
            padded = [
                torch.nn.functional.pad(part, (0, longest - part.shape[-1]), value=value)
                for part in parts
            ]
            found[name] = torch.cat(padded)
        found["input_values_cutoffs"] = found["input_values_cutoffs"].long()
    return found


def library_rows(model: Any, inputs: Mapping[str, Tensor], **options: Any) -> list[Rows]:
    """Every row of transformers' own `generate`, a prompt of frames included, up to its end."""
    made = library(model, inputs, **options).tolist()
    found = []
    for row in made:
        frames = [tuple(frame) for frame in row]
        ends = [at for at, frame in enumerate(frames, 1) if not any(frame[:-1])]
        found.append(frames[: ends[0]] if ends else frames)
    return found


def library(model: Any, inputs: Mapping[str, Tensor], **options: Any) -> Tensor:
    """What transformers' own `generate` returns; its settings are as they were afterwards."""
    settings = model.depth_decoder.generation_config
    model.depth_decoder.generation_config = hf.GenerationConfig.from_dict(settings.to_dict())
    try:
        with torch.no_grad():
            return model.generate(**inputs, **{"do_sample": False, **options})
    finally:
        model.depth_decoder.generation_config = settings


@torch.no_grad()
def slowly(model: Any, inputs: Mapping[str, Tensor], frames: int) -> Rows:
    """Greedy frames without any memory: the whole sequence is read again for every code."""
    merged = model._merge_input_ids_with_input_values(
        inputs["input_ids"], inputs.get("input_values"), inputs.get("input_values_cutoffs")
    )["inputs_embeds"]
    said: Rows = []
    for _ in range(frames):
        line = merged
        if said:
            read = model.backbone_model.embed_tokens(torch.tensor([said]))
            line = torch.cat([merged, read], dim=1)
        state = model.backbone_model(inputs_embeds=line, use_cache=False).last_hidden_state[:, -1]
        frame = [int(model.lm_head(state).argmax())]
        while len(frame) < model.config.num_codebooks:
            ids = torch.tensor([[0, *frame]])
            rows = model.depth_decoder(ids, backbone_last_hidden_state=state, use_cache=False)
            frame.append(int(rows.logits[0, -1].argmax()))
        said.append(tuple(frame))
        if not any(frame[:-1]):
            break
    return said

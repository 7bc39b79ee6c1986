"""Tiny Llamas that write speech in seven slots per frame, and what transformers makes them say.

The weights of one of them are drawn so that it keeps to the order without being made to: ids of a
slot make those of the next one likely. The other's are drawn anyhow, and so are its ids.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import transformers as hf
from torch import Tensor

from mmspec.engine.stats import RequestStats
from mmspec.modalities.speech.contract import CodesResult
from mmspec.modalities.speech.orpheus import Orpheus
from mmspec.modalities.speech.seven_slots import SpecialTokens
from mmspec.report.report import Report

from .chain_runs import said_by

WORDS, CODES = 30, 8
HUMAN, TEXT_ENDS, HUMAN_ENDS, MODEL, START, END = range(WORDS, WORDS + 6)
BASE = WORDS + 6
VOCAB = BASE + 7 * CODES + 4
MARKS = SpecialTokens(BASE, CODES, START, END, (HUMAN,), (TEXT_ENDS, HUMAN_ENDS))
KINDS, RANDOM = 12, 20
LENGTH = 40

STRICT, LENIENT = Orpheus(MARKS), Orpheus(MARKS, resync=True)


def kind_of(token: int) -> int:
    """What an id stands for: a slot, a mark, or a word."""
    if BASE <= token < BASE + 7 * CODES:
        return (token - BASE) // CODES
    return {HUMAN_ENDS: 7, MODEL: 8, START: 9, END: 10}.get(token, 11)


FOLLOWS = {8: (7,), 9: (8,), 0: (9, 6), 10: (6,), **{slot: (slot - 1,) for slot in range(1, 7)}}
"""The kinds that each kind follows."""


def made(seed: int = 0, layers: int = 2, *, wild: bool = False, vocab: int = VOCAB) -> Any:
    """A model of its own.

    Args:
        seed: of its weights.
        layers: how many.
        wild: it knows no order.
        vocab: ids that it has.
    """
    width = KINDS + RANDOM
    config = hf.LlamaConfig(
        vocab_size=vocab,
        hidden_size=width,
        intermediate_size=2 * width,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=256,
        bos_token_id=None,
        eos_token_id=END,
        pad_token_id=END,
    )
    torch.manual_seed(seed)
    model = hf.LlamaForCausalLM(config).eval()
    for parameter in model.parameters():
        if parameter.ndim > 1:
            parameter.data.normal_(0.0, 0.35)
    if not wild:
        _teach_order(model)
    return model


def _teach_order(model: Any) -> None:
    embedded = model.get_input_embeddings().weight.data
    head = model.get_output_embeddings().weight.data
    embedded[:, :KINDS], head[:, :KINDS] = 0, 0
    for layer in model.model.layers:  # what an id stands for reaches the head as it is
        layer.self_attn.o_proj.weight.data[:KINDS] = 0
        layer.mlp.down_proj.weight.data[:KINDS] = 0
    for token in range(len(embedded)):
        embedded[token, kind_of(token)] = 12.0
        for before in FOLLOWS.get(kind_of(token), ()):
            head[token, before] = 12.0
    head[END, 6] = 13.0  # else it seldom ends


tiny = functools.cache(made)


def inputs(seed: int = 0, words: int = 6, behind: Sequence[int] = ()) -> dict[str, Tensor]:
    """A text between its marks, and what else the prompt holds."""
    generator = torch.Generator().manual_seed(seed)
    text = torch.randint(0, WORDS, (words,), generator=generator).tolist()
    ids = torch.tensor([[HUMAN, *text, TEXT_ENDS, HUMAN_ENDS, *behind]])
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def library_ids(model: Any, given: Mapping[str, Any], **options: Any) -> list[int]:
    """What the library's own `generate` says behind the prompt."""
    asked = {"max_new_tokens": LENGTH, "do_sample": False, "eos_token_id": END, **options}
    return model.generate(**given, **asked)[0, given["input_ids"].shape[1] :].tolist()


def library_codes(model: Any, given: Mapping[str, Any], **options: Any) -> list[tuple[int, ...]]:
    """Its whole frames of codes, by SNAC's levels: the published way to read them, in their order.

    Source:
        Orpheus-TTS, the decoding of its notebook: what stands behind the last start of speech,
        without ends, cut to whole sevens; each slot's offset is taken off.
    """
    ids = library_ids(model, given, **options)
    begin = len(ids) - 1 - ids[::-1].index(START)
    speech = [token for token in ids[begin + 1 :] if token != END]
    frames = []
    for i in range(len(speech) // 7):
        s = [speech[7 * i + slot] - BASE - slot * CODES for slot in range(7)]
        frames.append((s[0], s[1], s[4], s[2], s[3], s[5], s[6]))
    return frames


def said(
    model: Any,
    given: Mapping[str, Any],
    draft: Any = None,
    gamma: int = 4,
    family: Orpheus = STRICT,
    **how: Any,
) -> tuple[CodesResult, Report, RequestStats]:
    """What we say; see `chain_runs.said_by`."""
    return said_by(family, model, given, draft, gamma, **{"max_new_tokens": LENGTH, **how})


def behind(said: CodesResult) -> list[int]:
    """The ids behind the prompt."""
    return list(said.sequence[said.prompt_length :])

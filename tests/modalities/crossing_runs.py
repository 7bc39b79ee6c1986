"""Requests of the tiny crossing models, as transformers decodes them and as mmspec does."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

import mmspec
from mmspec.clock import Clock
from mmspec.engine import BlockCosts, FixedPolicy, Sampling, Session
from mmspec.engine.stats import RequestStats
from mmspec.modalities.base.checkpoint import Checkpoint
from mmspec.modalities.base.draft import ModelDraft
from mmspec.modalities.base.preparation import Prepared, prepare
from mmspec.modalities.base.request import session
from mmspec.modalities.base.speculative_decoder import SpeculativeDecoder

from .tiny_crossing import FAMILIES, inputs, tiny

UNITS = 11
NAMES = tuple(FAMILIES)
DRAFTERS = (
    "none",
    "ngram",
    "copy",
    "other",
    "hypothesis-right",
    "hypothesis-wrong",
    "early-exit:1",
)

Given = Mapping[str, Any]

model_of = functools.cache(tiny)


@functools.cache
def twin_of(name: str) -> Any:
    """The same weights in a model of its own."""
    return tiny(name)


@functools.cache
def sibling_of(name: str) -> Any:
    """Other weights, fewer layers, its own tower."""
    return tiny(name, seed=1, layers=1)


def first_case(name: str) -> str:
    return FAMILIES[name].cases[0]


def given(name: str, case: str | None = None, **how: Any) -> dict[str, Tensor]:
    return inputs(name, model_of(name), case or first_case(name), **how)


def copied(prompt: Given) -> dict[str, Any]:
    """BLIP's `generate` writes into what it is given."""
    return {key: value.clone() for key, value in prompt.items()}


def plain(model: Any, prompt: Given, tokens: int = UNITS, **options: Any) -> Tensor:
    """What transformers' own loop says, the decoder's prompt in front."""
    asked = {"do_sample": False, "max_new_tokens": tokens, **options}
    return model.generate(**copied(prompt), **asked)


@functools.cache
def prepared_for(name: str, case: str | None = None, tokens: int = UNITS) -> Prepared:
    """A request that ends at its length only."""
    asked = {"max_new_tokens": tokens, "min_new_tokens": tokens}
    return prepare(model_of(name), copied(given(name, case)), **asked)


@functools.cache
def said(name: str, case: str | None = None) -> tuple[int, ...]:
    """Prompt and output of that request."""
    made = plain(model_of(name), given(name, case), min_new_tokens=UNITS)
    return tuple(made[0].tolist())


def prompt_length(name: str, case: str | None = None) -> int:
    return len(prepared_for(name, case).prompt)


def wrong(tokens: Sequence[int]) -> list[int]:
    """A token wrong, one too many."""
    changed = list(tokens)
    changed[2:3] = [changed[2] ^ 1]
    changed.insert(6, 9)
    return changed


def drafter(kind: str, name: str, truth: Sequence[int]) -> dict[str, Any]:
    """Arguments of `mmspec.generate` that select a drafter."""
    if kind.startswith("hypothesis"):
        expected = list(truth) if kind == "hypothesis-right" else wrong(truth)
        return {"draft": "hypothesis", "hypothesis": expected}
    models = {"copy": twin_of, "other": sibling_of, "itself": model_of}
    return {"draft": models[kind](name) if kind in models else kind}


def speculated(
    name: str,
    prompt: Given,
    kind: str = "ngram",
    gamma: Any = 4,
    *,
    model: Any = None,
    hypothesis: Sequence[int] = (),
    **options: Any,
) -> Any:
    """What mmspec makes of it; a faulty drafter is a failure."""
    asked = {"max_new_tokens": UNITS, "packed": False, **options}
    chosen = drafter(kind, name, hypothesis)
    model = model_of(name) if model is None else model
    made = mmspec.generate(model, prompt, gamma=gamma, **chosen, **asked)
    faults = [fault for report in made.reports for fault in report.faults]
    if faults:
        raise AssertionError(faults)
    return made


@contextmanager
def decoding(name: str, drafter: Any, gamma: int = 4) -> Iterator[tuple[Session, RequestStats]]:
    """A request to be decoded round by round; the drafter drafts on however unsure it is."""
    prepared, prompt = prepared_for(name), copied(given(name))
    checkpoint = Checkpoint.of(model_of(name), packed=False)
    draft = ModelDraft(checkpoint, Checkpoint.of(drafter, packed=False), sure=0)
    pair = SpeculativeDecoder(checkpoint, draft, FixedPolicy(gamma), BlockCosts())
    stats = RequestStats(Clock(checkpoint.device))
    with session(pair, prepared, stats, sampling=Sampling(), inputs=lambda _: prompt) as opened:
        yield opened, stats


@contextmanager
def target_of(name: str, case: str | None = None) -> Iterator[tuple[Any, Tensor]]:
    """A decoder behind a prompt, and the row that reading it left."""
    checkpoint = Checkpoint.of(model_of(name), packed=False)
    target = checkpoint.family.open(prepared_for(name, case, 30), packed=False)
    try:
        yield target, target.read_prompt()
    finally:
        target.close()


@torch.no_grad()
def without_cache(name: str, case: str | None, tokens: Sequence[int]) -> Tensor:
    """Rows behind a prompt and each of some tokens: a whole forward that remembers nothing."""
    prepared = prepared_for(name, case, 30)
    ids = torch.cat([prepared.input_ids, torch.tensor([list(tokens)])], 1)
    names = ["attention_mask", "encoder_outputs"]
    if name == "mllama":
        names = ["pixel_values", "aspect_ratio_ids", "aspect_ratio_mask", "cross_attention_mask"]
    if name.startswith("blip"):
        names = ["encoder_hidden_states", "encoder_attention_mask"]
    told = {key: prepared.inputs[key] for key in names if prepared.inputs.get(key) is not None}
    if "cross_attention_mask" in told:
        sight = told["cross_attention_mask"]
        more = sight[:, -1:].expand(-1, len(tokens), -1, -1)
        told["cross_attention_mask"] = torch.cat([sight, more], 1)
    if name.startswith("blip"):
        told["is_decoder"] = True
    told["decoder_input_ids" if "encoder_outputs" in told else "input_ids"] = ids
    rows = prepared.model(**told, use_cache=False).logits[0]
    return rows[len(prepared.prompt) - 1 :]

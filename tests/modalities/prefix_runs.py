"""Requests of the tiny prefix models, as transformers decodes them and as mmspec does."""

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
from mmspec.modalities.base.preparation import prepare
from mmspec.modalities.base.request import session
from mmspec.modalities.base.speculative_decoder import Draft, NoDraft, SpeculativeDecoder

from .tiny_prefix import WORDS, inputs, tiny

UNITS = 12
DRAFTERS = ("none", "ngram", "copy", "other", "hypothesis-right", "hypothesis-wrong")

Given = Mapping[str, Tensor]

model_of = functools.cache(tiny)


@functools.cache
def twin_of(name: str) -> Any:
    """The same weights in a model of its own."""
    return tiny(name)


@functools.cache
def sibling_of(name: str) -> Any:
    """Other weights, fewer layers, its own tower."""
    return tiny(name, seed=1, layers=1)


def given(name: str, case: str = "image", seed: int = 0) -> dict[str, Tensor]:
    return inputs(name, model_of(name), case, seed=seed)


def emitted(sequences: Tensor, prompt: Given) -> list[int]:
    """The only row's tokens behind its prompt."""
    return [int(token) for token in sequences[0, prompt["input_ids"].shape[1] :]]


def plain(model: Any, prompt: Given, tokens: int = UNITS, **options: Any) -> list[int]:
    """What transformers' own loop says."""
    made = model.generate(**prompt, max_new_tokens=tokens, **{"do_sample": False, **options})
    return emitted(made, prompt)


@functools.cache
def said(name: str, case: str = "image") -> tuple[int, ...]:
    """The same, known already; it has no end but its length."""
    return tuple(plain(model_of(name), given(name, case), eos_token_id=None))


def wrong(tokens: Sequence[int]) -> list[int]:
    """A token wrong, one too many."""
    changed = list(tokens)
    changed[2] = WORDS[0] if changed[2] != WORDS[0] else WORDS[1]
    changed.insert(6, WORDS[2])
    return changed


def drafter(kind: str, name: str, truth: Sequence[int]) -> dict[str, Any]:
    """Arguments of `mmspec.generate` that select a drafter."""
    if kind.startswith("hypothesis"):
        expected = list(truth) if kind == "hypothesis-right" else wrong(truth)
        return {"draft": "hypothesis", "hypothesis": expected}
    models = {"copy": twin_of, "other": sibling_of, "itself": model_of}
    return {"draft": models[kind](name) if kind in models else kind}


def speculated(
    name: str, prompt: Given, kind: str = "ngram", gamma: Any = 4, **options: Any
) -> Any:
    """What mmspec makes of it; a faulty drafter is a failure."""
    asked = {"max_new_tokens": UNITS, "packed": False, "hypothesis": None, **options}
    chosen = drafter(kind, name, asked.pop("hypothesis") or ())
    made = mmspec.generate(model_of(name), prompt, gamma=gamma, **chosen, **asked)
    faults = [fault for report in made.reports for fault in report.faults]
    if faults:
        raise AssertionError(faults)
    return made


@contextmanager
def decoding(
    name: str, prompt: Given, draft: Any = None, gamma: int = 4, tokens: int = UNITS
) -> Iterator[tuple[Session, RequestStats]]:
    """A request to be decoded round by round.

    Args:
        name: the family.
        prompt: its inputs.
        draft: a drafting model, which drafts on however unsure it is; or what makes a kind of
            drafter for a checkpoint.
        gamma: tokens drafted per round.
        tokens: its length.
    """
    checkpoint = Checkpoint.of(model_of(name), packed=False)
    if isinstance(draft, torch.nn.Module):
        kind: Draft = ModelDraft(checkpoint, Checkpoint.of(draft, packed=False), sure=0)
    else:
        kind = NoDraft() if draft is None else draft(checkpoint)
    pair = SpeculativeDecoder(checkpoint, kind, FixedPolicy(gamma), BlockCosts())
    prepared = prepare(checkpoint.model, prompt, max_new_tokens=tokens, eos_token_id=None)
    stats = RequestStats(Clock(checkpoint.device))
    with session(pair, prepared, stats, sampling=Sampling(), inputs=lambda _: prompt) as opened:
        yield opened, stats


@contextmanager
def target_of(name: str, prompt: Given, model: Any = None) -> Iterator[tuple[Any, Tensor]]:
    """A decoder behind a prompt, and the row that reading it left."""
    model = model_of(name) if model is None else model
    checkpoint = Checkpoint.of(model, packed=False)
    prepared = prepare(model, prompt, max_new_tokens=40)
    target = checkpoint.family.open(prepared, packed=False)
    try:
        yield target, target.read_prompt()
    finally:
        target.close()


def without_cache(name: str, prompt: Given, tokens: Sequence[int], model: Any = None) -> Tensor:
    """Rows behind a prompt and each of some tokens: a whole forward that remembers nothing."""
    behind = torch.tensor([list(tokens)])
    longer = {"input_ids": torch.cat([prompt["input_ids"], behind], 1)}
    longer["attention_mask"] = torch.ones_like(longer["input_ids"])
    for kinds, kind in (("mm_token_type_ids", 0), ("token_type_ids", int(name == "paligemma"))):
        if kinds in prompt:
            longer[kinds] = torch.cat([prompt[kinds], torch.full_like(behind, kind)], 1)
    rest = {key: value for key, value in prompt.items() if key not in longer and key != "labels"}
    model = model_of(name) if model is None else model
    with torch.no_grad():
        rows = model(**longer, **rest, use_cache=False).logits[0]
    return rows[prompt["input_ids"].shape[1] - 1 :]


def padded_right(batch: Given) -> dict[str, Tensor]:
    """A batch that was padded on the left, padded on the right."""
    shape, turned = batch["input_ids"].shape, dict(batch)
    for row, there in enumerate(batch["attention_mask"]):
        shift = -int((there == 0).sum())
        for name, value in batch.items():
            if value.shape == shape:
                if row == 0:
                    turned[name] = value.clone()
                turned[name][row] = value[row].roll(shift)
    return turned

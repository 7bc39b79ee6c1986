"""What can be done with a model, and why not: what every task room is asked for `mmspec info`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from mmspec.drafting import draft_for
from mmspec.errors import MMSpecError, ModelError
from mmspec.kernels import packing_pays, worth_packing
from mmspec.loading import load_model, task_of
from mmspec.modalities import ADAPTERS, adapter_for
from mmspec.proposals import SameVocabulary
from mmspec.tasks.registry import room

Facts = list[tuple[str, str]]

INNER = {"blip_text_model"}
"""Parts that `generate` hands to a decoding loop: no checkpoint is of these types."""


def families() -> Facts:
    """What each family that has an adapter is good for, by transformers' model type."""
    return [
        (name, room(row.task, "info").good_for(adapter_for(name)))
        for name, row in sorted(ADAPTERS.items())
        if name not in INNER
    ]


def facts_of(
    name: str, drafts: list[str], device: str | None = None, trust_remote_code: bool = False
) -> Facts:
    """What a model is and what can be done with it, here, with these drafters.

    Args:
        name: as `mmspec.load` takes it.
        drafts: likewise.
        device: where it would run.
        trust_remote_code: let a checkpoint bring Python code of its own.

    Raises:
        ModelError: it can't be found or read.
    """
    try:
        model = load_model(name, device, None, True, trust_remote_code)
    except ModelError as error:
        kind = _model_type(name)
        if kind is None:
            raise
        return [("type", kind), ("usable", f"no: {error}")]
    about = room(task_of(model), "info")
    fits = [
        (f"draft {draft}", how_it_fits(draft, model, about.senses, trust_remote_code))
        for draft in drafts
    ]
    return [*about.facts_of(model), *_machine_facts(model), *about.drafters_of(model), *fits]


def _model_type(name: str) -> str | None:
    """The type that a local checkpoint names, None where there is none."""
    try:
        return str(json.loads((Path(name) / "config.json").read_text())["model_type"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _machine_facts(loaded: Any) -> Facts:
    weight = next(loaded.model.parameters())
    if packing_pays(weight.device, weight.dtype):
        large = len(worth_packing(loaded.model.modules()))
        packed = f"{large} large layers (oneDNN)" if large else "no: every layer is small"
    elif weight.device.type != "cpu":
        packed = f"no need on {weight.device}"
    elif weight.dtype != torch.float32:
        packed = f"no: the weights are {weight.dtype}, packing takes float32"
    else:
        packed = "no: this build of torch has no oneDNN"
    where = f"{weight.device}, {weight.dtype}, {torch.get_num_threads()} threads"
    return [("runs on", where.replace("torch.", "")), ("packed layers", packed)]


def how_it_fits(
    draft: str,
    target: Any,
    senses: Callable[[Any], str | None],
    trust_remote_code: bool = False,
) -> str:
    """Whether a drafter fits, and how.

    Args:
        draft: as `mmspec.load` takes it.
        target: the checkpoint to be drafted for.
        senses: what a drafting model knows of the input; None for other kinds of drafter.
        trust_remote_code: let a checkpoint bring Python code of its own.
    """
    try:
        kind = draft_for(draft, target, trust_remote_code)
    except MMSpecError as error:
        return f"no: {str(error).removeprefix('draft: ')}"
    known = senses(kind)
    if known is None:
        return "fits"
    vocabulary = getattr(kind, "vocabulary", None)
    if vocabulary is None:
        return f"fits: {known}"
    if isinstance(vocabulary, SameVocabulary):
        words = "same vocabulary"
    else:
        words = f"another vocabulary, bridged: {getattr(vocabulary, 'shared', 0)} shared tokens"
    return f"fits: {words}; {known}"

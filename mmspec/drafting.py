"""Which drafter and which policy a caller's words mean."""

from __future__ import annotations

import operator
from pathlib import Path
from typing import Any

import torch

from mmspec.engine import AdaptivePolicy, BlockCosts, FixedPolicy, Policy
from mmspec.errors import MMSpecError, OptionError
from mmspec.loading import load_whisper, resolve
from mmspec.modalities.pair import Draft, NoDraft
from mmspec.modalities.vlm import draft as vlm
from mmspec.modalities.vlm.checkpoint import Checkpoint
from mmspec.modalities.whisper import Whisper
from mmspec.modalities.whisper_chunks import OverlapDraft
from mmspec.modalities.whisper_draft import (
    EarlyExitDraft,
    HypothesisDraft,
    ModelDraft,
    NgramDraft,
)


def policy_for(gamma: int | str, costs: BlockCosts) -> Policy:
    """The policy that `gamma` names: "adaptive", or a number of units.

    Raises:
        OptionError: neither.
    """
    if gamma == "adaptive":
        return AdaptivePolicy(costs)
    try:
        return FixedPolicy(operator.index(gamma) if not isinstance(gamma, str) else int(gamma))
    except (TypeError, ValueError):
        raise OptionError(f"gamma must be 'adaptive' or a number ≥ 0, got {gamma!r}") from None


def draft_for(draft: Any, target: Whisper, trust_remote_code: bool) -> Draft:
    """The kind of drafter that a `draft` argument names.

    Raises:
        MMSpecError: says what was given and what is known.
    """
    if draft is None or draft == "none":
        return NoDraft()
    if draft == "ngram":
        return NgramDraft(target)
    if draft == "hypothesis":
        return HypothesisDraft(target)
    if draft == "overlap":
        return OverlapDraft(target)
    if isinstance(draft, str) and draft.startswith("early-exit"):
        _, _, layers = draft.partition(":")
        if not layers.isdecimal():
            raise OptionError(f"draft {draft!r}: expected early-exit:N, N a number of layers")
        return EarlyExitDraft(target, int(layers))
    try:
        name = resolve(draft, role="draft")
        device, dtype = str(target.device), target.model.dtype
        drafter = load_whisper(name, device, dtype, target.packed, trust_remote_code)
        label = Path(draft).name if isinstance(draft, str) else "model"
        return ModelDraft(target, drafter, label)
    except MMSpecError as error:
        raise type(error)(f"draft: {error}") from None


def vlm_draft_for(draft: Any, target: Checkpoint, trust_remote_code: bool) -> Draft:
    """The same for a model that looks or listens.

    Raises:
        MMSpecError: says what was given and what is known.
    """
    if draft is None or draft == "none":
        return NoDraft()
    if draft == "ngram":
        return vlm.NgramDraft(target)
    if draft == "hypothesis":
        return vlm.HypothesisDraft(target)
    try:
        if not isinstance(draft, torch.nn.Module):
            raise OptionError(f"draft {draft!r}: not known for this model")
        drafter = Checkpoint.of(draft, packed=target.packed)
        return vlm.ModelDraft(target, drafter)
    except MMSpecError as error:
        raise type(error)(f"draft: {error}") from None

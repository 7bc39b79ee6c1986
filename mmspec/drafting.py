"""Which drafter and which policy a caller's words mean."""

from __future__ import annotations

import operator
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from mmspec.engine import AdaptivePolicy, BlockCosts, FixedPolicy, Policy
from mmspec.errors import MMSpecError, ModelError, OptionError
from mmspec.loading import kind_of, load_drafter, load_model, load_whisper, resolve
from mmspec.modalities.base import draft as vlm
from mmspec.modalities.base.causal import TextModel
from mmspec.modalities.base.checkpoint import Checkpoint
from mmspec.modalities.base.drafts import HypothesisDraft
from mmspec.modalities.base.pair import Draft, NoDraft
from mmspec.modalities.base.switching import SwitchDraft
from mmspec.modalities.speech.checkpoint import Checkpoint as Voice
from mmspec.modalities.vlm.text_only import BlindDraft
from mmspec.modalities.vlm.token_pruning import ThinnedDraft
from mmspec.modalities.whisper.checkpoint import Whisper, has_encoder
from mmspec.modalities.whisper.chunks import OverlapDraft
from mmspec.modalities.whisper.draft import (
    EarlyExitDraft,
    ModelDraft,
    NgramDraft,
    drafter_without_encoder,
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
    if (layers := _layers_of(draft)) is not None:
        return EarlyExitDraft(target, layers)
    try:
        if isinstance(draft, nn.Module) and not has_encoder(draft):
            return ModelDraft(target, drafter_without_encoder(draft, target))
        name = resolve(draft, role="draft")
        device, dtype = str(target.device), target.model.dtype
        drafter = load_whisper(name, device, dtype, target.packed, trust_remote_code)
        label = Path(draft).name if isinstance(draft, str) else "model"
        return ModelDraft(target, drafter, label)
    except MMSpecError as error:
        raise type(error)(f"draft: {error}") from None


@dataclass(frozen=True, slots=True)
class Blind:
    """A drafting model that isn't shown the images, as `draft=`. In a shell: `blind:NAME`.

    A plain language model is blind without this word; a loaded one brings its tokenizer in it.

    Attributes:
        model: a name, a directory or a loaded model.
        processor: of a loaded model, or its tokenizer, where its vocabulary isn't the target's.
    """

    model: Any
    processor: Any = None


@dataclass(frozen=True, slots=True)
class Thinned:
    """A drafting model that reads a part of its visual positions. In a shell: `thin:0.25:NAME`.

    Attributes:
        model: a name, a directory or a loaded model.
        keep: the share that it reads, or (an integer) how many; `thin:64:NAME` is a number.
        processor: of a loaded model, where its vocabulary isn't the target's.
    """

    model: Any
    keep: float | int = 0.25
    processor: Any = None


def vlm_draft_for(draft: Any, target: Checkpoint, trust_remote_code: bool) -> Draft:
    """The same for a model that looks or listens.

    A list means all of its entries, who take turns; so does a string with `+` between them.

    Raises:
        MMSpecError: says what was given and what is known.
    """
    if isinstance(draft, str):
        draft = spelled(draft)
    if isinstance(draft, list | tuple):
        return _switch([vlm_draft_for(one, target, trust_remote_code) for one in draft])
    if draft is None or draft == "none":
        return NoDraft()
    if draft == "ngram":
        return vlm.NgramDraft(target)
    if draft == "hypothesis":
        return HypothesisDraft(target)
    if draft == "overlap":
        raise OptionError("draft 'overlap': only recordings are decoded in chunks")
    if (layers := _layers_of(draft)) is not None:
        return vlm.EarlyExitDraft(target, layers)
    try:
        return _drafting_model(draft, target, trust_remote_code)
    except MMSpecError as error:
        raise type(error)(f"draft: {error}") from None


def spelled(draft: str) -> Any:
    """What a drafter's spelling in a shell means in Python.

    Raises:
        OptionError: a part of it is missing or is no number.

    Example:
        >>> spelled("hypothesis+ngram"), spelled("thin:0.5:some/model")
        (['hypothesis', 'ngram'], Thinned(model='some/model', keep=0.5, processor=None))
    """
    if Path(draft).exists():
        return draft
    if "+" in draft:
        return [spelled(one) for one in draft.split("+")]
    kind, _, name = draft.partition(":")
    if kind == "blind":
        return Blind(_named(draft, name))
    if kind != "thin":
        return draft
    keep, _, name = name.partition(":")
    try:
        return Thinned(_named(draft, name), int(keep) if keep.isdecimal() else float(keep))
    except ValueError:
        raise OptionError(
            f"draft {draft!r}: expected thin:SHARE:MODEL, as thin:0.25:MODEL"
        ) from None


def _named(draft: str, name: str) -> str:
    if not name:
        raise OptionError(
            f"draft {draft!r}: names no model; expected blind:MODEL or thin:0.25:MODEL"
        )
    return name


def _layers_of(draft: Any) -> int | None:
    """The number in "early-exit:N"; None where it's something else."""
    if not isinstance(draft, str) or not draft.startswith("early-exit"):
        return None
    _, _, layers = draft.partition(":")
    if not layers.isdecimal():
        raise OptionError(f"draft {draft!r}: expected early-exit:N, N a number of layers")
    return int(layers)


def _switch(drafts: list[Draft]) -> SwitchDraft:
    """A switch between kinds; models of the same name are numbered."""
    names: Counter[str] = Counter()
    for draft in drafts:
        names[draft.name] += 1
        if names[draft.name] > 1 and isinstance(draft, vlm.ModelDraft):
            draft.name = f"{draft.name} {names[draft.name]}"
    return SwitchDraft(drafts)


def _drafting_model(draft: Any, target: Checkpoint, trust_remote_code: bool) -> Draft:
    """A drafting model, judged by its own configuration."""
    wrapped = isinstance(draft, Blind | Thinned)
    model = draft.model if wrapped else draft
    drafter = model
    if not isinstance(drafter, Checkpoint):
        drafter = load_model(
            "vision-sample" if isinstance(model, str) and model == "sample" else model,
            str(target.device),
            target.model.dtype,
            target.packed,
            trust_remote_code,
            draft.processor if wrapped else None,
            role="draft",
        )
    label: dict[str, Any] = {"name": Path(model).name} if isinstance(model, str | Path) else {}
    if not isinstance(drafter, Checkpoint):
        raise ModelError(f"found a model of type {kind_of(drafter)}, which transcribes")
    reads_only = isinstance(drafter.family, TextModel)
    if isinstance(draft, Thinned) and reads_only:
        raise ModelError(f"{kind_of(drafter)} is a language model: it sees no image to be thinned")
    if isinstance(draft, Blind) or reads_only:
        return BlindDraft(target, drafter, **label)
    if drafter.family.hears != target.family.hears:
        what = "listens" if target.family.hears else "looks"
        raise ModelError(f"found a model of type {kind_of(drafter)}, expected one that {what}")
    if isinstance(draft, Thinned):
        return ThinnedDraft(target, drafter, keep=draft.keep, **label)
    return vlm.ModelDraft(target, drafter, **label)


def speech_draft_for(draft: Any, target: Voice, trust_remote_code: bool) -> Draft:
    """The same for a model that speaks.

    A list means all of its entries, who take turns; so does a string with `+` between them.

    Raises:
        MMSpecError: says what was given and what is known.
    """
    if isinstance(draft, str) and "+" in draft and not Path(draft).exists():
        draft = draft.split("+")
    if isinstance(draft, list | tuple):
        return _switch([speech_draft_for(one, target, trust_remote_code) for one in draft])
    if draft is None or draft == "none":
        return NoDraft()
    try:
        return target.family.draft_of(draft, target) or _speaking_model(
            draft, target, trust_remote_code
        )
    except MMSpecError as error:
        raise type(error)(f"draft: {error}") from None


def _speaking_model(draft: Any, target: Voice, trust_remote_code: bool) -> Draft:
    """A smaller model of the same order of codes, or a part of one."""
    name = Path(draft).name if isinstance(draft, str | Path) else "model"
    if draft == "sample":
        draft = "voice-sample"
    model = load_drafter(draft, target, trust_remote_code)
    return target.family.model_draft(target, model, name)

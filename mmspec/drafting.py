"""Which drafter and which policy a caller's words mean."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from mmspec.engine import AdaptivePolicy, BlockCosts, FixedPolicy, Policy
from mmspec.errors import MMSpecError, ModelError, OptionError
from mmspec.loading import (
    Loadable,
    kind_of,
    load_drafter,
    load_model,
    load_whisper,
    resolve,
    task_of,
)
from mmspec.modalities.base import draft as vlm
from mmspec.modalities.base.causal import TextModel
from mmspec.modalities.base.checkpoint import Checkpoint
from mmspec.modalities.base.drafts import HypothesisDraft
from mmspec.modalities.base.speculative_decoder import Draft, NoDraft
from mmspec.modalities.base.switching import SwitchDraft
from mmspec.modalities.speech import draft as speech
from mmspec.modalities.speech.checkpoint import SpeechCheckpoint
from mmspec.modalities.speech.heads import FrameHeads
from mmspec.modalities.vlm.text_only import TextOnlyDraft
from mmspec.modalities.vlm.token_pruning import PrunedDraft
from mmspec.modalities.whisper import draft as whisper
from mmspec.modalities.whisper.checkpoint import Whisper, has_encoder
from mmspec.modalities.whisper.chunks import OverlapDraft
from mmspec.modalities.whisper.ctc_draft import ctc_draft


def policy_for(gamma: int | str, costs: BlockCosts) -> Policy:
    """The policy that `gamma` names: "adaptive", or a number of tokens.

    Raises:
        OptionError: neither.
    """
    if gamma == "adaptive":
        return AdaptivePolicy(costs)
    try:
        return FixedPolicy(operator.index(gamma) if not isinstance(gamma, str) else int(gamma))
    except (TypeError, ValueError):
        raise OptionError(f"gamma must be 'adaptive' or a number ≥ 0, got {gamma!r}") from None


@dataclass(frozen=True, slots=True)
class TextOnly:
    """A drafting model that isn't shown the images, as `draft=`. In a shell: `text-only:NAME`.

    A plain language model needs no such word; a loaded one brings its tokenizer in it.

    Attributes:
        model: a name, a directory or a loaded model.
        processor: of a loaded model, or its tokenizer, where its vocabulary isn't the target's.
    """

    model: Any
    processor: Any = None


@dataclass(frozen=True, slots=True)
class VisualTokenPruning:
    """A drafting model that reads a part of its visual positions. In a shell: `pruned:0.25:NAME`.

    Attributes:
        model: a name, a directory or a loaded model.
        keep: the share that it reads, or (an integer) how many; `pruned:64:NAME` is a number.
        processor: of a loaded model, where its vocabulary isn't the target's.
    """

    model: Any
    keep: float | int = 0.25
    processor: Any = None


Cell = Callable[[Any, str], Draft] | str
"""What opens a kind of drafter on a target, given what stands behind its name, or why none does."""


def _plain(kind: Callable[[Any], Draft]) -> Cell:
    return lambda target, argument: kind(target)


def _layers(kind: Callable[[Any, int], Draft]) -> Cell:
    def opened(target: Any, argument: str) -> Draft:
        if not argument.isdecimal():
            given = f"early-exit:{argument}" if argument else "early-exit"
            raise OptionError(f"draft {given!r}: expected early-exit:N, N a number of layers")
        return kind(target, int(argument))

    return opened


ONLY_CHUNKS = "only recordings are decoded in chunks"
ONLY_SPEECH = "only recordings have a sound to draft from"
ONLY_CODES = "only what speaks has codes to look up"
NO_LAYERS = "the layers of a model that speaks draft nothing; it has lookup, repeat and heads:DIR"

DRAFTERS: dict[str, dict[str, Cell]] = {
    "ngram": {
        "asr": _plain(whisper.NgramDraft),
        "vlm": _plain(vlm.NgramDraft),
        "tts": _plain(speech.lookup_draft),
    },
    "lookup": {"asr": ONLY_CODES, "vlm": ONLY_CODES, "tts": _plain(speech.lookup_draft)},
    "hypothesis": {
        "asr": _plain(HypothesisDraft),
        "vlm": _plain(HypothesisDraft),
        "tts": "nobody expects codes",
    },
    "overlap": {"asr": _plain(OverlapDraft), "vlm": ONLY_CHUNKS, "tts": ONLY_CHUNKS},
    "ctc": {"asr": ctc_draft, "vlm": ONLY_SPEECH, "tts": ONLY_SPEECH},
    "early-exit": {
        "asr": _layers(whisper.EarlyExitDraft),
        "vlm": _layers(vlm.EarlyExitDraft),
        "tts": NO_LAYERS,
    },
    "repeat": {"asr": ONLY_CODES, "vlm": ONLY_CODES, "tts": _plain(speech.repeat_draft)},
    "heads": {
        "asr": "heads are trained for codes",
        "vlm": "heads are trained for codes",
        "tts": speech.heads_draft,
    },
}
"""Every kind of drafter that has a name, and for each task what opens it, or why nothing does.

What isn't here is a drafting model: its name, its directory or itself.
"""


def draft_for(draft: Any, target: Loadable, trust_remote_code: bool) -> Draft:
    """The kind of drafter that a `draft` argument names.

    A list means all of its entries, who take turns; so does a string with `+` between them.

    Args:
        draft: as `mmspec.load` takes it.
        target: the checkpoint to be drafted for.
        trust_remote_code: let a checkpoint bring Python code of its own.

    Raises:
        MMSpecError: says what was given and what is known.
    """
    task = task_of(target)
    if isinstance(draft, str):
        draft = spelled(draft)
    if isinstance(draft, list | tuple):
        if task == "asr":
            raise OptionError(f"draft {draft!r}: drafters take turns for images and codes only")
        return _switch([draft_for(one, target, trust_remote_code) for one in draft])
    if draft is None or draft == "none":
        return NoDraft()
    kind, _, argument = draft.partition(":") if isinstance(draft, str) else ("", "", "")
    if kind in DRAFTERS and not Path(draft).exists():
        opens = DRAFTERS[kind][task]
        if isinstance(opens, str):
            raise OptionError(f"draft {kind!r}: {opens}")
        return opens(target, argument)
    try:
        return MODELS[task](draft, target, trust_remote_code)
    except MMSpecError as error:
        raise type(error)(f"draft: {error}") from None


def spelled(draft: str) -> Any:
    """What a drafter's spelling in a shell means in Python.

    Raises:
        OptionError: a part of it is missing or is no number.

    Example:
        >>> spelled("hypothesis+ngram"), spelled("pruned:0.5:some/model")
        (['hypothesis', 'ngram'], VisualTokenPruning(model='some/model', keep=0.5, processor=None))
    """
    if Path(draft).exists():
        return draft
    if "+" in draft:
        return [spelled(one) for one in draft.split("+")]
    kind, _, name = draft.partition(":")
    if kind == "text-only":
        return TextOnly(_named(draft, name))
    if kind != "pruned":
        return draft
    keep, _, name = name.partition(":")
    try:
        return VisualTokenPruning(
            _named(draft, name), int(keep) if keep.isdecimal() else float(keep)
        )
    except ValueError:
        raise OptionError(
            f"draft {draft!r}: expected pruned:SHARE:MODEL, as pruned:0.25:MODEL"
        ) from None


def _named(draft: str, name: str) -> str:
    if not name:
        raise OptionError(
            f"draft {draft!r}: names no model; expected text-only:MODEL or pruned:0.25:MODEL"
        )
    return name


def _switch(drafts: list[Draft]) -> SwitchDraft:
    """A switch between kinds; models of the same name are numbered."""
    names: Counter[str] = Counter()
    for draft in drafts:
        names[draft.name] += 1
        if names[draft.name] > 1 and isinstance(draft, vlm.ModelDraft):
            draft.name = f"{draft.name} {names[draft.name]}"
    return SwitchDraft(drafts)


def _whisper(draft: Any, target: Whisper, trust_remote_code: bool) -> Draft:
    """Another Whisper, or the decoder of one."""
    if isinstance(draft, nn.Module) and not has_encoder(draft):
        return whisper.ModelDraft(target, whisper.drafter_without_encoder(draft, target))
    name = resolve(draft, role="draft")
    device, dtype = str(target.device), target.model.dtype
    drafter = load_whisper(name, device, dtype, target.packed, trust_remote_code)
    label = Path(draft).name if isinstance(draft, str) else "model"
    return whisper.ModelDraft(target, drafter, label)


def _looking(draft: Any, target: Checkpoint, trust_remote_code: bool) -> Draft:
    """Another model that looks or listens, or a language model; its configuration says which."""
    wrapped = isinstance(draft, TextOnly | VisualTokenPruning)
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
    if isinstance(draft, VisualTokenPruning) and reads_only:
        raise ModelError(f"{kind_of(drafter)} is a language model: it sees no image to be thinned")
    if isinstance(draft, TextOnly) or reads_only:
        return TextOnlyDraft(target, drafter, **label)
    if drafter.family.hears != target.family.hears:
        what = "listens" if target.family.hears else "looks"
        raise ModelError(f"found a model of type {kind_of(drafter)}, expected one that {what}")
    if isinstance(draft, VisualTokenPruning):
        return PrunedDraft(target, drafter, keep=draft.keep, **label)
    return vlm.ModelDraft(target, drafter, **label)


def _speaking(draft: Any, target: SpeechCheckpoint, trust_remote_code: bool) -> Draft:
    """Heads, or a smaller model of the same order of codes, or a part of one."""
    if isinstance(draft, FrameHeads):
        return speech.HeadsDraft(target, draft)
    name = Path(draft).name if isinstance(draft, str | Path) else "model"
    if draft == "sample":
        draft = "voice-sample"
    model = load_drafter(draft, target, trust_remote_code)
    return speech.model_draft(target, model, name)


MODELS: dict[str, Callable[[Any, Any, bool], Draft]] = {
    "asr": _whisper,
    "vlm": _looking,
    "tts": _speaking,
}
"""What opens a drafting model, by the target's task."""

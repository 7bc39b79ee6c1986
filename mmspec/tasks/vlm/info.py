"""`mmspec info` on a model that looks at images, or listens to more than speech."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from mmspec.cli.info import how_it_fits
from mmspec.modalities import ADAPTERS, adapter_for
from mmspec.modalities.base.decoder import layer_list
from mmspec.modalities.speech.family import Family as Speaking

Facts = list[tuple[str, str]]

INNER = {"blip_text_model"}
"""Parts that `generate` hands to a decoding loop: no checkpoint is of these types."""


def families() -> Facts:
    """What each family that has an adapter is good for."""
    return [(name, _what(adapter_for(name))) for name in sorted(ADAPTERS) if name not in INNER]


def _what(adapter: ModuleType) -> str:
    family = getattr(adapter, "FAMILY", None)
    if family is None:
        return "transcribe"
    if isinstance(family, Speaking):
        return "speak"
    if family.hears:
        return "listens: mmspec.generate"
    return ", ".join([*family.instructions, *["answer"] * family.takes_text])


def facts_of(checkpoint: Any) -> Facts:
    """What it is and what can be done with it."""
    model, family = checkpoint.model, checkpoint.family
    size = sum(weight.numel() for weight in model.parameters())
    layers = len(layer_list(family.decoder(model))[1])
    facts = [("type", f"{model.config.model_type}, {size / 1e6:.1f} M parameters")]
    if family.hears:
        facts.append(("use", "mmspec.generate(model, inputs): it listens to a conversation"))
    else:
        told = {task: _told(text) for task, text in family.instructions.items()}
        facts += [(task, f"yes, told {words}") for task, words in told.items()]
        facts.append(("your own words", "yes" if family.takes_text else "no: it takes none"))
        most = family.most_images
        facts.append(("images", "any number" if most is None else f"{most} at a time"))
    facts += [
        ("vocabulary", f"{checkpoint.steps.vocab_size} ids"),
        ("context", f"{family.context(model)} positions, prompt and images included"),
        ("layers", f"decoder {layers}"),
    ]
    return [*facts, ("drafters", _drafters(layers))]


def _told(text: str | None) -> str:
    return "nothing" if text is None else repr(text)


def _drafters(layers: int) -> str:
    exits = f", early-exit:1 to early-exit:{layers - 1}" if layers > 1 else ""
    models = "another model that looks, a language model, blind:MODEL, thin:SHARE:MODEL"
    return f"none, ngram, hypothesis{exits}, {models}; a+b take turns"


def fit(checkpoint: Any, draft: str, trust_remote_code: bool) -> str:
    """Whether a drafter fits, and how."""
    from mmspec.drafting import draft_for
    from mmspec.modalities.base.draft import ModelDraft

    def eyes(kind: ModelDraft) -> str:
        known = {"own": "it looks for itself", "none": "it isn't shown the image"}
        return known.get(kind.conditioning, kind.conditioning)

    return how_it_fits(lambda: draft_for(draft, checkpoint, trust_remote_code), ModelDraft, eyes)

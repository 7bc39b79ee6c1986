"""`mmspec info` on a model that looks at images, or listens to more than speech."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from mmspec.modalities.base.decoder import layer_list
from mmspec.modalities.base.draft import ModelDraft

Facts = list[tuple[str, str]]


def good_for(adapter: ModuleType) -> str:
    """What a family does."""
    family = adapter.FAMILY
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
    return facts


def _told(text: str | None) -> str:
    return "nothing" if text is None else repr(text)


def drafters_of(checkpoint: Any) -> Facts:
    """What may draft for it."""
    layers = len(layer_list(checkpoint.family.decoder(checkpoint.model))[1])
    exits = f", early-exit:1 to early-exit:{layers - 1}" if layers > 1 else ""
    models = "another model that looks, a language model, text-only:MODEL, pruned:SHARE:MODEL"
    return [("drafters", f"none, ngram, hypothesis{exits}, {models}; a+b take turns")]


def senses(kind: Any) -> str | None:
    """What a drafting model knows of an image; None where the drafter is no model."""
    if not isinstance(kind, ModelDraft):
        return None
    known = {"own": "it looks for itself", "none": "it isn't shown the image"}
    return known.get(kind.conditioning, kind.conditioning)

"""`mmspec info` on a model that transcribes."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from mmspec.modalities.whisper.draft import ModelDraft

Facts = list[tuple[str, str]]


def good_for(adapter: ModuleType) -> str:
    """What a family does."""
    return "transcribe"


def facts_of(whisper: Any) -> Facts:
    """What it is and what can be done with it."""
    config, steps = whisper.model.config, whisper.steps
    size = sum(weight.numel() for weight in whisper.model.parameters())
    codes = [token.strip("<|>") for token, _ in steps.languages]
    shown = ", ".join(codes[:12]) + (f", … ({len(codes)})" if len(codes) > 12 else "")
    return [
        ("type", f"{config.model_type}, {size / 1e6:.1f} M parameters"),
        ("transcribe", f"yes, recordings of up to {whisper.window_s:g} s"),
        ("languages", shown or "English only (takes no --language and no --task)"),
        ("tasks", ", ".join(dict(steps.tasks)) or "transcribe"),
        ("timestamps", "yes" if steps.no_timestamps is not None else "no: its config names none"),
        (
            "prompt",
            "yes" if steps.previous_text is not None else "no: its config has no mark for it",
        ),
        ("vocabulary", f"{steps.vocab_size} ids"),
        ("mel bins", str(config.num_mel_bins)),
        ("context", f"{steps.context} positions, prompt included"),
        ("layers", f"encoder {config.encoder_layers}, decoder {config.decoder_layers}"),
    ]


def drafters_of(whisper: Any) -> Facts:
    """What may draft for it."""
    layers = whisper.model.config.decoder_layers
    exits = f"early-exit:1 to early-exit:{layers - 1}" if layers > 1 else "no early exit (1 layer)"
    return [("drafters", f"none, ngram, hypothesis:FILE, overlap, {exits}, another Whisper")]


def senses(kind: Any) -> str | None:
    """What a drafting model knows of a recording; None where the drafter is no model."""
    if not isinstance(kind, ModelDraft):
        return None
    if kind.shares_encoder:
        return "same encoder: the audio is encoded once"
    bins = kind.drafter.model.config.num_mel_bins
    return f"an encoder of its own ({bins} mel bins): the audio is encoded twice"

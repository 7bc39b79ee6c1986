"""`mmspec info` on a model that speaks."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from mmspec.errors import MMSpecError
from mmspec.factorizations import (
    CodebookMajorStreams,
    DelayedFrames,
    DepthFrames,
    FirstStream,
    StagedCodes,
    TimeMajorFrames,
)
from mmspec.modalities.speech.family import Family, FrameFamily
from mmspec.tasks.tts.speaker import codec_of

Facts = list[tuple[str, str]]


def good_for(adapter: ModuleType) -> str:
    """What a family does."""
    return "speak"


def facts_of(checkpoint: Any) -> Facts:
    """What it is, what one step of it decides, and what makes sound of that."""
    model, family, steps = checkpoint.model, checkpoint.family, checkpoint.steps
    size = sum(weight.numel() for weight in model.parameters())
    books = family.books(steps)
    sizes = ", ".join(dict.fromkeys(str(book.codes) for book in books))
    facts = [
        ("type", f"{model.config.model_type}, {size / 1e6:.1f} M parameters"),
        ("speak", _speaks(family)),
        ("codes", f"{len(books)} codebooks of {sizes} codes"),
        ("order", order_of(steps)),
    ]
    if family.filled:
        facts.append(("not drafted", family.filled))
    return [*facts, ("codec", _codec(checkpoint))]


def _speaks(family: Family) -> str:
    if type(family).text_inputs is Family.text_inputs:
        return f"{family.title}, from what its processor makes: speak(inputs=...) in Python"
    return f"yes: {family.title}"


def order_of(steps: Any) -> str:
    """A descriptor in words: what one step decides.

    Example:
        >>> from mmspec.factorizations import Codebook
        >>> order_of(DelayedFrames((Codebook(9, 8, start=8, pad=8),) * 2, delays=(0, 1)))
        'a step decides a frame, its codebooks 0, 1 steps late'
    """
    if isinstance(steps, DelayedFrames):
        late = ", ".join(map(str, steps.delays))
        return f"a step decides a frame, its codebooks {late} steps late"
    if isinstance(steps, DepthFrames):
        return "a step decides a frame, each code behind the ones before it"
    if isinstance(steps, TimeMajorFrames):
        return "a step decides a code, frame after frame"
    if isinstance(steps, CodebookMajorStreams):
        return "a step decides a code, codebook after codebook"
    if isinstance(steps, FirstStream):
        return "a step decides a code of the first codebook, the others are filled in"
    if isinstance(steps, StagedCodes):
        return "a step decides a code, stage after stage"
    return str(steps)


def _codec(checkpoint: Any) -> str:
    try:
        codec = codec_of(checkpoint)
    except MMSpecError as error:
        return f"no: {error}"
    if codec is None:
        return "no: its checkpoint has none (mmspec speak --codes-only)"
    channels = "mono" if codec.channels == 1 else f"{codec.channels} channels"
    rates = f"{codec.sample_rate_hz} Hz, {codec.frame_rate_hz:g} frames per second"
    return f"{type(codec.model).__name__}: {rates}, {channels}"


def drafters_of(checkpoint: Any) -> Facts:
    """What may draft for it."""
    family = checkpoint.family
    kinds = "none, lookup, repeat, heads:DIR" if isinstance(family, FrameFamily) else "none, lookup"
    models = " or ".join(sorted(family.drafters))
    smaller = f", a smaller {models}" if models else ""
    return [("drafters", f"{kinds}{smaller}; a+b take turns")]


def senses(kind: Any) -> str | None:
    """What a drafting model knows of a text; None where the drafter is no model."""
    own = getattr(kind, "conditioning", None) == "own"
    return "the same codes, on the same text" if own else None

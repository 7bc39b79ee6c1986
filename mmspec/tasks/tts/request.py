"""What is wanted of a model that speaks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from mmspec.modalities.base.options import GenerationOptions, Request, option

FEW_STEPS = 32
"""Enough to warm up with, and more than any family's codebooks are late."""


@dataclass(frozen=True)
class SpeechRequest(Request):
    """What is wanted of a text that is to be said. `None` leaves the choice to the checkpoint.

    Attributes:
        seconds: How long it may sound; as the model's settings have it where missing.
        temperature: 0 takes the likeliest codes, above 0 samples; as the model's settings have it
            where missing.
        seed: Makes sampling repeatable, whatever drafts.
        guidance: Scale of classifier-free guidance, 1 is none; as the model's settings have it
            where missing.
        max_new_tokens: As --seconds, in steps of the model.
        sound: Make sound of the codes; False leaves the codec out.
        grounding: Find out which frames rest on the text: those whose log-probability falls by
            more than so much without it; 1 is a good start, and what True means.
        approximate: [bold]No longer exact[/bold]: codes whose embeddings are this alike may stand
            for each other. The report says how far that led from the target.
        budget: With --approximate: how far from the target's distribution a text may lead at most,
            in total variation.
        earlier: `Speech`es or code grids of the same voice, for lookup.
        inputs: What the model's processor made, instead of a text.
    """

    untold = Request.untold | {"sound", "earlier", "inputs"}

    seconds: float | None = option(None, metavar="S")
    temperature: float | None = option(None, metavar="X", least=0)
    seed: int | None = option(None, metavar="N")
    guidance: float | None = option(None, metavar="X", least=0)
    max_new_tokens: int | None = option(None, metavar="N", least=1)
    sound: bool = True
    grounding: bool | float | None = option(
        None,
        metavar="NATS",
        least=0,
        kind=float | None,
        help="Find out which frames rest on the text: those whose log-probability falls by more "
        "than so much without it; 1 is a good start.",
    )
    approximate: float | None = option(None, metavar="COSINE", least=0, most=1)
    budget: float | None = option(None, metavar="X", least=0)
    earlier: Sequence[Any] = ()
    inputs: Mapping[str, Any] | None = None

    @property
    def generate_options(self) -> dict[str, Any]:
        """Generation options, as `generate` would take them."""
        given = {
            "max_new_tokens": self.max_new_tokens,
            "generation_config": self.generation_config,
            "logits_processor": self.logits_processor,
            "stopping_criteria": self.stopping_criteria,
        }
        return {**self.further, **{name: one for name, one in given.items() if one is not None}}

    @property
    def first_temperature(self) -> float:
        """What is decoded at; 0 also where the generation config decides that."""
        return self.temperature or 0.0

    @property
    def few(self) -> Self:
        """The same, done after a few steps."""
        return replace(self, seconds=None, max_new_tokens=FEW_STEPS)

    @property
    def decoding(self) -> Self:
        """The same, and nothing else found out."""
        return replace(self, grounding=None, earlier=())


class SpeechOptions(GenerationOptions, total=False):
    """The attributes of `SpeechRequest`, as keyword arguments."""

    seconds: float | None
    temperature: float | None
    seed: int | None
    guidance: float | None
    sound: bool
    grounding: bool | float | None
    approximate: float | None
    budget: float | None
    earlier: Sequence[Any]
    inputs: Mapping[str, Any] | None

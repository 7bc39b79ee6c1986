"""What is wanted of images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, Self

from mmspec.modalities.base.options import FEW_TOKENS, GenerationOptions, Request, option

if TYPE_CHECKING:
    from mmspec.modalities.base.prompting import Instruction

Task = Literal["caption", "read", "answer"]


@dataclass(frozen=True)
class VisionRequest(Request):
    """What is wanted of an image, or of several.

    Attributes:
        task: "caption", "read" or "answer".
        prompt: What the model is told, or asked, instead of what it was trained with.
        temperature: 0 takes the likeliest token, above 0 samples.
        seed: Makes sampling repeatable, whatever drafts.
        max_new_tokens: Emit at most so many tokens.
        grounding: Find out which tokens rest on the image: those whose log-probability falls by
            more than so much without it; 1 is a good start, and what True means.
        hypothesis: What is expected, as text or as ids, for the hypothesis drafter.
    """

    untold = Request.untold | {"hypothesis"}

    task: Task = "caption"
    prompt: str | None = option(None, metavar="TEXT")
    temperature: float = option(0.0, metavar="X", least=0)
    seed: int | None = option(None, metavar="N")
    max_new_tokens: int | None = option(
        None, metavar="N", least=1, help="Emit at most so many tokens (per window)."
    )
    grounding: bool | float | None = option(
        None,
        metavar="NATS",
        least=0,
        kind=float | None,
        help="Find out which tokens rest on the image: those whose log-probability falls by more "
        "than so much without it; 1 is a good start.",
    )
    hypothesis: str | Sequence[int] | None = None

    @property
    def instruction(self) -> Instruction:
        """What the model is told."""
        from mmspec.modalities.base.prompting import Instruction

        return Instruction(self.task, self.prompt)

    @property
    def generate_options(self) -> dict[str, Any]:
        """Generation options, as `generate` would take them."""
        options = {**self.further, "max_new_tokens": self.max_new_tokens}
        return {name: value for name, value in options.items() if value is not None}

    @property
    def first_temperature(self) -> float:
        """What is decoded at."""
        return self.temperature

    @property
    def few(self) -> Self:
        """The same, done after a few tokens."""
        return replace(self, max_new_tokens=FEW_TOKENS)

    @property
    def decoding(self) -> Self:
        """The same, and nothing else found out."""
        return replace(self, grounding=None)


class VisionOptions(GenerationOptions, total=False):
    """The attributes of `VisionRequest`, as keyword arguments."""

    task: Task
    prompt: str | None
    temperature: float
    seed: int | None
    grounding: bool | float | None
    hypothesis: str | Sequence[int] | None

"""Drafting without looking: the words of a prompt, without what stands for an image or a sound."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from mmspec.errors import ModelError
from mmspec.modalities.base.checkpoint import Checkpoint
from mmspec.modalities.base.draft import ModelDraft
from mmspec.modalities.base.preparation import Prepared, prepare
from mmspec.modalities.base.request import Request
from mmspec.proposals import Drafter

SPECIAL_TOKENS = tuple(
    f"{mark}_token_{kind}"
    for mark in ("vision_start", "vision_end", "boi", "eoi", "audio_start", "audio_end")
    for kind in ("id", "index")
)
"""Configuration entries that name what opens and closes an image or a sound."""


@dataclass
class TextOnlyDraft(ModelDraft):
    """A language model, or a model that could look and doesn't: it reads the prompt's words.

    Images leave no trace in its prompt, so its positions are its own. It costs no encoder run and
    a short prompt, and knows nothing but what the language alone says.

    Raises:
        ModelError: the drafter's image doesn't stand in its prompt.
    """

    name: str = "text-only"
    conditioning = "none"

    def __post_init__(self) -> None:
        check_in_prompt(self.drafter, "be left out")
        super().__post_init__()

    def open(self, request: Request) -> Drafter | None:
        """A drafter that reads the words when first asked; None where none or too many are left."""
        count, context = len(self._words(request)), self.drafter.family.context(self.drafter.model)
        return super().open(request) if 0 < count < context else None

    def _prepared(self, request: Request) -> Prepared:
        model, words = self.drafter.model, self._words(request)
        ids = torch.tensor([words], device=model.device)
        inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        return prepare(model, inputs, max_new_tokens=request.room + 1)

    def _words(self, request: Request) -> list[int]:
        """The prompt's words in the drafter's tokens; those that it doesn't know are left out."""
        placeholders = self.target.family.reserved(self.target.model)
        words = without_images(request.prompt, placeholders, marks(self.target))
        return [own for token in words for own in self.vocabulary.to_draft(token)]


def check_in_prompt(drafter: Checkpoint, wanted: str) -> None:
    """Raise where a drafter's image doesn't stand in its prompt.

    Raises:
        ModelError: says what was wanted of it.
    """
    if not drafter.family.in_prompt:
        raise ModelError(
            f"{type(drafter.model).__name__} attends to its image beside the prompt, where it "
            f"can't {wanted}: draft with the model as it is, or with another one"
        )


def without_images(
    prompt: Sequence[int], placeholders: Collection[int], marks: Collection[int]
) -> list[int]:
    """A prompt without placeholders and the marks that touch them.

    Example:
        >>> without_images([1, 8, 9, 9, 8, 5, 8, 6], {9}, {8})
        [1, 5, 8, 6]
    """
    dropped = [token in placeholders for token in prompt]
    for order in (range(1, len(prompt)), range(len(prompt) - 2, -1, -1)):
        for place in order:
            neighbour = place - order.step
            dropped[place] |= dropped[neighbour] and prompt[place] in marks
    return [token for token, gone in zip(prompt, dropped, strict=True) if not gone]


def marks(checkpoint: Checkpoint) -> frozenset[int]:
    """Ids that may stand around an image: special ones, but for those where a text begins or ends.

    Only beside an image are they its marks; elsewhere they belong to the conversation.
    """
    config, tokenizer = checkpoint.model.config, checkpoint.tokenizer
    named: set[Any] = {getattr(config, name, None) for name in SPECIAL_TOKENS} - {None}
    if tokenizer is None:
        return frozenset(named)
    special = {id_ for id_, token in tokenizer.added_tokens_decoder.items() if token.special}
    edges = {tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id}
    return frozenset(named | special - edges - checkpoint.steps.stop_tokens)

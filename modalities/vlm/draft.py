"""Drafters for models that look or listen: how each kind is opened on what is being decoded."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from mmspec.errors import ModelError
from mmspec.modalities.vlm.checkpoint import Checkpoint
from mmspec.modalities.vlm.preparation import prepare
from mmspec.modalities.vlm.request import Request
from mmspec.proposals import (
    BRANCHES,
    Drafter,
    HypothesisDrafter,
    LazyDrafter,
    ModelDrafter,
    NgramDrafter,
    Outlook,
    SameVocabulary,
    Vocabulary,
    VocabularyBridge,
)


class NgramDraft:
    """Lookup in the prompt and in what was committed; what stands for an image is never drafted."""

    name = "ngram"

    def __init__(self, target: Checkpoint) -> None:
        self._never = target.steps.reserved | target.steps.stop_units

    def open(self, request: Request) -> Drafter | None:
        """A fresh index: nothing leaks from one request to the next."""
        return NgramDrafter(never=self._never)


class HypothesisDraft:
    """A text that the caller has already (a reading); without one there is nothing to draft.

    Args:
        target: the checkpoint to be drafted for.
        branches: continuations proposed side by side after a mismatch.
        name: as in reports.
    """

    def __init__(
        self, target: Checkpoint, branches: int = BRANCHES, name: str = "hypothesis"
    ) -> None:
        self._target, self._branches, self.name = target, branches, name

    def open(self, request: Request) -> Drafter | None:
        """A drafter on the caller's hypothesis."""
        units = request.hypothesis
        if not units:
            return None
        return HypothesisDrafter(units, self._target.word_beginnings(units), self._branches)


@dataclass
class ModelDraft:
    """Another model of a family that looks or listens, on the same image, with its own towers.

    Args:
        target: the checkpoint to be drafted for.
        drafter: the drafting checkpoint.
        name: as in reports.
    """

    target: Checkpoint
    drafter: Checkpoint
    name: str = "model"
    vocabulary: Vocabulary = field(init=False)
    _opening_s: float | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self.vocabulary = vocabulary_between(self.target, self.drafter)
        self._cost = step_size(self.drafter) / step_size(self.target)

    def open(self, request: Request) -> Drafter | None:
        """A drafter that reads the same prompt, with features of its own, when first asked."""

        def open_drafter() -> Drafter:
            start = request.clock.now()
            drafter = self._read(request)
            self._opening_s = request.clock.now() - start
            return drafter

        before = Outlook(
            "model",
            first=0.7,
            rest=0.8,
            available=self.drafter.family.context(self.drafter.model),
            opening_s=self._expected_opening_s(request),
        )
        return LazyDrafter(self.name, self._cost, "own", before, open_drafter)

    def _read(self, request: Request) -> Drafter:
        if request.inputs is None:
            raise ModelError(
                "the drafter looks for itself and only the target's features were given: use "
                "mmspec.generate(model, inputs, ...), which hands it the inputs"
            )
        family, model = self.drafter.family, self.drafter.model
        room = request.prepared.config.max_length - len(request.prompt)
        with request.clock("prefill"), request.counting(family.encoders(model)):
            prepared = prepare(model, request.inputs(self.drafter), max_new_tokens=room + 1)
            opened = family.open(prepared, packed=self.drafter.packed)
            first_row = opened.read_prompt()
        return ModelDrafter(
            opened,
            prepared.prompt,
            self.vocabulary,
            stop_units=self.target.steps.stop_units,
            sure=0.4,
            name=self.name,
            cost_prior=self._cost,
            first_row=first_row,
        )

    def _expected_opening_s(self, request: Request) -> float:
        """What opening took last time; before the first, the target's own time, by size."""
        if self._opening_s is not None:
            return self._opening_s
        seconds = request.clock.seconds
        return self._cost * (seconds["encode"] + seconds["prefill"])


def vocabulary_between(target: Checkpoint, drafter: Checkpoint) -> Vocabulary:
    """How a drafting checkpoint's units relate to the target's.

    Raises:
        ModelError: different vocabularies, and no tokenizers to bridge them.
    """
    want, have = target.steps.vocab_size, drafter.steps.vocab_size
    tokenizers = [one.processor and one.processor.tokenizer for one in (target, drafter)]
    if all(tokenizers):
        strings, others = (tokenizer.get_vocab() for tokenizer in tokenizers)
        if strings == others:
            return SameVocabulary(want, have)
        bridge = VocabularyBridge(strings, others, want, have)
        if bridge.shared < 2:
            raise ModelError("the drafter's tokenizer shares no tokens with the target's")
        return bridge
    # Without tokenizers the ends and the placeholders tell the layout; the width may differ by
    # padding.
    if target.steps.stop_units != drafter.steps.stop_units:
        raise ModelError(
            f"the drafter's vocabulary ({have} units, ends {sorted(drafter.steps.stop_units)}) is "
            f"not the target's ({want} units, ends {sorted(target.steps.stop_units)}): load both "
            "with their processors, so that they can be bridged"
        )
    return SameVocabulary(want, have)


def step_size(checkpoint: Checkpoint) -> int:
    """Weights that one decoding step reads: layers and vocabulary projection, no embeddings."""
    decoder: Any = checkpoint.family.decoder(checkpoint.model)
    layers = sum(weight.numel() for weight in decoder.layers.parameters())
    return layers + checkpoint.family.head(checkpoint.model).weight.numel()

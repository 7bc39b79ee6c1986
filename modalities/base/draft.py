"""Drafters for models that look or listen: how each kind is opened on what is being decoded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from torch import Tensor

from mmspec.errors import ModelError
from mmspec.modalities.base.checkpoint import Checkpoint
from mmspec.modalities.base.decoder import first_layers
from mmspec.modalities.base.drafts import vocabulary_between_tokenizers
from mmspec.modalities.base.preparation import Prepared, prepare
from mmspec.modalities.base.prepared_target import PreparedTarget
from mmspec.modalities.base.request import Request
from mmspec.proposals import (
    Drafter,
    EarlyExitDrafter,
    LazyDrafter,
    ModelDrafter,
    NgramDrafter,
    Outlook,
    SameVocabulary,
    Vocabulary,
)


class NgramDraft:
    """Lookup in the prompt and in what was committed; what stands for an image is never drafted."""

    name = "ngram"

    def __init__(self, target: Checkpoint) -> None:
        # Not the descriptor's: a placeholder may stand beyond the vocabulary that is predicted.
        self._never = target.family.reserved(target.model) | target.steps.stop_tokens

    def open(self, request: Request) -> Drafter | None:
        """A fresh index: nothing leaks from one request to the next."""
        return NgramDrafter(never=self._never)


class EarlyExitDraft:
    """The target's own first layers, on what they remember of the prompt.

    Args:
        target: the checkpoint to be drafted for.
        layers: how many.

    Raises:
        ModelError: the decoder has no more layers than that.
    """

    def __init__(self, target: Checkpoint, layers: int) -> None:
        decoder, head = target.family.decoder(target.model), target.family.head(target.model)
        self.name = f"early-exit:{layers}"
        self._target, self._layers = target, layers
        self._cost = weights_of(first_layers(decoder, layers), head) / weights_of(decoder, head)

    def open(self, request: Request) -> Drafter | None:
        """A drafter over the target's own memory."""
        steps = self._target.steps

        def open_drafter() -> Drafter:
            return EarlyExitDrafter(
                request.target.early_exit(self._layers),
                request.prompt,
                SameVocabulary(steps.vocab_size),
                stop_tokens=steps.stop_tokens,
                name=self.name,
                cost_prior=self._cost,
            )

        before = Outlook("early exit", first=0.5, rest=0.6, available=request.target.capacity)
        return LazyDrafter(self.name, self._cost, "shared", before, open_drafter)


@dataclass
class ModelDraft:
    """Another model of a family that looks or listens, on the same image, with its own towers.

    Args:
        target: the checkpoint to be drafted for.
        drafter: the drafting checkpoint.
        name: as in reports.
        sure: it drafts on only while its last token had at least this probability.
    """

    target: Checkpoint
    drafter: Checkpoint
    name: str = "model"
    sure: float = 0.4
    vocabulary: Vocabulary = field(init=False)
    conditioning: ClassVar[str] = "own"
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
        return LazyDrafter(self.name, self._cost, self.conditioning, before, open_drafter)

    def _read(self, request: Request) -> Drafter:
        family, model = self.drafter.family, self.drafter.model
        with request.clock("prefill"), request.counting(family.encoders(model)):
            prepared = self._prepared(request)
            opened = family.open(prepared, packed=self.drafter.packed)
            try:
                prompt, first_row = self._read_prompt(request, prepared, opened)
            except BaseException:
                opened.close()
                raise
        return ModelDrafter(
            opened,
            prompt,
            self.vocabulary,
            stop_tokens=self.target.steps.stop_tokens,
            sure=self.sure,
            name=self.name,
            cost_prior=self._cost,
            conditioning=self.conditioning,
            first_row=first_row,
        )

    def _prepared(self, request: Request) -> Prepared:
        """The drafter's own request."""
        if request.inputs is None:
            raise ModelError(
                "the drafter looks for itself and only the target's features were given: use "
                "mmspec.generate(model, inputs, ...), which hands it the inputs"
            )
        inputs = request.inputs(self.drafter)
        return prepare(self.drafter.model, inputs, max_new_tokens=request.room + 1, num_beams=1)

    def _read_prompt(
        self, request: Request, prepared: Prepared, opened: PreparedTarget
    ) -> tuple[Sequence[int], Tensor]:
        """Let the drafter read; the ids that it read, and the distribution behind them `[1, V]`."""
        return prepared.prompt, opened.read_prompt()

    def _expected_opening_s(self, request: Request) -> float:
        """What opening took last time; before the first, the target's own time, by size."""
        if self._opening_s is not None:
            return self._opening_s
        seconds = request.clock.seconds
        return self._cost * (seconds["encode"] + seconds["prefill"])


def vocabulary_between(target: Checkpoint, drafter: Checkpoint) -> Vocabulary:
    """How a drafting checkpoint's tokens relate to the target's.

    Raises:
        ModelError: different vocabularies, and no tokenizers to bridge them.
    """
    want, have = target.steps.vocab_size, drafter.steps.vocab_size
    own, others = target.tokenizer, drafter.tokenizer
    if own is not None and others is not None:
        return vocabulary_between_tokenizers(own, others, want, have)
    # Without tokenizers the ends and the placeholders tell the layout; the width may differ by
    # padding.
    if target.steps.stop_tokens != drafter.steps.stop_tokens:
        raise ModelError(
            f"the drafter's vocabulary ({have} ids, ends {sorted(drafter.steps.stop_tokens)}) is "
            f"not the target's ({want} ids, ends {sorted(target.steps.stop_tokens)}): load both "
            "with their processors, so that they can be bridged"
        )
    return SameVocabulary(want, have)


def step_size(checkpoint: Checkpoint) -> int:
    """Weights that one decoding step reads."""
    family, model = checkpoint.family, checkpoint.model
    return weights_of(family.decoder(model), family.head(model))


def weights_of(decoder: Any, head: Any) -> int:
    """Weights that a step of a decoder reads: layers and vocabulary projection, no embeddings."""
    embeddings = {id(weight) for weight in decoder.get_input_embeddings().parameters()}
    own = (weight.numel() for weight in decoder.parameters() if id(weight) not in embeddings)
    return sum(own) + sum(weight.numel() for weight in head.parameters())

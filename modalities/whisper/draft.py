"""Drafters for Whisper: how each kind is opened on a window that the target is decoding."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from mmspec.clock import Clock
from mmspec.errors import ModelError
from mmspec.modalities.base.decoder import DecoderTarget, check_inference_mode, first_layers
from mmspec.modalities.base.drafts import vocabulary_between_tokenizers
from mmspec.modalities.base.speculative_decoder import Draft
from mmspec.modalities.whisper.checkpoint import Whisper, has_encoder, target_class
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


@dataclass
class Window:
    """What a drafter may know of the window that is being decoded.

    Attributes:
        target: the opened decoder.
        prompt: its prompt.
        encoder_states: `[1, S, D]`.
        features: the drafting model's own log-mel features, made when asked for (None where
            only the target's features were given).
        draft_prompt: a drafting model's prompt for the same job.
        hypothesis: what the caller expects, in target tokens.
        clock: for what opening a drafter costs.
        middle_states: `[1, S, D]` of the encoder's layer that the drafter listens at, if any.
        spoken_s: seconds of it that are the recording's; None where nobody knows.
        drafter_encoder_runs: of a drafter's own encoder, so far.
        drafter_states: what it made of the window; a further try doesn't run it again.
    """

    target: DecoderTarget
    prompt: Sequence[int]
    encoder_states: Tensor
    features: Callable[[Whisper], Tensor] | None
    draft_prompt: Callable[[Whisper], Sequence[int]]
    hypothesis: Sequence[int] | None
    clock: Clock
    middle_states: Tensor | None = None
    spoken_s: float | None = None
    drafter_encoder_runs: int = 0
    drafter_states: Tensor | None = None


class NgramDraft(Draft):
    """Lookup in what was committed, previous text included."""

    name = "ngram"

    def __init__(self, target: Whisper) -> None:
        self._never = target.steps.reserved | target.steps.stop_tokens

    def open(self, window: Window) -> Drafter | None:
        """A fresh index: nothing leaks from one request to the next."""
        return NgramDrafter(never=self._never)


class EarlyExitDraft(Draft):
    """The target's own first layers."""

    def __init__(self, target: Whisper, layers: int) -> None:
        decoder = target.model.get_decoder()
        self.name = f"early-exit:{layers}"
        self._layers, self._target = layers, target
        self._decoder = first_layers(decoder, layers)
        self._head = target.model.get_output_embeddings()
        self._cost = _step_size(self._decoder, self._head) / _step_size(decoder, self._head)

    def open(self, window: Window) -> Drafter | None:
        """A drafter over the target's own memory."""

        def open_drafter() -> Drafter:
            state = window.target.state.lend(self._layers)
            kind = target_class(self._decoder) if self._target.packed else DecoderTarget
            model = kind(self._decoder, self._head, window.encoder_states, state)
            steps = self._target.steps
            return EarlyExitDrafter(
                model,
                window.prompt,
                SameVocabulary(steps.vocab_size),
                stop_tokens=steps.stop_tokens,
                name=self.name,
                cost_prior=self._cost,
            )

        before = Outlook("early exit", first=0.5, rest=0.6, available=self._target.steps.context)
        return LazyDrafter(self.name, self._cost, "shared", before, open_drafter)


@dataclass
class ModelDraft(Draft):
    """Another Whisper.

    Args:
        target: the checkpoint to be drafted for.
        drafter: the drafting checkpoint.
        name: as in reports.
    """

    target: Whisper
    drafter: Whisper
    name: str = "model"
    vocabulary: Vocabulary = field(init=False)
    shares_encoder: bool = field(init=False)
    _opening_s: float | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self.vocabulary = vocabulary_between(self.target, self.drafter)
        # A decoder without encoder can only listen through the target's.
        self.shares_encoder = not has_encoder(self.drafter.model) or encoders_equal(
            self.target.model, self.drafter.model
        )
        self._cost = _decoder_size(self.drafter) / _decoder_size(self.target)

    def open(self, window: Window) -> Drafter | None:
        """A drafter that hears the same window, with its own ears unless they are the same."""
        conditioning = "shared" if self.shares_encoder else "own"

        def open_drafter() -> Drafter:
            runs = window.drafter_encoder_runs
            states = self._states(window)
            listened = window.drafter_encoder_runs > runs
            encode_s = window.clock.last if listened else 0.0
            with window.clock("prefill"):
                model = self.drafter.open(states)
                prompt = window.draft_prompt(self.drafter)
                model.score(prompt, keep=0)
            if listened or self.shares_encoder:
                self._opening_s = encode_s + window.clock.last
            return ModelDrafter(
                model,
                prompt,
                self.vocabulary,
                stop_tokens=self.target.steps.stop_tokens,
                sure=0.4,
                name=self.name,
                cost_prior=self._cost,
                conditioning=conditioning,
            )

        before = Outlook(
            "model",
            first=0.7,
            rest=0.8,
            available=self.drafter.steps.context,
            opening_s=self._expected_opening_s(window),
        )
        return LazyDrafter(self.name, self._cost, conditioning, before, open_drafter)

    def _expected_opening_s(self, window: Window) -> float:
        """What opening took last time; before the first, the target's encoder time, by size."""
        if window.drafter_states is not None:
            return 0.0
        if self._opening_s is not None:
            return self._opening_s
        if self.shares_encoder:
            return 0.0
        share = _size(self.drafter.model.get_encoder()) / _size(self.target.model.get_encoder())
        return share * window.clock.seconds["encode"]

    def _states(self, window: Window) -> Tensor:
        if self.shares_encoder:
            return window.encoder_states
        if window.features is None:
            raise ModelError("the drafter has an encoder of its own and no audio to run it on")
        if window.drafter_states is None:
            with window.clock("encode"):
                window.drafter_encoder_runs += 1
                window.drafter_states = self.drafter.encode(window.features(self.drafter))
        return window.drafter_states


def drafter_without_encoder(model: Any, target: Whisper) -> Whisper:
    """A decoder-only drafter (`WhisperForCausalLM`), to be fed with the target's encoder states.

    Raises:
        ModelError: it can't attend to states of the target's width, or is in training mode.
    """
    check_inference_mode(model, "drafter")
    mine, theirs = model.config.d_model, target.model.config.d_model
    if mine != theirs:
        raise ModelError(
            f"a drafter without encoder needs the target's width {theirs}, this one has {mine}"
        )
    steps = replace(
        target.steps,
        vocab_size=max(model.config.vocab_size, target.steps.vocab_size),
        context=model.config.max_target_positions,
    )
    return Whisper(model, None, steps, target.packed)


def vocabulary_between(target: Whisper, drafter: Whisper) -> Vocabulary:
    """How a drafting checkpoint's tokens relate to the target's.

    Raises:
        ModelError: different vocabularies, and no tokenizers to bridge them.
    """
    have, want = drafter.steps, target.steps
    own, others = (
        whisper.processor and whisper.processor.tokenizer for whisper in (target, drafter)
    )
    if own and others:
        return vocabulary_between_tokenizers(own, others, want.vocab_size, have.vocab_size)
    # Without tokenizers the marks tell the layout; the width may differ by padding, and which
    # tokens end an output is the request's affair.
    marks, theirs = ((s.start, s.no_timestamps, s.previous_text) for s in (want, have))
    if marks != theirs:
        raise ModelError(
            f"the drafter's vocabulary ({have.vocab_size} tokens, {_marks(theirs)}) is not the "
            f"target's ({want.vocab_size} tokens, {_marks(marks)}): load both with their "
            "processors, so that they can be bridged"
        )
    return SameVocabulary(want.vocab_size, have.vocab_size)


def _marks(ids: Sequence[int | None]) -> str:
    """The marks that tell a vocabulary's layout, in words."""
    names = ("start mark", "no-timestamps mark", "previous-text mark")
    return ", ".join(f"{name} {token}" for name, token in zip(names, ids, strict=True))


def encoders_equal(one: Any, other: Any) -> bool:
    """Whether two checkpoints' encoders are the same, weight by weight."""
    mine, yours = one.get_encoder().state_dict(), other.get_encoder().state_dict()
    return mine.keys() == yours.keys() and all(
        weight.shape == yours[name].shape
        and weight.dtype == yours[name].dtype
        and torch.equal(weight, yours[name].to(weight.device))
        for name, weight in mine.items()
    )


def _size(module: Any) -> int:
    return sum(weight.numel() for weight in module.parameters())


def _step_size(decoder: Any, head: Any) -> int:
    """Weights that one decoding step reads: layers and vocabulary projection, no embeddings."""
    return _size(decoder.layers) + head.weight.numel()


def _decoder_size(whisper: Whisper) -> int:
    return _step_size(whisper.model.get_decoder(), whisper.model.get_output_embeddings())

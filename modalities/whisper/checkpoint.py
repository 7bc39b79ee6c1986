"""Whisper: a checkpoint and its processor as mmspec sees them.

Knows the family's vocabulary layout, encodes a window once and opens the decoder on it. Decoding
whole recordings is in `whisper_decode`, drafters for it in `whisper_draft`.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers.models.whisper.tokenization_whisper import TO_LANGUAGE_CODE

from mmspec.errors import ModelError, OptionError
from mmspec.factorizations import WhisperSteps
from mmspec.kernels import PackedLinears
from mmspec.modalities.base.decoder import (
    DecoderTarget,
    block_layers,
    check_inference_mode,
    end_tokens,
)
from mmspec.modalities.whisper import (
    timestamp_rules as timestamp_rules,  # registers their block form
)
from mmspec.modalities.whisper.fast_decoder import FastWhisperTarget, why_not_fast
from mmspec.modalities.whisper.features import log_mel
from mmspec.state import DecoderState

SAMPLING_RATE = 16_000

SPACE = "\N{LATIN CAPITAL LETTER G WITH DOT ABOVE}"
"""How the tokenizer writes a space, as the first character of a word's piece."""


@dataclass(frozen=True, eq=False)
class Whisper:
    """A loaded checkpoint.

    Attributes:
        model: transformers' `WhisperForConditionalGeneration`; never written to.
        processor: its `WhisperProcessor`, or None where only features and ids are dealt with.
        steps: its descriptor.
        packed: run linear layers in packed layout where that pays.
    """

    model: Any
    processor: Any
    steps: WhisperSteps
    packed: bool = True
    _decoder_packs: PackedLinears | None = None
    _encoder_packs: PackedLinears | None = None

    @classmethod
    def of(cls, model: Any, processor: Any = None, *, packed: bool = True) -> Whisper:
        """Describe a model.

        Raises:
            ModelError: it is in training mode, has no encoder, or its generation config lacks what
                is needed.
        """
        check_inference_mode(model, "model")
        if not has_encoder(model):
            raise ModelError(
                f"{type(model).__name__} has no encoder: it hears nothing, so it can "
                "only draft (draft=model) for a whole Whisper"
            )
        if not packed:
            return cls(model, processor, steps_of(model), packed)
        decoder, head = model.get_decoder(), model.get_output_embeddings()
        # Packs are made once and kept; each window's decoder shares them. The encoder's are made
        # when it is first needed: in transformers' `generate` it isn't ours to run.
        speaks = PackedLinears(block_layers(decoder, head)).pack()
        encoder = list(model.get_encoder().modules())
        hears = PackedLinears(encoder, model.config.max_source_positions)
        return cls(model, processor, steps_of(model), packed, speaks, hears)

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return self.model.device

    @property
    def window_frames(self) -> int:
        """Mel frames in one encoder window (3,000 for 30 s)."""
        encoder = self.model.get_encoder()
        stride = encoder.conv1.stride[0] * encoder.conv2.stride[0]
        return stride * self.model.config.max_source_positions

    @property
    def window_s(self) -> float:
        """Seconds in one encoder window."""
        return self.window_frames / self.frames_per_second

    @property
    def frames_per_second(self) -> float:
        """Mel frames per second."""
        extractor = None if self.processor is None else self.processor.feature_extractor
        return SAMPLING_RATE / (160 if extractor is None else extractor.hop_length)

    def features(self, samples: np.ndarray) -> Tensor:
        """Log-mel features `[1, mel bins, frames]`: a window's, or as long as a longer recording.

        Raises:
            ModelError: processor and model don't fit.
        """
        extractor, bins = self.processor.feature_extractor, self.model.config.num_mel_bins
        if extractor.feature_size != bins:
            raise ModelError(
                f"the processor makes {extractor.feature_size} mel bins, the model takes {bins}"
            )
        return log_mel(extractor, samples, self.window_s)

    def encode(self, features: Tensor) -> Tensor:
        """Encoder states `[1, S, D]` of one window of features."""
        return self.encode_layers(features, None)[0]

    @torch.no_grad()
    def encode_layers(self, features: Tensor, layer: int | None) -> tuple[Tensor, Tensor | None]:
        """Encoder states `[1, S, D]` of one window, and what its first `layer` layers made."""
        encoder, packs = self.model.get_encoder(), self._encoder_packs
        weight, keeps = encoder.conv1.weight, layer is not None
        with nullcontext() if packs is None else packs.pack().again():
            made = encoder(
                features.to(weight.device, weight.dtype), output_hidden_states=keeps or None
            )
        return made.last_hidden_state, made.hidden_states[layer] if keeps else None

    def open(self, encoder_states: Tensor) -> DecoderTarget:
        """The decoder on one window, nothing read yet. Close it when done."""
        decoder, head = self.model.get_decoder(), self.model.get_output_embeddings()
        state = DecoderState(len(decoder.layers), self.steps.context, cross_attention=True)
        if not self.packed:
            return DecoderTarget(decoder, head, encoder_states, state)
        packed = PackedLinears(block_layers(decoder, head)).open()
        why_not = why_not_fast(decoder)
        kind = FastWhisperTarget if why_not is None else DecoderTarget
        target = kind(decoder, head, encoder_states, state, packed)
        target.note = None if why_not is None else f"the library's own forward ran: {why_not}"
        return target

    def language_id(self, language: str) -> int:
        """The language token of a name ("english"), code ("en") or token ("<|en|>").

        Raises:
            OptionError: unknown, or not among this model's languages.
        """
        if not isinstance(language, str):
            raise OptionError(f"language {language!r}: expected one name, code or token")
        known = dict(self.steps.languages)
        if not known:
            raise OptionError(
                f"language {language!r}: this model is English-only and takes no language"
            )
        wanted = language.lower()
        token = wanted if wanted in known else f"<|{TO_LANGUAGE_CODE.get(wanted, wanted)}|>"
        if token not in known:
            codes = ", ".join(sorted(name.strip("<|>") for name in known))
            raise OptionError(f"language {language!r}: this model knows {codes}")
        return known[token]

    def language_code(self, token: int) -> str | None:
        """The code of a language token ("en")."""
        names = {token: name.strip("<|>") for name, token in self.steps.languages}
        return names.get(token)

    def text(self, ids: tuple[int, ...]) -> str:
        """What the text tokens among `ids` say."""
        words = [token for token in ids if not self.steps.is_timestamp(token)]
        return self.processor.tokenizer.decode(words, skip_special_tokens=True)

    def tokens(self, text: str, *, timestamps: bool) -> list[int]:
        """A complete hypothesis for a window from its text."""
        tokenizer = self.processor.tokenizer
        # Not verbose: a text of many windows is no sequence too long for the model.
        pieces = tokenizer.tokenize(" " + text.strip(), verbose=False)
        tokens = tokenizer.convert_tokens_to_ids(join_spaces(pieces, tokenizer.get_vocab()))
        opening = [self.steps.timestamp_begin] if timestamps else []
        return [*opening, *tokens, *sorted(self.steps.stop_tokens)[:1]]

    def word_beginnings(self, tokens: Sequence[int]) -> list[bool] | None:
        """Whether each token begins a word, or a part behind a hyphen or the like.

        Times and marks stand for themselves.
        """
        if self.processor is None:
            return None
        pieces = self.processor.tokenizer.convert_ids_to_tokens(list(tokens))
        marks = min(self.steps.stop_tokens, default=self.steps.start)  # behind them no text
        begins, before = [], ""
        for token, piece in zip(tokens, map(str, pieces), strict=True):
            inside = before[-1:].isalnum() and piece[:1].isalnum() and not piece.startswith(SPACE)
            begins.append(token >= marks or not inside)
            before = piece
        return begins

    def previous_tokens(self, text: str) -> tuple[int, ...]:
        """Prompt tokens for a preceding text.

        Raises:
            OptionError: no text, or one that holds marks that only the decoder may set.
        """
        if not isinstance(text, str):
            raise OptionError(f"prompt: found {type(text).__name__}, expected a text")
        try:
            return tuple(self.processor.get_prompt_ids(text.strip()).tolist())
        except ValueError as error:
            raise OptionError(f"prompt: {error}") from None


def has_encoder(model: Any) -> bool:
    """Whether a Whisper model listens by itself."""
    return type(model).__name__ != "WhisperForCausalLM"


def target_class(decoder: Any) -> type[DecoderTarget]:
    """The faster pass where it is proven to be the same, else transformers' own."""
    return DecoderTarget if why_not_fast(decoder) else FastWhisperTarget


def join_spaces(pieces: list[str], vocabulary: dict[str, int]) -> list[str]:
    """Pieces with every lone space joined to what follows, where that is a piece too.

    Whisper writes a space as the first character of a word's piece. Converted tokenizers whose
    merges lost an entry split it off, and then no token of a hypothesis is what the model says.

    Example:
        >>> join_spaces(["\u0120", "then", "\u0120he"], {"\u0120then": 7})
        ['\u0120then', '\u0120he']
    """
    joined: list[str] = []
    for piece in pieces:
        if joined and joined[-1] == SPACE and SPACE + piece in vocabulary:
            joined[-1] += piece
        else:
            joined.append(piece)
    return joined


def steps_of(model: Any, says: Any = None) -> WhisperSteps:
    """The descriptor that a generation config spells out.

    Args:
        model: the checkpoint.
        says: a request's prepared generation config; None: the checkpoint's own.

    Raises:
        ModelError: no start token, or ids outside the vocabulary.
    """
    config, own = model.config, model.generation_config
    says = own if says is None else says
    start = says.decoder_start_token_id
    if start is None:
        raise ModelError(
            "the generation config names no decoder_start_token_id: is this a complete Whisper "
            "checkpoint?"
        )
    # `generate` goes by its own languages even where a request says that there are none.
    multilingual = getattr(own, "is_multilingual", None) is not False
    try:
        return WhisperSteps(
            vocab_size=config.vocab_size,
            context=config.max_target_positions,
            start=start,
            stop_tokens=end_tokens(says),
            languages=_pairs(getattr(says, "lang_to_id", None)) if multilingual else (),
            tasks=_pairs(getattr(says, "task_to_id", None)) if multilingual else (),
            no_timestamps=getattr(says, "no_timestamps_token_id", None),
            previous_text=getattr(says, "prev_sot_token_id", None),
            forced=_run(forced_pairs(model, says)),
        )
    except ValueError as error:
        raise ModelError(f"the generation config doesn't fit the model: {error}") from None


def _pairs(table: dict[str, int] | None) -> tuple[tuple[str, int], ...]:
    return tuple((table or {}).items())


def forced_pairs(model: Any, says: Any) -> list[Any]:
    """(position, token) pairs that a config forces: transformers' older way to say a prompt."""
    pairs = getattr(says, "forced_decoder_ids", None)
    return list(getattr(model.config, "forced_decoder_ids", None) or [] if pairs is None else pairs)


def _run(pairs: list[Any]) -> tuple[int | None, ...]:
    """The forced tokens at positions 1, 2, ..., as far as none is left out."""
    run = itertools.takewhile(lambda numbered: numbered[0] == numbered[1][0], enumerate(pairs, 1))
    return tuple(token for _, (_, token) in run)

"""Who can decode a recording: mmspec with any drafter, and transformers."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from mmspec.compare.differences import Difference, token_difference
from mmspec.compare.peers import (
    LOOKUP_TOKENS,
    DecodeWatch,
    Outcome,
    Unavailable,
    untouched,
)
from mmspec.compat import quiet
from mmspec.errors import OptionError
from mmspec.modalities.base.speculative_decoder import NoDraft
from mmspec.modalities.whisper.checkpoint import SAMPLING_RATE, Whisper
from mmspec.modalities.whisper.request import TranscriptionRequest
from mmspec.tasks.asr.transcriber import Transcriber


class MMSpecPeer:
    """mmspec with some drafter, or with none."""

    remark: str | None = None

    def __init__(self, transcriber: Transcriber, name: str) -> None:
        self.transcriber, self.name = transcriber, name
        self.why_not: str | None = None

    def run(
        self, samples: np.ndarray, request: TranscriptionRequest, hypothesis: Any = None
    ) -> Outcome:
        """Decode with `Transcriber.transcribe`."""
        if self.transcriber.draft_name == "hypothesis" and hypothesis is None:
            hypothesis = ""
        start = time.perf_counter()
        said = self.transcriber.transcribe(
            samples, request, sampling_rate=SAMPLING_RATE, hypothesis=hypothesis
        )
        seconds = time.perf_counter() - start
        return Outcome(said.ids, said.text, said.report.decode_seconds, seconds, said.report)


class TransformersPeer:
    """transformers' `generate` on the user's own model object, with or without assistance."""

    remark: str | None = None

    def __init__(
        self, model: Any, processor: Any, name: str, assistance: Mapping[str, Any] | None = None
    ) -> None:
        self.name = name
        self.why_not: str | None = None
        self._model, self._processor = model, processor
        self._window_s = Whisper.of(model, processor, packed=False).window_s
        self._assistance = dict(assistance or {})

    def run(
        self, samples: np.ndarray, request: TranscriptionRequest, hypothesis: Any = None
    ) -> Outcome:
        """Decode with `generate`; the models' generation configs are as before afterwards.

        Raises:
            OptionError: sampling, whose noise is transformers' own.
        """
        if request.first_temperature > 0:
            raise OptionError("sampled ids can't be compared: transformers draws other noise")
        watch = DecodeWatch()
        models = [self._model, self._assistance.get("assistant_model")]
        with quiet(), untouched(models), torch.no_grad():
            start = time.perf_counter()
            features = self._features(samples)
            ids = self._model.generate(
                features, streamer=watch, **self._options(request, features), **self._assistance
            )
            tokens = tuple(ids[0].tolist())
            text = self._processor.tokenizer.decode(tokens, skip_special_tokens=True).strip()
            seconds = time.perf_counter() - start
        return Outcome(tokens, text, watch.decode_s, seconds)

    @property
    def end(self) -> int:
        """The id that ends an output; -1 where none does."""
        ends = self._model.generation_config.eos_token_id
        first = ends[0] if isinstance(ends, list) else ends
        return -1 if first is None else int(first)

    def prompt(self, samples: np.ndarray, request: TranscriptionRequest) -> tuple[int, ...]:
        """The decoder prompt that transformers builds for the first window."""
        watch = DecodeWatch()
        with quiet(), untouched([self._model]):
            features = self._features(samples)
            options = self._options(request, features) | {"max_new_tokens": 1}
            self._model.generate(features, streamer=watch, **options)
        return watch.prompts[0]

    def difference(
        self, samples: np.ndarray, request: TranscriptionRequest, ours: Outcome, peer: Outcome
    ) -> Difference | None:
        """The first token that differs, None where all are equal."""
        return token_difference(self, samples, request, ours, peer)

    def knows_gap(self, ours: Outcome) -> bool:
        """In the first window only: behind it the prefix is no longer the ids alone."""
        return ours.report is None or ours.report.encoder_runs == 1

    @torch.no_grad()
    def gap(
        self,
        samples: np.ndarray,
        request: TranscriptionRequest,
        before: Sequence[int],
        pair: tuple[int, int],
    ) -> float:
        """Difference of the target's raw logits for two ids behind `before`."""
        prompt = [*self.prompt(samples, request), *before]
        ids = torch.tensor([prompt], device=self._model.device)
        row = self._model(input_features=self._features(samples), decoder_input_ids=ids).logits
        return abs(float(row[0, -1, pair[0]] - row[0, -1, pair[1]]))

    def _features(self, samples: np.ndarray) -> torch.Tensor:
        extractor, most = self._processor.feature_extractor, self._window_s * SAMPLING_RATE
        whole = {"truncation": False, "padding": "longest"} if len(samples) > most else {}
        made = extractor(samples, sampling_rate=SAMPLING_RATE, return_tensors="pt", **whole)
        return made.input_features.to(self._model.device, self._model.dtype)

    def _options(self, request: TranscriptionRequest, features: torch.Tensor) -> dict[str, Any]:
        frames = self._window_s * SAMPLING_RATE / self._processor.feature_extractor.hop_length
        long = features.shape[-1] > frames
        return request.for_generate(self._processor, self._model.device, long=long)


def plain_of(ours: Transcriber, *, packed: bool = True) -> Transcriber:
    """Ordinary decoding with the same target."""
    return Transcriber(Whisper.of(ours.model, ours.processor, packed=packed), NoDraft(), "adaptive")


def own(ours: Transcriber, name: str) -> MMSpecPeer:
    """mmspec itself as a peer."""
    return MMSpecPeer(ours, name)


def library(ours: Transcriber) -> TransformersPeer:
    """transformers on the same target."""
    return TransformersPeer(ours.model, ours.processor, "hf")


def assisted(ours: Transcriber) -> TransformersPeer | Unavailable:
    """transformers' own speculation with the drafter of `ours`, where there is such a thing."""
    draft, name = ours.draft_name, "hf-assisted"
    if draft == "ngram":
        return TransformersPeer(
            ours.model, ours.processor, name, {"prompt_lookup_num_tokens": LOOKUP_TOKENS}
        )
    if ours.drafter_model is None:
        why = "no drafter to assist with"
        if draft != "none":
            why = f"transformers has no {draft.partition(':')[0]} drafting for Whisper"
        return Unavailable(name, why)
    assistance = {"assistant_model": ours.drafter_model}
    mine, yours = ours.processor.tokenizer, ours.drafter_processor.tokenizer
    if mine.get_vocab() != yours.get_vocab():
        assistance |= {"tokenizer": mine, "assistant_tokenizer": yours}
    return TransformersPeer(ours.model, ours.processor, name, assistance)

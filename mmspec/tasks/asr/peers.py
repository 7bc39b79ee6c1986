"""Who can decode a recording: mmspec with any drafter, and transformers with or without its own
speculation. All are asked the same and answer with ids, text and times.
"""

from __future__ import annotations

import contextlib
import copy
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from transformers.generation.streamers import BaseStreamer

from mmspec.compat import quiet
from mmspec.errors import MMSpecError, OptionError
from mmspec.modalities.base.pair import NoDraft
from mmspec.modalities.whisper.checkpoint import SAMPLING_RATE, Whisper
from mmspec.modalities.whisper.request import TranscriptionRequest
from mmspec.report.report import Report
from mmspec.tasks.asr.transcriber import Transcriber

LOOKUP_TOKENS = 3
"""transformers' prompt lookup, at the setting that was its best on short clips."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One run of one contender on one input.

    Attributes:
        ids: of tokens; of a model that speaks frames of codes.
        decode_s: from the first token to the end: drafting, verification and bookkeeping.
        end_to_end_s: from samples to text.
        report: mmspec's own; None for other contenders.
    """

    ids: tuple[Any, ...]
    text: str
    decode_s: float
    end_to_end_s: float
    report: Report | None = None


class Contender(Protocol):
    """Something that can decode a recording, or an image.

    Attributes:
        name: in tables.
        why_not: why it can't run the case, where it can't.
        remark: what is to be known beside its figures.
    """

    name: str
    why_not: str | None
    remark: str | None

    def run(self, subject: Any, request: Any, hypothesis: Any = None, /) -> Outcome:
        """Decode mono samples at 16 kHz, or images."""
        ...


class MMSpecContender:
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


class TransformersContender:
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

    @classmethod
    def assisted(cls, ours: Transcriber) -> TransformersContender | Unavailable:
        """transformers' own speculation with the drafter of `ours`, where there is such a thing."""
        draft, name = ours.draft_name, "hf-assisted"
        if draft == "ngram":
            return cls(
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
        return cls(ours.model, ours.processor, name, assistance)

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
            units = tuple(ids[0].tolist())
            text = self._processor.tokenizer.decode(units, skip_special_tokens=True).strip()
            seconds = time.perf_counter() - start
        return Outcome(units, text, watch.decode_s, seconds)

    @property
    def end(self) -> int:
        """The id that ends an output."""
        ends = self._model.generation_config.eos_token_id
        return int(ends[0] if isinstance(ends, list) else ends)

    def prompt(self, samples: np.ndarray, request: TranscriptionRequest) -> tuple[int, ...]:
        """The decoder prompt that transformers builds for the first window."""
        watch = DecodeWatch()
        with quiet(), untouched([self._model]):
            features = self._features(samples)
            options = self._options(request, features) | {"max_new_tokens": 1}
            self._model.generate(features, streamer=watch, **options)
        return watch.prompts[0]

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


@dataclass(slots=True)
class Unavailable:
    """A contender that can't run the case."""

    name: str
    why_not: str | None
    remark: str | None = None

    def run(self, subject: Any, request: Any, hypothesis: Any = None) -> Outcome:
        """Never."""
        raise OptionError(str(self.why_not))


class DecodeWatch(BaseStreamer):
    """A streamer that takes the time from a window's first token to its end.

    `generate` puts the prompt, then tokens as they are decided, then ends, once per window.
    """

    def __init__(self) -> None:
        self.decode_s = 0.0
        self.prompts: list[tuple[int, ...]] = []
        self._expects_prompt = True
        self._first: float | None = None

    def put(self, value: torch.Tensor) -> None:
        """A prompt, or tokens."""
        if self._expects_prompt:
            self.prompts.append(tuple(value.flatten().tolist()))
            self._expects_prompt = False
        elif self._first is None:
            self._first = time.perf_counter()

    def end(self) -> None:
        """The window is over."""
        if self._first is not None:
            self.decode_s += time.perf_counter() - self._first
        self._expects_prompt, self._first = True, None


def plain_of(ours: Transcriber, *, packed: bool = True) -> Transcriber:
    """Ordinary decoding with the same target."""
    return Transcriber(Whisper.of(ours.model, ours.processor, packed=packed), NoDraft(), "adaptive")


def one_reason(error: Exception) -> str:
    """An exception on one line."""
    reason = next((line for line in str(error).splitlines() if line.strip()), "")
    name = "" if isinstance(error, MMSpecError) else f"{type(error).__name__}: "
    return f"{name}{reason.strip()}"[:300]


@contextlib.contextmanager
def untouched(models: Sequence[Any]) -> Iterator[None]:
    """Give the models' generation configs back as they were: assisted generation writes to them."""
    configs = [model.generation_config for model in models if model is not None]
    before = [copy.deepcopy(vars(config)) for config in configs]
    try:
        yield
    finally:
        for config, facts in zip(configs, before, strict=True):
            vars(config).clear()
            vars(config).update(facts)

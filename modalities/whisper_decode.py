"""Decoding a recording of up to one window with Whisper, the way transformers' `generate` does.

With timestamps a window may be decoded in several goes: when its tokens end with a pair of times,
speech goes on behind it, and the rest of the window is encoded and decoded again from there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor
from transformers.generation import logits_process as hf

from mmspec.clock import Clock
from mmspec.compat import prepared_config, prepared_criteria, prepared_processors
from mmspec.engine import Sampling, Steps, Stops, run_alone, stepwise
from mmspec.engine.account import Account
from mmspec.errors import InputError, OptionError
from mmspec.factorizations import Segment, WhisperSteps
from mmspec.modalities.decoder import DecoderTarget
from mmspec.modalities.whisper import Whisper
from mmspec.modalities.whisper_draft import Window
from mmspec.modalities.whisper_window import Encoding, Pair, read_prompt
from mmspec.report import Report
from mmspec.target import Pass
from mmspec.trace import Origin, Round


@dataclass(frozen=True)
class Job:
    """What is wanted of a recording.

    Attributes:
        language: name, code or token; None: as the checkpoint says, detected where it says nothing.
        task: "transcribe" or "translate"; None: as the checkpoint says.
        timestamps: predict times; None: as the checkpoint says.
        previous: text that came before.
        hypothesis: what the caller expects to hear, as text or as ids.
        temperature: 0 is greedy.
        seed: key of the noise when sampling.
        rule: acceptance rule, "auto" for the fitting one.
        config: a transformers `GenerationConfig`, as `generate` would take it.
        options: generation options, as `generate` would take them.
        processors: further logits processors.
        criteria: further stopping criteria.
        streamer: gets committed ids.
    """

    language: str | None = None
    task: str | None = None
    timestamps: bool | None = None
    previous: str | None = None
    hypothesis: str | Sequence[int] | None = None
    temperature: float = 0.0
    seed: int | None = None
    rule: str = "auto"
    config: Any = None
    options: dict[str, Any] = field(default_factory=dict)
    processors: Sequence[Any] = ()
    criteria: Sequence[Any] = ()
    streamer: Any = None


@dataclass(frozen=True)
class Heard:
    """The outcome: ids as transformers' `generate` returns them, segments, and the report.

    `origins` tells of each id how it was obtained; `trace` holds every round.
    """

    ids: tuple[int, ...]
    text: str
    segments: tuple[Segment, ...]
    segment_texts: tuple[str, ...]
    language: str | None
    report: Report
    origins: tuple[Origin, ...]
    trace: tuple[Round, ...]


class Recognition:
    """One recording being decoded.

    Args:
        pair: the target and its kind of drafter.
        features: log-mel features `[1, bins, frames]` by checkpoint; called once for the target
            and once for a drafter with ears of its own.
        job: what is wanted.
        duration_s: how long the recording is; behind it the window holds silence.
    """

    def __init__(
        self, pair: Pair, features: Callable[[Whisper], Tensor], job: Job, duration_s: float
    ) -> None:
        self.whisper, self._pair, self.job = pair.whisper, pair, job
        self._account = Account(Clock(pair.whisper.device))
        self.clock = self._account.clock
        self._features, self._duration_s = features, duration_s
        self._config = self._read_config()
        self._sampling = Sampling(job.temperature > 0, job.seed, job.rule)
        self._language: int | None = None
        self._certain: list[int] = []
        self.segments: list[Segment] = []
        self.origins: list[Origin] = []

    def _read_config(self) -> Any:
        job = self.job
        if not 0 <= job.temperature < math.inf:
            raise OptionError(f"temperature must be 0 or more, got {job.temperature}")
        try:
            config, rest = prepared_config(self.whisper.model, job.config, dict(job.options))
        except ValueError as error:  # transformers' own check of the values
            raise OptionError(str(error).splitlines()[0]) from error
        if rest:
            raise OptionError(f"unknown generation options: {', '.join(sorted(rest))}")
        if (config.num_beams or 1) > 1 or (config.num_return_sequences or 1) > 1:
            raise OptionError("beam search and several sequences per input aren't supported")
        config.do_sample = job.temperature > 0
        config.temperature = job.temperature if config.do_sample else 1.0
        return config

    @property
    def timestamps(self) -> bool:
        """Whether times are predicted."""
        if self.job.timestamps is not None:
            wanted = self.job.timestamps
        else:
            wanted = bool(getattr(self._config, "return_timestamps", False))
        if wanted and self.whisper.steps.no_timestamps is None:
            raise OptionError("timestamps: this model's generation config names none")
        return wanted

    @property
    def _ends(self) -> frozenset[int]:
        """Units that end an output; a request may say others than the checkpoint."""
        ends = self._config.eos_token_id
        return frozenset(ends if isinstance(ends, list) else [ends])

    def run(self) -> Heard:
        """Decode to the end."""
        run_alone(self.steps())
        return self.heard()

    def __iter__(self) -> Iterator[int]:
        """Ids of the transcript as they are certain, prompts and ends left out."""
        for _ in stepwise(self.steps()):
            yield from self._take_certain()
        yield from self._take_certain()

    def _take_certain(self) -> list[int]:
        certain = list(self._certain)
        self._certain.clear()
        return certain

    def steps(self) -> Steps[None]:
        """The decoding, as a request that leaves passes and encoder runs to whoever runs it."""
        with self.clock("encode"):
            features = self._features(self.whisper)
        frames, rate = features.shape[-1], self.whisper.frames_per_second
        seek = 0
        while seek < frames:
            window = _Certainty(self.whisper.steps, self._ends, self._certain.append)
            rounds = len(self._account.tally.trace)
            yield from self._decode_window(_from(features, seek), seek, window)
            with self.clock("post"):
                segments, done_s = self.whisper.steps.split(
                    window.ids, seek / rate, (frames - seek) / rate
                )
                self.segments += [self._within_recording(segment) for segment in segments]
                kept = sum(len(segment.ids) for segment in segments)
                self.origins += self._account.tally.origins(rounds)[:kept]
                advance = round(done_s * rate)
            window.settle(kept)
            if advance < 1:
                break  # a pair of times at the very start: going on would never end
            seek += advance

    def _within_recording(self, segment: Segment) -> Segment:
        """A segment ends with the recording at the latest, not with the window around it."""
        end_s = max(segment.start_s, min(segment.end_s, self._duration_s))
        return replace(segment, end_s=end_s)

    def heard(self) -> Heard:
        """The outcome, once the iteration is over."""
        ids = tuple(unit for segment in self.segments for unit in segment.ids)
        with self.clock("post"):
            texts = [self.whisper.text(part).strip() for part in (ids, *self._parts())]
        report = self._account.report(self._sampling, self._pair.costs)
        return Heard(
            ids,
            texts[0],
            tuple(self.segments),
            tuple(texts[1:]),
            self._language_code(),
            report,
            tuple(self.origins),
            tuple(self._account.tally.trace),
        )

    def _parts(self) -> list[tuple[int, ...]]:
        return [segment.ids for segment in self.segments]

    def _decode_window(self, features: Tensor, seek: int, heard: _Certainty) -> Steps[None]:
        pair, account, job = self._pair, self._account, self.job
        states = yield Encoding(self.whisper, features, self.clock)
        account.encoder_runs += 1
        with pair.target(states, account) as target:
            prompt = yield from self._prompt(target)
            if len(prompt) >= target.capacity:
                raise OptionError(
                    f"the prompt takes {len(prompt)} of the decoder's {target.capacity} "
                    "positions: shorten the previous text"
                )
            first_row = yield from read_prompt(target, prompt, account)
            window = Window(
                target,
                prompt,
                states,
                lambda other: _from(self._features(other), seek),
                self._draft_prompt,
                self._expected(),
                self.clock,
            )
            processors, stops = self._rules(len(prompt), features)
            if job.streamer is not None:
                job.streamer.put(torch.tensor([list(prompt)]))
            with pair.session(
                window,
                first_row,
                account,
                processors=processors,
                stops=stops,
                sampling=self._sampling.of_part(0, account.encoder_runs - 1),
                streamer=job.streamer,
            ) as session:
                while session.finish_reason is None:
                    heard.add((yield from session.steps()))
            if job.streamer is not None:
                job.streamer.end()

    def _rules(self, prompt_length: int, features: Tensor) -> tuple[Any, Stops]:
        """Processors and stops for a window, as `generate` would make them."""
        whisper, job = self.whisper, self.job
        config, custom = self._whisper_processors(prompt_length)
        config.max_length = self._max_length(prompt_length)
        processors = prepared_processors(whisper.model, config, prompt_length, custom, features)
        tokenizer = None if whisper.processor is None else whisper.processor.tokenizer
        criteria = prepared_criteria(whisper.model, config, job.criteria, tokenizer)
        return processors, Stops.from_transformers(criteria, self._ends, config.max_length)

    def _whisper_processors(self, prompt_length: int) -> tuple[Any, list[Any]]:
        """Whisper's own rules as processors, in `generate`'s order, and the config without them."""
        config, _ = prepared_config(self.whisper.model, self._config, {})
        device = self.whisper.device
        custom: list[Any] = []
        if config.begin_suppress_tokens is not None:
            custom.append(
                hf.SuppressTokensAtBeginLogitsProcessor(
                    config.begin_suppress_tokens, begin_index=prompt_length, device=device
                )
            )
        if config.suppress_tokens is not None:
            custom.append(hf.SuppressTokensLogitsProcessor(config.suppress_tokens, device=device))
        if self.timestamps:
            custom.append(hf.WhisperTimeStampLogitsProcessor(config, begin_index=prompt_length))
        config.begin_suppress_tokens = config.suppress_tokens = None
        return config, [*custom, *self.job.processors]

    def _max_length(self, prompt_length: int) -> int:
        """Absolute length limit, prompt included, as `generate` sets it.

        Raises:
            OptionError: the prompt and the wanted tokens don't fit into the decoder's context.
        """
        context, config = self.whisper.steps.context, self._config
        if config.max_new_tokens is not None:
            if prompt_length + config.max_new_tokens > context:
                raise OptionError(
                    f"max_new_tokens {config.max_new_tokens} and a prompt of {prompt_length} "
                    f"exceed the decoder's {context} positions"
                )
            return prompt_length + config.max_new_tokens
        return min(config.max_length + min(context // 2 - 1, prompt_length), context)

    def _prompt(self, target: DecoderTarget) -> Steps[tuple[int, ...]]:
        """The prompt; where the language has to be detected, the target reads its start first."""
        steps, job = self.whisper.steps, self.job
        task, named = job.task or getattr(self._config, "task", None), job.language
        named = named or getattr(self._config, "language", None)
        if not steps.languages and (job.task or job.language):
            raise OptionError("language and task: this model is English-only and takes neither")
        task = task if steps.tasks else None
        use_forced = task is None and named is None
        language: int | None = None
        if named is not None and steps.languages:
            language = self.whisper.language_id(named)
            task = task or ("transcribe" if steps.tasks else None)
        elif steps.languages and not (use_forced and steps.forced[:1] not in ((), (None,))):
            language = self._language
            if language is None:
                language = yield from self._detect(target)
        self._language = language
        previous = () if job.previous is None else self.whisper.previous_units(job.previous)
        if previous and target.state.length:
            target.state.commit(0)  # detection read the start mark where the previous text goes
        try:
            return steps.prompt(
                language=language,
                task=task,
                timestamps=self.timestamps,
                previous=previous,
                use_forced=use_forced,
            )
        except ValueError as error:
            raise OptionError(str(error)) from None

    def _detect(self, target: DecoderTarget) -> Steps[int]:
        """The likeliest language, from the row behind the start mark (no second encoder run)."""
        start = [self.whisper.steps.start]
        row = (yield Pass(target, start, 1, None, self.clock, "prefill"))[0]
        units = [unit for _, unit in self.whisper.steps.languages]
        return units[int(row[units].argmax())]

    def _draft_prompt(self, other: Whisper) -> Sequence[int]:
        """The same job as another checkpoint's prompt."""
        code, job = self._language_code(), self.job
        token = dict(other.steps.languages).get(f"<|{code}|>")
        task = job.task or getattr(self._config, "task", None) or "transcribe"
        task = task if task in dict(other.steps.tasks) else None
        fits = job.previous is not None and other.processor is not None
        previous = other.previous_units(job.previous) if fits and job.previous else ()
        timestamps = self.timestamps and other.steps.no_timestamps is not None
        return other.steps.prompt(
            language=token, task=task, timestamps=timestamps, previous=previous
        )

    def _expected(self) -> list[int] | None:
        """The caller's hypothesis in units; it belongs to the first go only."""
        hypothesis, first = self.job.hypothesis, not self.segments
        if hypothesis is None or not first:
            return None
        if isinstance(hypothesis, str):
            if not hypothesis.strip():
                return None
            return self.whisper.units(hypothesis, timestamps=self.timestamps)
        ids = [int(unit) for unit in hypothesis]
        wrong = [unit for unit in ids if not 0 <= unit < self.whisper.steps.vocab_size]
        if wrong:
            raise InputError(
                f"hypothesis: id {wrong[0]} is outside the vocabulary of "
                f"{self.whisper.steps.vocab_size}"
            )
        return ids

    def _language_code(self) -> str | None:
        return None if self._language is None else self.whisper.language_code(self._language)


class _Certainty:
    """Which units of a window are certain to stay while it is being decoded.

    With timestamps, what follows a window's last pair of times may be decoded again in the next
    go, so it is certain only once the window is over.

    Args:
        steps: the descriptor.
        ends: units that end an output and are no part of it.
        say: called with every unit as soon as it is certain.
    """

    def __init__(
        self, steps: WhisperSteps, ends: frozenset[int], say: Callable[[int], None]
    ) -> None:
        self.ids: list[int] = []
        self._steps, self._ends, self._say = steps, ends, say
        self._said, self._had_pair = 0, False

    def add(self, units: Sequence[int]) -> None:
        """Units that a round has committed."""
        for unit in units:
            if unit in self._ends:
                continue  # it is the last one
            self.ids.append(unit)
            pair = len(self.ids) > 1 and all(map(self._steps.is_timestamp, self.ids[-2:]))
            self._had_pair |= pair
            if pair or not self._had_pair:
                self.settle(len(self.ids))

    def settle(self, count: int) -> None:
        """The first `count` units are certain."""
        for unit in self.ids[self._said : count]:
            self._say(unit)
        self._said = max(self._said, count)


def _from(features: Tensor, seek: int) -> Tensor:
    """A window's features from frame `seek` on, padded with zeros as transformers does."""
    return torch.nn.functional.pad(features[..., seek:], (0, seek)) if seek else features

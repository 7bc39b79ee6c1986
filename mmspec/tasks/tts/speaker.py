"""`Speaker`: a model that says codes, loaded once and used for many texts."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Unpack

import numpy as np

from mmspec.acceptance.groups import Approximate
from mmspec.clock import Clock
from mmspec.compare.code_parity import when_decided
from mmspec.drafting import policy_for
from mmspec.engine import BlockCosts, Steps, run_alone, stepwise
from mmspec.engine.stats import RequestStats
from mmspec.errors import InputError, OptionError
from mmspec.factorizations import CodeSteps
from mmspec.modalities.base.speculative_decoder import Draft, SpeculativeDecoder
from mmspec.modalities.speech.checkpoint import SpeechCheckpoint
from mmspec.modalities.speech.codec import Codec, open_codec
from mmspec.modalities.speech.contract import CodesRequest, CodesResult
from mmspec.modalities.speech.family import FrameFamily
from mmspec.modalities.speech.similar_codes import similar_codes
from mmspec.report.grounding import Grounding, share_by_class, threshold_of
from mmspec.streaming import CollectedFrames
from mmspec.tasks.base import Loaded
from mmspec.tasks.tts.request import SpeechOptions, SpeechRequest
from mmspec.tasks.tts.result import Speech

ASKED_NOTHING = SpeechRequest()
"""All is as the checkpoint says."""


class Speaker(Loaded[SpeechCheckpoint, SpeechRequest, Speech]):
    """A model that speaks: a target, a kind of drafter, and what was learned about their costs.

    Made by `mmspec.load`. Use it with `with`, or `close()` it.

    Attributes:
        codec: what makes sound of its codes; None where its checkpoint has none.
    """

    task: ClassVar[str] = "tts"

    def __init__(self, target: SpeechCheckpoint, draft: Draft, gamma: int | str) -> None:
        costs = BlockCosts()
        super().__init__(SpeculativeDecoder(target, draft, policy_for(gamma, costs), costs))
        self.codec = codec_of(target)

    def speak(
        self,
        text: str,
        request: SpeechRequest = ASKED_NOTHING,
        **options: Unpack[SpeechOptions],
    ) -> Speech:
        """Say a text.

        Args:
            text: what to say.
            request: how, where it is said once for many texts.
            **options: the attributes of `SpeechRequest`: `seconds` (how long it sounds at most;
                None: as the model's generation config has it), `temperature` (0 takes the
                likeliest codes; None: as the generation config has it), `seed` (repeatable
                sampling, whatever drafts), `guidance` (the scale of classifier-free guidance, 1 is
                none), `grounding` (find out which steps rest on the text: True, or a threshold in
                nats), `earlier` (`Speech`es or code grids of the same voice, for lookup),
                `approximate` (**no longer exact**: a cosine; codes whose embeddings have a higher
                one are alike), `budget` (how far from the target's distribution an approximate
                output may be at most), `sound` (False leaves the codec out), `streamer`, `inputs`
                (what the model's processor made, instead of a text); and further options of
                transformers' `generate`.

        Raises:
            MMSpecError: a text or an option that can't be used, in one line.
        """
        return run_alone(self.run_request(self._pair, text, request.having(options)))

    def speak_batch(self, texts: Iterable[str], *, batch: int = 8, **options: Any) -> list[Speech]:
        """Say several texts side by side; each is what `speak` says.

        Args:
            texts: what to say.
            batch: how many are decoded at a time.
            **options: as `speak` takes them, for all alike. A seed is the same for each.

        Raises:
            MMSpecError: the first text that failed, once the others are done.
        """
        return self._all(({"text": text, **options} for text in texts), batch)

    def stream(
        self,
        text: str,
        request: SpeechRequest = ASKED_NOTHING,
        **options: Unpack[SpeechOptions],
    ) -> Iterator[np.ndarray]:
        """Say a text, yielding sound as soon as its frames are committed.

        Takes the options of `speak`, but for the streamer. All pieces joined are the sound that
        `speak` makes, but for float rounding.

        Yields:
            float32 `[n]`, or `[channels, n]`.

        Raises:
            OptionError: no codec, or codes that only sound when all of them are there.
        """
        if self.codec is None:
            raise OptionError("stream: this model has no codec to make sound with")
        if not isinstance(self.checkpoint.family, FrameFamily):
            raise OptionError(
                f"stream: {self.checkpoint.family.title} finishes one part of its codes before it "
                "begins the next, so nothing sounds before the end: use speak"
            )
        sound, collected, sequence, done = self.codec.stream(), CollectedFrames(), [], 0
        given = {**options, "streamer": collected, "sound": False}
        steps = self.run_request(self._pair, text, request.having(given))
        for _ in stepwise(steps):
            sequence += collected.take()
            whole = self._whole_frames(sequence, done)
            done += len(whole)
            yield sound.push(whole)
        sequence += collected.take()
        yield sound.push(self._whole_frames(sequence, done))
        yield sound.end()

    def _whole_frames(self, sequence: Sequence[Any], done: int) -> list[tuple[int, ...]]:
        """Frames from number `done` on that are complete; with this order's delays undone."""
        frames = (self.checkpoint.steps.whole_frame(sequence, t) for t in itertools.count(done))
        return list(itertools.takewhile(lambda frame: frame is not None, frames))

    def asked(
        self, text: str, request: SpeechRequest = ASKED_NOTHING, **options: Any
    ) -> tuple[str, SpeechRequest]:
        """The arguments of `speak` as (text, request)."""
        return text, request.having(options)

    def prepare(
        self, pair: SpeculativeDecoder[SpeechCheckpoint], given: str, request: SpeechRequest
    ) -> CodesRequest:
        """A text as the model's `generate` takes it, and how it is said."""
        threshold_of(request.grounding)
        stats = RequestStats(Clock(self.checkpoint.device))
        return CodesRequest(
            pair,
            self.inputs_for(given) if request.inputs is None else request.inputs,
            stats,
            self.generation_options(request),
            seed=request.seed,
            approximate=self._approximate(request.approximate, request.budget),
            earlier=self._earlier(request.earlier),
            streamer=request.streamer,
        )

    def decode(self, prepared: CodesRequest) -> Steps[CodesResult]:
        """Its codes."""
        return self.checkpoint.family.say(prepared)

    def result(
        self, given: str, request: SpeechRequest, prepared: CodesRequest, decoded: CodesResult
    ) -> Speech:
        """The codes with their sound, and with grounding where it was asked for."""
        books = self.checkpoint.family.books(self.checkpoint.steps)
        codes = np.asarray(decoded.grid, dtype=np.int64).reshape(len(decoded.grid), len(books))
        samples = grounding = None
        if request.sound and self.codec is not None:
            with prepared.stats.clock("post"):
                samples = self.codec.decode(codes)
        if (threshold := threshold_of(request.grounding)) is not None:
            grounding = Grounding(threshold, self._drops(prepared, decoded))
        return self._speech(given, prepared, decoded, codes, samples, grounding)

    def _approximate(self, threshold: float | None, budget: float | None) -> Approximate | None:
        if threshold is None:
            if budget is not None:
                raise OptionError("budget: only approximate acceptance spends one, see approximate")
            return None
        groups = similar_codes(self.checkpoint, _number("approximate", threshold))
        return Approximate(groups, None if budget is None else _number("budget", budget))

    def inputs_for(self, text: str) -> Mapping[str, Any]:
        """What the model's `generate` takes for a text.

        Raises:
            InputError: there are no words in it.
        """
        if not isinstance(text, str) or not text.strip():
            raise InputError(f"text: found {text!r}, expected words to say")
        return self.checkpoint.family.text_inputs(self.checkpoint, text)

    def generation_options(self, request: SpeechRequest) -> dict[str, Any]:
        """A request as keyword arguments of transformers' `generate`.

        Raises:
            OptionError: no number, or one that makes no sense.
        """
        found = request.generate_options
        seconds, temperature = request.seconds, request.temperature
        if seconds is not None:
            if self.codec is None:
                raise OptionError("seconds: this model has no codec to say how long a frame is")
            frames = math.ceil(_number("seconds", seconds) * self.codec.frame_rate_hz)
            if frames < 1:
                raise OptionError(f"seconds: found {seconds}, expected more than 0")
            steps = self.checkpoint.family.new_tokens(self.checkpoint.steps, frames)
            found["max_new_tokens"] = steps
        if temperature is not None:
            found["do_sample"] = _number("temperature", temperature) > 0
            if temperature > 0:
                found["temperature"] = float(temperature)
        if request.guidance is not None:
            found["guidance_scale"] = _number("guidance", request.guidance)
        return found

    def _earlier(self, given: Any) -> list[Sequence[Any]]:
        """What was said before, as the model sees it.

        Raises:
            OptionError: no sequence of speeches or grids.
        """
        if not isinstance(given, Sequence):
            raise OptionError(f"earlier: found {given!r}, expected a list of speeches or grids")
        return [self._sequence(said) for said in given]

    def _sequence(self, said: Any) -> Sequence[Any]:
        """What was said before, as the model sees it."""
        if isinstance(said, Speech):
            return said.sequence
        rows = [tuple(int(code) for code in row) for row in np.asarray(said).tolist()]
        return self.checkpoint.steps.from_grid(rows)

    def _drops(self, asked: CodesRequest, said: CodesResult) -> tuple[float, ...]:
        family = self.checkpoint.family
        given = family.log_probs(asked, said, text=True)
        dropped = family.log_probs(asked, said, text=False)
        return tuple(one - other for one, other in zip(given, dropped, strict=True))

    def _speech(
        self,
        text: str,
        asked: CodesRequest,
        said: CodesResult,
        codes: np.ndarray,
        samples: np.ndarray | None,
        grounding: Grounding | None,
    ) -> Speech:
        stats, steps = asked.stats, self.checkpoint.steps
        origins = tuple(stats.tally.origins())
        if not len(codes):
            why = "the target ended it" if said.ended else "a limit ended it"
            stats.note(f"no whole frame in an output of {len(origins)} tokens: {why} there")
        report = stats.report(said.sampling, asked.pair.costs)
        if grounding is not None:
            report = replace(report, by_class=share_by_class(grounding, origins))
        in_order = isinstance(steps, CodeSteps)
        return Speech(
            text=text,
            codes=codes,
            samples=samples,
            sample_rate_hz=None if self.codec is None else self.codec.sample_rate_hz,
            frame_rate_hz=None if self.codec is None else self.codec.frame_rate_hz,
            codebook_sizes=tuple(book.codes for book in self.checkpoint.family.books(steps)),
            family=str(self.model.config.model_type),
            report=report,
            origins=origins,
            trace=tuple(stats.tally.trace),
            decided_at=_steps_of(steps, len(codes), said.first_step),
            decision=when_decided(steps, len(codes)) if in_order else None,
            sequence=tuple(said.sequence),
            grounding=grounding,
            filled=self.checkpoint.family.filled,
        )


def _steps_of(steps: Any, frames: int, given: int | None) -> np.ndarray | None:
    """Which step behind `given` ones decided each code, -1 where none did; None: nobody knows."""
    if given is None or not isinstance(steps, CodeSteps):
        return None
    found = np.full((frames, len(steps.codebooks)), -1, np.int32)
    for index in range(max(0, given), steps.steps(frames)):
        step = steps.step(index, frames)
        if step.decisions:
            for cell in step.decided:
                found[cell] = index - given
    return found


def _number(name: str, given: Any) -> float:
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0 <= given < math.inf:
        raise OptionError(f"{name}: found {given!r}, expected a number, 0 or more")
    return float(given)


def codec_of(target: SpeechCheckpoint) -> Codec | None:
    """The codec of a checkpoint, checked against what its language model writes."""
    family, steps = target.family, target.steps
    model = family.codec(target)
    if model is None:
        return None
    signals = family.signals(target.model)
    codec = open_codec(model, len(family.books(steps)) // signals, signals)
    if isinstance(steps, CodeSteps):
        codec.check(steps)
    return codec

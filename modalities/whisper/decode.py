"""Decoding a recording with Whisper, window by window, the way transformers' `generate` does.

When a window's tokens end with a pair of times, speech goes on behind it: the next window begins
there. So with timestamps even a short recording may take several windows ("goes").
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from mmspec.clock import Clock
from mmspec.engine import Sampling, Scores, Steps, run_alone, stepwise
from mmspec.engine.stats import RequestStats
from mmspec.factorizations import Segment
from mmspec.modalities.base.decoder import DecoderTarget
from mmspec.modalities.whisper.checkpoint import Whisper
from mmspec.modalities.whisper.ctc_draft import encoder_layer
from mmspec.modalities.whisper.draft import ModelDraft, Window
from mmspec.modalities.whisper.fallback import (
    STEADY,
    Likelihood,
    Verdict,
    no_speech_probability,
)
from mmspec.modalities.whisper.features import window_of
from mmspec.modalities.whisper.hypothesis_cursor import HypothesisCursor
from mmspec.modalities.whisper.prompting import Prompting
from mmspec.modalities.whisper.request import TranscriptionRequest
from mmspec.modalities.whisper.result import Transcription, with_texts
from mmspec.modalities.whisper.settings import Settings
from mmspec.modalities.whisper.stable_tokens import StableTokens
from mmspec.modalities.whisper.window import Encoding, WhisperSpeculativeDecoder, read_prompt
from mmspec.proposals import SameVocabulary
from mmspec.report.trace import Origin

SecondLook = Callable[
    [DecoderTarget, Sequence[int], Tensor, Sequence[int], float, int], Steps[None] | None
]
"""Called behind a window as `(target, prompt, states, ids, seek_s, frames)`: its open decoder, the
decoder's prompt, the encoder states, the ids that were kept, where the window starts and how many
mel frames of the recording it holds. May return steps, which are run."""


@dataclass(eq=False)
class _Attempt:
    """One window being decoded, perhaps several times.

    Attributes:
        window: the opened decoder, the prompt, and what a drafter may know.
        features: `[1, bins, frames of a window]`.
        first_row: the distribution behind the prompt `[1, V]`, raw.
        no_speech: probability that nobody speaks; 0 where it isn't asked for.
        limit: absolute length, prompt included, that no try exceeds.
    """

    window: Window
    features: Tensor
    first_row: Tensor
    no_speech: float
    limit: int


class Recognition:
    """One recording being decoded.

    Args:
        pair: the target and its kind of drafter.
        features: log-mel features `[1, bins, frames]` by checkpoint, of the whole recording;
            called once for the target and once for a drafter with ears of its own.
        request: what is wanted.
        duration_s: how long the recording is; behind it the last window holds silence.
        second_look: called at the end of every window, see `SecondLook`.
    """

    def __init__(
        self,
        pair: WhisperSpeculativeDecoder,
        features: Callable[[Whisper], Tensor],
        request: TranscriptionRequest,
        duration_s: float,
        second_look: SecondLook | None = None,
    ) -> None:
        self._pair, self.request, self.second_look = pair, request, second_look
        self._stats = RequestStats(Clock(pair.whisper.device))
        self.clock = self._stats.clock
        self._make_features, self._made = features, dict[int, Tensor]()
        self._duration_s = duration_s
        self._settings = Settings(pair.whisper, request)
        self.whisper, self._fallback = self._settings.whisper, self._settings.fallback
        self._samplings = self._read_samplings()
        self._tries, self._sampled, self._silent = 0, False, False
        self._expected = HypothesisCursor.of(request.hypothesis, self.whisper)
        self._conditioned = bool(request.condition_on_prev_tokens)  # a config's: from window 2 on
        self._timestamps = False
        self._prompting: Prompting | None = None
        self._stable: list[int] = []
        self.segments: list[Segment] = []
        self.origins: list[Origin] = []

    def _read_samplings(self) -> list[Sampling]:
        """How tokens are drawn at each temperature; the rule is for those that it can be meant for.

        Raises:
            OptionError: there are none.
        """
        request = self.request
        samples = [temperature > 0 for temperature in self._fallback.temperatures]
        ruled = all(samples) if request.rule == "greedy" else any(samples)
        return [
            Sampling(sample, request.seed, request.rule if sample == ruled else "auto")
            for sample in samples
        ]

    def run(self) -> Transcription:
        """Decode to the end."""
        run_alone(self.steps())
        return self.heard()

    def __iter__(self) -> Iterator[int]:
        """Ids of the transcript as they are certain, prompts and ends left out."""
        for _ in stepwise(self.steps()):
            yield from self._take_stable()
        yield from self._take_stable()

    def _take_stable(self) -> list[int]:
        certain = list(self._stable)
        self._stable.clear()
        return certain

    def _features(self, whisper: Whisper) -> Tensor:
        key = id(whisper.model)
        if key not in self._made:
            self._made[key] = self._make_features(whisper)
        return self._made[key]

    def steps(self) -> Steps[None]:
        """The decoding, as a request that leaves passes and encoder runs to whoever runs it."""
        with self.clock("encode"):
            features = self._features(self.whisper)
        total = features.shape[-1]
        self._timestamps = self._settings.timestamps(total)
        self._prompting = Prompting(
            self.whisper, self._settings.config, self.request, self._timestamps
        )
        seek = 0
        while seek < total:
            held = min(total - seek, self.whisper.window_frames)
            advance = yield from self._decode_window(self._prompting, seek, held)
            if advance < 1:
                break  # a pair of times at the very start: going on would never end
            seek += advance

    def _decode_window(self, prompting: Prompting, seek: int, held: int) -> Steps[int]:
        """One window from frame `seek` on, of which `held` are the recording's; frames done."""
        pair, stats, look = self._pair, self._stats, self.second_look
        rate = self.whisper.frames_per_second
        features = self._window_features(self.whisper, seek)
        encoding = Encoding(self.whisper, features, self.clock, encoder_layer(pair.draft))
        states = yield encoding
        stats.encoder_runs += 1
        with pair.target(states, stats) as target:
            attempt = yield from self._open(prompting, target, states, features, seek)
            attempt.window.middle_states = encoding.middle_states
            attempt.window.spoken_s = min(held / rate, self._duration_s - seek / rate)
            with self._streaming(attempt.window.prompt):
                heard, first_round = yield from self._decode(attempt)
                if heard is None:
                    return held
                with self.clock("post"):
                    segments, done_s = self.whisper.steps.split(heard.ids, seek / rate, held / rate)
                    kept = self._keep(heard, segments, first_round)
            if look is not None:
                spoken = min(held, math.ceil(self._duration_s * rate) - seek)
                with self.clock("post"):
                    looked = look(
                        target, attempt.window.prompt, states, heard.ids[:kept], seek / rate, spoken
                    )
                if looked is not None:
                    yield from looked
        return round(done_s * rate)

    def _keep(self, heard: StableTokens, segments: list[Segment], first_round: int) -> int:
        """Add a window's segments to the transcript; how many of its ids they are."""
        kept = sum(len(segment.ids) for segment in segments)
        self.segments += [self._within_recording(segment) for segment in segments]
        self.origins += self._stats.tally.origins(first_round)[:kept]
        self._expected.consume(heard.ids[:kept])
        heard.settle(kept)
        if self.request.streamer is not None and heard.end is not None:
            self.request.streamer.put(torch.tensor([heard.end]))
        return kept

    def _window_features(self, whisper: Whisper, seek: int) -> Tensor:
        """What a checkpoint hears from the target's frame `seek` on."""
        start = round(seek * whisper.frames_per_second / self.whisper.frames_per_second)
        return window_of(self._features(whisper), start, whisper.window_frames)

    def _within_recording(self, segment: Segment) -> Segment:
        """A segment lies in the recording, whatever times were said in the silence behind it."""
        start_s = min(segment.start_s, self._duration_s)
        end_s = max(start_s, min(segment.end_s, self._duration_s))
        return replace(segment, start_s=start_s, end_s=end_s)

    def _open(
        self,
        prompting: Prompting,
        target: DecoderTarget,
        states: Tensor,
        features: Tensor,
        seek: int,
    ) -> Steps[_Attempt]:
        """Let the target read the prompt."""
        opening = yield from prompting.opening(target, self.clock)
        previous = prompting.previous(self.segments, self._conditioned)
        prompt = (*previous, *opening)
        limit = self._settings.next_limit(len(prompt))
        asks = self._fallback.no_speech is not None
        if target.state.length and (previous or asks):
            target.state.commit(0)  # detection read the start mark where the previous text goes
        rows = yield from read_prompt(target, prompt, self._stats, len(opening) if asks else 1)
        no_timestamps, no_speech = self.whisper.steps.no_timestamps, 0.0
        if asks and no_timestamps is not None:
            no_speech = no_speech_probability(rows[0], no_timestamps)
        draft = self._pair.draft
        same = isinstance(draft, ModelDraft) and isinstance(draft.vocabulary, SameVocabulary)
        window = Window(
            target,
            prompt,
            states,
            lambda other: self._window_features(other, seek),
            lambda other: prompting.for_drafter(other, previous, same),
            self._expected.ahead(self._timestamps),
            self.clock,
        )
        return _Attempt(window, features, rows[-1:], no_speech, limit)

    def _decode(self, attempt: _Attempt) -> Steps[tuple[StableTokens | None, int]]:
        """Decode a window until a try is accepted: (what was heard, the try's first round).

        None is heard where nobody spoke.
        """
        fallback, vocab_size = self._fallback, self.whisper.model.config.vocab_size
        for temperature, sampling in zip(fallback.temperatures, self._samplings, strict=True):
            attempt.window.target.state.commit(len(attempt.window.prompt))
            first_round = len(self._stats.tally.trace)
            heard, logprob = yield from self._try(attempt, temperature, sampling)
            self._conditioned = self._settings.conditions and temperature < STEADY
            verdict = fallback.judge(heard.emitted, logprob, attempt.no_speech, vocab_size)
            if verdict is not Verdict.AGAIN:
                break
        self._silent |= verdict is Verdict.SILENCE
        return (None if verdict is Verdict.SILENCE else heard), first_round

    def _try(
        self, attempt: _Attempt, temperature: float, sampling: Sampling
    ) -> Steps[tuple[StableTokens, float]]:
        """Decode a window at one temperature: (tokens, their mean log-probability)."""
        settings, fallback, prompt = self._settings, self._fallback, attempt.window.prompt
        processors, stops = settings.rules(
            len(prompt), attempt.limit, temperature, attempt.features, self._timestamps
        )
        scores = None if fallback.logprob is None else Scores([], [])
        likelihood = Likelihood(temperature)
        heard = StableTokens(
            self.whisper.steps,
            settings.ends,
            self._say,
            fallback.may_reject,
            settings.config.pad_token_id,
        )
        with self._pair.session(
            attempt.window,
            attempt.first_row,
            self._stats,
            processors=processors,
            stops=stops,
            sampling=sampling.of_part(0, self._tries),
            scores=scores,
        ) as session:
            while session.finish_reason is None:
                tokens = yield from session.steps()
                heard.add(tokens)
                if scores is not None:
                    likelihood.add(scores.processed[-len(tokens) :], tokens)
                    scores.raw.clear()
                    if not self.request.stopping_criteria:  # they may look at all of them
                        scores.processed.clear()
        heard.close()
        self._tries += 1
        self._sampled |= sampling.sample
        return heard, likelihood.mean

    @contextmanager
    def _streaming(self, prompt: Sequence[int]) -> Iterator[None]:
        """A window as streamers know it: the prompt, ids, the end."""
        streamer = self.request.streamer
        if streamer is not None:
            streamer.put(torch.tensor([list(prompt)]))
        yield
        if streamer is not None:
            streamer.end()

    def _say(self, token: int) -> None:
        """A token is certain to stay."""
        self._stable.append(token)
        if self.request.streamer is not None:
            self.request.streamer.put(torch.tensor([token]))

    def heard(self) -> Transcription:
        """The outcome, once the iteration is over."""
        with self.clock("post"):
            ids, text, segments = with_texts(self.whisper, self.segments)
        if not text:
            self._stats.note(
                "nothing was said: every window was taken for silence (no_speech_threshold)"
                if self._silent
                else "nothing was said: the target ended its output before any text"
            )
        return Transcription(
            text=text,
            ids=ids,
            segments=segments,
            language=None if self._prompting is None else self._prompting.language,
            report=self._stats.report(Sampling(self._sampled, self.request.seed), self._pair.costs),
            origins=tuple(self.origins),
            trace=tuple(self._stats.tally.trace),
        )

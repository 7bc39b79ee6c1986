"""Speech as it comes: decode a growing buffer again and again, commit what stays the same.

Whenever a step of new audio has come the whole buffer is decoded again, drafted with what was heard
in it before, so that most of a decode is one or two passes. Words that two decodes in a row agree
on are committed; where a committed segment ends the buffer is cut, so that it never exceeds the
encoder's window.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any

import numpy as np
from torch import Tensor
from transformers.models.whisper.tokenization_whisper import LANGUAGES

from mmspec.compat import words_of_tokens
from mmspec.engine import run_alone
from mmspec.errors import OptionError
from mmspec.factorizations.whisper import TIMESTAMP_STEP_S
from mmspec.modalities.base.options import check_numbers
from mmspec.modalities.media.audio_buffer import AudioBuffer
from mmspec.modalities.whisper.buffer_result import StreamSegment, said
from mmspec.modalities.whisper.checkpoint import SAMPLING_RATE, Whisper
from mmspec.modalities.whisper.decode import Recognition
from mmspec.modalities.whisper.local_agreement import HeardWord, LocalAgreement
from mmspec.modalities.whisper.no_speech import no_speech_token, with_no_speech_row
from mmspec.modalities.whisper.request import TranscriptionRequest
from mmspec.modalities.whisper.stream_record import (
    Decode,
    Spoken,
    StreamTotals,
    Update,
    joined,
    stretches,
)
from mmspec.modalities.whisper.window import WhisperSpeculativeDecoder

GRID = round(TIMESTAMP_STEP_S * SAMPLING_RATE)
"""Samples between two times that the model can name: buffers start on this grid."""

KEPT_S = 1.0
"""Seconds that are kept of a buffer in which nobody spoke: somebody may have begun to."""

QUIET = 5
"""Steps of the grid in a row that make a quiet moment."""

AT_EDGE_S = 0.1
"""A segment that ends so near the buffer's end was ended by it."""


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """How a stream is heard.

    Attributes:
        step_s: seconds of new audio that are worth a decode.
        trim_s: the buffer is cut at a committed segment's end once it is so long; None: half a
            window. The encoder takes as long for a short buffer, and a long one is heard better.
        condition_on_committed: show the decoder the committed text from before the buffer.
        no_speech_threshold: a buffer in which nobody speaks with a higher probability holds no
            words, whatever was decoded; None: words are words.
    """

    step_s: float = 1.0
    trim_s: float | None = None
    condition_on_committed: bool = True
    no_speech_threshold: float | None = 0.6

    def check(self, window_s: float) -> None:
        """Raise where a value can't be meant.

        Raises:
            OptionError: names the option.
        """
        check_numbers(self)
        if not 0 < self.step_s < math.inf:
            raise OptionError(f"step_s: found {self.step_s!r}, expected seconds above 0")
        if self.trim_s is not None and not 0 < self.trim_s <= window_s:
            raise OptionError(
                f"trim_s: found {self.trim_s!r}, expected seconds above 0, up to one window "
                f"({window_s:g})"
            )


class SpeechStream:
    """One stream of speech being recognised. Use it with `with`, or `close()` it.

    Args:
        pair: the target with a drafter; a hypothesis drafter gets what was heard last.
        request: what is wanted of every decode; its `prompt` is what came before the stream.
        options: how it is heard.

    Raises:
        OptionError: an option that can't be meant, or a target without its processor.
    """

    def __init__(
        self, pair: WhisperSpeculativeDecoder, request: TranscriptionRequest, options: StreamOptions
    ) -> None:
        whisper = pair.whisper
        if whisper.processor is None:
            raise OptionError(
                "a model object comes without the processor that turns audio into features: give "
                "its processor= too"
            )
        options.check(whisper.window_s)
        self._pair, self._request, self._options = pair, request, options
        self._whisper, self._steps = whisper, whisper.steps
        self._window = round(whisper.window_s * SAMPLING_RATE)
        trim_s = whisper.window_s / 2 if options.trim_s is None else options.trim_s
        self._trim = round(trim_s * SAMPLING_RATE)
        self._step = max(1, round(options.step_s * SAMPLING_RATE))
        self._no_speech_token = no_speech_token(whisper)
        self._has_previous = whisper.steps.previous_text is not None
        self._audio = AudioBuffer(SAMPLING_RATE)
        self._until = self._heard_before = 0  # how far the last decode heard, and the one before
        self._agreement = LocalAgreement()
        self._last: list[StreamSegment] = []  # what the last decode heard in the buffer
        self._text = ""
        self._spoken: list[Spoken] = []
        self._again_s = 0.0
        self._updates: list[Update] = []
        self._over: str | None = None
        self.totals = StreamTotals()
        self.language: str | None = None  # of the last decode

    @property
    def text(self) -> str:
        """What was committed so far."""
        return self._text

    @property
    def segments(self) -> tuple[Spoken, ...]:
        """What was committed so far, with times."""
        return joined(self._spoken, self._until / SAMPLING_RATE)

    def feed(self, samples: Any, sampling_rate: int | None = None) -> list[Update]:
        """Take a chunk of audio of any size; decode where a step of new audio has come.

        Returns when that is done. A chunk of several steps is decoded at once, as far as it fits
        into a window.

        Args:
            samples: `[n]`, NumPy or torch, floats or integers; channels are mixed down.
            sampling_rate: Hz, the same for all chunks; None: as before, at first 16,000.

        Raises:
            InputError: samples that can't be used; nothing of them was taken, the stream goes on.
            OptionError: the stream is over.
        """
        self._check_open()
        self._audio.add(samples, sampling_rate)
        while self._audio.end - self._until >= self._step:
            self._advance()
        return self._take_updates()

    def finish(self) -> Update:
        """Nothing more comes: decode what is left and commit all of it.

        Raises:
            OptionError: the stream is over.
        """
        self._check_open()
        self._audio.finish()
        while self._audio.end > self._until:
            self._advance()
        self._update(self._agreement.force())
        self._end("finished")
        return replace(functools.reduce(Update.then, self._take_updates()), final=True)

    def run(self, chunks: Iterable[Any], sampling_rate: int | None = None) -> Iterator[Update]:
        """Feed all chunks, finish; updates as they come. The stream is closed however it ends."""
        with self:
            for chunk in chunks:
                yield from self.feed(chunk, sampling_rate)
            yield self.finish()

    def close(self) -> None:
        """Let go of the audio. What was committed stays; nothing else is decoded."""
        if self._over is None:
            self._end("closed")

    def __enter__(self) -> SpeechStream:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _check_open(self) -> None:
        if self._over is not None:
            raise OptionError(f"this stream is {self._over}: start a new one")

    def _end(self, how: str) -> None:
        self._over = how
        self._audio = AudioBuffer(SAMPLING_RATE)
        self._last = []

    def _take_updates(self) -> list[Update]:
        """What wasn't handed out yet: a decode that raises loses no update before it."""
        updates, self._updates = self._updates, []
        return updates

    def _advance(self) -> None:
        """Hear what has come since, as far as it fits into the window."""
        if self._until - self._audio.start >= self._window:
            self._make_room()
        until = min(self._audio.end, self._audio.start + self._window)
        words, decode = self._decode(until)
        spoke = bool(words or self._agreement.tentative)
        new = self._agreement.hear(words)
        self._heard_before, self._until = self._until, until
        self._update(new, decode)
        if until - self._audio.start >= self._trim:
            self._cut_behind_committed(spoke)

    def _cut_behind_committed(self, spoke: bool) -> None:
        """Cut the buffer at the last end of a committed segment that two decodes have heard.

        Where nobody spoke in either of them, only its end is kept.
        """
        if not spoke:
            self._let_go(self._until - round(KEPT_S * SAMPLING_RATE), 0)
            return
        words = self._agreement.words[: self._agreement.settled]
        if count := self._ends_before(words, self._heard_before):
            self._let_go(self._sample(words[count - 1].end_s), count)

    def _ends_before(self, words: Sequence[HeardWord], latest: int) -> int:
        """How many of the words lie before the last segment's end up to a sample."""
        ends = (self._sample(word.end_s) for word in words)
        over = [self._audio.start + GRID <= end <= latest for end in ends]
        return len(over) - over[::-1].index(True) if True in over else 0

    def _sample(self, time_s: float | None) -> int:
        """The sample of a time in the stream; what isn't known is never in the buffer."""
        return -1 if time_s is None else round(time_s * SAMPLING_RATE)

    def _let_go(self, start: int, count: int) -> None:
        """Cut the buffer; so many words of the last hypothesis lie before the cut."""
        start = self._audio.start + (start - self._audio.start) // GRID * GRID
        if start > self._audio.start:
            self._agreement.leave_behind(count)
            self._audio.let_go(start)
            start_s = start / SAMPLING_RATE
            self._last = [part for part in self._last if part.goes_beyond(start_s)]

    def _make_room(self) -> None:
        """The window is full and nothing committed could be cut off: commit more, and cut there.

        Up to the last segment that is over; where there is none, up to the quietest moment near the
        window's end, for which the buffer is decoded once more.
        """
        words = self._agreement.words
        count = self._ends_before(words, self._until - round(AT_EDGE_S * SAMPLING_RATE))
        if count:
            self._update(self._agreement.force(count))
            self._let_go(self._sample(words[count - 1].end_s), count)
            return
        quiet = self._quietest()
        heard, decode = self._decode(quiet)
        self._update(self._agreement.hear(heard) + self._agreement.force(), decode)
        self._let_go(quiet, len(heard))

    def _quietest(self) -> int:
        """Where the last quarter of a full window is quietest, on the grid of times."""
        start = self._audio.start + self._window * 3 // 4 // GRID * GRID
        frames = self._audio.between(start, self._until)
        frames = frames[: len(frames) // GRID * GRID].reshape(-1, GRID)
        loudness = np.convolve(np.square(frames).mean(axis=1), np.ones(QUIET), mode="valid")
        return start + GRID * (int(loudness.argmin()) + QUIET // 2)

    def _decode(self, until: int) -> tuple[list[HeardWord], Decode]:
        """Hear the buffer up to a sample: its words, and how."""
        start = self._audio.start
        samples = self._audio.between(start, until)
        start_s, end_s = start / SAMPLING_RATE, until / SAMPLING_RATE
        expected, previous = self._expected(until), self._previous()
        request = replace(self._request, prompt=previous, hypothesis=expected)

        def features(whisper: Whisper) -> Tensor:
            if whisper.processor is None:  # a drafting model object: it hears as the target does
                whisper = replace(whisper, processor=self._whisper.processor)
            return whisper.features(samples)

        recognition = Recognition(self._pair, features, request, len(samples) / SAMPLING_RATE)
        chances: list[float] = []
        run_alone(
            with_no_speech_row(
                recognition.steps(), self._steps.start, self._no_speech_token, chances
            )
        )
        heard = recognition.heard()
        no_speech = chances[0] if chances else None
        decode = Decode(
            start_s,
            end_s,
            previous,
            tuple(expected),
            heard.ids,
            heard.language,
            no_speech,
            heard.report,
        )
        before_s = self._until / SAMPLING_RATE
        self.totals = self.totals.with_decode(decode, before_s, self._again_s)
        self._again_s = max(self._again_s, min(before_s, end_s))
        self._last, self.language = list(said(self._steps, heard, start_s)), heard.language
        threshold = self._options.no_speech_threshold
        if no_speech is not None and threshold is not None and no_speech > threshold:
            return [], decode
        return list(self._words(heard.language, end_s)), decode

    def _words(self, language: str | None, end_s: float) -> Iterator[HeardWord]:
        """The words of the last decode. What starts behind the audio was heard in its padding."""
        tokenizer = self._whisper.processor.tokenizer
        name = LANGUAGES.get(language or "en", "english")
        for part in self._last:
            if part.start_s is not None and part.start_s >= end_s:
                continue
            spelled = words_of_tokens(tokenizer, list(part.text_ids), name)
            for number, (text, places) in enumerate(spelled):
                first, last = number == 0, number == len(spelled) - 1
                yield HeardWord(
                    text,
                    tuple(part.text_ids[place] for place in places),
                    part.start_s if first else None,
                    min(part.end_s, end_s) if last and part.end_s is not None else None,
                )

    def _expected(self, until: int) -> list[int]:
        """What was heard in this buffer last time, as the tokens of a decode from its start."""
        start_s, rate = self._audio.start / SAMPLING_RATE, SAMPLING_RATE
        tokens: list[int] = []
        for part in self._last:
            end_s = part.end_s
            if end_s is not None and end_s >= self._until / rate - AT_EDGE_S:
                end_s = until / rate  # it ended where the buffer did: so it will again
            tokens += self._time(part.start_s, start_s)
            tokens += part.text_ids
            tokens += self._time(end_s, start_s)
        return [*tokens, *sorted(self._steps.stop_tokens)[:1]] if tokens else []

    def _time(self, time_s: float | None, start_s: float) -> list[int]:
        """The token of a time in the buffer, none where it isn't known."""
        if time_s is None:
            return []
        last = round(self._whisper.window_s / TIMESTAMP_STEP_S)
        step = min(max(0, round((time_s - start_s) / TIMESTAMP_STEP_S)), last)
        return [self._steps.timestamp_begin + step]

    def _previous(self) -> str | None:
        """The prompt: the end of what was committed before the buffer, a quarter of the context."""
        asked, behind = self._request.prompt, self._agreement.behind
        if not (behind and self._options.condition_on_committed) or not self._has_previous:
            return asked
        most = self._steps.context // 4
        words = [*(asked or "").split(), *("".join(w.text for w in behind[-most:]).split())]
        while words:
            try:
                if len(self._whisper.previous_tokens(" ".join(words))) <= most:
                    return " ".join(words)
            except OptionError:  # the model spelled out a mark that only a decoder may set
                return asked
            words = words[max(1, len(words) // 8) :]
        return None

    def _update(self, words: Sequence[HeardWord], *decodes: Decode) -> None:
        """Write down what was committed."""
        new = "".join(word.text for word in words)
        if not self._text:
            new = new.lstrip()
        self._text += new
        spoken = tuple(stretches(words))
        self._spoken += spoken
        tentative = "".join(word.text for word in self._agreement.tentative)
        heard_s = self._until / SAMPLING_RATE
        self._updates.append(Update(new, self._text, tentative, spoken, heard_s, decodes))

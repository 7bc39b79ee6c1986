"""`Transcriber`: a recogniser that is loaded once and used for many recordings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any, ClassVar, Unpack

from mmspec.drafting import policy_for
from mmspec.engine import BlockCosts, Steps, run_alone
from mmspec.errors import OptionError
from mmspec.modalities.base.drafts import HypothesisDraft
from mmspec.modalities.base.speculative_decoder import Draft, NoDraft
from mmspec.modalities.whisper.checkpoint import SAMPLING_RATE, Whisper
from mmspec.modalities.whisper.chunks import ChunkedRecognition, Chunking, OverlapDraft
from mmspec.modalities.whisper.decode import Recognition
from mmspec.modalities.whisper.draft import ModelDraft
from mmspec.modalities.whisper.grounding import Silence
from mmspec.modalities.whisper.request import TranscriptionOptions, TranscriptionRequest
from mmspec.modalities.whisper.result import Transcription, with_grounding, with_times
from mmspec.modalities.whisper.second_pass import SecondPass
from mmspec.modalities.whisper.stream import SpeechStream, StreamOptions
from mmspec.modalities.whisper.stream_draft import StreamDraft
from mmspec.modalities.whisper.window import WhisperSpeculativeDecoder
from mmspec.modalities.whisper.words import within_segments
from mmspec.report.grounding import Grounding, threshold_of
from mmspec.tasks.base import Loaded, check_batch

ASKED_NOTHING = TranscriptionRequest()
"""All is as the checkpoint says, greedy."""


class Transcriber(Loaded[Whisper, TranscriptionRequest, Transcription]):
    """A recogniser: a target, a kind of drafter, and what was learned about their costs.

    Made by `mmspec.load`. Use it with `with`, or `close()` it.
    """

    task: ClassVar[str] = "asr"
    _pair: WhisperSpeculativeDecoder

    def __init__(self, target: Whisper, draft: Draft, gamma: int | str) -> None:
        costs = BlockCosts()
        super().__init__(WhisperSpeculativeDecoder(target, draft, policy_for(gamma, costs), costs))
        self._gamma = gamma
        self._silence = Silence(target)

    @property
    def drafter_model(self) -> Any:
        """The drafting model, None where the drafter is no model of its own."""
        return self.draft.drafter.model if isinstance(self.draft, ModelDraft) else None

    @property
    def drafter_processor(self) -> Any:
        """The drafting model's processor, None where there is none."""
        return self.draft.drafter.processor if isinstance(self.draft, ModelDraft) else None

    @property
    def shares_encoder(self) -> bool:
        """Whether a drafting model listens through the target's encoder (proven equal)."""
        return isinstance(self.draft, ModelDraft) and self.draft.shares_encoder

    def transcribe(
        self,
        audio: Any,
        request: TranscriptionRequest = ASKED_NOTHING,
        *,
        sampling_rate: int | None = None,
        **options: Unpack[TranscriptionOptions],
    ) -> Transcription:
        """Transcribe a recording of any length, window by window (30 s for released checkpoints).

        Args:
            audio: a path, or samples as a NumPy or torch array (then with `sampling_rate`).
            request: what is wanted, where it is said once for many recordings.
            sampling_rate: samples per second of an array.
            **options: the attributes of `TranscriptionRequest`: `language`, `task`, `timestamps`,
                `prompt`, `hypothesis` (what is expected to be heard), `temperature` (0 takes the
                likeliest token; above 0 samples; several are tried in turn where a window misses a
                threshold), `seed`, `condition_on_prev_tokens`, `prompt_condition_type`,
                `compression_ratio_threshold`, `logprob_threshold`, `no_speech_threshold`,
                `max_new_tokens`, `chunk_s`, `overlap_s`, `batch`, `word_timestamps`, `grounding`,
                `streamer`, `generation_config`, `logits_processor`, `stopping_criteria`; and
                further options of transformers' `generate` (`repetition_penalty=1.2`).

        Raises:
            MMSpecError: an input or option that can't be used, in one line.
        """
        given, request = self.asked(audio, request, sampling_rate, **options)
        return run_alone(self.run_request(self._pair, given, request))

    def transcribe_batch(
        self, audios: Iterable[Any], *, batch: int = 8, **options: Any
    ) -> list[Transcription]:
        """Transcribe several recordings side by side; each is what `transcribe` makes of it.

        Recordings may be of any length. They share forward passes and encoder runs, each at its
        own pace; one that is done makes room for the next.

        Args:
            audios: as `transcribe` takes them, read when their turn comes.
            batch: how many are decoded at a time.
            **options: as `transcribe` takes them, for all alike. A seed is the same for each.

        Raises:
            MMSpecError: the first recording that failed, once the others are done.
        """
        requests = ({"audio": audio, **options} for audio in audios)
        return self._all(requests, batch)

    def asked(
        self,
        audio: Any,
        request: TranscriptionRequest = ASKED_NOTHING,
        sampling_rate: int | None = None,
        **options: Any,
    ) -> tuple[Any, TranscriptionRequest]:
        """The arguments of `transcribe` as (audio and sampling rate, request)."""
        return (audio, sampling_rate), request.having(options)

    def check_among_others(self, request: TranscriptionRequest) -> None:
        """Raise where recordings side by side would mix in one streamer.

        Raises:
            OptionError: they would.
        """
        if request.streamer is not None:
            raise OptionError("streamer: recordings side by side have none, use transcribe")

    def prepare(
        self, pair: WhisperSpeculativeDecoder, given: Any, request: TranscriptionRequest
    ) -> Recognition | ChunkedRecognition:
        """A recording with what is done window by window, or chunk by chunk."""
        look = self._second_look(request.word_timestamps, threshold_of(request.grounding))
        check_batch(request.batch)
        if request.chunk_s is not None or request.overlap_s is not None:
            return self._in_chunks(pair, given, request, look)
        if request.batch > 1:
            raise OptionError(
                f"batch {request.batch}: a recording is decoded window after window; give "
                "chunk_s, or several recordings to transcribe_batch"
            )
        return self._recognition(pair, given, request, look)

    def decode(self, prepared: Recognition | ChunkedRecognition) -> Steps[Transcription]:
        """Windows one after the other; chunks side by side where that was asked for."""
        if isinstance(prepared, ChunkedRecognition) and prepared.request.batch > 1:
            return prepared.run_batched(prepared.request.batch)
        yield from prepared.steps()
        return prepared.heard()

    def result(
        self,
        given: Any,
        request: TranscriptionRequest,
        prepared: Recognition | ChunkedRecognition,
        decoded: Transcription,
    ) -> Transcription:
        """The transcription, with times and grounding where they were asked for."""
        looked: Any = prepared.second_look if isinstance(prepared, Recognition) else prepared
        if request.word_timestamps:
            is_time = self.checkpoint.steps.is_timestamp
            spans = within_segments(decoded.segments, looked.spans, is_time)
            decoded = with_times(decoded, self.checkpoint, spans)
        if (threshold := threshold_of(request.grounding)) is not None:
            decoded = with_grounding(decoded, Grounding(threshold, tuple(looked.drops)))
        return decoded

    def stream(
        self,
        audio: Any,
        *,
        sampling_rate: int | None = None,
        **options: Unpack[TranscriptionOptions],
    ) -> Iterator[str]:
        """Transcribe, yielding text as it is committed; nothing is ever taken back.

        Takes the arguments of `transcribe`, but for the streamer and what needs all of the text.

        Raises:
            MMSpecError: an input or option that can't be used, in one line.
        """
        from mmspec.streaming import TextPieces

        given, request = self.asked(audio, sampling_rate=sampling_rate, **options)
        request.check_in_sequence("a stream of text")
        pieces = TextPieces(self.processor.tokenizer, self.checkpoint.steps.timestamp_begin)
        recognition = self._recognition(self._pair, given, request)
        for token in recognition:
            yield from pieces.add(token)
        yield from pieces.end()

    def live(
        self,
        *,
        step_s: float = 1.0,
        trim_s: float | None = None,
        condition_on_committed: bool = True,
        no_speech_threshold: float | None = 0.6,
        timestamps: bool | None = None,
        **options: Any,
    ) -> SpeechStream:
        """A stream that is fed with audio as it comes; any number of them may be open.

        A decode is drafted with the one before it, unless this transcriber has a drafter that
        needs no hypothesis.

        Args:
            step_s: seconds of new audio that are worth a decode.
            trim_s: see `StreamOptions`.
            condition_on_committed: show the decoder the committed text from before the buffer.
            no_speech_threshold: see `StreamOptions`.
            timestamps: needed to cut the buffer between segments; None: where the model has them.
            **options: as `transcribe` takes them: `language`, `task`, `prompt`, `temperature`, ...

        Raises:
            OptionError: an option that can't work.
        """
        self.check_open()
        for name in ("hypothesis", "streamer"):
            if name in options:
                raise OptionError(f"{name}: a stream has its own, leave it out")
        steps = self.checkpoint.steps
        if timestamps is None:
            timestamps = steps.no_timestamps is not None
        pair, itself = self._pair, isinstance(self.draft, NoDraft | HypothesisDraft | OverlapDraft)
        draft = StreamDraft(self.checkpoint) if itself else self.draft
        pair = WhisperSpeculativeDecoder(
            self.checkpoint, draft, policy_for(self._gamma, pair.costs), pair.costs
        )
        heard = StreamOptions(step_s, trim_s, condition_on_committed, no_speech_threshold)
        request = ASKED_NOTHING.having({"timestamps": timestamps, **options})
        request.check_in_sequence("a stream")
        return SpeechStream(pair, request, heard)

    def _recognition(
        self,
        pair: WhisperSpeculativeDecoder,
        given: Any,
        request: TranscriptionRequest,
        look: SecondPass | None = None,
    ) -> Recognition:
        if isinstance(self.draft, OverlapDraft):
            raise OptionError(
                "draft 'overlap' drafts a chunk from the one before it: give chunk_s, or another "
                "draft"
            )
        samples = self._samples(given, request)
        seconds = len(samples) / SAMPLING_RATE
        return Recognition(pair, self._hear(samples), request, seconds, look)

    def _in_chunks(
        self,
        pair: WhisperSpeculativeDecoder,
        given: Any,
        request: TranscriptionRequest,
        look: SecondPass | None,
    ) -> ChunkedRecognition:
        chunk_s, overlap_s = request.chunk_s, request.overlap_s
        if chunk_s is None:
            raise OptionError(f"overlap_s {overlap_s}: only chunks overlap, give chunk_s too")
        if request.streamer is not None:
            raise OptionError(
                "chunks can't be streamed: what is said in an overlap is settled only when the "
                "next chunk is decoded"
            )
        samples = self._samples(given, request)
        chunking = Chunking(chunk_s, overlap_s)
        return ChunkedRecognition(pair, self._hear, request, samples, chunking, look)

    def _samples(self, given: Any, request: TranscriptionRequest) -> Any:
        """The recording `[n]` at 16 kHz, once everything is there to decode it."""
        self.check_open()
        if isinstance(self.draft, HypothesisDraft) and request.hypothesis is None:
            raise OptionError("draft 'hypothesis' needs hypothesis= (a text or ids) for each audio")
        if self.processor is None:
            raise OptionError(
                "a model object comes without the processor that turns audio into features: give "
                "mmspec.load its processor= too, or call mmspec.generate(model, features)"
            )
        from mmspec.modalities.media.audio import load_audio

        return load_audio(*given)

    def _hear(self, samples: Any) -> Callable[[Whisper], Any]:
        """What makes a checkpoint's features of samples."""

        def features(whisper: Whisper) -> Any:
            if whisper.processor is None:  # a drafting model object: it hears as the target does
                whisper = replace(whisper, processor=self.processor)
            return whisper.features(samples)

        return features

    def _second_look(self, times: bool, threshold: float | None) -> SecondPass | None:
        if not times and threshold is None:
            return None
        silence = None if threshold is None else self._silence
        return SecondPass(self.checkpoint, times=times, silence=silence)

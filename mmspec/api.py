"""The Python face: `load` a recogniser, or `generate` with a model that is loaded already."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from types import TracebackType
from typing import Any

from mmspec.engine import AdaptivePolicy, BlockCosts, FixedPolicy, Policy
from mmspec.errors import MMSpecError, OptionError
from mmspec.grounding import Grounding, share_by_class, threshold_of
from mmspec.loading import DEFAULT_TARGET, load_whisper, resolve
from mmspec.modalities.stream_draft import StreamDraft
from mmspec.modalities.whisper import SAMPLING_RATE, Whisper
from mmspec.modalities.whisper_chunks import Chunk, ChunkedRecognition, Chunking, OverlapDraft
from mmspec.modalities.whisper_decode import Recognition
from mmspec.modalities.whisper_draft import (
    Draft,
    EarlyExitDraft,
    HypothesisDraft,
    ModelDraft,
    NgramDraft,
    NoDraft,
)
from mmspec.modalities.whisper_grounding import Silence
from mmspec.modalities.whisper_job import Heard, Job
from mmspec.modalities.whisper_rereading import Rereading
from mmspec.modalities.whisper_stream import SpeechStream, StreamOptions
from mmspec.modalities.whisper_window import Pair
from mmspec.modalities.whisper_words import Span, Word, within_segments, words_of
from mmspec.report import Report
from mmspec.trace import Origin, Round


@dataclass(frozen=True, slots=True)
class SpokenSegment:
    """A stretch of speech: when, what, and the tokens that say it.

    `words` are there where word timestamps were asked for.
    """

    start_s: float
    end_s: float
    text: str
    ids: tuple[int, ...]
    words: tuple[Word, ...] | None = None


@dataclass(frozen=True, slots=True)
class Transcription:
    """What was heard.

    Attributes:
        text: the transcript.
        ids: token ids as transformers' `generate` returns them (no prompt, no end mark).
        segments: with times where timestamps were asked for, else one over the whole audio.
        language: code of the given or detected language; None for English-only models.
        report: how it was obtained.
        origins: the same for each id: drafted and accepted, or the target's own.
        trace: every round of the run; an origin names its round.
        unit_times: when each id begins to be spoken, in seconds; None where word timestamps
            weren't asked for.
        grounding: what each id owes to the audio; None where that wasn't asked for.
        chunks: each chunk and its own ids, where the recording was decoded in chunks.
    """

    text: str
    ids: tuple[int, ...]
    segments: tuple[SpokenSegment, ...]
    language: str | None
    report: Report
    origins: tuple[Origin, ...]
    trace: tuple[Round, ...]
    unit_times: tuple[float, ...] | None = None
    grounding: Grounding | None = None
    chunks: tuple[Chunk, ...] = ()

    @property
    def words(self) -> tuple[Word, ...] | None:
        """All segments' words; None where word timestamps weren't asked for."""
        if self.unit_times is None:
            return None
        return tuple(word for segment in self.segments for word in segment.words or ())


class Transcriber:
    """A recogniser: a target, a kind of drafter, and what was learned about their costs.

    Made by `mmspec.load`. Use it with `with`, or `close()` it.
    """

    def __init__(self, target: Whisper, draft: Draft, gamma: int | str) -> None:
        costs = BlockCosts()
        self._target, self._draft, self._gamma = target, draft, gamma
        self._pair = Pair(target, draft, policy_for(gamma, costs), costs)
        self._silence = Silence(target)
        self._closed = False

    @property
    def model(self) -> Any:
        """The target, transformers' own object."""
        return self._target.model

    @property
    def processor(self) -> Any:
        """The target's processor."""
        return self._target.processor

    @property
    def descriptor(self) -> Any:
        """The target's factorization."""
        return self._target.steps

    @property
    def draft_name(self) -> str:
        """The kind of drafter, as in reports."""
        return self._draft.name

    @property
    def drafter_model(self) -> Any:
        """The drafting model, None where the drafter is no model of its own."""
        return self._draft.drafter.model if isinstance(self._draft, ModelDraft) else None

    @property
    def drafter_processor(self) -> Any:
        """The drafting model's processor, None where there is none."""
        return self._draft.drafter.processor if isinstance(self._draft, ModelDraft) else None

    @property
    def shares_encoder(self) -> bool:
        """Whether a drafting model listens through the target's encoder (proven equal)."""
        return isinstance(self._draft, ModelDraft) and self._draft.shares_encoder

    def transcribe(
        self,
        audio: Any,
        *,
        sampling_rate: int | None = None,
        language: str | None = None,
        task: str | None = None,
        timestamps: bool | None = None,
        prompt: str | None = None,
        hypothesis: str | Sequence[int] | None = None,
        temperature: float | Sequence[float] = 0.0,
        seed: int | None = None,
        condition_on_prev_tokens: bool | None = None,
        prompt_condition_type: str | None = None,
        compression_ratio_threshold: float | None = None,
        logprob_threshold: float | None = None,
        no_speech_threshold: float | None = None,
        max_new_tokens: int | None = None,
        chunk_s: float | None = None,
        overlap_s: float | None = None,
        word_timestamps: bool = False,
        grounding: bool | float = False,
        streamer: Any = None,
        generation_config: Any = None,
        logits_processor: Sequence[Any] | None = None,
        stopping_criteria: Sequence[Any] | None = None,
        **options: Any,
    ) -> Transcription:
        """Transcribe a recording of any length, window by window (30 s for released checkpoints).

        Args:
            audio: a path, or samples as a NumPy or torch array (then with `sampling_rate`).
            sampling_rate: samples per second of an array.
            language: name, code or token; None detects it.
            task: "transcribe" or "translate" (to English).
            timestamps: predict when it was said; always on beyond one window, but for chunks.
            prompt: text that came before, for spelling and style.
            hypothesis: what is expected to be heard, for the hypothesis drafter.
            temperature: 0 takes the likeliest token; above 0 samples. Several are tried in turn
                where a window's transcript misses a threshold.
            seed: makes sampling repeatable, whatever drafts.
            condition_on_prev_tokens: show each window what was heard before it.
            prompt_condition_type: where the prompt stands then: "first-segment", or
                "all-segments" to keep it before every window.
            compression_ratio_threshold: a transcript that compresses better is a loop.
            logprob_threshold: a transcript with a lower mean log-probability is a failure.
            no_speech_threshold: a window that is likelier silent, and fails, is skipped.
            max_new_tokens: emit at most so many per window.
            chunk_s: decode in chunks of so many seconds, each by itself, and merge them; None
                decodes in sequence.
            overlap_s: seconds that a chunk shares with the next; None is a sixth of a chunk.
            word_timestamps: find out when each word was spoken.
            grounding: find out which tokens rest on the audio: True, or the nats that a token's
                log-probability has to lose without it (True: 1).
            streamer: a transformers streamer, gets ids that are certain to stay.
            generation_config: as transformers' `generate` takes it.
            logits_processor: further processors, as transformers' `generate` takes them.
            stopping_criteria: further criteria, as transformers' `generate` takes them.
            **options: further generation options (`repetition_penalty=1.2`).

        Raises:
            MMSpecError: an input or option that can't be used, in one line.
        """
        threshold = threshold_of(grounding)
        look = self._second_look(word_timestamps, threshold)
        job = _job(
            language=language,
            task=task,
            timestamps=timestamps,
            prompt=prompt,
            hypothesis=hypothesis,
            temperature=temperature,
            seed=seed,
            condition_on_prev_tokens=condition_on_prev_tokens,
            prompt_condition_type=prompt_condition_type,
            compression_ratio_threshold=compression_ratio_threshold,
            logprob_threshold=logprob_threshold,
            no_speech_threshold=no_speech_threshold,
            max_new_tokens=max_new_tokens,
            streamer=streamer,
            generation_config=generation_config,
            logits_processor=logits_processor,
            stopping_criteria=stopping_criteria,
            second_look=look,
            **options,
        )
        looked: Rereading | ChunkedRecognition | None
        if chunk_s is None and overlap_s is None:
            heard, chunks, looked = self._recognition(audio, sampling_rate, job).run(), (), look
        else:
            looked = self._in_chunks(audio, sampling_rate, job, look, chunk_s, overlap_s)
            heard, chunks = looked.run(), looked.chunks
        said = replace(self._said(heard), chunks=chunks)
        if looked is not None and word_timestamps:
            said = self._with_times(said, within_segments(heard.segments, looked.spans))
        if looked is not None and threshold is not None:
            said = _with_grounding(said, Grounding(threshold, tuple(looked.drops)))
        return said

    def stream(self, audio: Any, **options: Any) -> Iterator[str]:
        """Transcribe, yielding text as it is committed; nothing is ever taken back.

        Takes the arguments of `transcribe`, but for the streamer.
        """
        from mmspec.streaming import TextPieces

        sampling_rate = options.pop("sampling_rate", None)
        pieces = TextPieces(self.processor.tokenizer, self._target.steps.timestamp_begin)
        recognition = self._recognition(audio, sampling_rate, _job(**options))
        for unit in recognition:
            yield from pieces.add(unit)
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
        self._check_open()
        for name in ("hypothesis", "streamer"):
            if name in options:
                raise OptionError(f"{name}: a stream has its own, leave it out")
        steps = self._target.steps
        if timestamps is None:
            timestamps = steps.no_timestamps is not None
        pair, itself = self._pair, isinstance(self._draft, NoDraft | HypothesisDraft | OverlapDraft)
        draft = StreamDraft(self._target) if itself else self._draft
        pair = Pair(self._target, draft, policy_for(self._gamma, pair.costs), pair.costs)
        heard = StreamOptions(step_s, trim_s, condition_on_committed, no_speech_threshold)
        return SpeechStream(pair, _job(timestamps=timestamps, **options), heard)

    def close(self) -> None:
        """Nothing is left behind on the models; the transcriber can't be used any more."""
        self._closed = True

    def __enter__(self) -> Transcriber:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _recognition(self, audio: Any, sampling_rate: int | None, job: Job) -> Recognition:
        if isinstance(self._draft, OverlapDraft):
            raise OptionError(
                "draft 'overlap' drafts a chunk from the one before it: give chunk_s, or another "
                "draft"
            )
        samples = self._samples(audio, sampling_rate, job)
        return Recognition(self._pair, self._hear(samples), job, len(samples) / SAMPLING_RATE)

    def _in_chunks(
        self,
        audio: Any,
        sampling_rate: int | None,
        job: Job,
        look: Rereading | None,
        chunk_s: float | None,
        overlap_s: float | None,
    ) -> ChunkedRecognition:
        if chunk_s is None:
            raise OptionError(f"overlap_s {overlap_s}: only chunks overlap, give chunk_s too")
        if job.streamer is not None:
            raise OptionError(
                "chunks can't be streamed: what is said in an overlap is settled only when the "
                "next chunk is decoded"
            )
        samples = self._samples(audio, sampling_rate, job)
        chunking = Chunking(chunk_s, overlap_s)
        return ChunkedRecognition(self._pair, self._hear, job, samples, chunking, look)

    def _samples(self, audio: Any, sampling_rate: int | None, job: Job) -> Any:
        """The recording `[n]` at 16 kHz, once everything is there to decode it."""
        self._check_open()
        if isinstance(self._draft, HypothesisDraft) and job.hypothesis is None:
            raise OptionError("draft 'hypothesis' needs hypothesis= (a text or ids) for each audio")
        if self.processor is None:
            raise OptionError(
                "a model object comes without the processor that turns audio into features: give "
                "mmspec.load its processor= too, or call mmspec.generate(model, features)"
            )
        from mmspec.modalities.audio import load_audio

        return load_audio(audio, sampling_rate)

    def _check_open(self) -> None:
        if self._closed:
            raise OptionError("this transcriber is closed: load a new one")

    def _hear(self, samples: Any) -> Callable[[Whisper], Any]:
        """What makes a checkpoint's features of samples."""

        def features(whisper: Whisper) -> Any:
            if whisper.processor is None:  # a drafting model object: it hears as the target does
                whisper = replace(whisper, processor=self.processor)
            return whisper.features(samples)

        return features

    def _said(self, heard: Heard) -> Transcription:
        segments = tuple(
            SpokenSegment(part.start_s, part.end_s, text, part.ids)
            for part, text in zip(heard.segments, heard.segment_texts, strict=True)
        )
        return Transcription(
            text=heard.text,
            ids=heard.ids,
            segments=segments,
            language=heard.language,
            report=heard.report,
            origins=heard.origins,
            trace=heard.trace,
        )

    def _second_look(self, times: bool, threshold: float | None) -> Rereading | None:
        if not times and threshold is None:
            return None
        silence = None if threshold is None else self._silence
        return Rereading(self._target, times=times, silence=silence)

    def _with_times(self, said: Transcription, spans: list[list[Span]]) -> Transcription:
        segments = [
            replace(part, words=words_of(self._target, part.ids, times, said.language))
            for part, times in zip(said.segments, spans, strict=True)
        ]
        starts = tuple(start_s for times in spans for start_s, _ in times)
        return replace(said, segments=tuple(segments), unit_times=starts)


def _with_grounding(said: Transcription, grounding: Grounding) -> Transcription:
    shares = share_by_class(grounding, said.origins)
    return replace(said, grounding=grounding, report=replace(said.report, by_class=shares))


JOB_FIELDS = frozenset(field.name for field in fields(Job))


def _job(
    *,
    prompt: str | None = None,
    max_new_tokens: int | None = None,
    generation_config: Any = None,
    logits_processor: Sequence[Any] | None = None,
    stopping_criteria: Sequence[Any] | None = None,
    **rest: Any,
) -> Job:
    """What `transcribe` and `stream` were asked for; what isn't a job's is a generation option."""
    options = {name: value for name, value in rest.items() if name not in JOB_FIELDS}
    if max_new_tokens is not None:
        options["max_new_tokens"] = max_new_tokens
    return Job(
        previous=prompt,
        config=generation_config,
        options=options,
        processors=logits_processor or (),
        criteria=stopping_criteria or (),
        **{name: value for name, value in rest.items() if name in JOB_FIELDS},
    )


def policy_for(gamma: int | str, costs: BlockCosts) -> Policy:
    """The policy that `gamma` names: "adaptive", or a number of units.

    Raises:
        OptionError: neither.
    """
    if gamma == "adaptive":
        return AdaptivePolicy(costs)
    try:
        return FixedPolicy(operator.index(gamma) if not isinstance(gamma, str) else int(gamma))
    except (TypeError, ValueError):
        raise OptionError(f"gamma must be 'adaptive' or a number ≥ 0, got {gamma!r}") from None


def load(
    target: Any = DEFAULT_TARGET,
    draft: Any = "none",
    *,
    device: str | None = None,
    dtype: Any = None,
    gamma: int | str = "adaptive",
    packed: bool = True,
    trust_remote_code: bool = False,
    processor: Any = None,
) -> Transcriber:
    """Load a recogniser.

    Args:
        target: a hub id, a local directory, "sample" (the small model that comes with mmspec),
            or a loaded `WhisperForConditionalGeneration` (then with its `processor`).
        draft: "none", "ngram", "hypothesis", "overlap" (for chunks), "early-exit:N", or a drafting
            model named as the target is.
        device: "cpu", "cuda", ...; None: CUDA where there is one.
        dtype: a torch dtype or its name; None: float32 on a CPU, float16 on CUDA.
        gamma: units drafted per round: a number, or "adaptive" (measured costs decide).
        packed: use packed linear layers on a CPU.
        trust_remote_code: let a checkpoint bring Python code of its own.
        processor: of a loaded model; a checkpoint that is named brings its own.

    Raises:
        MMSpecError: a model that can't be found or used, in one line.
    """
    try:
        whisper = load_whisper(target, device, dtype, packed, trust_remote_code, processor)
    except MMSpecError as error:
        raise type(error)(f"target: {error}") from None
    kind = draft_for(draft, whisper, trust_remote_code)
    return Transcriber(whisper, kind, gamma)


def draft_for(draft: Any, target: Whisper, trust_remote_code: bool) -> Draft:
    """The kind of drafter that a `draft` argument names.

    Raises:
        MMSpecError: says what was given and what is known.
    """
    if draft is None or draft == "none":
        return NoDraft()
    if draft == "ngram":
        return NgramDraft(target)
    if draft == "hypothesis":
        return HypothesisDraft(target)
    if draft == "overlap":
        return OverlapDraft(target)
    if isinstance(draft, str) and draft.startswith("early-exit"):
        _, _, layers = draft.partition(":")
        if not layers.isdecimal():
            raise OptionError(f"draft {draft!r}: expected early-exit:N, N a number of layers")
        return EarlyExitDraft(target, int(layers))
    try:
        name = resolve(draft, role="draft")
        device, dtype = str(target.device), target.model.dtype
        drafter = load_whisper(name, device, dtype, target.packed, trust_remote_code)
        label = Path(draft).name if isinstance(draft, str) else "model"
        return ModelDraft(target, drafter, label)
    except MMSpecError as error:
        raise type(error)(f"draft: {error}") from None

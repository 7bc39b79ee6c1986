"""What is wanted of a recording."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Self

from mmspec.errors import OptionError
from mmspec.modalities.base.options import FEW_TOKENS, GenerationOptions, Request, option

TASKS = ("transcribe", "translate")

THRESHOLDS = {
    "compression_ratio_threshold": 1.35,
    "logprob_threshold": -1.0,
    "no_speech_threshold": 0.6,
}
"""What temperature fallback usually goes with: Whisper's own; the ratio, which transformers takes
of token ids and not of the text, as transformers recommends it."""

WARMER, WARMEST = 0.2, 1.0
"""By how much the temperature rises from one try at a window to the next, and how far."""

AFTERWARDS = ("chunk_s", "overlap_s", "batch", "word_timestamps", "grounding")
"""What is done with a recording as a whole, beside decoding one window after the other."""


@dataclass(frozen=True)
class TranscriptionRequest(Request):
    """What is wanted of a recording. `None` leaves the choice to the checkpoint.

    Attributes:
        language: What is spoken: en, english, ...; detected where missing.
        task: transcribe, or translate (into English).
        timestamps: Predict when it was said; always so beyond one window, but for chunks.
        prompt: Text that came before, for names and style.
        temperature: 0 takes the likeliest token, above 0 samples. Several are tried in turn where
            a window's text misses a threshold.
        seed: Makes sampling repeatable, whatever drafts.
        condition_on_prev_tokens: Beyond one window: condition each one on the text before it.
            Steadier names and style; a loop may go on.
        no_speech_threshold: Skip a window that is likelier silent than this, if its text is
            unlikely too.
        max_new_tokens: Emit at most so many tokens (per window).
        chunk_s: Decode a long recording in chunks, each by itself, and merge their texts.
        overlap_s: What a chunk shares with the next one; a sixth of a chunk where missing.
        word_timestamps: Find out when each word was spoken.
        grounding: Find out which tokens rest on the audio: those whose log-probability falls by
            more than so much without it; 1 is a good start, and what True means.
        compression_ratio_threshold: A text whose ids compress better is a loop.
        logprob_threshold: A text with a lower mean log-probability is a failure.
        prompt_condition_type: Where the prompt stands with `condition_on_prev_tokens`:
            "first-segment", or "all-segments" to keep it before every window.
        hypothesis: What is expected to be heard in the whole recording, as text or as ids, for
            the hypothesis drafter.
        batch: How many chunks are decoded side by side.
        rule: Acceptance rule, "auto" for the fitting one.
    """

    untold = Request.untold | {"prompt_condition_type", "hypothesis", "rule"}

    language: str | None = option(None, short="-l", metavar="L")
    task: str | None = option(None, metavar="T")
    timestamps: bool | None = option(
        None,
        negative=True,
        help="Predict when it was said; srt and vtt do, and recordings beyond one window.",
    )
    prompt: str | None = option(None, metavar="TEXT")
    temperature: float | Sequence[float] | None = option(
        0.0,
        metavar="X",
        least=0,
        kind=float,
        help="0 takes the likeliest token, above 0 samples.",
    )
    seed: int | None = option(None, metavar="N")
    condition_on_prev_tokens: bool | None = option(None, name="--carry-text", negative=True)
    no_speech_threshold: float | None = option(
        None,
        name="--no-speech",
        metavar="P",
        least=0,
        most=1,
        help="Skip a window that is likelier silent than this, if its text is unlikely too; 0.6 "
        "with --fallback.",
    )
    max_new_tokens: int | None = option(None, metavar="N", least=1)
    chunk_s: float | None = option(None, name="--chunks", metavar="SECONDS")
    overlap_s: float | None = option(None, name="--overlap", metavar="SECONDS")
    word_timestamps: bool = option(
        False, help="Find out when each word was spoken: in vtt, srt and JSON."
    )
    grounding: bool | float | None = option(
        None,
        metavar="NATS",
        least=0,
        kind=float | None,
        help="Find out which tokens rest on the audio: those whose log-probability falls by more "
        "than so much without it; 1 is a good start.",
    )
    compression_ratio_threshold: float | None = None
    logprob_threshold: float | None = None
    prompt_condition_type: str | None = None
    hypothesis: str | Sequence[int] | None = None
    batch: int = 1
    rule: str = "auto"

    @property
    def generate_options(self) -> dict[str, Any]:
        """Generation options, as `generate` would take them."""
        limit = {} if self.max_new_tokens is None else {"max_new_tokens": self.max_new_tokens}
        return {**self.further, **limit}

    @property
    def with_fallback(self) -> Self:
        """The same, each window decoded again, warmer, where its text misses a threshold."""
        limits: dict[str, Any] = THRESHOLDS
        if self.no_speech_threshold is not None:
            limits = {**THRESHOLDS, "no_speech_threshold": self.no_speech_threshold}
        return replace(self, temperature=retries(self.first_temperature), **limits)

    def to_dict(self) -> dict[str, Any]:
        """What is wanted, as plain data; of chunks nothing where there are none."""
        chunks = ("chunk_s", "overlap_s", "batch") if self.chunk_s is None else ()
        found = super().to_dict()
        return {name: value for name, value in found.items() if name not in chunks}

    @property
    def first_temperature(self) -> float:
        """What every window is decoded at first."""
        several = self.temperature
        first = several[0] if isinstance(several, Sequence) else several
        return first or 0.0

    @property
    def few(self) -> Self:
        """The same, done after a few tokens."""
        return replace(self, max_new_tokens=FEW_TOKENS)

    @property
    def decoding(self) -> Self:
        """The same, decoded in sequence, and nothing else found out."""
        usual = (of for of in fields(self) if of.name in AFTERWARDS)
        defaults: dict[str, Any] = {of.name: of.default for of in usual}
        return replace(self, **defaults)

    def check_in_sequence(self, what: str) -> None:
        """Raise where more is wanted than one window after the other.

        Args:
            what: can't do it.

        Raises:
            OptionError: names the option.
        """
        for of in fields(self):
            if of.name in AFTERWARDS and getattr(self, of.name) not in (of.default, False):
                raise OptionError(f"{of.name}: needs a whole recording, and {what} has none yet")

    def for_generate(
        self, processor: Any, device: Any = "cpu", *, long: bool = False
    ) -> dict[str, Any]:
        """The same request as keyword arguments of transformers' `generate`.

        Args:
            processor: the target's.
            device: where the model is.
            long: the recording is longer than a window, so times have to be asked for.
        """
        options: dict[str, Any] = {
            "language": self.language,
            "task": self.task,
            "return_timestamps": True if long and self.timestamps is None else self.timestamps,
            "max_new_tokens": self.max_new_tokens,
            "condition_on_prev_tokens": self.condition_on_prev_tokens,
            "temperature": self.temperature,
            "compression_ratio_threshold": self.compression_ratio_threshold,
            "logprob_threshold": self.logprob_threshold,
            "no_speech_threshold": self.no_speech_threshold,
        }
        if self.prompt is not None:
            ids = processor.get_prompt_ids(self.prompt.strip(), return_tensors="pt")
            options["prompt_ids"] = ids.to(device)
        return {name: value for name, value in options.items() if value is not None}


def retries(temperature: float) -> tuple[float, ...]:
    """The temperatures that a window is tried at, as in Whisper's reference implementation.

    Example:
        >>> retries(0.0), retries(0.7), retries(1.5)
        ((0.0, 0.2, 0.4, 0.6, 0.8, 1.0), (0.7, 0.9), (1.5,))
    """
    further = max(0, int((WARMEST - temperature) / WARMER + 1e-6))
    return tuple(round(temperature + WARMER * step, 6) for step in range(further + 1))


class TranscriptionOptions(GenerationOptions, total=False):
    """The attributes of `TranscriptionRequest`, as keyword arguments."""

    language: str | None
    task: str | None
    timestamps: bool | None
    prompt: str | None
    temperature: float | Sequence[float] | None
    seed: int | None
    condition_on_prev_tokens: bool | None
    no_speech_threshold: float | None
    chunk_s: float | None
    overlap_s: float | None
    word_timestamps: bool
    grounding: bool | float | None
    compression_ratio_threshold: float | None
    logprob_threshold: float | None
    prompt_condition_type: str | None
    hypothesis: str | Sequence[int] | None
    batch: int
    rule: str

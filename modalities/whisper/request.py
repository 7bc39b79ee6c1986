"""What is wanted of a recording, and what comes out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from torch import Tensor

from mmspec.engine import Steps
from mmspec.factorizations import Segment
from mmspec.modalities.base.decoder import DecoderTarget
from mmspec.report.report import Report
from mmspec.report.trace import Origin, Round

SecondLook = Callable[
    [DecoderTarget, Sequence[int], Tensor, Sequence[int], float, int], Steps[None] | None
]
"""Called behind a window as `(target, prompt, states, ids, seek_s, frames)`: its open decoder, the
decoder's prompt, the encoder states, the ids that were kept, where the window starts and how many
mel frames of the recording it holds. May return steps, which are run."""


@dataclass(frozen=True)
class Job:
    """What is wanted of a recording.

    Attributes:
        language: name, code or token; None: as the checkpoint says, detected where it says nothing.
        task: "transcribe" or "translate"; None: as the checkpoint says.
        timestamps: predict times; None: as the checkpoint says, always beyond one window.
        previous: text that came before.
        hypothesis: what the caller expects to hear in the whole recording, as text or as ids.
        temperature: 0 is greedy; several are tried in turn where a threshold isn't met.
        seed: key of the noise when sampling.
        rule: acceptance rule, "auto" for the fitting one.
        condition_on_prev_tokens: show a window what was heard before it; None: as the config says.
        prompt_condition_type: "first-segment" or "all-segments", see `Prompting`.
        compression_ratio_threshold: see `Fallback`; None: as the config says.
        logprob_threshold: see `Fallback`; None: as the config says.
        no_speech_threshold: see `Fallback`; None: as the config says.
        config: a transformers `GenerationConfig`, as `generate` would take it.
        options: generation options, as `generate` would take them.
        processors: further logits processors.
        criteria: further stopping criteria.
        streamer: gets ids that are certain to stay.
        second_look: called at the end of every window, see `SecondLook`.
    """

    language: str | None = None
    task: str | None = None
    timestamps: bool | None = None
    previous: str | None = None
    hypothesis: str | Sequence[int] | None = None
    temperature: float | Sequence[float] | None = 0.0
    seed: int | None = None
    rule: str = "auto"
    condition_on_prev_tokens: bool | None = None
    prompt_condition_type: str | None = None
    compression_ratio_threshold: float | None = None
    logprob_threshold: float | None = None
    no_speech_threshold: float | None = None
    config: Any = None
    options: dict[str, Any] = field(default_factory=dict)
    processors: Sequence[Any] = ()
    criteria: Sequence[Any] = ()
    streamer: Any = None
    second_look: SecondLook | None = None


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


JOB_FIELDS = frozenset(field.name for field in fields(Job))


def job_of(
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

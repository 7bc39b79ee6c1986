"""`mmspec bench asr`: speech recognition by the benchmark contract."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from mmspec.bench import plan as shared
from mmspec.bench.cases import Case, load_cases, read_references, word_error_rate
from mmspec.bench.measured_run import Result, line_up, measured_run
from mmspec.bench.measuring import Say
from mmspec.compare.peers import Outcome, one_reason
from mmspec.drafting import draft_for
from mmspec.errors import OptionError
from mmspec.loading import load_whisper
from mmspec.modalities.whisper.request import TASKS, TranscriptionRequest
from mmspec.tasks.asr.faster_whisper import FasterWhisperPeer
from mmspec.tasks.asr.peers import TransformersPeer
from mmspec.tasks.asr.transcriber import Transcriber


@dataclass(frozen=True)
class Plan(shared.Plan):
    """Everything that is frozen before the run."""

    name: ClassVar[str] = "asr"

    request: TranscriptionRequest = field(default_factory=TranscriptionRequest)
    faster_whisper: Path | None = None
    faster_whisper_type: str = "float32"

    def check(self) -> None:
        """Raise where an option can't be meant.

        Raises:
            OptionError: names the option.
        """
        super().check()
        if self.request.task not in (None, *TASKS):
            raise OptionError(f"--task: found {self.request.task!r}, expected {' or '.join(TASKS)}")
        if self.request.first_temperature > 0:
            raise OptionError("bench asr: found sampling, expected greedy decoding")

    def settings(self, ours: Any) -> dict[str, Any]:
        """What stands in the result file."""
        return super().settings(ours) | {"request": self.request.to_dict()}


def run(plan: Plan, say: Say = lambda what, total: None) -> Result:
    """Load, measure, summarise.

    Raises:
        MMSpecError: an input, option or model that can't be used.
    """
    plan.begin()
    references = read_references(plan.reference, plan.files)
    cases = load_cases(plan.files, references, plan.hypotheses(), plan.request)
    say("loading models", 0)
    transcribers = _transcribers(plan)
    lined = line_up(plan, transcribers, further=_faster_whisper(plan))
    settings, hf = plan.settings(transcribers[0]), lined.field.hf
    if isinstance(hf, TransformersPeer):  # the decoder's prompt, as transformers builds it
        try:
            settings["prompt_tokens"] = len(hf.prompt(cases[0].subject, plan.request))
        except ValueError as error:  # a language that the target doesn't know, for one
            raise OptionError(one_reason(error)) from None
    return measured_run(plan, lined, cases, settings, {"word_error_rate": _wrong_words}, say)


def _transcribers(plan: Plan) -> list[Transcriber]:
    """One for each drafter, all with the same target."""
    code = plan.trust_remote_code
    whisper = load_whisper(plan.target, plan.device, plan.dtype, plan.packed, code)
    kinds = [plan.models(draft).draft_kind for draft in plan.drafts]
    return [Transcriber(whisper, draft_for(kind, whisper, code), plan.gamma) for kind in kinds]


def _faster_whisper(plan: Plan) -> list[FasterWhisperPeer]:
    if plan.faster_whisper is None:
        return []
    threads = plan.threads or os.cpu_count() or 1
    return [FasterWhisperPeer(plan.faster_whisper, plan.faster_whisper_type, threads)]


def _wrong_words(heard: Sequence[tuple[Case, Outcome]]) -> float | None:
    return word_error_rate([(str(case.reference), outcome.text) for case, outcome in heard])

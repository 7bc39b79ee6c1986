"""`mmspec bench tts`: speaking by the benchmark contract."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from mmspec import api
from mmspec.bench import plan as shared
from mmspec.bench.cases import Case, word_error_rate
from mmspec.bench.measured_run import Result, line_up, measured_run
from mmspec.bench.measuring import Say
from mmspec.bench.summary import Quality
from mmspec.compare.comparison import check_peers
from mmspec.compare.peers import Outcome
from mmspec.drafting import draft_for
from mmspec.errors import InputError, ModelError, OptionError
from mmspec.loading import kind_of, load_model, sample_path
from mmspec.modalities.speech.checkpoint import SpeechCheckpoint
from mmspec.tasks.settings import SpeakingSettings
from mmspec.tasks.tts.peers import step_of
from mmspec.tasks.tts.request import SpeechRequest
from mmspec.tasks.tts.speaker import Speaker


@dataclass(frozen=True)
class Plan(shared.Plan):
    """Everything that is frozen before the run.

    Attributes:
        files: one file of sentences, as `read_sentences` reads it.
        request: what is asked of every peer, where a sentence doesn't say how long it is.
        peers: names among `PEERS`.
        listener: a model that transcribes what was said, for the word error rate.
        language: what it is told to hear.
    """

    name: ClassVar[str] = "tts"
    settings_class: ClassVar[type[SpeakingSettings]] = SpeakingSettings

    request: SpeechRequest = field(default_factory=lambda: SpeechRequest(temperature=0.0))
    peers: Sequence[str] = ("plain", "hf")
    listener: str | None = None
    language: str | None = None

    def check(self) -> None:
        """Raise where an option can't be meant.

        Raises:
            OptionError: names the option.
        """
        super().check()
        check_peers(self.peers)
        if self.request.temperature != 0:
            raise OptionError("bench tts: found sampling, expected greedy decoding")

    def settings(self, ours: Any) -> dict[str, Any]:
        """What stands in the result file."""
        return super().settings(ours) | {"request": self.request.to_dict()}


def run(plan: Plan, say: Say = lambda what, total: None) -> Result:
    """Load, measure, summarise.

    Raises:
        MMSpecError: an input, option or model that can't be used.
    """
    plan.begin()
    cases = [case for file in plan.files for case in read_sentences(file, plan.request)]
    say("loading models", 0)
    target = _checkpoint(plan)
    speakers = [_speaker(plan, draft, target) for draft in plan.drafts]
    qualities: dict[str, Quality] = {}
    if plan.listener is not None:
        listener = Listener(plan.listener, plan, speakers[0])
        qualities["word_error_rate"] = listener.wrong_words
    lined = line_up(plan, speakers, plan.peers)
    settings = plan.settings(speakers[0]) | {
        "texts": [str(file) for file in plan.files],
        "token": step_of(speakers[0]),
    }
    return measured_run(plan, lined, cases, settings, qualities, say)


def sentences_file(given: Path | None) -> Path:
    """The sentences as named; without a name those of the sample."""
    return given if given is not None else sample_path("voice-sample", "sentences.txt")


def read_sentences(file: Path, request: SpeechRequest) -> list[Case]:
    """A case for each line: a sentence, and behind a tab how many seconds it takes.

    Args:
        file: the lines; empty ones are skipped.
        request: what is asked for; a sentence's own length comes before that of all.

    Raises:
        InputError: the file can't be read, or holds no sentence, or a length that is none.
    """
    try:
        content = file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no UTF-8 text"
        raise InputError(
            f"{file}: found nothing readable ({reason}), expected a sentence per line"
        ) from None
    cases = []
    for number, line in enumerate(content.splitlines(), 1):
        text, _, length = (part.strip() for part in line.partition("\t"))
        if not text:
            continue
        place = Path(f"{file}:{number}")
        asked = replace(request, seconds=_seconds(place, length)) if length else request
        digest = hashlib.sha256(text.encode()).hexdigest()
        facts = {"seconds": asked.seconds}
        cases.append(Case(place, text, digest, text, {}, asked, facts))
    if not cases:
        raise InputError(f"{file}: found no sentence")
    return cases


def _seconds(place: Path, length: str) -> float:
    try:
        return float(length)
    except ValueError:
        raise InputError(f"{place}: found {length!r}, expected seconds behind the tab") from None


def _checkpoint(plan: Plan) -> SpeechCheckpoint:
    name = "voice-sample" if plan.target == "sample" else plan.target
    target = load_model(name, plan.device, plan.dtype, plan.packed, plan.trust_remote_code)
    if not isinstance(target, SpeechCheckpoint):
        raise ModelError(f"--target: found a model of type {kind_of(target)}, which says no codes")
    return target


def _speaker(plan: Plan, draft: str, target: SpeechCheckpoint) -> Speaker:
    kind = plan.models(draft).draft_kind
    return Speaker(target, draft_for(kind, target, plan.trust_remote_code), plan.gamma)


class Listener:
    """Hears what was said, each grid of codes once.

    Args:
        name: of a model that transcribes.
        plan: says where it runs, and in which language it listens.
        speaker: whose codec makes sound of codes.

    Raises:
        MMSpecError: no model that transcribes, or no codec.
    """

    def __init__(self, name: str, plan: Plan, speaker: Speaker) -> None:
        if speaker.codec is None:
            raise OptionError("--listener: the target has no codec, so nothing is to be heard")
        transcriber = api.load(name, device=plan.device, packed=plan.packed)
        if transcriber.task != "asr":
            kind = transcriber.model.config.model_type
            raise ModelError(f"--listener: found a model of type {kind}, which transcribes nothing")
        self._codec, self._transcriber, self._language = speaker.codec, transcriber, plan.language
        self._heard: dict[tuple[Any, ...], str] = {}

    def wrong_words(self, said: Sequence[tuple[Case, Outcome]]) -> float | None:
        """Word error rate of what was said."""
        return word_error_rate(
            [(str(case.reference), self._hear(outcome.ids)) for case, outcome in said]
        )

    def _hear(self, ids: tuple[Any, ...]) -> str:
        if ids not in self._heard:
            samples = self._codec.decode(np.asarray(ids))
            heard = self._transcriber.transcribe(
                samples if samples.ndim == 1 else samples.mean(axis=0),
                sampling_rate=self._codec.sample_rate_hz,
                language=self._language,
            )
            self._heard[ids] = heard.text
        return self._heard[ids]

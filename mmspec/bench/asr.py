"""`mmspec bench asr`: speech recognition by the benchmark contract."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from mmspec import api
from mmspec.bench.cases import Case, load_cases, read_references
from mmspec.bench.faster_whisper import FasterWhisperContender
from mmspec.bench.measuring import Measured, Say, measure
from mmspec.bench.summary import Versus, ours_summary, quality, versus
from mmspec.contenders import (
    LOOKUP_TOKENS,
    MMSpecContender,
    Request,
    TransformersContender,
    plain_of,
)
from mmspec.errors import OptionError
from mmspec.hypotheses import read_hypotheses
from mmspec.loading import load_whisper
from mmspec.settings import ModelSettings, describe_machine

BENCH_VERSION = 1
"""Schema of the result file."""

FEWEST_PAIRS = 5


@dataclass(frozen=True)
class Plan:
    """Everything that is frozen before the run."""

    files: Sequence[Path]
    target: str
    drafts: Sequence[str]
    request: Request = field(default_factory=Request)
    pairs: int = FEWEST_PAIRS
    gamma: str = "adaptive"
    packed: bool = True
    device: str | None = None
    dtype: str | None = None
    threads: int | None = None
    reference: Path | None = None
    faster_whisper: Path | None = None
    faster_whisper_type: str = "float32"
    trust_remote_code: bool = False

    def models(self, draft: str) -> ModelSettings:
        """The models of one drafter's runs."""
        return ModelSettings(
            self.target,
            draft,
            self.gamma,
            self.device,
            self.dtype,
            self.packed,
            self.threads,
            self.trust_remote_code,
        )

    def check(self) -> None:
        """Raise where an option can't be meant.

        Raises:
            OptionError: names the option.
        """
        if not self.files:
            raise OptionError("bench asr: found no files, expected one or more")
        if len(set(self.drafts)) != len(self.drafts):
            raise OptionError(f"--draft: found {', '.join(self.drafts)}, expected each once")
        if self.request.first_temperature > 0:
            raise OptionError("bench asr: found sampling, expected greedy decoding")
        for draft in self.drafts:
            self.models(draft).check()


@dataclass(frozen=True)
class Result:
    """A finished benchmark."""

    settings: dict[str, Any]
    cases: Sequence[Case]
    ours: Sequence[dict[str, Any]]
    versus: Sequence[Versus]
    contenders: Sequence[Measured]

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON, raw seconds included."""
        return {
            "version": BENCH_VERSION,
            "benchmark": "asr",
            "settings": self.settings,
            "files": [case.to_dict() for case in self.cases],
            "mmspec": list(self.ours),
            "versus": [pair.to_dict() for pair in self.versus],
            "word_error_rate": {m.name: quality(m, self.cases) for m in self.contenders},
            "raw": [_raw(member) for member in self.contenders],
        }


def _raw(member: Measured) -> dict[str, Any]:
    runs = member.outcomes
    return {
        "name": member.name,
        "why_not": member.why_not,
        "decode_s": [[outcome.decode_s for outcome in run] for run in runs],
        "end_to_end_s": [[outcome.end_to_end_s for outcome in run] for run in runs],
        "texts": [outcome.text for outcome in runs[0]] if runs else [],
        "ids": [list(outcome.ids) for outcome in runs[0]] if runs else [],
    }


def run(plan: Plan, say: Say = lambda what, total: None) -> Result:
    """Load, measure, summarise.

    Raises:
        MMSpecError: an input, option or model that can't be used.
    """
    import torch

    plan.check()
    if plan.threads is not None:
        torch.set_num_threads(plan.threads)
    hypotheses = {
        draft: read_hypotheses(file, plan.files, plan.target)
        for draft in plan.drafts
        if (file := plan.models(draft).hypothesis_file) is not None
    }
    cases = load_cases(plan.files, read_references(plan.reference, plan.files), hypotheses)
    say("loading models", 0)
    ours, peers, pairs = _contenders(plan)
    contenders = [*ours, *peers]
    settings = _settings(plan, ours[0].contender)
    settings["prompt_tokens"] = _prompt_tokens(peers, cases[0], plan.request)
    measure(contenders, cases, plan.request, plan.pairs, say)
    settings["load_average"] = [settings["load_average"], os.getloadavg()[0]]
    return Result(
        settings,
        cases,
        [ours_summary(member, cases) for member in ours],
        [versus(one, other) for one, other in pairs],
        contenders,
    )


def _contenders(
    plan: Plan,
) -> tuple[list[Measured], list[Measured], list[tuple[Measured, Measured]]]:
    """Ours, the peers, and who is compared with whom. All share one target in memory."""
    code = plan.trust_remote_code
    whisper = load_whisper(plan.target, plan.device, plan.dtype, plan.packed, code)
    transcribers = [
        api.Transcriber(
            whisper,
            api.draft_for(plan.models(draft).draft_kind, whisper, code),
            plan.gamma,
        )
        for draft in plan.drafts
    ]
    ours = [
        Measured(
            MMSpecContender(transcriber, f"mmspec {name}"), draft if _has_file(draft) else None
        )
        for draft, name, transcriber in zip(
            plan.drafts, short_names(plan.drafts), transcribers, strict=True
        )
    ]
    first = transcribers[0]
    plain = MMSpecContender(plan_plain(first, plan), "plain")
    hf = TransformersContender(first.model, first.processor, "hf")
    common = [Measured(plain), Measured(hf)]
    if plan.faster_whisper is not None:
        threads = plan.threads or os.cpu_count() or 1
        peer = FasterWhisperContender(plan.faster_whisper, plan.faster_whisper_type, threads)
        common.append(Measured(peer))
    peers, pairs = list(common), []
    for member, transcriber in zip(ours, transcribers, strict=True):
        assisted = Measured(TransformersContender.assisted(transcriber))
        pairs += [(member, peer) for peer in [*common, assisted]]
        if assisted.contender.why_not is None:
            assisted.contender.name += f" {member.name.removeprefix('mmspec ')}"
        peers.append(assisted)
    return ours, peers, pairs


def plan_plain(transcriber: api.Transcriber, plan: Plan) -> api.Transcriber:
    """Ordinary decoding with the plan's target."""
    return plain_of(transcriber, packed=plan.packed)


def _prompt_tokens(peers: Sequence[Measured], case: Case, request: Request) -> int:
    """Length of the decoder's prompt, as transformers builds it."""
    hf = next(m.contender for m in peers if isinstance(m.contender, TransformersContender))
    return len(hf.prompt(case.samples, request))


def _has_file(draft: str) -> bool:
    return draft.startswith("hypothesis:")


def short_names(drafts: Sequence[str]) -> list[str]:
    """Drafts as they are called in tables: a path's last part, where that tells them apart.

    Example:
        >>> short_names(["ngram", "models/tiny", "hypothesis:/a/b.txt"])
        ['ngram', 'tiny', 'hypothesis:b.txt']
    """
    names = []
    for draft in drafts:
        kind, colon, rest = draft.partition(":")
        last = f"{kind}:{Path(rest).name}" if colon else Path(draft).name
        names.append(last)
    return names if len(set(names)) == len(names) else list(drafts)


def _settings(plan: Plan, ours: Any) -> dict[str, Any]:
    facts = asdict(plan) | {"files": len(plan.files), "request": asdict(plan.request)}
    facts = {name: str(v) if isinstance(v, Path) else v for name, v in facts.items()}
    config = ours.transcriber.model.config
    return {
        **facts,
        "revision": getattr(config, "_commit_hash", None),
        "prompt_lookup_num_tokens": LOOKUP_TOKENS,
        "batch": 1,
        "warm_up_passes": 1,
        **describe_machine(ours.transcriber),
        "processor": processor_name(),
        "load_average": os.getloadavg()[0],
    }


def processor_name() -> str | None:
    """The CPU's name, where the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return None
    return next((line.split(":", 1)[1].strip() for line in lines if "model name" in line), None)

"""`mmspec bench vlm`: captions and reading by the benchmark contract."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from mmspec.bench import plan as shared
from mmspec.bench.cases import Case
from mmspec.bench.measured_run import Result, line_up, measured_run
from mmspec.bench.measuring import Measured, Say
from mmspec.compare.comparison import check_peers
from mmspec.compare.peers import PEERS, Outcome
from mmspec.drafting import draft_for
from mmspec.errors import ModelError, OptionError
from mmspec.loading import kind_of, load_model, task_of
from mmspec.modalities.base.checkpoint import Checkpoint
from mmspec.modalities.vlm.looking import prepared_look
from mmspec.modalities.vlm.request import Task, VisionRequest
from mmspec.report.grounding import threshold_of
from mmspec.report.totals import total
from mmspec.tasks import registry
from mmspec.tasks.settings import LookingSettings
from mmspec.tasks.vlm.bench_cases import TASKS, load_cases, read_truth
from mmspec.tasks.vlm.viewer import Viewer


@dataclass(frozen=True)
class Plan(shared.Plan):
    """Everything that is frozen before the run.

    Attributes:
        tasks: "caption", "read"; none: what the truth tells of each image, else a caption.
        peers: names among `PEERS`.
        grounding: acceptance by class as well: True, or a threshold in nats.
    """

    name: ClassVar[str] = "vlm"
    settings_class: ClassVar[type[LookingSettings]] = LookingSettings

    tasks: Sequence[Task] = ()
    peers: Sequence[str] = PEERS
    max_new_tokens: int | None = None
    grounding: bool | float | None = None

    def check(self) -> None:
        """Raise where an option can't be meant.

        Raises:
            OptionError: names the option.
        """
        super().check()
        check_peers(self.peers)
        for task in self.tasks:
            if task not in TASKS.values():
                raise OptionError(f"--task: found {task!r}, expected caption or read")


def run(plan: Plan, say: Say = lambda what, total: None) -> Result:
    """Load, measure, summarise.

    Raises:
        MMSpecError: an input, option or model that can't be used.
    """
    plan.begin()
    threshold = threshold_of(plan.grounding)
    cases = load_cases(
        plan.files,
        plan.tasks,
        read_truth(plan.reference, plan.files),
        plan.hypotheses(),
        plan.max_new_tokens,
    )
    say("loading models", 0)
    checkpoint = _checkpoint(plan)
    cases = [_with_prompt(case, checkpoint) for case in cases]
    lined = line_up(plan, _viewers(plan, checkpoint), plan.peers)
    settings = plan.settings(lined.field.ours)
    result = measured_run(plan, lined, cases, settings, QUALITIES, say)
    if threshold is not None:
        for facts, member in zip(result.ours, lined.ours, strict=True):
            say(f"{member.name}: what rests on the images", 0)
            facts["by_class"] = _by_class(member, cases, threshold)
    return result


def _checkpoint(plan: Plan) -> Checkpoint:
    name = "vision-sample" if plan.target == "sample" else plan.target
    code = plan.trust_remote_code
    target = load_model(name, plan.device, plan.dtype, plan.packed, code)
    if not isinstance(target, Checkpoint):
        does = registry.TASKS[task_of(target)].verb
        raise ModelError(
            f"--target: found a model of type {kind_of(target)}, which {does}: mmspec bench "
            f"{task_of(target)}"
        )
    return target


def _viewers(plan: Plan, checkpoint: Checkpoint) -> list[Viewer]:
    """One for each drafter, all with the same target."""
    kinds = [plan.models(draft).draft_kind for draft in plan.drafts]
    drafts = [draft_for(kind, checkpoint, plan.trust_remote_code) for kind in kinds]
    return [Viewer(checkpoint, draft, plan.gamma) for draft in drafts]


def _with_prompt(case: Case, checkpoint: Checkpoint) -> Case:
    """The case with the lengths of its prompt, visual positions apart."""
    request = VisionRequest(case.request.task)
    inputs = checkpoint.inputs([case.subject], request.instruction)
    prepared = prepared_look(checkpoint, request, inputs)
    lengths = {
        "prompt_tokens": len(prepared.prompt),
        "visual_tokens": checkpoint.family.visual_tokens(prepared),
    }
    return replace(case, facts={**case.facts, **lengths})


def _by_class(member: Measured, cases: Sequence[Case], threshold: float) -> dict[str, Any] | None:
    """Acceptance of grounded and of syntactic tokens, in a pass of its own that nobody times."""
    if member.why_not is not None:
        return None
    reports = [
        member.peer.viewer.describe(  # type: ignore[attr-defined]
            case.subject,
            task=case.request.task,
            max_new_tokens=case.request.max_new_tokens,
            hypothesis=member.peer.expected(  # type: ignore[attr-defined]
                case.request, member.hypothesis_of(case)
            ),
            grounding=threshold,
        ).report
        for case in cases
    ]
    shares = total(reports).by_class or {}
    return {name: share.to_dict() for name, share in shares.items()}


def _of(task: Task, seen: Sequence[tuple[Case, Outcome]]) -> list[tuple[str, str]]:
    """(truth, text) of the cases of a task."""
    return [
        (str(case.reference), outcome.text) for case, outcome in seen if case.request.task == task
    ]


def _wrong_characters(seen: Sequence[tuple[Case, Outcome]]) -> float | None:
    """Character error rate of what was read."""
    pairs = _of("read", seen)
    if not pairs:
        return None
    import jiwer

    truths, texts = zip(*pairs, strict=True)
    return float(jiwer.cer(list(truths), list(texts)))


def _captions_right(seen: Sequence[tuple[Case, Outcome]]) -> float | None:
    """Share of the captions that are the truth, letter for letter."""
    pairs = _of("caption", seen)
    return sum(truth == text for truth, text in pairs) / len(pairs) if pairs else None


QUALITIES = {"character_error_rate": _wrong_characters, "captions_right": _captions_right}

"""A copy of the target as its drafter, in every family: does the drafter see what the target sees?

    PYTHONPATH=. python benchmarks/copy_as_drafter.py [FAMILY...] [--json FILE]

Tiny models with random weights, four units drafted a round, greedy. A drafter that is the target
and is shown the same image is always right, so a share below 1 means that the engine lost
something on the way to it. Beside mmspec transformers' assisted generation with the same copy, the
same four units, no confidence threshold; and again on prompts without an image, where a family
takes such. Passes of the target are counted by a hook, the one over the prompt included.
"""

from __future__ import annotations

import argparse
import copy
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from mmspec.clock import Clock
from mmspec.compare.peers import one_reason, untouched
from mmspec.compat import quiet
from mmspec.engine import BlockCosts, FixedPolicy, Sampling, run_alone
from mmspec.engine.stats import RequestStats
from mmspec.modalities import ADAPTERS
from mmspec.modalities.base.checkpoint import Checkpoint
from mmspec.modalities.base.draft import ModelDraft
from mmspec.modalities.base.preparation import prepare
from mmspec.modalities.base.request import decoded
from mmspec.modalities.base.speculative_decoder import SpeculativeDecoder
from mmspec.report.trace import Round
from tests.modalities import tiny_crossing, tiny_prefix

GAMMA, PROMPTS = 4, 6
MOST_NEW_TOKENS = 26
"""transformers lets an encoder-decoder's drafter read its text twice: no more fits the context."""

Prompt = tuple[Mapping[str, Any], list[int]]
"""Inputs, and what the target says by itself."""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("family", nargs="*")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(1)
    rows = {}
    for name, (bed, cases) in BEDS.items():
        if given.family and name not in given.family:
            continue
        with quiet():
            rows[name] = measured(bed, name, cases)
        print(table_row(name, rows[name]), flush=True)
    if given.json:
        settings = {"gamma": GAMMA, "max_new_tokens": MOST_NEW_TOKENS, "prompts": PROMPTS}
        given.json.write_text(json.dumps({"settings": settings, "families": rows}, indent=2) + "\n")


BEDS: dict[str, tuple[Any, tuple[str, ...]]] = {
    **{name: (tiny_prefix, tuple(tiny_prefix.CASES)) for name in tiny_prefix.NAMES},
    **{name: (tiny_crossing, family.cases) for name, family in tiny_crossing.FAMILIES.items()},
}
"""Builders of every family's models and prompts, and the cases that they know."""


def measured(bed: Any, name: str, cases: Sequence[str]) -> dict[str, Any]:
    """One family."""
    model = bed.tiny(name)
    if model.config.model_type not in ADAPTERS:
        return {"why": f"no adapter for {model.config.model_type}"}
    drafter = copy.deepcopy(model)
    shown = "image" if "image" in cases else cases[0]

    def prompts(case: str) -> list[Prompt]:
        made = (bed.inputs(name, model, case, seed=seed) for seed in range(PROMPTS))
        return [(inputs, generated(model, inputs)[0]) for inputs in made]

    seen = prompts(shown)
    found = {
        "tokens": sum(len(ids) for _, ids in seen),
        "mmspec": ours(model, drafter, seen),
        "transformers": theirs(model, drafter, seen),
    }
    if "text" in cases:
        found["transformers_without_image"] = theirs(model, drafter, prompts("text"))
    return found


def ours(model: Any, drafter: Any, prompts: Sequence[Prompt]) -> dict[str, Any]:
    """mmspec with the copy."""
    target = Checkpoint.of(model)
    draft = ModelDraft(target, Checkpoint.of(drafter), "copy", sure=0.0)
    pair = SpeculativeDecoder(target, draft, FixedPolicy(GAMMA), BlockCosts())
    stats, equal = RequestStats(Clock(target.device)), True
    for inputs, want in prompts:
        prepared = prepare(model, copied(inputs), max_new_tokens=MOST_NEW_TOKENS)
        ids = run_alone(
            decoded(
                pair,
                prepared,
                stats,
                sampling=Sampling(False),
                inputs=lambda _, inputs=inputs: copied(inputs),
            )
        )
        equal &= ids == want
    report = stats.report(Sampling(False), pair.costs)
    full = [len(done.emitted) for done in stats.tally.trace if is_full(done, target)]
    return {
        "ids_equal": equal,
        "proposed": report.proposed,
        "accepted_share": report.draft_acceptance_rate,
        "acceptance_by_offset": list(report.acceptance_by_offset),
        "full_rounds": len(full),
        "tokens_per_full_round": sum(full) / len(full) if full else None,
        "tokens_per_target_call": report.tokens / report.target_forwards,
        "faults": sorted(set(report.faults)),
    }


def is_full(done: Round, target: Checkpoint) -> bool:
    """Whether a round could yield everything: no unit short, and no end in it."""
    ends = target.steps.stop_tokens
    return len(done.proposal) == GAMMA and ends.isdisjoint((*done.proposal, *done.emitted))


def theirs(model: Any, drafter: Any, prompts: Sequence[Prompt]) -> dict[str, Any]:
    """transformers' assisted generation with the copy."""
    calls, tokens, equal = 0, 0, True
    speaker, helper = (getattr(one, "text_decoder", one) for one in (model, drafter))
    with untouched([speaker, helper]):
        # transformers reads these from the assistant, wherever the caller gives them.
        config = helper.generation_config
        config.num_assistant_tokens, config.num_assistant_tokens_schedule = GAMMA, "constant"
        config.assistant_confidence_threshold = 0.0
        for inputs, want in prompts:
            try:
                ids, passes = generated(model, inputs, assistant_model=helper)
            except Exception as error:  # whatever transformers raises is an answer
                return {"why": f"refused: {one_reason(error)}"}
            calls, tokens, equal = calls + passes, tokens + len(ids), equal and ids == want
    return {"ids_equal": equal, "tokens_per_target_call": tokens / calls}


def generated(model: Any, inputs: Mapping[str, Any], **options: Any) -> tuple[list[int], int]:
    """What `generate` says behind the prompt, and passes of the target."""
    speaker: nn.Module = getattr(model, "text_decoder", model)  # BLIP's decoder has the loop
    calls: list[None] = []
    hook = speaker.register_forward_pre_hook(lambda module, given: calls.append(None))
    prompt = len(prepare(model, copied(inputs)).prompt)
    try:
        ids = model.generate(**copied(inputs), max_new_tokens=MOST_NEW_TOKENS, **options)
    finally:
        hook.remove()
    return ids[0, prompt:].tolist(), len(calls)


def copied(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """BLIP's `generate` writes into the caller's ids."""
    return {name: value.clone() for name, value in inputs.items()}


def table_row(name: str, row: Mapping[str, Any]) -> str:
    if "why" in row:
        return f"| {name} | - | - | - | - | {row['why']} |"
    mine = row["mmspec"]
    offsets = " ".join(f"{100 * share:.0f}" for share in mine["acceptance_by_offset"])
    cells = [
        name,
        f"{100 * mine['accepted_share']:.0f} % ({offsets})",
        f"{mine['tokens_per_full_round']:.2f}",
        f"{mine['tokens_per_target_call']:.2f}",
        per_call(row["transformers"]),
        per_call(row.get("transformers_without_image")),
    ]
    return f"| {' | '.join(cells)} |"


def per_call(found: Mapping[str, Any] | None) -> str:
    if found is None:
        return "-"
    if "why" in found:
        return str(found["why"])
    differs = "" if found["ids_equal"] else " (ids differ)"
    return f"{found['tokens_per_target_call']:.2f}{differs}"


if __name__ == "__main__":
    main()

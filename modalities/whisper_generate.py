"""Whisper inside transformers' `generate`: it prepares everything, mmspec decodes.

`generate` has made the encoder states, the prompt, the processors and the criteria; each row of
the batch is decoded by itself from there, so a row is never held back by another one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from transformers import LogitsProcessorList, StoppingCriteriaList

from mmspec.clock import Clock
from mmspec.engine import Chooser, Policy, Processors, Sampling, Scores, Session, Stops
from mmspec.engine.costs import BlockCosts
from mmspec.errors import ModelError
from mmspec.modalities.whisper import Whisper
from mmspec.modalities.whisper_draft import Draft, ModelDraft, Window
from mmspec.proposals import SameVocabulary
from mmspec.report import Report, Tally


@dataclass
class Prepared:
    """What `generate` hands to a decoding loop, and how mmspec is to decode it.

    Attributes:
        whisper: the target.
        draft: the kind of drafter.
        policy: chooses γ.
        costs: learns what blocks cost.
        input_ids: prompts `[rows, P]`.
        encoder_states: `[rows, S, D]`.
        features: log-mel features `[rows, bins, frames]`, None where only states were given.
        processors: prepared processors.
        criteria: prepared criteria.
        config: prepared generation config.
        sampling: how units are drawn.
        go: how often these rows were decoded before: a later go draws other noise.
        hypothesis: expected units, for a hypothesis drafter.
        streamer: gets committed ids (one row only).
    """

    whisper: Whisper
    draft: Draft
    policy: Policy
    costs: BlockCosts
    input_ids: Tensor
    encoder_states: Tensor
    features: Tensor | None
    processors: LogitsProcessorList
    criteria: StoppingCriteriaList
    config: Any
    sampling: Sampling
    go: int = 0
    hypothesis: Sequence[int] | None = None
    streamer: Any = None


@dataclass
class Row:
    """One decoded row: emitted ids, rows of scores where collected, and its report."""

    ids: list[int]
    scores: Scores | None
    report: Report


def decode_row(job: Prepared, row: int) -> Row:
    """Decode one row of a prepared batch."""
    whisper, clock = job.whisper, Clock(job.whisper.device)
    states = job.encoder_states[row : row + 1]
    prompt = job.input_ids[row].tolist()
    target = whisper.open(states)
    drafter = None
    wants_scores = job.config.output_scores or job.config.output_logits
    scores = Scores([], []) if job.config.return_dict_in_generate and wants_scores else None
    try:
        with clock("prefill"):
            first_row = target.score(prompt, keep=1)
            target.state.freeze()
        window = Window(
            target,
            prompt,
            states,
            _features_of(job, row),
            lambda other: _draft_prompt(job, prompt, other),
            job.hypothesis,
            clock,
        )
        drafter = job.draft.open(window)
        limit = min(job.config.max_length or whisper.steps.context, whisper.steps.context)
        session = Session(
            target,
            prompt,
            first_row,
            drafter=drafter,
            policy=job.policy,
            chooser=Chooser(job.sampling.of_part(row, job.go), target.device),
            processors=Processors(job.processors),
            stops=Stops.from_transformers(job.criteria, (), limit),
            clock=clock,
            costs=job.costs,
            streamer=job.streamer,
            scores=scores,
        )
        ids = session.run()
        report = _report(job, session.tally, clock, target.forwards, drafter, session.finish_reason)
    finally:
        if drafter is not None:
            drafter.close()
        target.close()
    return Row(ids, scores, report)


def check_ears(job: Prepared) -> None:
    """Raise where the drafter has an encoder of its own that can't hear what was given.

    Raises:
        ModelError: says what it takes and what there is.
    """
    draft, features = job.draft, job.features
    if not isinstance(draft, ModelDraft) or draft.shares_encoder:
        return
    if features is None:
        raise ModelError(
            "draft: the drafter has an encoder of its own, and only the target's encoder states "
            "were given: give features, or a drafter that shares the encoder"
        )
    other = draft.drafter
    bins, frames = other.model.config.num_mel_bins, other.window_frames
    if tuple(features.shape[1:]) != (bins, frames):
        raise ModelError(
            f"draft: the drafter takes {bins} mel bins x {frames} frames, the features given have "
            f"{features.shape[1]} x {features.shape[2]}: load both with their processors and give "
            "audio, so that each makes its own"
        )


def _features_of(job: Prepared, row: int) -> Any:
    features = job.features
    return None if features is None else lambda other: features[row : row + 1]


def _draft_prompt(job: Prepared, prompt: Sequence[int], other: Whisper) -> Sequence[int]:
    """The prompt as the drafting model would be given it."""
    draft = job.draft
    if not isinstance(draft, ModelDraft) or isinstance(draft.vocabulary, SameVocabulary):
        return prompt
    steps = job.whisper.steps
    start = len(prompt) - 1 - list(reversed(prompt)).index(steps.start)
    said = set(prompt[start:])
    language = next((name for name, unit in steps.languages if unit in said), None)
    task = next((name for name, unit in steps.tasks if unit in said), None)
    return other.steps.prompt(
        language=dict(other.steps.languages).get(language or ""),
        task=task if task in dict(other.steps.tasks) else None,
        timestamps=steps.no_timestamps not in said,
    )


def _report(
    job: Prepared, tally: Tally, clock: Clock, forwards: int, drafter: Any, finish: str | None
) -> Report:
    step = job.costs.seconds(1)
    spent = clock.seconds["draft"] + clock.seconds["verify"]
    parity = "L0"
    if job.sampling.sample:
        parity = "L2" if job.sampling.seed is None else "L1"
    return tally.report(
        target_forwards=forwards,
        drafter_forwards=0 if drafter is None else drafter.forwards,
        encoder_runs=0,  # transformers ran it before decoding began
        drafter_encoder_runs=job.draft.encoder_runs,
        seconds=dict(clock.seconds),
        parity=parity,
        finish_reason=finish or "stop",
        predicted_speedup=tally.tokens * step / spent if step and spent else None,
        conditioning=getattr(drafter, "conditioning", "none"),
    )


def drafter_without_encoder(model: Any, target: Whisper, packed: bool) -> Whisper:
    """A decoder-only drafter (`WhisperForCausalLM`), to be fed with the target's encoder states.

    Raises:
        ModelError: it can't attend to states of the target's width.
    """
    mine, theirs = model.config.d_model, target.model.config.d_model
    if mine != theirs:
        raise ModelError(
            f"a drafter without encoder needs the target's width {theirs}, this one has {mine}"
        )
    steps = replace(
        target.steps,
        vocab_size=max(model.config.vocab_size, target.steps.vocab_size),
        context=model.config.max_target_positions,
    )
    return Whisper(model, None, steps, packed)


def padded(rows: Sequence[Sequence[int]], prompts: Tensor, pad: int | None) -> Tensor:
    """Prompts and emitted ids side by side `[rows, length]`, padded on the right."""
    longest = max(len(ids) for ids in rows)
    filled = [[*ids, *[pad or 0] * (longest - len(ids))] for ids in rows]
    emitted = torch.tensor(filled, dtype=torch.long, device=prompts.device)
    return torch.cat([prompts, emitted.view(len(rows), longest)], dim=1)

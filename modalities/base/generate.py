"""Models that look or listen, inside transformers' `generate`: it prepares, mmspec decodes."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from mmspec.clock import Clock
from mmspec.engine import Sampling, Scores, run_alone
from mmspec.engine.stats import RequestStats
from mmspec.errors import ModelError
from mmspec.modalities.base.checkpoint import Checkpoint
from mmspec.modalities.base.preparation import Prepared
from mmspec.modalities.base.request import Inputs, decoded
from mmspec.modalities.base.rows import Row, collects_scores
from mmspec.modalities.base.speculative_decoder import SpeculativeDecoder


def handed_on(inputs: Mapping[str, Any], target: Checkpoint, drafter: Checkpoint) -> dict[str, Any]:
    """A target's inputs for a drafting model, where nobody can make it inputs of its own.

    Raises:
        ModelError: the two have different ids for an image or a sound.
    """
    mine, theirs = (one.family.reserved(one.model) for one in (target, drafter))
    ids = inputs.get("input_ids")
    strange = mine - theirs
    if ids is not None and strange and bool(torch.isin(ids, torch.tensor(sorted(strange))).any()):
        raise ModelError(
            f"an image or a sound stands as {sorted(strange)} in the target's prompt, the drafter "
            f"knows {sorted(theirs)}: use mmspec.load(target, drafter), which makes each its own"
        )
    return {
        name: value.to(drafter.device) if isinstance(value, Tensor) else value
        for name, value in inputs.items()
    }


def decode_row(
    pair: SpeculativeDecoder[Checkpoint],
    prepared: Prepared,
    sampling: Sampling,
    *,
    inputs: Inputs | None = None,
    hypothesis: Sequence[int] | None = None,
    streamer: Any = None,
) -> Row:
    """Decode a prepared request of one row.

    Args:
        pair: the target and its kind of drafter.
        prepared: what `generate` prepared.
        sampling: how tokens are drawn.
        inputs: makes a drafting model's own inputs.
        hypothesis: expected tokens, for a hypothesis drafter.
        streamer: gets committed ids.
    """
    stats = RequestStats(Clock(pair.checkpoint.device))
    scores = Scores([], []) if collects_scores(prepared.config) else None
    ids = run_alone(
        decoded(
            pair,
            prepared,
            stats,
            sampling=sampling,
            inputs=inputs,
            hypothesis=hypothesis,
            streamer=streamer,
            scores=scores,
        )
    )
    if streamer is not None:
        streamer.end()
    return Row(ids, scores, stats.report(sampling, pair.costs))


def prompt_length(model: Any, inputs: Mapping[str, Any]) -> int:
    """Positions of what a decoder is prompted with; 0 where `generate` makes that itself."""
    own = "decoder_input_ids" if model.config.is_encoder_decoder else "input_ids"
    prompt = inputs.get("decoder_input_ids", inputs.get(own))
    return 0 if prompt is None else prompt.shape[1]


def wanted(model: Any, options: Mapping[str, Any], name: str) -> Any:
    """What a call of `generate` goes by: an option, else its config's word, else the model's."""
    configs = (options.get("generation_config"), model.generation_config)
    said = (options, *(vars(config) for config in configs if config is not None))
    return next((of[name] for of in said if of.get(name) is not None), None)


def begin_apart(model: Any, inputs: Mapping[str, Any], options: Mapping[str, Any]) -> bool:
    """Whether some decoders' prompts of a batch begin with the start, and others don't.

    Where none does, `generate` puts it in front of all of them: a row by itself can't tell.
    """
    prompts = (inputs.get(name) for name in ("decoder_input_ids", "input_ids"))
    ids = next((ids for ids in prompts if ids is not None), None)
    if not model.config.is_encoder_decoder or ids is None:
        return False
    start = wanted(model, options, "decoder_start_token_id")
    begin = ids[:, :1] == (wanted(model, options, "bos_token_id") if start is None else start)
    return bool(begin.any() and not begin.all())


def of_row(
    model: Any, options: Mapping[str, Any], padding: int, spent_s: float = 0.0
) -> dict[str, Any]:
    """A row's options of `generate`, where the rows of a batch are decoded one after the other.

    Limits on a batch's length count its padding, of which the row has less; its limit on time is
    one for all rows.

    Args:
        model: whose generation config fills in what the options leave open.
        options: of the whole batch.
        padding: positions that the row's prompt is shorter than the batch is wide.
        spent_s: seconds that rows before it have taken.
    """
    given, of_call = options.get("generation_config"), partial(wanted, model, options)
    pairs = (("max_length", "max_new_tokens"), ("min_length", "min_new_tokens"))
    counted = [name for name, without_prompt in pairs if of_call(without_prompt) is None]
    limits = {name: of_call(name) - padding for name in counted if padding and of_call(name)}
    if spent_s and of_call("max_time") is not None:
        limits["max_time"] = of_call("max_time") - spent_s
    if not limits or given is None:
        return {**options, **limits}
    config = copy.deepcopy(given)
    config.update(**limits)
    return {name: value for name, value in options.items() if name not in limits} | {
        "generation_config": config
    }

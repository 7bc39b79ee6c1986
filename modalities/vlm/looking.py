"""Looking at images: one request from pictures and an instruction to a text."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from PIL import Image
from transformers import LogitsProcessorList, StoppingCriteriaList

from mmspec.clock import Clock
from mmspec.engine import Sampling, Steps
from mmspec.engine.stats import RequestStats
from mmspec.errors import InputError, MMSpecError, OptionError
from mmspec.modalities.base.checkpoint import Checkpoint
from mmspec.modalities.base.encoder_runs import watched
from mmspec.modalities.base.preparation import (
    Prepared,
    check_mode,
    prepare,
    refusing,
    with_stop_strings,
)
from mmspec.modalities.base.request import decoded
from mmspec.modalities.base.speculative_decoder import SpeculativeDecoder
from mmspec.modalities.vlm.grounding import log_prob_drops_without_images
from mmspec.modalities.vlm.request import VisionRequest
from mmspec.modalities.vlm.result import Description, with_grounding
from mmspec.report.grounding import Grounding, threshold_of

MOST_NEW_TOKENS = 512
"""Where neither the caller nor the checkpoint names a limit; transformers would stop after 20."""


@dataclass(frozen=True, eq=False)
class Look:
    """One request, prepared.

    Attributes:
        pair: the target and its kind of drafter.
        images: upright, in RGB.
        request: what is wanted of them.
        prepared: what `generate` made of it.
        stats: adds up what is done.
        note: what else the report is to say among its faults.
    """

    pair: SpeculativeDecoder[Checkpoint]
    images: Sequence[Image.Image]
    request: VisionRequest
    prepared: Prepared
    stats: RequestStats
    note: str | None

    @property
    def sampling(self) -> Sampling:
        """How tokens are drawn."""
        return Sampling(self.request.temperature > 0, self.request.seed)


def prepare_look(
    pair: SpeculativeDecoder[Checkpoint],
    images: Sequence[Image.Image],
    request: VisionRequest,
    reading_s: float = 0.0,
    note: str | None = None,
) -> Look:
    """Encode images and an instruction.

    Args:
        pair: the target and its kind of drafter.
        images: upright, in RGB.
        request: what is wanted of them.
        reading_s: seconds that it took to come by the hypothesis, counted as drafting.
        note: what else the report is to say among its faults.

    Raises:
        MMSpecError: images, an instruction or an option that can't be used.
    """
    checkpoint = pair.checkpoint
    stats = RequestStats(Clock(checkpoint.device))
    clock = stats.clock
    encoders = checkpoint.family.encoders(checkpoint.model)
    with clock("encode"):
        inputs = checkpoint.inputs(images, request.instruction)
    # `generate` runs the encoders while it prepares.
    with watched(encoders, clock) as runs, clock("prefill"):
        prepared = prepared_look(checkpoint, request, inputs)
    stats.encoder_runs += runs.count
    clock.charge("draft", reading_s)
    return Look(pair, images, request, prepared, stats, note)


def decode_look(look: Look) -> Steps[list[int]]:
    """The ids that the target says."""
    checkpoint, request = look.pair.checkpoint, look.request
    if request.streamer is not None:
        request.streamer.put(look.prepared.input_ids.cpu())
    ids = yield from decoded(
        look.pair,
        look.prepared,
        look.stats,
        sampling=look.sampling,
        inputs=lambda drafter: _inputs_for(drafter, checkpoint, look.images, request),
        hypothesis=expected_tokens(checkpoint, request.hypothesis),
        streamer=request.streamer,
    )
    if request.streamer is not None:
        request.streamer.end()
    return ids


def described(look: Look, ids: list[int]) -> Description:
    """What the ids say, and what it rests on where that was asked for."""
    checkpoint, request, stats = look.pair.checkpoint, look.request, look.stats
    with stats.clock("post"):
        text = checkpoint.text(ids).strip()
    threshold, drops = threshold_of(request.grounding), None
    if threshold is not None:
        blank = [_without_a_picture(image) for image in look.images]
        nothing = prepared_look(checkpoint, request, checkpoint.inputs(blank, request.instruction))
        drops = log_prob_drops_without_images(checkpoint.family, look.prepared, nothing, ids)
    if not text:
        stats.note("nothing was said: the target ended its output before any text")
    if look.note is not None:
        stats.tally.faults.append(look.note)
    said = Description(
        text=text,
        ids=tuple(ids),
        task=request.task,
        prompt=request.prompt,
        sizes=tuple(image.size for image in look.images),
        prompt_tokens=len(look.prepared.prompt),
        visual_tokens=checkpoint.family.visual_tokens(look.prepared),
        report=stats.report(look.sampling, look.pair.costs),
        origins=tuple(stats.tally.origins()),
        trace=tuple(stats.tally.trace),
    )
    if threshold is None or drops is None:
        return said
    return with_grounding(said, Grounding(threshold, drops))


def expected_tokens(
    checkpoint: Checkpoint, hypothesis: str | Sequence[int] | None
) -> Sequence[int] | None:
    """What is expected, in the target's tokens; None where nothing is.

    Raises:
        OptionError: neither a text nor ids of this target.
    """
    if hypothesis is None or isinstance(hypothesis, str):
        return checkpoint.tokens(hypothesis) if hypothesis and hypothesis.strip() else None
    size = checkpoint.steps.vocab_size
    try:
        tokens = [operator.index(token) for token in hypothesis]
    except TypeError as error:
        raise OptionError(f"hypothesis: expected a text or ids ({error})") from None
    strange = next((token for token in tokens if not 0 <= token < size), None)
    if strange is not None:
        raise OptionError(f"hypothesis: found {strange} among the ids, expected 0 to {size - 1}")
    return tokens


def prepared_look(
    checkpoint: Checkpoint, request: VisionRequest, inputs: Mapping[str, Any]
) -> Prepared:
    """What `generate` makes of a request.

    Raises:
        OptionError: an option that it refuses, or one that can't be decoded speculatively.
        InputError: a prompt that leaves no room for an answer.
    """
    model = checkpoint.model
    with refusing():
        options = generation_options(model, request)
        options["stopping_criteria"] = StoppingCriteriaList(request.stopping_criteria or ())
        prepared = prepare(
            model,
            inputs,
            generation_config=request.generation_config,
            logits_processor=LogitsProcessorList(request.logits_processor or ()),
            **with_stop_strings(options, checkpoint.tokenizer),
        )
    check_mode(prepared.config)
    if len(prepared.input_ids) > 1:
        raise OptionError(
            f"num_return_sequences: found {len(prepared.input_ids)}, expected 1: ask again for "
            "each, with another seed"
        )
    context = checkpoint.family.context(prepared.model)
    if len(prepared.prompt) >= context:
        raise InputError(
            f"found a prompt of {len(prepared.prompt)} positions, images included, expected fewer "
            f"than the model's {context}: give a smaller image, or fewer"
        )
    return prepared


def generation_options(model: Any, request: VisionRequest) -> dict[str, Any]:
    """Options of `generate`; what a checkpoint wishes for by itself (beams, sampling) is replaced.

    Raises:
        OptionError: beams were asked for, or sampling by another name than a temperature.
    """
    options, config = request.generate_options, request.generation_config
    beams = options.pop("num_beams", None) or getattr(config, "num_beams", None) or 1
    if beams > 1:
        raise OptionError("beam search can't be decoded speculatively: set num_beams=1")
    sample = request.temperature > 0
    if bool(options.get("do_sample", sample)) != sample:
        raise OptionError(
            f"do_sample={options['do_sample']}: temperature={request.temperature} says otherwise, "
            "and decides; leave do_sample out"
        )
    options |= {"num_beams": 1, "do_sample": sample}
    if request.temperature > 0:
        options["temperature"] = request.temperature
    configs = (vars(one) for one in (config, model.generation_config) if one)
    limits = ("max_new_tokens", "max_length")
    named = any(of.get(name) is not None for of in (options, *configs) for name in limits)
    return options if named else options | {"max_new_tokens": MOST_NEW_TOKENS}


def _inputs_for(
    drafter: Checkpoint, target: Checkpoint, images: Sequence[Image.Image], request: VisionRequest
) -> dict[str, Any]:
    """A drafting model's inputs; a model object without a processor looks as the target does."""
    if drafter.processor is None:
        drafter = replace(drafter, processor=target.processor)
    try:
        return drafter.inputs(images, request.instruction)
    except MMSpecError as error:
        raise type(error)(f"the drafter: {error}") from None


def _without_a_picture(image: Image.Image) -> Image.Image:
    """As large, and grey all over."""
    return Image.new("RGB", image.size, (128, 128, 128))

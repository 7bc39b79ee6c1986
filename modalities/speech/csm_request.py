"""What CSM's `generate` prepares, for its backbone and for its depth decoder.

The depth decoder has a generation config of its own and is called anew for every frame. So one of
the two may sample while the other takes the best code.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import (
    LogitsProcessor,
    LogitsProcessorList,
    StoppingCriteriaList,
    SuppressTokensLogitsProcessor,
)

from mmspec.compat import prepared_config
from mmspec.engine.frames import register_frame_form
from mmspec.engine.processing import IGNORES_PREFIX, Wrapped
from mmspec.errors import InputError, OptionError
from mmspec.modalities.base.preparation import Prepared, check_mode
from mmspec.modalities.speech.depth import PLACE, only_best
from mmspec.modalities.speech.preparation import check_guidance, shadow
from mmspec.modalities.speech.preparation import prepare as prepare_generate

PROMPTS = ("input_ids", "inputs_embeds")
"""Either may hold what is to be said."""


@dataclass(frozen=True, eq=False)
class CsmPrepared(Prepared):
    """A request as CSM's `generate` hands it to its loop.

    Attributes:
        depth: the same of its depth decoder, as it is called for every frame.
        max_rows: frames, a prompt's included, that the output never exceeds.
    """

    depth: Prepared
    max_rows: int

    @property
    def prompt(self) -> list[Any]:
        """Frames that the output goes on from; a text is none."""
        if self.input_ids.ndim == 2:
            return []
        return [tuple(frame) for frame in self.input_ids[0].tolist()]


@torch.no_grad()
def prepare(model: Any, inputs: Mapping[str, Any], **options: Any) -> CsmPrepared:
    """What `model.generate(**inputs, **options)` would decode; nothing is decoded.

    Options whose names begin with `depth_decoder_` are the depth decoder's. The library writes them
    into the model, where they stay for every later call; here they hold for this call only.

    Args:
        model: a CSM.
        inputs: one row: text, and the voice's recordings if there are any.
        options: of `generate`; what it returns is no concern here.

    Raises:
        InputError: not one row, no prompt, or one beyond the context.
        OptionError: what can't be decoded like this.
        ValueError: whatever `generate` refuses.
    """
    _check_inputs(model, inputs)
    found: list[Prepared] = []

    def keep(prepared: Prepared) -> Tensor:
        found.append(prepared)
        return prepared.input_ids

    twin = shadow(model, keep)
    twin.generate(**inputs, **{**options, "output_audio": False})
    _check_rows(len(found[0].input_ids))  # more than were given where samples were asked for
    check_guidance(found[0])
    _check_modes(found[0].config, prepared_config(twin.depth_decoder, None, {})[0])
    place = torch.full((1, 2), PLACE, device=model.device)
    state = torch.zeros(1, model.config.hidden_size, dtype=model.dtype, device=model.device)
    of_frame = {"input_ids": place, "backbone_last_hidden_state": state}
    depth = prepare_generate(twin.depth_decoder, of_frame)
    prepared, config = found[0], found[0].config
    _check_padding(depth.config)
    shown = LogitsProcessorList([_shown(one, prepared.input_ids) for one in prepared.processors])
    if depth.config.do_sample and not config.do_sample:
        shown.append(OnlyBest())
        config.do_sample = True
    # Its length is the only criterion that CSM keeps.
    return CsmPrepared(
        **{**vars(prepared), "processors": shown, "criteria": StoppingCriteriaList()},
        depth=depth,
        max_rows=_longest(prepared),
    )


def _longest(prepared: Prepared) -> int:
    """Frames that the output never exceeds; a text's positions count in the library's limit."""
    limit: int = min(criterion.max_length for criterion in prepared.criteria)
    before = prepared.input_ids.shape[1]
    if prepared.input_ids.ndim == 3:
        return max(limit, before + 1)
    return max(limit - before, 1)  # embeddings have no ids, and were left out of the limit


def _check_inputs(model: Any, inputs: Mapping[str, Any]) -> None:
    prompt = next((inputs[n] for n in PROMPTS if inputs.get(n) is not None), None)
    if prompt is None or prompt.shape[1] == 0:
        raise InputError("no text to speak: input_ids are empty")
    _check_rows(len(prompt))
    context = model.config.max_position_embeddings
    if prompt.shape[1] >= context:
        raise InputError(
            f"a prompt of {prompt.shape[1]} positions leaves no room for a frame: the model was "
            f"made for {context}"
        )
    if (inputs.get("input_values") is None) != (inputs.get("input_values_cutoffs") is None):
        raise InputError("recordings come with where each ends: input_values, input_values_cutoffs")


def _check_rows(count: int) -> None:
    if count != 1:
        raise InputError(f"{count} rows: CSM's rows are prepared one by one")


def _check_modes(config: Any, depth: Any) -> None:
    check_mode(config)
    if not config.use_cache:
        raise OptionError("use_cache=False: CSM then forgets its text behind the first frame")
    try:
        check_mode(depth)
    except OptionError as error:
        raise OptionError(f"of the depth decoder: {error}") from None


def _check_padding(depth: Any) -> None:
    hidden, ends = depth._pad_token_tensor, depth._eos_token_tensor
    if hidden is not None and (ends is None or int(hidden) not in ends.tolist()):
        raise OptionError(
            f"depth_decoder_pad_token_id={int(hidden)} would hide that code from the depth "
            "decoder: set it to None"
        )


class OnlyBest(LogitsProcessor):
    """Gives everything to the best code: a backbone that doesn't sample beside one that does."""

    def __call__(self, input_ids: Any, scores: Tensor) -> Tensor:
        """Distributions `[..., V]`, whatever the ids."""
        return only_best(scores)


@register_frame_form(OnlyBest)
def _only_best(processor: Any, codebooks: int) -> Any:
    return only_best


class _Shown(Wrapped):
    """A processor that is shown ids as CSM's loop shows them: its prompt, then frames `[1, n, K]`.

    A text is shown in front of the first frame only, then it is gone.
    """

    def __init__(self, processor: Any, prompt: Tensor) -> None:
        super().__init__(processor)
        self.prompt = prompt

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Process `[1, V]` behind frames `[K, n]`."""
        frames = input_ids.t()[None]
        return self.processor(frames if frames.shape[1] else self.prompt, scores)


def _shown(processor: Any, prompt: Tensor) -> Any:
    if type(processor) in {*IGNORES_PREFIX, SuppressTokensLogitsProcessor}:
        return processor
    return _Shown(processor, prompt)

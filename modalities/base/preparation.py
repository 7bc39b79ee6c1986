"""What transformers' `generate` prepares before it decodes, taken over as it is.

Inputs, encoder states, positions, processors and stopping criteria are the library's own, so
that whatever `generate` accepts means the same here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor
from transformers import LogitsProcessorList, StoppingCriteriaList
from transformers.cache_utils import Cache
from transformers.generation import GenerationMode
from transformers.generation.stopping_criteria import StopStringCriteria

from mmspec.compat import cached_positions, pop_cache, quiet
from mmspec.errors import ModelError, OptionError

DECODED = (
    GenerationMode.GREEDY_SEARCH,
    GenerationMode.SAMPLE,
    GenerationMode.ASSISTED_GENERATION,  # the library's own speculation: the same output
)
"""Ways to generate that choose one token after the other by the target's distribution alone."""

ASKED_FOR_BY = {
    GenerationMode.CONTRASTIVE_SEARCH: "penalty_alpha",
    GenerationMode.CONSTRAINED_BEAM_SEARCH: "force_words_ids",
    GenerationMode.DOLA_GENERATION: "dola_layers",
}
"""What sets other ways in a generation config; num_beams sets the rest."""


@dataclass(frozen=True, eq=False)
class Prepared:
    """A request as `generate` hands it to a decoding loop.

    Attributes:
        model: the module whose loop it is (for BLIP its text decoder, else the model itself).
        input_ids: prompts `[rows, P]`; an encoder-decoder's are the decoder's.
        processors: prepared logits processors.
        criteria: prepared stopping criteria.
        config: prepared generation config.
        inputs: what else the model's forward takes: pixels or their features, positions, masks.
        cache: gets what the decoder remembers in the end; None where nobody asks for it.
    """

    model: Any
    input_ids: Tensor
    processors: LogitsProcessorList
    criteria: StoppingCriteriaList
    config: Any
    inputs: Mapping[str, Any]
    cache: Cache | None = field(default=None, kw_only=True)

    @property
    def prompt(self) -> list[int]:
        """The only row's ids."""
        return self.input_ids[0].tolist()

    @property
    def is_padded(self) -> bool:
        """Whether the prompt has positions that are masked out."""
        names = ["decoder_attention_mask"]
        if "encoder_outputs" not in self.inputs:  # else the other one is the encoder's
            names.append("attention_mask")
        masks = [self.inputs.get(name) for name in names]
        of_prompt = [m for m in masks if m is not None and m.shape[-1] == self.input_ids.shape[1]]
        return any(not bool(mask.all()) for mask in of_prompt)


@contextmanager
def refusing() -> Iterator[None]:
    """Quietly, with what `generate` refuses as one line.

    Raises:
        OptionError: in place of whatever it raises.
    """
    try:
        with quiet():
            yield
    except (ValueError, TypeError) as error:
        raise OptionError(" ".join(str(error).split())) from error


class _Capture:
    """A decoding loop that decodes nothing: it keeps what it was given."""

    def __init__(self) -> None:
        self.prepared: Prepared | None = None

    def __call__(
        self,
        model: Any,
        input_ids: Tensor,
        logits_processor: Any = None,
        stopping_criteria: Any = None,
        generation_config: Any = None,
        synced_gpus: bool = False,
        streamer: Any = None,
        **inputs: Any,
    ) -> Tensor:
        if cached_positions(inputs):
            raise OptionError(
                "found a filled cache, but the whole prompt is read here: leave it out"
            )
        pop_cache(inputs)
        self.prepared = Prepared(
            model, input_ids, logits_processor, stopping_criteria, generation_config, inputs
        )
        return input_ids


def prepare(model: Any, inputs: Mapping[str, Any], **options: Any) -> Prepared:
    """What `model.generate(**inputs, **options)` would decode.

    Raises:
        ModelError: its `generate` decodes in its own way.
        ValueError: whatever `generate` refuses.
    """
    capture = _Capture()
    model.generate(**inputs, **options, custom_generate=capture)
    if capture.prepared is None:
        raise ModelError(f"{type(model).__name__}.generate takes no decoding loop of another's")
    return capture.prepared


def check_mode(config: Any) -> None:
    """Raise where `generate` would not choose one token after the other by the target's
    distribution alone.

    Args:
        config: a prepared generation config.

    Raises:
        OptionError: beams, contrastive search, DoLa or forced words, or a prompt read in pieces.
    """
    if getattr(config, "prefill_chunk_size", None) is not None:  # pieces may see less of an image
        raise OptionError(
            "prefill_chunk_size: the prompt is read in one piece, set prefill_chunk_size=None"
        )
    mode = config.get_generation_mode()
    if mode in ASKED_FOR_BY:
        name = ASKED_FOR_BY[mode]
        raise OptionError(f"{name} can't be decoded speculatively: set {name}=None")
    if mode not in DECODED:
        raise OptionError("beam search can't be decoded speculatively: set num_beams=1")


def with_stop_strings(options: Mapping[str, Any], tokenizer: Any) -> dict[str, Any]:
    """Stop strings as a criterion: transformers drops `tokenizer` where a loop is brought along.

    Args:
        options: of `generate`.
        tokenizer: where the options bring none; None where nobody has one.
    """
    options = dict(options)
    tokenizer = options.pop("tokenizer", None) or tokenizer
    if options.get("stop_strings") is None or tokenizer is None:
        return options
    stop = StopStringCriteria(tokenizer=tokenizer, stop_strings=options.pop("stop_strings"))
    criteria = [*(options.pop("stopping_criteria", None) or []), stop]
    return {**options, "stopping_criteria": StoppingCriteriaList(criteria)}

"""Bark's stages: their decoders, what each is asked, and the order of codes that follows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AlternatingCodebooksLogitsProcessor
from transformers.generation.logits_process import BarkEosPrioritizerLogitsProcessor

from mmspec.compat import cache_argument
from mmspec.engine.processing import BlockForm, register_block_form
from mmspec.errors import ModelError
from mmspec.factorizations import Codebook, FirstStream, StagedCodes, TimeMajorFrames
from mmspec.modalities.base.decoder import with_module
from mmspec.modalities.base.draft import ModelDraft
from mmspec.modalities.base.prefix_decoder import PrefixTarget
from mmspec.modalities.base.preparation import Prepared
from mmspec.modalities.base.request import Request
from mmspec.modalities.speech.chain import ChainModel, prepared_chain


@register_block_form(AlternatingCodebooksLogitsProcessor)
def _alternating(processor: Any) -> BlockForm:
    """It looks at a prefix's length only: every other row is of the same codebook."""

    def block(rows: Tensor, ids: Sequence[int], start: int) -> Tensor:
        done = torch.empty_like(rows)
        for offset in range(min(2, len(rows))):
            done[offset::2] = processor(rows.new_empty(1, start + offset), rows[offset::2])
        return done

    return block


@register_block_form(BarkEosPrioritizerLogitsProcessor)
def _end_by_probability(processor: Any) -> BlockForm:
    """It looks at the scores only: an end that is probable enough is the only choice."""

    def block(rows: Tensor, ids: Sequence[int], start: int) -> Tensor:
        return processor(None, rows)

    return block


class StageTarget(PrefixTarget):
    """One of the chains: a causal model with its head, which takes no mask of ours."""

    takes_trees = False

    def _hidden(self, block: Tensor, parents: Sequence[int] | None) -> Tensor:
        """Logits `[1, n, V]` rather: the model has no decoder apart from its head."""
        cache = cache_argument(type(self._decoder), self.state.cache)
        return self._decoder(input_ids=block, use_cache=True, return_dict=True, **cache).logits

    def _logits(self, hidden: Tensor) -> Tensor:
        """They are logits already."""
        return hidden


class StageModel(ChainModel):
    """One of Bark's chains."""

    model_class = "BarkModel"
    endless = False

    def decoder(self, model: Any) -> Any:
        """The whole model."""
        return model

    def head(self, model: Any) -> nn.Module:
        """The vocabulary projection, which the model doesn't name as such."""
        return model.lm_head

    def context(self, model: Any) -> int:
        """Positions that have an embedding."""
        return model.config.block_size

    def target_class(self, model: Any) -> Callable[..., Any]:
        """What runs blocks."""
        return StageTarget

    def limit(self, prepared: Prepared) -> int:
        """Positions at which a chain is over: the last token is never read, so it needs none."""
        context = self.context(prepared.model) + 1
        return min(prepared.config.max_length or context, context)


class StageDraft(ModelDraft):
    """The same stage of another Bark: it reads the same text, or the same window."""

    def _prepared(self, request: Request) -> Prepared:
        if request.inputs is None:  # a window is all ids, the same for both
            return replace(request.prepared, model=self.drafter.model)
        return prepared_chain(self.drafter.model, request.inputs(self.drafter))


@dataclass(frozen=True, eq=False)
class Orders:
    """What Bark's `generate` asks of its stages: their arguments but for each other's codes.

    Attributes:
        semantic: of the first.
        coarse: of the second.
        fine: of the third.
    """

    semantic: Mapping[str, Any]
    coarse: Mapping[str, Any]
    fine: Mapping[str, Any]

    @property
    def settings(self) -> Any:
        """The semantic stage's generation config."""
        return self.semantic["semantic_generation_config"]

    @classmethod
    def of(cls, model: Any, **given: Any) -> Orders:
        """What `model.generate(**given)` would ask.

        Raises:
            ModelError: the model's generation config doesn't name the stages.
        """
        for name in ("semantic_config", "coarse_acoustics_config", "fine_acoustics_config"):
            if not isinstance(getattr(model.generation_config, name, None), Mapping):
                raise ModelError(
                    f"the model's generation config has no {name}: load it with its "
                    "generation_config.json"
                )
        stages: list[Any] = [_WithNoSpeechRow() for _ in range(3)]
        twin = model
        for name, stage in zip(
            ("semantic", "coarse_acoustics", "fine_acoustics"), stages, strict=True
        ):
            twin = with_module(twin, name, stage)
        twin.__dict__["codec_decode"] = lambda *codes: None
        given.pop("return_output_lengths", None)  # of sound; a grid has as many as it has
        twin.generate(given.pop("input_ids", None), **given)
        return cls(*(stage.asked for stage in stages))


class _WithNoSpeechRow:
    """Stands in for a stage and remembers what it is asked."""

    def __init__(self) -> None:
        self.asked: dict[str, Any] = {}

    def generate(self, codes: Any, **asked: Any) -> Any:
        self.asked = asked
        return codes


def descriptor(model: Any) -> StagedCodes:
    """What the steps of a model decide.

    Raises:
        ModelError: its configs don't go together.
    """
    orders = Orders.of(model)
    semantic, coarse = orders.settings, orders.coarse["coarse_generation_config"]
    fine, codes = orders.fine["fine_generation_config"], orders.coarse["codebook_size"]
    chained, first = coarse.n_coarse_codebooks, semantic.semantic_vocab_size
    if chained != 2:
        raise ModelError(f"the coarse stage has {chained} codebooks, its processor alternates 2")
    said = [part.config.output_vocab_size for part in (model.semantic, model.fine_acoustics)]
    config = model.coarse_acoustics.config
    known = max(config.input_vocab_size, config.output_vocab_size)
    pad = coarse.coarse_semantic_pad_token
    books = [Codebook(known, codes, first + codes * k, pad=pad) for k in range(chained)]
    try:
        books += [Codebook(said[1], codes, pad=codes)] * (fine.n_fine_codebooks - chained)
        tokens = Codebook(said[0], first, end=semantic.semantic_pad_token)
        return StagedCodes(
            TimeMajorFrames((tokens,), slots=(0,)),
            FirstStream(tuple(books), chained),
            Fraction(str(coarse.coarse_rate_hz)) / Fraction(str(semantic.semantic_rate_hz)),
        )
    except ValueError as error:
        raise ModelError(f"the generation config doesn't fit the model: {error}") from None


def check(model: Any, steps: StagedCodes) -> None:
    """Raise where stages or codec don't fit each other.

    Raises:
        ModelError: names both sides.
    """
    orders, settings = Orders.of(model), model.generation_config
    coarse, codec = model.coarse_acoustics.config, model.codec_model
    told, codes = orders.coarse["coarse_generation_config"], orders.coarse["codebook_size"]
    first, ends = orders.settings.semantic_vocab_size, orders.settings.eos_token_id
    chained, books = steps.acoustic.chained, len(steps.acoustic.codebooks)
    total, last = model.fine_acoustics.config.n_codes_total, first + chained * codes
    rate, hz = codec.config.frame_rate, codec.config.sampling_rate
    wrong = {
        f"a window of {told.sliding_window_len} codes ends inside a frame of {chained} coarse "
        "codebooks: the next would begin with the wrong one": told.sliding_window_len % chained,
        f"the semantic stage ends by {ends}, the coarse stage waits for "
        f"{orders.settings.semantic_pad_token}": ends != orders.settings.semantic_pad_token,
        f"the coarse model says {coarse.output_vocab_size} ids; {first} semantic tokens and "
        f"{chained} codebooks of {codes} codes are {last}": coarse.output_vocab_size < last,
        f"the generation config has {books} codebooks, the fine model {total}": books != total,
        f"{books} codebooks are written, the codec has {len(codec.quantizer.layers)}": books
        > len(codec.quantizer.layers),
        f"the model's codebooks have {codes} codes, the codec's {codec.config.codebook_size}": codes
        != codec.config.codebook_size,
        f"the model makes {told.coarse_rate_hz} frames a second, the codec reads {rate}": rate
        != told.coarse_rate_hz,
        f"the model speaks at {settings.sample_rate} Hz, the codec at {hz} Hz": hz
        != settings.sample_rate,
    }
    for message, is_so in wrong.items():
        if is_so:
            raise ModelError(message)

"""Bark: three models in a row. Two of them write plain chains, the third fills codebooks.

The semantic chain says how many frames there will be. The coarse chain goes through two codebooks,
one window after another: each window is a decoding of its own, behind what it may still see of the
semantic tokens and of the codes before it. The fine model isn't autoregressive: nothing in it can
be drafted, so the library runs it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from mmspec.compat import prepared_config
from mmspec.engine import Sampling, Steps
from mmspec.errors import InputError, ModelError
from mmspec.factorizations import Codebook, StagedCodes
from mmspec.factorizations.codes import Grid
from mmspec.modalities.base.checkpoint import Checkpoint
from mmspec.modalities.base.draft import ModelDraft
from mmspec.modalities.base.preparation import Prepared, check_mode
from mmspec.modalities.speech.bark_stages import Orders, StageDraft, StageModel, check, descriptor
from mmspec.modalities.speech.chain import (
    ChainFamily,
    check_text,
    counted,
    drawing,
    hand_over,
    log_probs,
    models,
    prepared_chain,
    tokens,
)
from mmspec.modalities.speech.contract import CodesRequest, CodesResult
from mmspec.modalities.speech.family import check_words
from mmspec.modalities.speech.filling import Filling
from mmspec.modalities.speech.preparation import Loop, shadow

if TYPE_CHECKING:
    from mmspec.modalities.speech.checkpoint import SpeechCheckpoint

SEMANTIC, FINE, FIRST_WINDOW = range(3)
"""Parts of a request that draw noise of their own; every coarse window is one more."""


class Bark(ChainFamily):
    """Bark."""

    title = "Bark"
    loads = "BarkModel"
    drafters: ClassVar[Mapping[str, str]] = {"bark": "BarkModel"}
    filled = "the fine codebooks are filled in one pass each, so nothing of them is drafted"

    def descriptor(self, model: Any) -> StagedCodes:
        """Its stages.

        Raises:
            ModelError: stages or codec don't fit each other; names both sides.
        """
        steps = descriptor(model)
        check(model, steps)
        return steps

    def chains(self, model: Any, packed: bool) -> dict[str, Checkpoint]:
        """The first two stages."""
        orders = Orders.of(model)
        coarse = orders.coarse["coarse_generation_config"]
        pads = frozenset({coarse.coarse_semantic_pad_token, coarse.coarse_infer_token})
        semantic = StageModel(frozenset({orders.settings.semantic_pad_token}))
        return {
            "semantic": Checkpoint.of(model.semantic, packed=packed, family=semantic),
            "coarse": Checkpoint.of(
                model.coarse_acoustics, packed=packed, family=StageModel(frozenset(), pads)
            ),
        }

    def drafting(self) -> type[ModelDraft]:
        """A stage drafts for its like."""
        return StageDraft

    def check_drafter(self, model: Any, drafter: Any) -> None:
        """Raise where another Bark writes other codes.

        Raises:
            ModelError: names both sides.
        """
        own, others = self.descriptor(model), self.descriptor(drafter)
        if own.semantic != others.semantic:
            raise ModelError(f"the target says {own.semantic}, the drafter {others.semantic}")
        if own.acoustic != others.acoustic:
            raise ModelError(f"the target says {own.acoustic}, the drafter {others.acoustic}")
        if own != others:
            raise ModelError(
                f"the target makes {own.frames_per_token} frames of a semantic token, the drafter "
                f"{others.frames_per_token}"
            )

    def new_tokens(self, steps: Any, frames: int) -> int:
        """Of the semantic stage, which decides how many frames there will be."""
        return math.ceil(frames / steps.frames_per_token)

    def books(self, steps: Any) -> Sequence[Codebook]:
        """Coarse ones, then fine ones."""
        return steps.acoustic.codebooks

    def earlier(self, sequence: Sequence[Any], name: str) -> Sequence[int]:
        """One stage of what was said."""
        return sequence[("semantic", "coarse").index(name)]

    def text_inputs(self, checkpoint: SpeechCheckpoint, text: str) -> dict[str, Any]:
        """The text's ids, padded to what the semantic stage reads.

        Raises:
            InputError: the text is empty, too long, or has characters that it doesn't know.
        """
        check_words(text)
        most = Orders.of(checkpoint.model).settings.max_input_semantic_length
        made = checkpoint.processor(text, max_length=most, return_tensors="pt")
        ids = made["input_ids"][0]
        if len(ids) > most:
            raise InputError(f"the text has {len(ids)} tokens, Bark reads {most}: say it in parts")
        unknown = checkpoint.processor.tokenizer.unk_token_id
        if unknown is not None and bool((ids == unknown).any()):
            raise InputError(
                "the text has characters that Bark's tokenizer doesn't know: leave them out"
            )
        return {name: value.to(checkpoint.device) for name, value in made.items()}

    def codec(self, checkpoint: SpeechCheckpoint) -> Any:
        """The model's own; it may have more codebooks than are written."""
        return checkpoint.model.codec_model

    def say(self, asked: CodesRequest) -> Steps[CodesResult]:
        """All stages, one behind the other.

        `max_new_tokens` is the semantic stage's: the others follow from it.
        """
        checkpoint, stats = asked.pair.checkpoint, asked.stats
        model, steps, clock = checkpoint.model, checkpoint.steps, stats.clock
        orders = Orders.of(model, **asked.inputs, **_options(asked))
        _check_request(model, asked.inputs, orders)
        text = {"input_ids": asked.inputs["input_ids"], **orders.semantic}

        def own_text(drafter: Checkpoint) -> Mapping[str, Any]:
            """Drafters embed the text by themselves; the model's settings hold for both."""
            return {**text, **(asked.drafter_inputs or {})}

        with clock("prefill"):
            prepared = prepared_chain(model.semantic, text)
        semantic = yield from tokens(asked, "semantic", prepared, go=SEMANTIC, inputs=own_text)
        finish_reason, before = stats.finish_reason, len(stats.tally.trace)
        coarse = yield from _coarse(asked, semantic, orders)
        chained = steps.acoustic.chained
        rounds = stats.tally.trace[before:]
        books = len(steps.acoustic.codebooks)
        stats.codes.append(counted(rounds, books, lambda index: index % chained))
        fine: Sequence[Sequence[int]] = [()] * (books - chained)
        if coarse:
            codes = yield Filling(lambda: _fine(asked, coarse, orders), clock)
            fine = codes[0, chained:].tolist()
        stats.finish_reason = finish_reason
        sequence = (tuple(semantic), tuple(coarse), *map(tuple, fine))
        _, grid = steps.to_grid(sequence)
        hand_over(asked.streamer, grid)
        sampling = drawing(asked, any(_draws(orders)))
        return CodesResult(grid, steps.has_ended(sequence), sequence, 0, sampling)

    def log_probs(self, asked: CodesRequest, said: CodesResult, *, text: bool) -> list[float]:
        """Of the semantic tokens; coarse ones read these and no text, so they lose nothing by it.

        A text is dropped as Bark reads the rest of a short one: as padding.
        """
        model, inputs = asked.pair.checkpoint.model, dict(asked.inputs)
        if not text:
            inputs["attention_mask"] = torch.zeros_like(inputs["input_ids"])
        orders = Orders.of(model, **inputs, **_options(asked))
        prompt = {"input_ids": inputs["input_ids"], **orders.semantic}
        semantic, coarse = said.sequence[:2]
        chain = self.chains(model, packed=False)["semantic"]
        found = log_probs(chain, prepared_chain(model.semantic, prompt), semantic)
        return [*found, *[0.0] * len(coarse)]


FAMILY = Bark()


def _options(asked: CodesRequest) -> dict[str, Any]:
    """Of `generate`; a length is the semantic stage's, and the others take none."""
    options = dict(asked.options)
    if "max_new_tokens" in options:
        options["semantic_max_new_tokens"] = options.pop("max_new_tokens")
    return options


def _check_request(model: Any, inputs: Mapping[str, Any], orders: Orders) -> None:
    most = orders.settings.max_input_semantic_length
    known = model.semantic.config.input_vocab_size - orders.settings.text_encoding_offset
    ids = inputs.get("input_ids")
    check_text(ids, known, most)
    if ids is not None and ids.shape[1] < most:
        raise InputError(
            f"the text has {ids.shape[1]} ids, the semantic stage reads {most}: pad it to that "
            "length, as Bark's processor does"
        )
    chains = (
        (model.semantic, orders.settings, orders.semantic),
        (model.coarse_acoustics, orders.coarse["coarse_generation_config"], orders.coarse),
    )
    for part, config, order in chains:
        check_mode(prepared_config(part, config, dict(order))[0])


def _draws(orders: Orders) -> Iterator[bool]:
    """Whether each stage draws; the fine one does where its temperature isn't 1."""
    for order, name in ((orders.semantic, "semantic"), (orders.coarse, "coarse")):
        config = order[f"{name}_generation_config"]
        yield bool(order.get("do_sample", config.do_sample))
    config = orders.fine["fine_generation_config"]
    yield orders.fine.get("temperature", config.temperature) not in (None, 1.0)


def _coarse(asked: CodesRequest, semantic: Sequence[int], orders: Orders) -> Steps[list[int]]:
    """The coarse chain, window after window.

    The library's own code says what a window sees, so it is run once per window, with the windows
    before it answered. That is half a millisecond for each of them.
    """
    coarse = models(asked.pair.checkpoint)["coarse"].model
    ids = torch.tensor([list(semantic)], device=coarse.device)
    answers: list[list[int]] = []
    while True:
        with asked.stats.clock("prefill"):
            try:
                twin = shadow(coarse, _answering(answers))
                codes = twin.generate(ids.clone(), **orders.coarse)  # it writes to its tokens
                return codes[0].tolist()
            except _NextWindow as window:
                prepared = window.prepared
        go = FIRST_WINDOW + len(answers)
        answers.append((yield from tokens(asked, "coarse", prepared, go=go)))


class _NextWindow(Exception):
    """A window that nobody has decoded yet."""

    def __init__(self, prepared: Prepared) -> None:
        super().__init__()
        self.prepared = prepared


def _answering(answers: Sequence[Sequence[int]]) -> Loop:
    """A loop that knows the first windows, and raises at the next."""
    known = iter(answers)

    def loop(prepared: Prepared) -> Tensor:
        window = next(known, None)
        if window is None:
            raise _NextWindow(prepared)
        ids = prepared.input_ids
        return torch.cat([ids, ids.new_tensor([list(window)])], 1)

    return loop


@torch.no_grad()
def _fine(asked: CodesRequest, coarse: Sequence[int], orders: Orders) -> Tensor:
    """Codes of all codebooks `[1, K, T]`; the stage draws where its temperature isn't 1."""
    model = asked.pair.checkpoint.model.fine_acoustics
    seed = Sampling(True, asked.seed).of_part(0, FINE).seed
    ids = torch.tensor([list(coarse)], device=model.device)
    if seed is None:
        return model.generate(ids, **orders.fine)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return model.generate(ids, **orders.fine)


@torch.no_grad()
def sound(model: Any, grid: Grid) -> Tensor:
    """The waveform of a grid of codes as the model itself makes it, float `[samples]`.

    Args:
        model: a Bark.
        grid: codes, frames × codebooks, whole: the codec's recurrent layers hear all of it.
    """
    if not grid:
        return torch.zeros(0, device=model.device)
    codes = torch.tensor([list(zip(*grid, strict=True))], device=model.device)
    return model.codec_decode(codes)[0]

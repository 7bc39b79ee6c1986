"""Who can decode an image: mmspec with any drafter, and transformers."""

from __future__ import annotations

import inspect
import time
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from mmspec.compare.differences import Difference, token_difference
from mmspec.compare.peers import (
    LOOKUP_TOKENS,
    DecodeWatch,
    Outcome,
    Unavailable,
    untouched,
)
from mmspec.compat import quiet
from mmspec.errors import OptionError
from mmspec.modalities.base.checkpoint import Checkpoint
from mmspec.modalities.base.draft import ModelDraft, vocabulary_between
from mmspec.modalities.base.speculative_decoder import NoDraft
from mmspec.modalities.media.images import open_images
from mmspec.modalities.vlm.looking import generation_options, prepared_look
from mmspec.modalities.vlm.request import VisionRequest
from mmspec.modalities.vlm.text_only import TextOnlyDraft
from mmspec.modalities.vlm.token_pruning import PrunedDraft
from mmspec.proposals import SameVocabulary
from mmspec.tasks.vlm.viewer import Viewer

HIDES_IMAGES = "transformers doesn't hand the images on to the drafter"


class MMSpecPeer:
    """mmspec with some drafter, or with none."""

    remark: str | None = None

    def __init__(self, viewer: Viewer, name: str) -> None:
        self.viewer, self.name = viewer, name
        self.why_not: str | None = None

    def run(self, images: Any, request: VisionRequest, hypothesis: Any = None) -> Outcome:
        """Look with `Viewer.describe`."""
        hypothesis = self.expected(request, hypothesis)
        start = time.perf_counter()
        said = self.viewer.describe(images, request, hypothesis=hypothesis)
        seconds = time.perf_counter() - start
        return Outcome(said.ids, said.text, said.report.decode_seconds, seconds, said.report)

    def expected(self, request: VisionRequest, hypothesis: Any) -> Any:
        """The hypothesis; an empty one where there is none and nobody could find out."""
        lacks = hypothesis is None and request.task != "read"
        return "" if lacks and self.viewer.draft_name == "hypothesis" else hypothesis


class TransformersPeer:
    """transformers' `generate` on the user's own model object, with or without assistance.

    Attributes:
        remark: what is to be known beside its figures.
    """

    def __init__(
        self,
        model: Any,
        processor: Any,
        name: str,
        assistance: Mapping[str, Any] | None = None,
        remark: str | None = None,
    ) -> None:
        self.name, self.remark = name, remark
        self.why_not: str | None = None
        self._checkpoint = Checkpoint.of(model, processor, packed=False)
        self._assistance = dict(assistance or {})

    def run(self, images: Any, request: VisionRequest, hypothesis: Any = None) -> Outcome:
        """Decode with `generate`; the models' generation configs are as before afterwards.

        Raises:
            OptionError: sampling, whose noise is transformers' own.
        """
        if request.temperature > 0:
            raise OptionError("sampled ids can't be compared: transformers draws other noise")
        checkpoint, watch = self._checkpoint, DecodeWatch()
        models = [speaker_of(checkpoint.model), self._assistance.get("assistant_model")]
        with quiet(), untouched(models), torch.no_grad():
            start = time.perf_counter()
            sequences = checkpoint.model.generate(
                **checkpoint.inputs(shown(images), request.instruction),
                **generation_options(checkpoint.model, request),
                **self._assistance,
                streamer=watch,
            )
            tokens = tuple(sequences[0, len(watch.prompts[0]) :].tolist())
            text = checkpoint.text(tokens).strip()
            seconds = time.perf_counter() - start
        return Outcome(tokens, text, watch.decode_s, seconds)

    @property
    def end(self) -> int:
        """The id that ends an output."""
        return min(self._checkpoint.steps.stop_tokens)

    def difference(
        self, images: Any, request: VisionRequest, ours: Outcome, peer: Outcome
    ) -> Difference | None:
        """The first token that differs, None where all are equal."""
        return token_difference(self, images, request, ours, peer)

    def knows_gap(self, ours: Outcome) -> bool:
        """Always: what stands before a token is the prompt and the tokens before it."""
        return True

    @torch.no_grad()
    def gap(
        self, images: Any, request: VisionRequest, before: Sequence[int], pair: tuple[int, int]
    ) -> float:
        """Difference of the target's raw logits for two ids behind `before`."""
        checkpoint = self._checkpoint
        inputs = checkpoint.inputs(shown(images), request.instruction)
        opened = checkpoint.family.open(prepared_look(checkpoint, request, inputs), packed=False)
        try:
            row = opened.read_prompt()[-1]
            if before:
                row = opened.score(before, 1)[-1]
        finally:
            opened.close()
        return abs(float(row[pair[0]] - row[pair[1]]))


def shown(images: Any) -> list[Any]:
    """Images as a model is shown them."""
    return list(open_images(images if isinstance(images, list | tuple) else [images]))


def speaker_of(model: Any) -> Any:
    """The module whose `generate` decodes: BLIP's is its text decoder's."""
    return getattr(model, "text_decoder", model)


def hides_images(model: Any) -> bool:
    """Whether transformers' assisted generation leaves the images out of what the drafter reads.

    It does where a model takes encoded images beside its prompt, in every such family that was
    tried; `benchmarks/copy_as_drafter.py` shows what that costs.
    """
    return "mm_encoder_outputs" in inspect.signature(model.forward).parameters


def plain_of(ours: Viewer, *, packed: bool = True) -> Viewer:
    """Ordinary decoding with the same target."""
    return Viewer(Checkpoint.of(ours.model, ours.processor, packed=packed), NoDraft(), "adaptive")


def own(ours: Viewer, name: str) -> MMSpecPeer:
    """mmspec itself as a peer."""
    return MMSpecPeer(ours, name)


def library(ours: Viewer) -> TransformersPeer:
    """transformers on the same target."""
    return TransformersPeer(ours.model, ours.processor, "hf")


def assisted(ours: Viewer) -> TransformersPeer | Unavailable:
    """transformers' own speculation with the drafter of `ours`, where there is such a thing."""
    draft, name = ours.draft, "hf-assisted"
    if draft.name == "ngram":
        return TransformersPeer(
            ours.model, ours.processor, name, {"prompt_lookup_num_tokens": LOOKUP_TOKENS}
        )
    if not isinstance(draft, ModelDraft):
        why = "no drafter to assist with"
        if draft.name != "none":
            why = f"transformers has no {draft.name.partition(':')[0]} drafting for images"
        return Unavailable(name, why)
    if isinstance(draft, PrunedDraft):
        return Unavailable(name, "transformers has no drafter that reads a part of an image")
    target, drafter = draft.target, draft.drafter
    assistance = {"assistant_model": speaker_of(drafter.model)}
    if not isinstance(vocabulary_between(target, drafter), SameVocabulary):
        assistance |= {
            "tokenizer": target.tokenizer,
            "assistant_tokenizer": drafter.tokenizer,
        }
    sees = not isinstance(draft, TextOnlyDraft)
    remark = HIDES_IMAGES if sees and hides_images(ours.model) else None
    return TransformersPeer(ours.model, ours.processor, name, assistance, remark)

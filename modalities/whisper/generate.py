"""Whisper inside transformers' `generate`: it prepares everything, mmspec decodes.

`generate` has made the encoder states, the prompt, the processors and the criteria. From there the
rows of a batch share their forward passes, each at its own pace.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from transformers import LogitsProcessorList, StoppingCriteriaList
from transformers.cache_utils import DynamicCache, EncoderDecoderCache

from mmspec.clock import Clock
from mmspec.compat import cache_argument
from mmspec.engine import Sampling, Scores, Steps, Stops, run_batched
from mmspec.engine.stats import RequestStats
from mmspec.errors import ModelError
from mmspec.modalities.base.rows import Row, collects_scores
from mmspec.modalities.base.speculative_decoder import decode
from mmspec.modalities.whisper.checkpoint import Whisper
from mmspec.modalities.whisper.ctc_draft import CtcHeadDraft, CtcModelDraft
from mmspec.modalities.whisper.draft import ModelDraft, Window
from mmspec.modalities.whisper.window import WhisperSpeculativeDecoder, read_prompt
from mmspec.proposals import SameVocabulary


@dataclass
class Windows:
    """What `generate` hands to a decoding loop, and how mmspec is to decode it.

    Attributes:
        pair: the target and its kind of drafter.
        input_ids: prompts `[rows, P]`.
        encoder_states: `[rows, S, D]`.
        features: log-mel features `[rows, bins, frames]`, None where only states were given.
        processors: prepared processors.
        criteria: prepared criteria.
        config: prepared generation config.
        sampling: how tokens are drawn.
        go: how often these rows were decoded before: a later go draws other noise.
        hypothesis: expected tokens, for a hypothesis drafter.
        streamer: gets committed ids (one row only).
        pad: what stands behind a row that ended before others.
        cache: gets what the decoder remembers of the rows; None where nobody asks for it.
    """

    pair: WhisperSpeculativeDecoder
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
    pad: int = 0
    cache: EncoderDecoderCache | None = None

    @property
    def collects_scores(self) -> bool:
        """Whether rows of scores are to be returned."""
        return collects_scores(self.config)


def decode_rows(request: Windows) -> list[Row]:
    """Decode the rows of a prepared batch together; each is held back by none of the others.

    Raises:
        Exception: whatever a row raised.
    """
    rows: dict[int, Row] = {}
    width = len(request.input_ids)
    request = replace(request, pair=request.pair.for_batch(width))
    requests = (_decode_row(request, row) for row in range(len(request.input_ids)))
    for number, outcome in run_batched(requests, width):
        if isinstance(outcome, Exception):
            raise outcome
        rows[number] = outcome
    in_order = [rows[number] for number in sorted(rows)]
    if request.cache is not None:
        _fill(request, request.cache, in_order)
    return in_order


@torch.no_grad()
def _fill(request: Windows, cache: EncoderDecoderCache, rows: Sequence[Row]) -> None:
    """Leave what was remembered of each row in one cache; behind its end a row has read pads."""
    longest, decoder = max(len(row.ids) for row in rows), request.pair.whisper.model.get_decoder()
    for number, row in enumerate(rows):
        unread = [*row.ids[-1:], *[request.pad] * (longest - len(row.ids))][:-1]
        if unread:
            decoder(
                input_ids=torch.tensor([unread], device=request.input_ids.device),
                encoder_hidden_states=request.encoder_states[number : number + 1],
                use_cache=True,
                **cache_argument(type(decoder), row.memory),
            )
    for half in ("self_attention_cache", "cross_attention_cache"):
        of_rows = [getattr(row.memory, half).layers for row in rows]
        for index, layers in enumerate(zip(*of_rows, strict=True)):
            keys, values = (
                torch.cat([getattr(layer, name) for layer in layers]) for name in ("keys", "values")
            )
            getattr(cache, half).update(keys, values, index)
            cache.is_updated[index] = True


def _decode_row(request: Windows, row: int) -> Steps[Row]:
    pair = request.pair
    stats = RequestStats(Clock(pair.whisper.device))  # transformers ran the encoder before
    states, prompt = request.encoder_states[row : row + 1], request.input_ids[row].tolist()
    context = pair.whisper.steps.context
    limit = min(request.config.max_length or context, context)
    scores = Scores([], []) if request.collects_scores else None
    with pair.target(states, stats) as target:
        first_row = yield from read_prompt(target, prompt, stats)
        window = Window(
            target,
            prompt,
            states,
            _features_of(request, row),
            lambda other: _draft_prompt(request, prompt, other),
            request.hypothesis,
            stats.clock,
        )
        with pair.session(
            window,
            first_row,
            stats,
            processors=request.processors,
            stops=Stops.from_transformers(request.criteria, (), limit),
            sampling=request.sampling.of_part(row, request.go),
            streamer=request.streamer,
            scores=scores,
        ) as session:
            ids = yield from decode(session)
        memory = None
        if request.cache is not None:
            memory = EncoderDecoderCache(DynamicCache(), DynamicCache())
            target.state.copy_to(memory)
        if request.streamer is not None:
            request.streamer.end()
    return Row(ids, scores, stats.report(request.sampling, pair.costs), memory)


def check_ears(request: Windows) -> None:
    """Raise where the drafter has an encoder of its own that can't hear what was given.

    Raises:
        ModelError: says what it takes and what there is.
    """
    draft, features = request.pair.draft, request.features
    if isinstance(draft, CtcHeadDraft | CtcModelDraft):
        raise ModelError(
            "draft ctc: it listens to the encoder's middle layer or the audio, and here only the "
            "encoder's end is given: use mmspec.load(...).transcribe"
        )
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


def _features_of(request: Windows, row: int) -> Any:
    features = request.features
    return None if features is None else lambda other: features[row : row + 1]


def _draft_prompt(request: Windows, prompt: Sequence[int], other: Whisper) -> Sequence[int]:
    """The prompt as the drafting model would be given it."""
    draft = request.pair.draft
    if not isinstance(draft, ModelDraft) or isinstance(draft.vocabulary, SameVocabulary):
        return prompt
    steps = request.pair.whisper.steps
    start = len(prompt) - 1 - list(reversed(prompt)).index(steps.start)
    said = set(prompt[start:])
    language = next((name for name, token in steps.languages if token in said), None)
    task = next((name for name, token in steps.tasks if token in said), None)
    return other.steps.prompt(
        language=dict(other.steps.languages).get(language or ""),
        task=task if task in dict(other.steps.tasks) else None,
        timestamps=steps.no_timestamps not in said,
    )

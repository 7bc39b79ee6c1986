"""Requests of tiny models with delayed codebooks, as mmspec decodes them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from mmspec.acceptance.frames import code_noise
from mmspec.clock import Clock
from mmspec.engine import BlockCosts, FixedPolicy, run_alone
from mmspec.engine.stats import RequestStats
from mmspec.modalities.base.speculative_decoder import Draft, NoDraft, SpeculativeDecoder
from mmspec.modalities.speech.checkpoint import SpeechCheckpoint
from mmspec.modalities.speech.contract import CodesRequest, CodesResult
from mmspec.modalities.speech.draft import HeadsDraft, LookupDraft, ModelDraft, RepeatDraft
from mmspec.modalities.speech.family import FrameFamily
from mmspec.modalities.speech.heads import FrameHeads, HeadsConfig
from mmspec.prefix import Frame, Prefix
from mmspec.proposals import Drafter, Outlook
from mmspec.proposals.frames.drafted import DraftedFrames

GAMMAS = (1, 4, 60)
"""Behind 0, which drafts nothing; the last one is beyond the end of any output."""

Spoil = Callable[[int, Frame], Frame]
"""(absolute row, what is right there) to what is drafted."""


class Told(Drafter):
    """Drafts rows of a known output, spoilt or not."""

    name = "told"

    def __init__(self, rows: Sequence[Frame], spoil: Spoil) -> None:
        self._rows, self._spoil = rows, spoil

    def outlook(self, prefix: Prefix) -> Outlook:
        left = len(self._rows) - len(prefix)
        return Outlook("told", first=0.9, rest=0.9, available=max(0, left))

    def propose(self, prefix: Prefix, limit: int, pick: Any) -> DraftedFrames:
        start = len(prefix)
        right = self._rows[start : start + limit]
        return DraftedFrames(tuple(self._spoil(start + i, row) for i, row in enumerate(right)))


@dataclass
class Telling:
    """A kind of drafter that is told what the target says."""

    rows: Sequence[Frame]
    spoil: Spoil = lambda row, frame: frame
    name: str = "told"

    def open(self, opening: Any) -> Drafter:
        return Told(self.rows, self.spoil)


@dataclass(frozen=True)
class Run:
    """What was said, and what it took."""

    said: CodesResult
    stats: RequestStats

    @property
    def rows(self) -> list[Frame]:
        return list(self.said.sequence)

    @property
    def forwards(self) -> int:
        return self.stats.target_forwards


def drafts(
    target: SpeechCheckpoint, truth: Sequence[Frame], twin: Any, other: Any, given: int = 0
) -> Iterator[tuple[str, Draft]]:
    """Every kind of drafter: told right and wrong, models, heads that know nothing, lookup.

    Args:
        target: drafted for.
        truth: the rows that it says.
        twin: the same weights.
        other: other weights.
        given: frames of its prompt.
    """
    codes, delays = target.steps.codebooks[0].codes, target.steps.delays

    def wrong(row: int, frame: Frame) -> Frame:
        spoilt = row % len(frame)
        if row % 3 == 2 or frame[spoilt] >= codes or row - 1 - delays[spoilt] < given:
            return frame
        return (*frame[:spoilt], (frame[spoilt] + 1) % codes, *frame[spoilt + 1 :])

    torch.manual_seed(5)
    shape = HeadsConfig(
        hidden=target.family.width(target.model),  # type: ignore[attr-defined]
        offsets=3,
        codebooks=len(target.steps.codebooks),
        vocab=target.steps.codebooks[0].vocab_size,
        rank=4,
    )
    yield "none", NoDraft()
    yield "right", Telling(truth)
    yield "wrong", Telling(truth, wrong)
    yield "copy", ModelDraft(target, twin)
    yield "other", ModelDraft(target, other)
    yield "heads", HeadsDraft(target, FrameHeads(shape).eval())
    yield "repeat", RepeatDraft()
    lookup = LookupDraft()
    lookup.remember([*truth[:4], *truth[5:]])
    yield "lookup", lookup


def checkpoint(family: FrameFamily, model: Any) -> SpeechCheckpoint:
    return SpeechCheckpoint.of(model, packed=False, family=family)


@contextmanager
def drawing(seed: int, start: int) -> Iterator[None]:
    """Let transformers' own loop draw by keyed noise, its first row at position `start`.

    The distribution stays the library's: only where a draw would be made from it, noise decides. So
    seeded codes can be compared with the library's own.
    """
    positions = itertools.count(start)

    def multinomial(law: Tensor, num_samples: int, **more: Any) -> Tensor:
        noise = code_noise(seed, torch.tensor(next(positions)), *law.shape)
        return (law.double().log() + noise).argmax(-1, keepdim=True)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "multinomial", multinomial)
        yield


def run(
    family: FrameFamily,
    model: Any,
    inputs: Mapping[str, Any],
    draft: Draft | None = None,
    gamma: int = 4,
    *,
    seed: int | None = None,
    rule: str = "auto",
    **options: Any,
) -> Run:
    """Decode a request; a drafter that fails is a failure."""
    pair = SpeculativeDecoder(
        checkpoint(family, model), draft or NoDraft(), FixedPolicy(gamma), BlockCosts()
    )
    stats = RequestStats(Clock(torch.device("cpu")))
    asked = CodesRequest(pair, inputs, stats, options, seed=seed, rule=rule)
    said = run_alone(family.say(asked))
    if stats.tally.faults:
        raise AssertionError(stats.tally.faults)
    return Run(said, stats)

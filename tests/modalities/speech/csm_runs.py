"""Requests of tiny CSM models, as mmspec decodes them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor

from mmspec.clock import Clock
from mmspec.engine import BlockCosts, FixedPolicy, Sampling
from mmspec.engine.stats import RequestStats
from mmspec.modalities.base.speculative_decoder import Draft, NoDraft, SpeculativeDecoder
from mmspec.modalities.speech.checkpoint import SpeechCheckpoint
from mmspec.modalities.speech.contract import CodesRequest, step_kind_of, stops_of
from mmspec.modalities.speech.csm import CsmFamily
from mmspec.modalities.speech.csm_request import CsmPrepared
from mmspec.modalities.speech.csm_target import CsmTarget
from mmspec.modalities.speech.depth_drafting import DepthDrafter
from mmspec.modalities.speech.request import Request
from mmspec.prefix import Frame
from mmspec.proposals import Drafter

from .delayed_runs import Spoil, Told

FRAMES = 12


@dataclass(frozen=True)
class Run:
    """What was said, and what it took."""

    frames: list[Frame]
    target: CsmTarget
    stats: RequestStats
    finished: str | None

    @property
    def forwards(self) -> int:
        return self.target.forwards

    @property
    def depth_passes(self) -> int:
        return self.target.depth.passes

    @property
    def kept(self) -> list[tuple[int, int]]:
        """(drafted, accepted) of every round."""
        return [(len(done.proposal), done.accepted) for done in self.stats.tally.trace]


class Drafting:
    """A drafting CSM of its own, which counts what it took."""

    name = "model"

    def __init__(self, model: Any, inputs: Mapping[str, Tensor]) -> None:
        self._model, self._inputs = model, inputs

    def open(self, opening: Any) -> Drafter:
        family = opening.asked.pair.checkpoint.family
        self.opened: CsmTarget = family.open_drafter(
            opening.prepared, self._model, inputs=self._inputs
        )
        return DepthDrafter(self.opened, self.opened.read_prompt())


class Telling:
    """A kind of drafter that is told what the target says, spoilt or not."""

    name = "told"

    def __init__(self, rows: Sequence[Frame], spoil: Spoil = lambda row, frame: frame) -> None:
        self.rows, self.spoil = rows, spoil

    def open(self, opening: Any) -> Drafter:
        return Told(self.rows, self.spoil)


def run(
    model: Any,
    inputs: Mapping[str, Tensor],
    draft: Draft | None = None,
    gamma: int = 3,
    *,
    guess: Any = None,
    seed: int | None = None,
    rule: str = "auto",
    packed: bool = False,
    **options: Any,
) -> Run:
    """Decode a request; a drafter that fails is a failure."""
    family = CsmFamily(guess)
    checkpoint = SpeechCheckpoint.of(model, packed=packed, family=family)
    pair = SpeculativeDecoder(checkpoint, draft or NoDraft(), FixedPolicy(gamma), BlockCosts())
    stats = RequestStats(Clock(torch.device("cpu")))
    asked = CodesRequest(pair, inputs, stats, options, seed=seed, rule=rule)
    prepared = family.prepare(model, inputs, **{"max_new_tokens": FRAMES, **options})
    target = cast(CsmTarget, family.open(prepared, packed=packed))
    try:
        row = target.read_prompt()
        with pair.session(
            Request(target, prepared, asked, stats.clock),
            row,
            stats,
            processors=prepared.processors,
            stops=stops_of(target, prepared),
            sampling=Sampling(bool(prepared.config.do_sample), seed, rule),
            step_kind=step_kind_of(target),
        ) as session:
            session.run()
    finally:
        target.close()
    if stats.tally.faults:
        raise AssertionError(stats.tally.faults)
    return Run(list(session.prefix.ids), target, stats, session.finish_reason)


@contextmanager
def opened(
    model: Any, inputs: Mapping[str, Tensor], guess: Any = None, **options: Any
) -> Iterator[tuple[CsmTarget, Tensor, CsmPrepared]]:
    """A target behind its prompt, the row that reading it left, and what it was opened on."""
    family = CsmFamily(guess)
    prepared = family.prepare(model, inputs, **{"max_new_tokens": 40, **options})
    target = cast(CsmTarget, family.open(prepared, packed=False))
    try:
        yield target, target.read_prompt(), prepared
    finally:
        target.close()

"""One encoder window being decoded: what `transcribe` and transformers' `generate` share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor

from mmspec.clock import Clock
from mmspec.engine import Chooser, Policy, Processors, Sampling, Scores, Session, Steps, Stops
from mmspec.engine.account import Account
from mmspec.engine.costs import BlockCosts
from mmspec.kernels import side_by_side
from mmspec.modalities.decoder import DecoderTarget
from mmspec.modalities.whisper import Whisper
from mmspec.modalities.whisper_draft import Draft, Window
from mmspec.target import Pass


@dataclass(frozen=True, eq=False)
class Pair:
    """A target with its kind of drafter, and what was learned about their costs.

    Attributes:
        whisper: the target.
        draft: the kind of drafter.
        policy: chooses γ.
        costs: the target's by block size.
    """

    whisper: Whisper
    draft: Draft
    policy: Policy
    costs: BlockCosts
    _by_company: dict[int, Pair] = field(default_factory=dict)

    def beside(self, width: int) -> Pair:
        """The same pair where `width` requests share their passes, which then cost otherwise."""
        if width == 1:
            return self
        if width not in self._by_company:
            costs = BlockCosts()
            policy = self.policy.at(costs)
            self._by_company[width] = Pair(self.whisper, self.draft, policy, costs)
        return self._by_company[width]

    @contextmanager
    def target(self, states: Tensor, account: Account) -> Iterator[DecoderTarget]:
        """The target's decoder on one window's encoder states, closed and counted afterwards."""
        with account.clock("prefill"):
            target = self.whisper.open(states)
        try:
            yield target
        finally:
            account.target_forwards += target.forwards
            target.close()

    @contextmanager
    def session(
        self,
        window: Window,
        first_row: Tensor,
        account: Account,
        *,
        processors: Any,
        stops: Stops,
        sampling: Sampling,
        streamer: Any = None,
        scores: Scores | None = None,
    ) -> Iterator[Session]:
        """A session on a window whose prompt was read, with a drafter of this pair's kind."""
        drafter, runs = self.draft.open(window), window.drafter_encoder_runs
        try:
            session = Session(
                window.target,
                window.prompt,
                first_row,
                drafter=drafter,
                policy=self.policy,
                chooser=Chooser(sampling, window.target.device),
                processors=Processors(processors),
                stops=stops,
                clock=account.clock,
                costs=self.costs,
                tally=account.tally,
                streamer=streamer,
                scores=scores,
            )
            yield session
            account.finish_reason = session.finish_reason or "stop"
        finally:
            if drafter is not None:
                account.add_drafter(drafter, window.drafter_encoder_runs - runs)
                drafter.close()


def read_prompt(
    target: DecoderTarget, prompt: Sequence[int], account: Account, keep: int = 1
) -> Steps[Tensor]:
    """Let the target read what it hasn't read of its prompt; the last `keep` rows `[keep, V]`."""
    unread = prompt[target.state.length :]
    rows = yield Pass(target, unread, keep, None, account.clock, "prefill")
    target.state.freeze()
    return rows


def decode(session: Session) -> Steps[list[int]]:
    """A session's rounds to its end; what it emitted."""
    while session.finish_reason is None:
        yield from session.steps()
    return session.prefix.emitted


@dataclass(frozen=True, slots=True, eq=False)
class Encoding:
    """An encoder run that a request needs next.

    Attributes:
        whisper: whose encoder.
        features: one window `[1, bins, frames]`.
        clock: of the request.
    """

    whisper: Whisper
    features: Tensor
    clock: Clock

    @property
    def phase(self) -> str:
        """What its seconds are counted as."""
        return "encode"

    @property
    def kind(self) -> int:
        """Windows of one model may be encoded together."""
        return id(self.whisper.model)

    def run(self) -> Tensor:
        """Encoder states `[1, S, D]`."""
        with self.clock(self.phase):
            return self.whisper.encode(self.features)

    def run_together(self, works: Sequence[Encoding]) -> list[Tensor]:
        """States of several windows: from one run, but on a CPU, which is busy with one already."""
        if self.whisper.device.type != "cpu":
            states = self.whisper.encode(torch.cat([work.features for work in works]))
            return list(states.split(1))
        return side_by_side([partial(work.whisper.encode, work.features) for work in works])

"""A target with its kind of drafter: what requests of every modality share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, Self, TypeVar

from torch import Tensor

from mmspec.engine import SINGLE, Policy, Sampling, Scores, Session, StepKind, Steps, Stops
from mmspec.engine.costs import BlockCosts
from mmspec.engine.stats import RequestStats
from mmspec.proposals import Drafter
from mmspec.target import Target

C = TypeVar("C")


class Opening(Protocol):
    """What is being decoded, as far as a session has to know it.

    Attributes:
        target: the opened decoder.
        prompt: what it has read.
        drafter_encoder_runs: of a drafter's own encoder, so far.
    """

    @property
    def target(self) -> Target: ...  # noqa: D102

    @property
    def prompt(self) -> Sequence[Any]: ...  # noqa: D102

    @property
    def drafter_encoder_runs(self) -> int: ...  # noqa: D102


class Draft(Protocol):
    """A kind of drafter, chosen once; `open` makes one for what is being decoded."""

    name: str

    def open(self, opening: Any) -> Drafter | None:
        """A drafter, None where there is nothing to draft from."""
        ...


class NoDraft:
    """Ordinary decoding."""

    name = "none"

    def open(self, opening: Any) -> Drafter | None:
        """Nothing."""
        return None


@dataclass(frozen=True, eq=False)
class SpeculativeDecoder(Generic[C]):
    """A target with its kind of drafter, and what was learned about their costs.

    Attributes:
        checkpoint: the target.
        draft: the kind of drafter.
        policy: chooses γ.
        costs: the target's by block size.
    """

    checkpoint: C
    draft: Draft
    policy: Policy
    costs: BlockCosts
    _by_company: dict[int, Self] = field(default_factory=dict)

    def for_batch(self, width: int) -> Self:
        """The same pair where `width` requests share their passes, which then cost otherwise."""
        if width == 1:
            return self
        if width not in self._by_company:
            costs = BlockCosts()
            policy = self.policy.at(costs)
            self._by_company[width] = type(self)(self.checkpoint, self.draft, policy, costs)
        return self._by_company[width]

    @contextmanager
    def session(
        self,
        opening: Opening,
        first_row: Tensor,
        stats: RequestStats,
        *,
        processors: Any,
        stops: Stops,
        sampling: Sampling,
        step_kind: StepKind = SINGLE,
        streamer: Any = None,
        scores: Scores | None = None,
    ) -> Iterator[Session]:
        """A session behind a prompt that was read, with a drafter of this pair's kind."""
        drafter, runs = self.draft.open(opening), opening.drafter_encoder_runs
        stats.note(opening.target.note)
        device = opening.target.device
        try:
            sampler = step_kind.sampler(stats.left_for(sampling), device)
            session = Session(
                opening.target,
                step_kind.prefix(opening.prompt, stops.max_length, device),
                first_row,
                drafter=drafter,
                policy=self.policy,
                sampler=sampler,
                processors=step_kind.processors(processors),
                stops=stops,
                clock=stats.clock,
                costs=self.costs,
                tally=stats.tally,
                streamer=streamer,
                scores=scores,
            )
            yield session
            stats.finish_reason = session.finish_reason or "stop"
            stats.spent += sampler.lossy.spent(len(session.prefix.emitted))
        finally:
            if drafter is not None:
                stats.add_drafter(drafter, opening.drafter_encoder_runs - runs)
                drafter.close()


def decode(session: Session) -> Steps[list[int]]:
    """A session's rounds to its end; what it emitted."""
    while session.finish_reason is None:
        yield from session.steps()
    return session.prefix.emitted

"""How many tokens to draft: a fixed number, or what measured costs and survival say pays.

Expected tokens per round with γ drafted: E(γ) = 1 + Σ S_i, S_i the product of the conditional
acceptances up to offset i. Its price in ordinary steps: γ·c + v(γ), c the drafter's cost per token,
v the target's for the block. Speculation pays where E(γ) > γ·c + v(γ) (Leviathan et al. 2023,
section 3, in the form that needs no i.i.d. assumption); γ is the argmax of the ratio.
"""

from __future__ import annotations

import itertools
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol

from mmspec.engine.costs import MEMORY, BlockCosts, typical
from mmspec.errors import OptionError
from mmspec.proposals.acceptance_rate import EXPECTED_TOKENS, AcceptanceRate, emitted_tokens
from mmspec.proposals.base import Outlook
from mmspec.report.trace import Round

CANDIDATES = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48)
MARGIN = 1.02
"""Predicted gain below which ordinary decoding is preferred: a forecast isn't that exact."""
BRANCH_MARGIN = 1.05
"""Predicted gain that one more branch must promise: large blocks are seldom measured."""
FIRST_PROBE = 16
"""Tokens decoded without speculation before it is tried again; doubles at every try."""


class Plan(NamedTuple):
    """What is to be drafted: so many continuations of so many tokens each (0: an ordinary step)."""

    depth: int
    branches: int = 1


ORDINARY = Plan(0)


class Policy(Protocol):
    """Chooses γ for the next round, and how many continuations of that length."""

    def choose(self, outlook: Outlook, cost_prior: float, room: int) -> Plan:
        """What to draft now, at most `room` tokens in a row."""
        ...

    def observe(self, done: Round) -> None:
        """Learn from a round."""
        ...

    def at(self, costs: BlockCosts) -> Policy:
        """The same policy where blocks cost otherwise; what it learns of drafts is shared."""
        ...


@dataclass(frozen=True, slots=True)
class FixedPolicy:
    """Always γ, or as many as there are."""

    gamma: int

    def __post_init__(self) -> None:
        if self.gamma < 0:
            raise OptionError(f"gamma must be 0 or more, got {self.gamma}")

    def choose(self, outlook: Outlook, cost_prior: float, room: int) -> Plan:
        """γ, cut to what is available and fits, in as many branches as there are."""
        return Plan(max(0, min(self.gamma, outlook.available, room)), outlook.branches)

    def observe(self, done: Round) -> None:
        """A fixed policy doesn't learn."""

    def at(self, costs: BlockCosts) -> FixedPolicy:
        """Itself: it doesn't look at costs."""
        return self


@dataclass
class AdaptivePolicy:
    """γ from measured costs and survival; where nothing pays it stops and probes again later.

    One policy may serve many requests to the same pair of models: what it learns is kept. It
    decides how fast the output comes, never which output.

    Args:
        costs: the target's costs by block size, kept up to date by the sessions that it serves.
        most: tokens drafted at most.
    """

    costs: BlockCosts = field(default_factory=BlockCosts)
    most: int = CANDIDATES[-1]
    _acceptance_rate: AcceptanceRate = field(default_factory=AcceptanceRate)
    _draft_s: dict[str, deque[float]] = field(
        default_factory=lambda: defaultdict(lambda: deque(maxlen=MEMORY))
    )
    _idle: int = 0
    _patience: int = FIRST_PROBE

    def choose(self, outlook: Outlook, cost_prior: float, room: int) -> Plan:
        """The γ and branches with the best expected gain, or nothing where none is expected."""
        limit = min(outlook.available, room, self.most)
        if limit < 1 or not self._repays(outlook.opening_s, float("inf"), room):
            return ORDINARY
        gain, best = self._best(outlook, cost_prior, limit)
        if not self._repays(outlook.opening_s, gain, room):
            return ORDINARY
        if gain >= MARGIN:
            return best
        if self._idle < self._patience:
            return ORDINARY
        self._idle, self._patience = 0, self._patience * 2
        return Plan(1)

    def _repays(self, opening_s: float, gain: float, room: int) -> bool:
        """Whether a gain on the tokens to be expected is worth what opening the drafter takes."""
        if opening_s <= 0:
            return True
        step = self.costs.seconds(1)
        if step is None or gain <= 1:
            return False  # an ordinary step comes first, and says what a step is worth
        return min(room, EXPECTED_TOKENS) * step * (1 - 1 / gain) > opening_s

    def gain(self, outlook: Outlook, cost_prior: float, gamma: int, branches: int = 1) -> float:
        """Expected speed over ordinary decoding at γ: E(γ) / (γ·c + v(γ))."""
        return next(self._gains(outlook, cost_prior, [gamma], branches))[0]

    def _best(self, outlook: Outlook, cost_prior: float, limit: int) -> tuple[float, Plan]:
        """The best expected gain up to a limit, and the least effort that has it."""
        candidates = [gamma for gamma in CANDIDATES if gamma <= limit]
        gains = [
            gain
            for branches in range(1, outlook.branches + 1)
            for gain in self._gains(outlook, cost_prior, candidates, branches)
        ]
        return max(gains, key=lambda pair: pair[0] / BRANCH_MARGIN ** (pair[1].branches - 1))

    def _gains(
        self, outlook: Outlook, cost_prior: float, gammas: Sequence[int], branches: int
    ) -> Iterator[tuple[float, Plan]]:
        """(expected gain, plan) for rising γ; the survivals are added up once for all of them."""
        step, drafted_s = self.costs.seconds(1), self._draft_s[outlook.context]
        draft = typical(drafted_s) / step if drafted_s and step else cost_prior
        lengths = emitted_tokens(self._acceptance_rate.expect(outlook), branches)
        for gamma, expected in enumerate(itertools.islice(lengths, max(gammas, default=0)), 1):
            if gamma in gammas:
                cost = gamma * draft + self.costs.relative(gamma * branches + 1)
                yield expected / cost, Plan(gamma, branches)

    def at(self, costs: BlockCosts) -> AdaptivePolicy:
        """A policy over other costs that shares the acceptances."""
        return replace(self, costs=costs, _idle=0, _patience=FIRST_PROBE)

    def observe(self, done: Round) -> None:
        """Costs of the passes, and how far the proposal survived."""
        if not done.proposal:
            self._idle += len(done.emitted)
            return
        self._draft_s[done.context].append(done.draft_s / done.depth)
        self._acceptance_rate.observe(
            done.context,
            accepted=done.accepted,
            judged=done.judged,
            branches=done.branches,
            branch=done.branch,
        )

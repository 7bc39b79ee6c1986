"""How an approximate request judges, and what it has spent so far."""

from __future__ import annotations

import math

import torch

from mmspec.acceptance import frames as rules
from mmspec.acceptance.frames import Coins, FrameDecision, FrameProposal
from mmspec.acceptance.groups import Approximate, Groups
from mmspec.errors import OptionError


class LossyLedger:
    """Judges by groups of similar codes, and keeps account of the distance step by step.

    Steps that were judged but never committed are forgotten when the next round begins.

    Args:
        approximate: the groups and the budget; None: nothing may be spent, ever.
        codebooks: K.

    Raises:
        OptionError: there are groups of another number of codebooks.
    """

    def __init__(self, approximate: Approximate | None, codebooks: int) -> None:
        self._groups: tuple[Groups, ...] = ()
        self._budget: float | None = 0.0
        self._by_step: list[float] = []
        if approximate is None:
            return
        self._groups, self._budget = approximate.groups, approximate.budget
        if len(self._groups) != codebooks:
            raise OptionError(
                f"approximate acceptance: groups of {len(self._groups)} codebooks were given for "
                f"a target that decides {codebooks} at a step"
            )
        # Follows torch.manual_seed, as fresh noise does elsewhere.
        self._coins = Coins(torch.Generator().manual_seed(int(torch.randint(1 << 62, ()))))

    def begin(self, emitted: int) -> None:
        """A round begins behind so many committed steps of this session."""
        del self._by_step[emitted:]

    @property
    def allowance(self) -> float:
        """What may still be spent."""
        return math.inf if self._budget is None else self._budget - math.fsum(self._by_step)

    def judge(self, scored: FrameProposal) -> FrameDecision:
        """Judge a proposal by groups and note what it cost.

        Raises:
            OptionError: the groups are over other codes than the scores.
        """
        size = scored.target_logits.shape[-1]
        self._groups = tuple(groups.over(size) for groups in self._groups)
        decision, spent = rules.grouped(scored, self._groups, self._coins, self.allowance)
        self._by_step.extend(spent)
        return decision

    def judged_exactly(self, steps: int) -> None:
        """So many steps come out of this round that an exact rule has judged."""
        self._by_step.extend([0.0] * steps)

    def spent(self, emitted: int) -> tuple[float, ...]:
        """The distance of each of the committed steps."""
        return tuple(self._by_step[:emitted])

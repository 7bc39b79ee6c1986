"""Approximate acceptance: codes are told apart by groups of similar ones, at a stated distance."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from mmspec.acceptance.distributions import target_distribution
from mmspec.acceptance.frames.chance import Chance
from mmspec.acceptance.frames.proposal import FrameDecision, FrameProposal, Reading
from mmspec.acceptance.frames.sampling import bonus_frame, own_frame
from mmspec.acceptance.groups import Groups

_ROUNDING = 1e-12  # what is left of a distance of 0 after sums over a vocabulary
_alone = functools.cache(Groups.singletons)


class Verdict(NamedTuple):
    """About one drafted code.

    Attributes:
        kept: Whether it stays.
        code: It, or the one in its place.
        group: The group that was drawn; its distribution is that of the target's groups.
    """

    kept: bool
    code: int
    group: int


class Coarse:
    """The distributions of one code, seen through groups.

    A drafted code draws one of its groups and is kept with chance `min(1, target_masses /
    draft_masses)` of that group. Else a group is drawn from `(target_masses - draft_masses)_+`
    and one of its codes from `(target_probs - draft_probs)_+`. The group that comes out has the
    target's distribution. The code hasn't, but no other choice in place of the rejected codes
    brings it
    nearer: none of them gets more than the target gives it.

    What the target forbids is never kept, however likely the codes around it are.

    Args:
        allowed: The target's distribution, float64 `[V]`.
        claimed: The draft distribution, float64 `[V]`.
        groups: Over V codes.

    Source:
        "Principled Coarse-Grained Acceptance for Speculative Decoding in Speech" (2025, arXiv
        2511.13732), where the code in place of a rejected one is drawn from the target's
        distribution within its group: as exact for groups, further away for codes.
    """

    def __init__(self, allowed: Tensor, claimed: Tensor, groups: Groups) -> None:
        self._groups, self._allowed = groups, allowed
        self._claimed = torch.where(allowed > 0, claimed, 0.0)
        ours, theirs = groups.masses(allowed), groups.masses(self._claimed)
        self._kept = torch.where(theirs > 0, ours / theirs, 1.0).clamp(max=1.0)
        missing = (ours - theirs).clamp(min=0.0)
        self._missing = missing if missing.sum() > 0 else ours

    @property
    def distance(self) -> float:
        """How far from the target's the distribution of the code is, in total variation."""
        kept = self._claimed * self._groups.averages(self._kept)
        spent = float((kept - self._allowed).clamp(min=0.0).sum())
        return spent if spent > _ROUNDING else 0.0

    def judge(self, code: int, chance: Chance) -> Verdict:
        """Keep a drafted code, or put another one in its place."""
        mine = self._groups.of(code)
        group = int(mine[chance.draw(torch.ones(len(mine), dtype=torch.float64))])
        if self._claimed[code] > 0 and chance.happens(float(self._kept[group])):
            return Verdict(True, code, group)
        group = chance.draw(self._missing)
        return Verdict(False, self._recovered(group, chance), group)

    def _recovered(self, group: int, chance: Chance) -> int:
        members = self._groups.of(group)
        own = self._allowed[members]
        residual = (own - self._claimed[members]).clamp(min=0.0)
        weights = (residual if residual.sum() > 0 else own) * self._groups.parts[members]
        return int(members[chance.draw(weights)])


def grouped(
    proposal: FrameProposal,
    groups: Sequence[Groups],
    chance: Chance,
    allowance: float = math.inf,
) -> tuple[FrameDecision, tuple[float, ...]]:
    """Judges each decided code by the group that it draws, in order, up to the first rejection.

    As `by_code`, but approximate: groups have the target's distribution, codes have not. The rest
    of a rejected frame, and the frame behind the proposal, are the target's own.

    Args:
        proposal: The scored frames.
        groups: Of each codebook, over V codes.
        chance: Where the draws come from.
        allowance: What the codes may spend together. One that doesn't fit is judged exactly.

    Returns:
        The decision, and the distance spent on each frame that comes out of it, `accepted + 1`.

    Raises:
        ValueError: The groups don't fit the scores.

    Example:
        >>> from mmspec.acceptance.frames import FREE, Coins
        >>> scores = torch.tensor([[0.5, 0.5, 0.0]]).log().expand(2, 1, 3)
        >>> drafted = FrameProposal(scores, torch.tensor([[0]]), torch.full((2, 1), FREE))
        >>> decision, spent = grouped(drafted, [Groups.of_pairs(3, [(0, 1)])], Coins())
        >>> decision.accepted, spent
        (1, (0.5, 0.0))
    """
    size = proposal.target_logits.shape[-1]
    if [one.size for one in groups] != [size] * proposal.codebooks:
        raise ValueError(
            f"groups over {[one.size for one in groups]} codes; expected {proposal.codebooks} "
            f"codebooks of {size}"
        )
    reading = Reading(proposal)
    spent = [0.0]
    for frame_idx, drafted in enumerate(reading.drafted):
        for codebook in reading.decided(frame_idx):
            before = drafted[:codebook]
            distributions = (
                target_distribution(reading.target_scores(frame_idx, before)).cpu(),
                reading.draft_distribution(frame_idx, before).cpu(),
            )
            coarse = Coarse(*distributions, groups[codebook])
            distance = coarse.distance
            if math.fsum([*spent, distance]) > allowance:
                coarse, distance = Coarse(*distributions, _alone(size)), 0.0
            spent[-1] += distance
            verdict = coarse.judge(drafted[codebook], chance)
            if not verdict.kept:
                begun = (*before, verdict.code)
                frame, _ = own_frame(reading, frame_idx, begun, chance)
                return reading.decision(frame_idx, frame), tuple(spent)
        spent.append(0.0)
    return bonus_frame(reading, chance), tuple(spent)

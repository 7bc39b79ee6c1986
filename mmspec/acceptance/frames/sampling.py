"""The rules for free sampling: what they emit has the distribution of the target's own frames."""

import math
from itertools import accumulate

from torch import Tensor

from mmspec.acceptance.distributions import target_distribution
from mmspec.acceptance.frames.chance import Chance
from mmspec.acceptance.frames.proposal import Frame, FrameDecision, FrameProposal, Reading


def by_code(proposal: FrameProposal, chance: Chance) -> FrameDecision:
    """Judges each decided code alone, in order, up to the first rejection.

    A code is kept with chance `min(1, target_probs / draft_probs)`. A rejected one is drawn from
    `(target_probs - draft_probs)_+`, and the rest of its frame from the target: from the known
    heads if codes are independent, from `target_rest` in a chain. `draft_rest` isn't needed.

    Args:
        proposal: The scored frames.
        chance: Where the draws come from.

    Returns:
        The decision. A recovered frame may begin with drafted codes.

    Source:
        Leviathan, Kalman and Matias 2023, algorithm 1, over the codes of a frame.

    Example:
        >>> import torch
        >>> from mmspec.acceptance.frames import FREE, Coins
        >>> scores = torch.tensor([[[0.0, -torch.inf]], [[-torch.inf, 0.0]]])
        >>> given = FrameProposal(scores, torch.tensor([[1]]), torch.full((2, 1), FREE))
        >>> by_code(given, Coins())
        FrameDecision(accepted=0, next_frame=(0,), accepted_codes=0)
    """
    reading = Reading(proposal)
    for frame_idx, drafted in enumerate(reading.drafted):
        for codebook in reading.decided(frame_idx):
            before, code = drafted[:codebook], drafted[codebook]
            allowed = target_distribution(reading.target_scores(frame_idx, before))
            claimed = reading.draft_distribution(frame_idx, before)
            if chance.happens(_ratio(_log(allowed, code), _log(claimed, code))):
                continue
            residual = (allowed - claimed).clamp(min=0.0)
            recovered = chance.draw(residual if residual.sum() > 0 else allowed)
            begun = (*before, recovered)
            return reading.decision(frame_idx, own_frame(reading, frame_idx, begun, chance)[0])
    return bonus_frame(reading, chance)


def by_frame(proposal: FrameProposal, chance: Chance) -> FrameDecision:
    """Judges each frame as one token of the space of all frames, up to the first rejection.

    The chance of a frame is the product over its decided codes. A rejected frame is replaced by a
    draw from `(target - draft)_+` over all V^K frames, without ever listing them: frames are drawn
    from the target and kept with chance `1 - min(1, draft / target)`, until one is. A rejection
    that happens with chance R takes 1 / R draws on average: one draw per judged frame, at most.

    Args:
        proposal: The scored frames. In chains, `target_rest` and `draft_rest` are asked for the
            frames that are drawn.
        chance: Where the draws come from.

    Returns:
        The decision.

    Source:
        Leviathan, Kalman and Matias 2023, algorithm 1, with frames as tokens; thinning of a
        distribution by rejection (von Neumann 1951).
    """
    reading = Reading(proposal)
    for frame_idx, drafted in enumerate(reading.drafted):
        if not chance.happens(_ratio(*_drafted_logs(reading, frame_idx, drafted))):
            return reading.decision(frame_idx, _recovered(reading, frame_idx, chance))
    return bonus_frame(reading, chance)


def block(proposal: FrameProposal, chance: Chance) -> FrameDecision:
    """Judges all frames together and keeps the most that a coin allows, from the longest down.

    With P_n the joint ratio of the first n frames, clipped at 1 at every frame: all N are kept with
    chance P_N. Else, from n = N - 1 down, two coins take turns at random. One draws frame n from
    the target and keeps it with chance `(P_n - draft / target)_+`: n drafted frames stay and this
    one follows. The other gives n up with chance `1 - P_n`. This is block verification with frames
    as tokens, for which the sum over all V^K frames is never needed; about two turns per level.

    Args:
        proposal: The scored frames. In chains, `target_rest` and `draft_rest` are asked for the
            frames that are drawn.
        chance: Where the draws come from.

    Returns:
        The decision.

    Source:
        Sun et al. 2024, "Block Verification Accelerates Speculative Decoding", algorithm 2.
    """
    reading = Reading(proposal)
    logs = [_drafted_logs(reading, *numbered) for numbered in enumerate(reading.drafted)]
    joints = list(accumulate(logs, lambda joint, pair: _next_joint(joint, *pair), initial=1.0))
    if chance.happens(joints[-1]):
        return bonus_frame(reading, chance)
    for accepted in range(proposal.frames - 1, 0, -1):
        found = _two_coins(reading, accepted, joints[accepted], chance)
        if found:
            return reading.decision(accepted, found)
    return reading.decision(0, _recovered(reading, 0, chance))  # P_0 is 1: never given up


def _two_coins(reading: Reading, frame_idx: int, joint: float, chance: Chance) -> Frame:
    """The frame that follows `frame_idx` kept ones, or nothing if this level is given up."""

    def attempt() -> Frame | None:
        # At a joint ratio of 1 the second coin never gives up, so its turns would be wasted.
        if joint < 1 and chance.happens(0.5):
            return () if chance.happens(1 - joint) else None
        return _pruned(reading, frame_idx, joint, chance)

    return chance.first(attempt)


def _recovered(reading: Reading, frame_idx: int, chance: Chance) -> Frame:
    """Draws from the residual of a rejected frame."""
    return chance.first(lambda: _pruned(reading, frame_idx, 1.0, chance))


def _pruned(reading: Reading, frame_idx: int, joint: float, chance: Chance) -> Frame | None:
    """Draws a frame from the target and keeps it with chance `(joint - draft / target)_+`."""
    own, allowed = own_frame(reading, frame_idx, (), chance)
    claimed = _draft_log(reading, frame_idx, own)
    return own if chance.happens(_kept_of_target(joint, allowed, claimed)) else None


def _kept_of_target(joint: float, allowed: float, claimed: float) -> float:
    """The part of the target's chance of a frame that drafting it has not given yet."""
    return max(joint - math.exp(min(claimed - allowed, 0.0)), 0.0)


def own_frame(
    reading: Reading, frame_idx: int, begun: Frame, chance: Chance
) -> tuple[Frame, float]:
    """Finishes a frame with draws from the target; also the log chance of what was drawn."""
    drawn = 0.0

    def choose(scores: Tensor, _: int) -> int:
        nonlocal drawn
        distribution = target_distribution(scores)
        code = chance.draw(distribution)
        drawn += _log(distribution, code)
        return code

    return reading.completed(frame_idx, begun, choose), drawn


def bonus_frame(reading: Reading, chance: Chance) -> FrameDecision:
    """All drafted frames were kept: one more, drawn from the target."""
    behind = reading.given.frames
    return reading.decision(behind, own_frame(reading, behind, (), chance)[0])


def _drafted_logs(reading: Reading, frame_idx: int, drafted: Frame) -> tuple[float, float]:
    """The log chances that the target and the drafter give a drafted frame."""
    allowed = sum(
        _log(
            target_distribution(reading.target_scores(frame_idx, drafted[:codebook])),
            drafted[codebook],
        )
        for codebook in reading.decided(frame_idx)
    )
    return allowed, _draft_log(reading, frame_idx, drafted)


def _draft_log(reading: Reading, frame_idx: int, frame: Frame) -> float:
    """The log chance that the drafter gives a frame. A product of 32 chances would underflow."""
    return sum(
        _log(reading.draft_distribution(frame_idx, frame[:codebook]), frame[codebook])
        for codebook in reading.decided(frame_idx)
    )


def _log(distribution: Tensor, code: int) -> float:
    chance = float(distribution[code])
    return math.log(chance) if chance > 0 else -math.inf


def _ratio(allowed: float, claimed: float) -> float:
    return _next_joint(1.0, allowed, claimed)


def _next_joint(joint: float, allowed: float, claimed: float) -> float:
    """Multiplies one ratio, given by two logs, into the joint ratio and clips it at 1."""
    if joint == 0 or allowed == -math.inf:
        return 0.0  # also 0 / 0, as where single tokens are judged
    return math.exp(min(math.log(joint) + allowed - claimed, 0.0))

"""Block verification: drafted tokens are judged together, and the longest success counts."""

import torch
from torch import Tensor

from mmspec.acceptance.checks import check_block, check_chances
from mmspec.acceptance.decision import Decision
from mmspec.acceptance.distributions import (
    closing_distribution,
    draw,
    live_tokens,
    pick,
    target_distribution,
)


def block(
    target_logits: Tensor,
    draft_ids: Tensor,
    draft_lengths: Tensor,
    draft_probs: Tensor | None,
    uniforms: Tensor,
) -> Decision:
    """Keeps the longest prefix whose coin succeeds; a later success overrides earlier failures.

    Exact like `token`, and in expectation it keeps at least as many tokens on every pair of
    models, strictly more on many once two or more tokens are drafted from real distributions. For a
    deterministic proposal the two rules have the same distribution.

    The letters of the source, with row i the distribution of token i:

        P_0 = 1, P_i = min(1, P_{i-1} p_i(x_i) / q_i(x_i))    joint ratio, clipped at every token
        S_i = sum_x (P_i p_{i+1}(x) - q_{i+1}(x))_+           mass that stopping at i recovers
        h_i = S_i / (S_i + 1 - P_i), and P_i at the last token
        accepted = max {i : coin_i < h_i}, else 0
        recovered ~ (P_i p_{i+1} - q_{i+1})_+ at i = accepted

    Args:
        target_logits: Processed scores, floating point `[R, N+1, V]`.
        draft_ids: Drafted tokens, int64 `[R, N]`.
        draft_lengths: Tokens really drafted, int64 `[R]`.
        draft_probs: The sampled distributions, float32 or float64 `[R, N, V]`, or None for a
            deterministic proposal (one-hot rows).
        uniforms: Independent numbers in `[0, 1)`, float32 or float64 `[R, N+1]`: one coin per
            drafted token, then the number that draws the closing token. Float64 where exactness
            beyond 1e-7 matters.

    Returns:
        The decision.

    Raises:
        ValueError: Shapes or types do not fit together.

    Source:
        Sun et al. 2024, "Block Verification Accelerates Speculative Decoding", algorithm 2.

    Example:
        The first token fails its coin, the second succeeds: both stay.

        >>> target_logits = torch.tensor([[[0.2, 0.8], [0.8, 0.2], [0.5, 0.5]]]).log()
        >>> draft_probs = torch.tensor([[[0.8, 0.2], [0.2, 0.8]]])
        >>> draft_ids, uniforms = torch.tensor([[0, 0]]), torch.tensor([[0.9, 0.9, 0.7]])
        >>> decision = block(target_logits, draft_ids, torch.tensor([2]), draft_probs, uniforms)
        >>> decision.accepted.tolist(), decision.next_ids.tolist()
        ([2], [1])
    """
    check_block(target_logits, draft_ids, draft_lengths)
    check_chances(draft_probs, uniforms, target_logits)
    width = draft_ids.shape[1]
    live = live_tokens(draft_lengths, width)
    draft_ids = draft_ids.where(live, 0)  # padding may hold ids that no table has
    joint, recoverable = _joint_ratios(target_logits, draft_ids, draft_probs)
    thresholds = _thresholds(joint, recoverable, draft_lengths)
    accepted = _longest_success((uniforms[:, :width] < thresholds) & live)
    scale = pick(joint, accepted)
    weights = closing_distribution(
        target_logits, draft_ids, draft_lengths, draft_probs, accepted, scale
    )
    return Decision(accepted=accepted, next_ids=draw(weights, uniforms[:, width]))


def _joint_ratios(
    target_logits: Tensor, draft_ids: Tensor, draft_probs: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Runs over the drafted tokens once and returns P_0..P_N `[R, N+1]` and S_0..S_{N-1} `[R, N]`.

    Both are float64, and meaningless past a row's length.
    """
    rows, width = draft_ids.shape
    joint = target_logits.new_ones(rows, dtype=torch.float64)
    joints, recoverable = [joint], [joint.new_zeros(rows, 0)]
    for offset in range(width):
        distribution, token = target_distribution(target_logits[:, offset]), draft_ids[:, offset]
        allowed = pick(distribution, token)
        if draft_probs is None:
            # One-hot rows, summed by hand: only the drafted token has a draft probability, 1.
            drafted, excess = torch.ones_like(allowed), joint * (1 - allowed)
        else:
            draft_distribution = draft_probs[:, offset].double()
            drafted = pick(draft_distribution, token)
            excess = (joint[:, None] * distribution - draft_distribution).clamp(min=0.0).sum(1)
        recoverable.append(excess[:, None])
        joint = _next_joint(joint, allowed, drafted)
        joints.append(joint)
    return torch.stack(joints, 1), torch.cat(recoverable, 1)


def _next_joint(joint: Tensor, allowed: Tensor, drafted: Tensor) -> Tensor:
    """Multiplies one ratio `allowed / drafted` into the joint ratio and clips it at 1, all `[R]`.

    Compared before dividing, so that equal distributions give exactly 1, 0/0 gives 0 and nothing is
    nan.
    """
    wanted = joint * allowed
    return torch.where(wanted < drafted, wanted / drafted, (wanted > 0).double())


def _thresholds(joint: Tensor, recoverable: Tensor, draft_lengths: Tensor) -> Tensor:
    """Gives each drafted token the h_i that its coin has to stay below, float64 `[R, N]`."""
    width = recoverable.shape[1]
    reached = joint[:, 1:]  # P_1..P_N
    excess = torch.cat([recoverable[:, 1:], torch.zeros_like(recoverable[:, :1])], 1)
    # At P_i = 1 the quotient is 1, also where nothing is recoverable and it would be 0/0.
    inner = torch.where(reached < 1, excess / (excess + 1 - reached), 1.0)
    stage = torch.arange(1, width + 1, device=joint.device)
    return torch.where(stage == draft_lengths[:, None], reached, inner)


def _longest_success(succeeded: Tensor) -> Tensor:
    """Counts tokens up to the last success in `[R, N]`; 0 where there is none. Int64 `[R]`."""
    stage = torch.arange(succeeded.shape[1] + 1, device=succeeded.device)
    always = succeeded.new_ones(succeeded.shape[0], 1)
    return torch.where(torch.cat([always, succeeded], 1), stage, 0).amax(1)

"""The probability steps that the sampling rules share. All distributions here are float64.

Every function works on whole rows at once and takes its randomness as an argument.
"""

import torch
from torch import Tensor


def live_tokens(draft_lengths: Tensor, width: int) -> Tensor:
    """Tells drafted tokens from padding.

    Args:
        draft_lengths: Tokens really drafted, int64 `[R]`.
        width: The padded length N.

    Returns:
        Bool `[R, N]`, true where a token was drafted.
    """
    return torch.arange(width, device=draft_lengths.device) < draft_lengths[:, None]


def target_distribution(target_logits: Tensor) -> Tensor:
    """Turns processed scores into `target_probs`, float64, same shape, over the last dimension.

    Rules call this on one column `[R, V]` at a time: a float64 distribution of the whole block
    would be several times slower on a CPU (fresh memory) and large on a GPU.
    """
    return torch.softmax(target_logits, dim=-1, dtype=torch.float64)


def pick(distribution: Tensor, ids: Tensor) -> Tensor:
    """Reads one entry per row: `distribution[r, ids[r]]`, shape `[R]`."""
    return distribution.gather(1, ids[:, None]).squeeze(1)


def closing_distribution(
    target_logits: Tensor,
    draft_ids: Tensor,
    draft_lengths: Tensor,
    draft_probs: Tensor | None,
    accepted: Tensor,
    target_scale: Tensor | None = None,
) -> Tensor:
    """The distribution of the one token that follows the accepted ones, not normalised.

    After a proposal that was kept whole it is the target's (the bonus). After a rejection it is
    `(scale * target_probs - draft_probs)_+`; for a deterministic proposal that is `target_probs`
    without the drafted token, whatever the scale. Where this residual is empty (both are
    equal) the target's distribution stands in; exact arithmetic gives that case probability 0.

    Args:
        target_logits: Processed scores `[R, N+1, V]`.
        draft_ids: Drafted tokens with padding made harmless, int64 `[R, N]`.
        draft_lengths: Tokens really drafted, int64 `[R]`.
        draft_probs: Sampled distributions `[R, N, V]`, or None for a deterministic proposal.
        accepted: Tokens kept, int64 `[R]`.
        target_scale: Factor on `target_probs` in the residual, float64 `[R]`; 1 if None.

    Returns:
        Non-negative weights `[R, V]` in float64; a token with target probability 0 weighs 0.
    """
    row_idx = torch.arange(accepted.shape[0], device=accepted.device)
    distribution = target_distribution(target_logits[row_idx, accepted])
    if draft_ids.shape[1] == 0:
        return distribution
    # A row that was kept whole has no rejected token; any offset will do, its result is dropped.
    rejected_at = accepted.clamp(max=draft_ids.shape[1] - 1)
    if draft_probs is None:
        residual = distribution.scatter(1, draft_ids[row_idx, rejected_at][:, None], 0.0)
    else:
        scaled = distribution if target_scale is None else distribution * target_scale[:, None]
        residual = (scaled - draft_probs[row_idx, rejected_at]).clamp(min=0.0)
    was_rejected = (accepted < draft_lengths) & (residual.sum(1) > 0)
    return torch.where(was_rejected[:, None], residual, distribution)


def draw(weights: Tensor, uniforms: Tensor) -> Tensor:
    """Draws one token per row by the inverse of the cumulative distribution.

    A token of weight 0 is never drawn, at no value of `uniforms` and whatever the rounding of the
    running sum: only tokens with weight can be reached, and the last of them always is.

    Args:
        weights: Non-negative, not normalised, float64 `[R, V]`.
        uniforms: Numbers in `[0, 1)`, `[R]`.

    Returns:
        Tokens, int64 `[R]`.

    Example:
        >>> weights = torch.tensor([[1.0, 0.0, 3.0, 0.0]], dtype=torch.float64)
        >>> [int(draw(weights, torch.tensor([u]))) for u in (0.0, 0.2, 0.25, 1.0)]
        [0, 0, 2, 2]
    """
    reached = weights.cumsum(1).masked_fill(weights <= 0, 0.0)
    total = reached.amax(1)
    threshold = torch.minimum(uniforms * total, torch.nextafter(total, torch.zeros_like(total)))
    # The first maximum of a 0/1 row is the first token whose running sum passes the threshold.
    return (reached > threshold[:, None]).to(torch.uint8).argmax(1)

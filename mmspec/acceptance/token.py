"""Token-level rejection sampling: each drafted token is judged alone, up to the first rejection."""

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


def token(
    target_logits: Tensor,
    draft_ids: Tensor,
    draft_lengths: Tensor,
    draft_probs: Tensor | None,
    uniforms: Tensor,
) -> Decision:
    """Keeps drafted token x while its coin is below `target_probs[x] / draft_probs[x]`.

    The token after the kept ones is drawn from `(target_probs - draft_probs)_+` at the first
    rejection and from `target_probs` when all were kept. The emitted tokens then have the
    target's distribution exactly, provided that `draft_probs` is the distribution they were sampled
    from.

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
        Leviathan, Kalman and Matias 2023, "Fast Inference from Transformers via Speculative
        Decoding", algorithm 1; Chen et al. 2023, "Accelerating Large Language Model Decoding with
        Speculative Sampling", algorithm 2 (there the two letters are swapped).

    Example:
        >>> target_logits = torch.tensor([[[0.5, 0.5], [0.1, 0.9]]]).log()
        >>> draft = torch.tensor([[0]]), torch.tensor([1]), torch.tensor([[[0.9, 0.1]]])
        >>> low = token(target_logits, *draft, torch.tensor([[0.5, 0.0]]))
        >>> high = token(target_logits, *draft, torch.tensor([[0.6, 0.0]]))
        >>> [(int(d.accepted), int(d.next_ids)) for d in (low, high)]
        [(1, 0), (0, 1)]
    """
    check_block(target_logits, draft_ids, draft_lengths)
    check_chances(draft_probs, uniforms, target_logits)
    width = draft_ids.shape[1]
    live = live_tokens(draft_lengths, width)
    draft_ids = draft_ids.where(live, 0)  # padding may hold ids that no table has
    kept = torch.zeros_like(live)
    for offset in range(width):
        token = draft_ids[:, offset]
        allowed = pick(target_distribution(target_logits[:, offset]), token)
        coin = uniforms[:, offset].double()
        # coin < allowed / drafted, multiplied out: 0/0 rejects, and equal distributions always
        # accept.
        scaled = coin if draft_probs is None else coin * pick(draft_probs[:, offset], token)
        kept[:, offset] = scaled < allowed
    accepted = (kept & live).cumprod(1).sum(1)
    weights = closing_distribution(target_logits, draft_ids, draft_lengths, draft_probs, accepted)
    return Decision(accepted=accepted, next_ids=draw(weights, uniforms[:, width]))

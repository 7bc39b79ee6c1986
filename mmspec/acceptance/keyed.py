"""Seeded sampling whose output no drafter can change: noise belongs to positions, not to draws."""

import torch
from torch import Tensor

from mmspec.acceptance.checks import check_block, check_noise
from mmspec.acceptance.decision import Decision
from mmspec.acceptance.greedy import follow


def keyed(
    target_logits: Tensor, draft_ids: Tensor, draft_lengths: Tensor, noise: Tensor
) -> Decision:
    """Keeps drafted tokens while they equal the target's own noisy choice.

    With Gumbel noise the highest of `target_logits + noise` is a sample of the target's
    distribution. When the noise is a function of seed and absolute position, the sample at a
    position depends on the seed and the target alone, so the output is the same ids for every
    drafter, every proposal length and no proposal at all. A drafter that adds the same noise to its
    own scores is accepted more often.

    Args:
        target_logits: Processed scores, floating point `[R, N+1, V]`.
        draft_ids: Drafted tokens, int64 `[R, N]`.
        draft_lengths: Tokens really drafted, int64 `[R]`.
        noise: Gumbel noise of the scored positions, float32 or float64 `[R, N+1, V]`, finite; see
            `mmspec.acceptance.gumbel`.

    Returns:
        The decision; its `next_ids` are the target's noisy choices at row `accepted`.

    Raises:
        ValueError: Shapes or types do not fit together.

    Source:
        Daliri, Musco and Suresh 2024, "Coupling without Communication and Drafter-Invariant
        Speculative Decoding" (shared Gumbel noise, drafter-invariant decoding).

    Example:
        >>> from mmspec.acceptance.noise import gumbel
        >>> scores, noise = torch.zeros(1, 2, 5), gumbel(0, torch.tensor([[10, 11]]), 5)
        >>> own_choice = (scores + noise).argmax(-1)
        >>> decision = keyed(scores, own_choice[:, :1], torch.tensor([1]), noise)
        >>> decision.accepted.tolist(), bool(decision.next_ids == own_choice[:, 1])
        ([1], True)
    """
    check_block(target_logits, draft_ids, draft_lengths)
    check_noise(noise, target_logits)
    # One column at a time: the sum of whole blocks is several times slower on a CPU.
    columns = range(target_logits.shape[1])
    choices = [(target_logits[:, c] + noise[:, c]).max(dim=-1).indices for c in columns]
    return follow(torch.stack(choices, 1), draft_ids, draft_lengths)

"""The rule at temperature 0: keep the drafted tokens that the target would have chosen."""

from torch import Tensor

from mmspec.acceptance.checks import check_block
from mmspec.acceptance.decision import Decision
from mmspec.acceptance.distributions import live_tokens, pick


def greedy(target_logits: Tensor, draft_ids: Tensor, draft_lengths: Tensor) -> Decision:
    """Keeps drafted tokens while they equal the target's highest-scored token.

    Equal scores go to the lowest token id, as in ordinary greedy decoding.

    Args:
        target_logits: Processed scores, floating point `[R, N+1, V]`.
        draft_ids: Drafted tokens, int64 `[R, N]`.
        draft_lengths: Tokens really drafted, int64 `[R]`.

    Returns:
        The decision; its `next_ids` are the target's choices at row `accepted`.

    Raises:
        ValueError: Shapes or types do not fit together.

    Source:
        Leviathan, Kalman and Matias 2023, "Fast Inference from Transformers via Speculative
        Decoding", section 2.2 (argmax as a one-hot distribution).

    Example:
        >>> import torch
        >>> scores = torch.tensor([[[0.0, 2.0, 1.0], [3.0, 0.0, 0.0], [0.0, 0.0, 9.0]]])
        >>> decision = greedy(scores, torch.tensor([[1, 2]]), torch.tensor([2]))
        >>> decision.accepted.tolist(), decision.next_ids.tolist()
        ([1], [0])
    """
    check_block(target_logits, draft_ids, draft_lengths)
    # Not argmax, which is several times slower on a CPU in half precision. Both take the first.
    target_choices = target_logits.max(dim=-1).indices
    return follow(target_choices, draft_ids, draft_lengths)


def follow(target_choices: Tensor, draft_ids: Tensor, draft_lengths: Tensor) -> Decision:
    """Keeps drafted tokens while they equal what the target chose, however it chose.

    Args:
        target_choices: The target's own token at every scored row, int64 `[R, N+1]`.
        draft_ids: Drafted tokens, int64 `[R, N]`.
        draft_lengths: Tokens really drafted, int64 `[R]`.

    Returns:
        The decision; its `next_ids` are the choices at row `accepted`.
    """
    kept = (target_choices[:, :-1] == draft_ids) & live_tokens(draft_lengths, draft_ids.shape[1])
    accepted = kept.cumprod(1).sum(1)
    return Decision(accepted=accepted, next_ids=pick(target_choices, accepted))

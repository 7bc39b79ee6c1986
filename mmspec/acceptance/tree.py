"""The rule for a tree of deterministic proposals: walk where the target's own choices lead."""

from collections.abc import Sequence

from torch import Tensor

from mmspec.acceptance.checks import check_chances, check_noise
from mmspec.acceptance.distributions import draw, target_distribution


def own_choices(
    target_logits: Tensor, noise: Tensor | None = None, uniforms: Tensor | None = None
) -> Tensor:
    """What the target would emit behind each token of a tree, were that token reached.

    Args:
        target_logits: Processed scores, floating point `[N+1, V]`: row 0 behind the committed
            prefix, row `i + 1` behind token `i`.
        noise: Gumbel noise of the rows' positions `[N+1, V]` (seeded sampling), or None.
        uniforms: Independent numbers in `[0, 1)`, `[N+1]` (free sampling), or None. Neither is
            greedy.

    Returns:
        Tokens, int64 `[N+1]`.

    Raises:
        ValueError: Shapes or types do not fit together.

    Example:
        >>> import torch
        >>> own_choices(torch.tensor([[0.0, 2.0, 1.0], [3.0, 0.0, 0.0]])).tolist()
        [1, 0]
    """
    if noise is not None:
        check_noise(noise, target_logits)
        return (target_logits + noise).max(dim=-1).indices
    if uniforms is not None:
        check_chances(None, uniforms[None], target_logits[None])
        return draw(target_distribution(target_logits), uniforms.double())
    return target_logits.max(dim=-1).indices


def walk(
    choices: Sequence[int], draft_ids: Sequence[int], parents: Sequence[int]
) -> tuple[tuple[int, ...], int]:
    """Follows the target's choices down a tree until they leave it.

    The target draws its own token behind the prefix. If a drafted token there equals it, that token
    is kept and the target's choice behind it decides the next; otherwise the choice is emitted
    and the round ends. Every emitted token is the target's own draw at its own prefix, whatever was
    drafted. For unequal siblings this has the distribution of recursive rejection sampling with
    one-hot drafts (a sibling is kept with `target_probs[token]`, a rejected one is zeroed and the
    rest renormalised): both keep sibling x with exactly the target's probability of x.

    Args:
        choices: The target's choice behind the prefix, then behind each token, `N + 1` of them.
        draft_ids: Drafted tokens, parents before children, `N` of them.
        parents: Index of each token's parent, -1 for the prefix, `N` of them.

    Returns:
        (indices of the kept tokens in order, the recovered or bonus token).

    Source:
        Miao et al. 2024, "SpecInfer" (token trees; sampled verification as its naive case).

    Example:
        >>> walk([8, 5, 9, 3], [7, 8, 9], [-1, -1, 1])  # 7, or 8 and then 9
        ((1, 2), 3)
    """
    path: list[int] = []
    at = -1
    for token, (drafted, parent) in enumerate(zip(draft_ids, parents, strict=True)):
        if parent == at and drafted == choices[at + 1]:
            path.append(token)
            at = token
    return tuple(path), choices[at + 1]

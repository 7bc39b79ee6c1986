"""The rule for a tree of deterministic proposals: walk where the target's own choices lead."""

from collections.abc import Sequence

from torch import Tensor

from mmspec.acceptance.checks import check_chances, check_noise
from mmspec.acceptance.distributions import draw, target_law


def own_choices(
    target_logits: Tensor, noise: Tensor | None = None, uniforms: Tensor | None = None
) -> Tensor:
    """What the target would emit behind each unit of a tree, were that unit reached.

    Args:
        target_logits: Processed scores, floating point `[N+1, V]`: row 0 behind the committed
            prefix, row `i + 1` behind unit `i`.
        noise: Gumbel noise of the rows' positions `[N+1, V]` (seeded sampling), or None.
        uniforms: Independent numbers in `[0, 1)`, `[N+1]` (free sampling), or None. Neither is
            greedy.

    Returns:
        Units, int64 `[N+1]`.

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
        return draw(target_law(target_logits), uniforms.double())
    return target_logits.max(dim=-1).indices


def walk(
    choices: Sequence[int], draft_ids: Sequence[int], parents: Sequence[int]
) -> tuple[tuple[int, ...], int]:
    """Follows the target's choices down a tree until they leave it.

    The target draws its own unit behind the prefix. If a drafted unit there equals it, that unit
    is kept and the target's choice behind it decides the next; otherwise the choice is emitted
    and the round ends. Every emitted unit is the target's own draw at its own prefix, whatever was
    drafted. For unequal siblings this has the law of recursive rejection sampling with one-hot
    drafts (a sibling is kept with `target_probs[unit]`, a rejected one is zeroed and the rest
    renormalised): both keep sibling x with exactly the target's probability of x.

    Args:
        choices: The target's choice behind the prefix, then behind each unit, `N + 1` of them.
        draft_ids: Drafted units, parents before children, `N` of them.
        parents: Index of each unit's parent, -1 for the prefix, `N` of them.

    Returns:
        (indices of the kept units in order, the recovered or bonus unit).

    Source:
        Miao et al. 2024, "SpecInfer" (token trees; sampled verification as its naive case).

    Example:
        >>> walk([8, 5, 9, 3], [7, 8, 9], [-1, -1, 1])  # 7, or 8 and then 9
        ((1, 2), 3)
    """
    path: list[int] = []
    at = -1
    for unit, (drafted, parent) in enumerate(zip(draft_ids, parents, strict=True)):
        if parent == at and drafted == choices[at + 1]:
            path.append(unit)
            at = unit
    return tuple(path), choices[at + 1]

"""Shape and type checks of the rules' arguments. They never look at a value."""

from collections.abc import Sequence

import torch
from torch import Tensor

# Coins and distributions in half precision would move every threshold by up to 1 part in 256.
_PROBABILITY_DTYPES = (torch.float32, torch.float64)


def check_block(target_logits: Tensor, draft_ids: Tensor, draft_lengths: Tensor) -> None:
    """Refuses a scored block whose three parts do not fit together.

    Raises:
        ValueError: A wrong type, rank or size, or tensors on different devices.
    """
    if target_logits.ndim != 3 or not target_logits.is_floating_point():
        raise ValueError(
            f"target_logits is {_describe(target_logits)}; expected floating point [R, N+1, V]"
        )
    rows, scored, tokens = target_logits.shape
    if scored < 1 or tokens < 1:
        raise ValueError(
            f"target_logits is {_describe(target_logits)}; expected at least one scored row "
            "(the bonus) and one token in [R, N+1, V]"
        )
    _check("draft_ids", draft_ids, (rows, scored - 1), (torch.int64,), target_logits)
    _check("draft_lengths", draft_lengths, (rows,), (torch.int64,), target_logits)


def check_noise(noise: Tensor, target_logits: Tensor) -> None:
    """Refuses noise that does not lie over `target_logits` entry by entry.

    Raises:
        ValueError: A wrong type or shape, or another device.
    """
    _check("noise", noise, target_logits.shape, _PROBABILITY_DTYPES, target_logits)


def check_chances(draft_probs: Tensor | None, uniforms: Tensor, target_logits: Tensor) -> None:
    """Refuses draft distributions or uniform numbers that do not fit the scored block.

    Raises:
        ValueError: A wrong type or shape, or another device.
    """
    rows, scored, tokens = target_logits.shape
    _check("uniforms", uniforms, (rows, scored), _PROBABILITY_DTYPES, target_logits)
    if draft_probs is not None:
        expected = (rows, scored - 1, tokens)
        _check("draft_probs", draft_probs, expected, _PROBABILITY_DTYPES, target_logits)


def _check(
    name: str,
    given: Tensor,
    shape: Sequence[int],
    dtypes: Sequence[torch.dtype],
    target_logits: Tensor,
) -> None:
    if tuple(given.shape) != tuple(shape) or given.dtype not in dtypes:
        kinds = " or ".join(str(dtype) for dtype in dtypes)
        raise ValueError(
            f"{name} is {_describe(given)}; expected {kinds} {list(shape)} "
            f"to fit target_logits of shape {list(target_logits.shape)} ([R, N+1, V])"
        )
    if given.device != target_logits.device:
        raise ValueError(
            f"{name} is on {given.device}, target_logits on {target_logits.device}; "
            "expected one device"
        )


def _describe(given: Tensor) -> str:
    return f"{given.dtype} {list(given.shape)}"

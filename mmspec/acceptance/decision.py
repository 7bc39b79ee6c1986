"""What an acceptance rule decides about one block, as a value."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Decision:
    """How much of each proposal is kept, and the one token that the target adds.

    A decision touches no cache and knows no position: whoever commits it emits
    `draft_ids[r, :accepted[r]]` and then `next_ids[r]`.

    Attributes:
        accepted: How many drafted tokens are kept, int64 `[R]`, each in `0..length`.
        next_ids: The recovered token where `accepted < length`, else the bonus, int64 `[R]`.

    Raises:
        ValueError: The two are not int64 tensors of one shape `[R]`.

    Example:
        >>> Decision(accepted=torch.tensor([2, 0]), next_ids=torch.tensor([7, 4])).rows
        2
    """

    accepted: Tensor
    next_ids: Tensor

    def __post_init__(self) -> None:
        for name, given in (("accepted", self.accepted), ("next_ids", self.next_ids)):
            if given.dtype != torch.int64 or given.shape != self.accepted.shape or given.ndim != 1:
                raise ValueError(
                    f"{name} is {given.dtype} of shape {list(given.shape)}; "
                    "a decision holds two int64 tensors of one shape [R]"
                )

    @property
    def rows(self) -> int:
        """The number of rows R that were decided."""
        return self.accepted.shape[0]

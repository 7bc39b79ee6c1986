"""Drafters that propose what they are told: for tests and for measuring the engine itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mmspec.prefix import Prefix
from mmspec.proposals.base import Drafter, Outlook, Pick, Proposal, deterministic


class ScriptedDrafter(Drafter):
    """Proposes the continuation that a function gives for the committed ids.

    Args:
        script: maps (committed ids, limit) to the tokens to propose.

    Example:
        >>> import torch
        >>> always_seven = ScriptedDrafter(lambda ids, limit: [7] * limit)
        >>> prefix = Prefix([1, 2], capacity=8, device=torch.device("cpu"))
        >>> always_seven.propose(prefix, 3, pick=None).ids
        (7, 7, 7)
    """

    name = "scripted"

    def __init__(self, script: Callable[[Sequence[int], int], Sequence[int]]) -> None:
        self._script = script

    def outlook(self, prefix: Prefix) -> Outlook:
        """Always willing, always sure."""
        return Outlook("scripted", first=0.9, rest=0.9, available=1 << 30)

    def propose(self, prefix: Prefix, limit: int, pick: Pick) -> Proposal:
        """What the script says, cut to the limit."""
        return deterministic(list(self._script(prefix.ids, limit))[:limit])

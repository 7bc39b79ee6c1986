"""Several drafters for one output: at every round the one that promises most proposes."""

from __future__ import annotations

from collections.abc import Sequence

from mmspec.prefix import Prefix
from mmspec.proposals.base import Drafter, Outlook, Pick, Proposal


class RelayDrafter(Drafter):
    """Lets the drafter propose whose first token is likeliest to be kept, by its own account.

    All of them follow what is committed. Reports name the one that proposed.

    Args:
        drafters: at least one; between equal promises the earlier one proposes.

    Example:
        >>> import torch
        >>> from mmspec.proposals import HypothesisDrafter, NgramDrafter
        >>> relay = RelayDrafter([HypothesisDrafter([5, 6]), NgramDrafter()])
        >>> prefix = Prefix([1], capacity=16, device=torch.device("cpu"))
        >>> relay.outlook(prefix).context, relay.propose(prefix, 4, pick=None).ids
        ('aligned', (5, 6))
        >>> prefix.extend([5, 6, 7, 5, 6])
        >>> relay.commit(prefix, agreed=3)
        >>> relay.outlook(prefix).context, relay.propose(prefix, 1, pick=None).ids, relay.name
        ('match 2', (7,), 'ngram')
    """

    def __init__(self, drafters: Sequence[Drafter]) -> None:
        self._drafters = list(drafters)
        self._runner = self._drafters[0]

    @property
    def name(self) -> str:  # type: ignore[override]
        """That of the drafter whose turn it is."""
        return self._runner.name

    @property
    def cost_prior(self) -> float:  # type: ignore[override]
        """That of the drafter whose turn it is."""
        return self._runner.cost_prior

    @property
    def parts(self) -> Sequence[Drafter]:
        """All of them."""
        return self._drafters

    @property
    def forwards(self) -> int:
        """Of all of them."""
        return sum(drafter.forwards for drafter in self._drafters)

    def outlook(self, prefix: Prefix) -> Outlook:
        """The best of their outlooks; whoever has it proposes next."""
        outlooks = [drafter.outlook(prefix) for drafter in self._drafters]
        promises = [outlook.first if outlook.available else 0.0 for outlook in outlooks]
        best = promises.index(max(promises))
        self._runner = self._drafters[best]
        return outlooks[best]

    def propose(self, prefix: Prefix, limit: int, pick: Pick) -> Proposal:
        """What the one whose turn it is proposes."""
        return self._runner.propose(prefix, limit, pick)

    def propose_tree(self, prefix: Prefix, limit: int, branches: int) -> Proposal:
        """What the one whose turn it is proposes."""
        return self._runner.propose_tree(prefix, limit, branches)

    def commit(self, prefix: Prefix, agreed: int) -> None:
        """All follow."""
        for drafter in self._drafters:
            drafter.commit(prefix, agreed)

    def close(self) -> None:
        """All are closed."""
        for drafter in self._drafters:
            drafter.close()

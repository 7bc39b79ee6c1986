"""Early exit: the target's own first layers draft, over the target's own state."""

from __future__ import annotations

from dataclasses import dataclass

from mmspec.prefix import Prefix
from mmspec.proposals.base import Outlook, Pick, Proposal
from mmspec.proposals.model import ModelDrafter


@dataclass
class EarlyExitDrafter(ModelDrafter):
    """A model drafter whose state is lent by the target: there is nothing to catch up with.

    It reads what the target has yet to read. Behind the prompt that is nothing, and a round without
    a draft costs no forward pass there: the row that decides has been made with the prompt.
    """

    name: str = "early-exit"
    conditioning: str = "shared"

    @property
    def note(self) -> None:
        """Nothing: its limit is the target's."""
        return

    def outlook(self, prefix: Prefix) -> Outlook:
        """Without early-exit training the odds are poor, and depend on the depth."""
        return Outlook("early exit", first=0.5, rest=0.6, available=self._room(prefix))

    def propose(self, prefix: Prefix, limit: int, pick: Pick) -> Proposal:
        """Draft from where the target's state ends; nothing where it holds the whole prefix."""
        state = self.model.state
        state.follow_lender()
        if state.length == len(prefix):
            return Proposal()
        return super().propose(prefix, limit, pick)

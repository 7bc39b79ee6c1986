"""A drafter that costs nothing until it is first asked to propose."""

from __future__ import annotations

from collections.abc import Callable

from mmspec.prefix import Prefix
from mmspec.proposals.base import Drafter, Outlook, Pick, Proposal


class LazyDrafter(Drafter):
    """Opens the real drafter (its encoder run, its prompt) when the policy first wants a draft.

    Args:
        name: as in reports.
        cost_prior: as in `Drafter`.
        conditioning: as in `Drafter`.
        before: outlook while it isn't open.
        open_drafter: opens it.
    """

    def __init__(
        self,
        name: str,
        cost_prior: float,
        conditioning: str,
        before: Outlook,
        open_drafter: Callable[[], Drafter],
    ) -> None:
        self.name, self.cost_prior, self.conditioning = name, cost_prior, conditioning
        self._before, self._open_drafter = before, open_drafter
        self._drafter: Drafter | None = None

    def outlook(self, prefix: Prefix) -> Outlook:
        """The real drafter's, once it is open."""
        return self._before if self._drafter is None else self._drafter.outlook(prefix)

    def propose(self, prefix: Prefix, limit: int, pick: Pick) -> Proposal:
        """Open if need be, then propose."""
        if self._drafter is None:
            self._drafter = self._open_drafter()
        return self._drafter.propose(prefix, limit, pick)

    def commit(self, prefix: Prefix, agreed: int) -> None:
        """Tell the real drafter, if it is there."""
        if self._drafter is not None:
            self._drafter.commit(prefix, agreed)

    @property
    def note(self) -> str | None:
        """The real drafter's."""
        return None if self._drafter is None else self._drafter.note

    @property
    def forwards(self) -> int:
        """Forward passes of the real drafter."""
        return 0 if self._drafter is None else self._drafter.forwards

    @property
    def depth_forwards(self) -> int:
        """Of the real drafter."""
        return 0 if self._drafter is None else self._drafter.depth_forwards

    def close(self) -> None:
        """Close the real drafter."""
        if self._drafter is not None:
            self._drafter.close()

"""Several kinds of drafter for one request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mmspec.errors import OptionError
from mmspec.modalities.base.speculative_decoder import Draft
from mmspec.proposals import AcceptanceRate, Drafter, SwitchDrafter


class SwitchDraft:
    """Opens all of its kinds; those that have something to draft from take turns.

    What is learned of them is kept from request to request.

    Args:
        drafts: in order of preference, each with a name of its own.

    Raises:
        OptionError: two of the same name, or none.
    """

    def __init__(self, drafts: Sequence[Draft]) -> None:
        names = [draft.name for draft in drafts]
        if len(set(names)) < max(1, len(names)):
            raise OptionError(
                f"found drafters {names}, expected at least one and none of them twice"
            )
        self.name = "+".join(names)
        self.drafts = tuple(drafts)
        self._seen = AcceptanceRate()

    def open(self, request: Any) -> Drafter | None:
        """A switch between them; None where none of them has anything to draft from."""
        opened = [draft.open(request) for draft in self.drafts]
        drafters = [drafter for drafter in opened if drafter is not None]
        if len(drafters) < 2:
            return drafters[0] if drafters else None
        return SwitchDrafter(drafters, self._seen, request.step_s)

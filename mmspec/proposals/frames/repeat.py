"""Silence and held sounds: the last frame once more."""

from __future__ import annotations

from mmspec.prefix import Prefix
from mmspec.proposals.base import Drafter, Outlook, Pick
from mmspec.proposals.frames.drafted import DraftedFrames

LONGEST = 64
"""Repeats that are proposed at most: a pause has no end of its own."""
TOLD_APART = 8
"""Frames alike from which on a run counts as one that goes on."""


class RepeatDrafter(Drafter):
    """Proposes that what has just been said twice goes on.

    Example:
        >>> import torch
        >>> from mmspec.prefix import FramePrefix
        >>> prefix = FramePrefix([(1, 2), (3, 4), (3, 4)], 9, torch.device("cpu"), codebooks=2)
        >>> RepeatDrafter().propose(prefix, 2, pick=None).ids
        ((3, 4), (3, 4))
    """

    name = "repeat"

    def outlook(self, prefix: Prefix) -> Outlook:
        """The longer it has been the same, the likelier it stays so."""
        run = _run(prefix)
        if run < 2:
            return Outlook("no run", 0.0, 0.0, 0)
        return Outlook(f"run {run}", 1 - 1 / run, 0.95, LONGEST)

    def propose(self, prefix: Prefix, limit: int, pick: Pick | None) -> DraftedFrames:
        """The last frame, `limit` times."""
        return DraftedFrames((prefix.ids[-1],) * limit if _run(prefix) > 1 else ())


def _run(prefix: Prefix) -> int:
    """How many frames at the end are the same, up to `TOLD_APART`."""
    ids = prefix.ids
    run = 1
    while run < min(TOLD_APART, len(ids)) and ids[-run - 1] == ids[-1]:
        run += 1
    return run

"""What drafts a stream: what was heard in the buffer last time, and behind that, repetition."""

from __future__ import annotations

from mmspec.modalities.base.drafts import HypothesisDraft
from mmspec.modalities.base.speculative_decoder import Draft
from mmspec.modalities.whisper.checkpoint import Whisper
from mmspec.modalities.whisper.draft import Window
from mmspec.proposals import Drafter, NgramDrafter, RelayDrafter

LONGEST, SHORTEST = 6, 3
"""Tokens in a row that must have been said before: enough to tell a loop from a common phrase."""


class StreamDraft(Draft):
    """The previous hypothesis; where it has nothing to offer, n-gram lookup.

    A decode of a cut-off word may run in circles for hundreds of tokens. It is the target's own
    output and stays as it is, but a loop is easily drafted.

    Args:
        target: the checkpoint to be drafted for.
    """

    name = "hypothesis"

    def __init__(self, target: Whisper) -> None:
        self._previous = HypothesisDraft(target)
        self._never = target.steps.reserved | target.steps.stop_tokens

    def open(self, window: Window) -> Drafter | None:
        """Fresh ones for this decode."""
        previous = self._previous.open(window)
        ngram = NgramDrafter(LONGEST, SHORTEST, self._never, loops=True)
        return RelayDrafter([ngram] if previous is None else [previous, ngram])

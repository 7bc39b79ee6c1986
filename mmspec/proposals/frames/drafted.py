"""A proposal of frames."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from mmspec.errors import DraftError
from mmspec.prefix import Frame
from mmspec.proposals.base import Proposal, check_distributions


@dataclass(frozen=True, slots=True, eq=False)
class DraftedFrames(Proposal):
    """Drafted frames: one continuation.

    Attributes:
        ids: frames of K codes; a forced cell may hold anything.
        draft_probs: `[n, K, V]`, the distributions that the codes were really drawn from, or None
            for a deterministic proposal.
        draft_rest: where codes are a chain and have distributions: the distribution `[V]` of the
            code behind other codes of a drafted frame
            (`mmspec.acceptance.frames.FrameProposal.draft_rest`).

    Example:
        >>> DraftedFrames(((7, 8), (9, 1))).crop(1).ids
        ((7, 8),)
    """

    ids: tuple[Any, ...] = ()
    draft_rest: Callable[[int, Frame], Tensor] | None = None

    def crop(self, length: int) -> DraftedFrames:
        """The first `length` frames. Lawful only where `length` doesn't depend on later ones."""
        if length >= len(self.ids):
            return self
        probs = None if self.draft_probs is None else self.draft_probs[:length]
        return replace(self, ids=self.ids[:length], draft_probs=probs)

    def check(self, limit: int, vocab_size: int, branches: int = 1) -> DraftedFrames:
        """Return itself if it is a proposal that can be verified.

        Raises:
            DraftError: too long, codes outside the vocabulary, frames of unequal width, or
                distributions that are none.
        """
        if len(self.ids) > limit:
            raise DraftError(f"proposed {len(self.ids)} frames where {limit} were asked for")
        for frame in self.ids:
            if len(frame) != len(self.ids[0]):
                raise DraftError(f"proposed frames of {len(self.ids[0])} and {len(frame)} codes")
            for code in frame:
                if not (isinstance(code, int) and 0 <= code < vocab_size):
                    raise DraftError(f"proposed code {code!r}, outside 0..{vocab_size - 1}")
        if self.draft_probs is not None and self.ids:
            check_distributions(self.draft_probs, (len(self.ids), len(self.ids[0]), vocab_size))
        return self

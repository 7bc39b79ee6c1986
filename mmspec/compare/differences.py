"""Where two outputs part, and whether the target saw a tie there."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from mmspec.compare.peers import Outcome

TIE_GAP = 1e-3
"""Top-2 logit gap in float32 under which a difference is rounding, not a fault."""


@dataclass(frozen=True, slots=True)
class Difference:
    """The first place where two outputs differ; an id is None where that output has ended.

    Attributes:
        index: of the id, or of the frame.
        gap: difference of the target's logits for the two ids there; None where it can't be told.
        tie: the gap is rounding-sized.
        codebook: of the code in its frame; None where ids are no frames.
    """

    index: int
    ours: int | None
    peer: int | None
    gap: float | None
    tie: bool
    codebook: int | None = None


class TellsGaps(Protocol):
    """A library peer of tokens.

    Attributes:
        end: the id that ends an output.
    """

    @property
    def end(self) -> int: ...  # noqa: D102

    def knows_gap(self, ours: Outcome) -> bool:
        """Whether what stands before a token is the prompt and the tokens before it."""
        ...

    def gap(
        self, subject: Any, request: Any, before: Sequence[int], pair: tuple[int, int]
    ) -> float:
        """Difference of the target's raw logits for two ids behind `before`."""
        ...


def token_difference(
    peer: TellsGaps, subject: Any, request: Any, ours: Outcome, other: Outcome
) -> Difference | None:
    """The first token that differs, with the target's gap there, None where all are equal."""
    index = first_difference(ours.ids, other.ids)
    if index is None:
        return None
    mine, yours = _at(ours.ids, index), _at(other.ids, index)
    gap = None
    if peer.knows_gap(ours):
        end = peer.end
        pair = (end if mine is None else mine, end if yours is None else yours)
        with contextlib.suppress(Exception):
            gap = peer.gap(subject, request, ours.ids[:index], pair)
    return Difference(index, mine, yours, gap, gap is not None and gap < TIE_GAP)


def first_difference(ours: Sequence[int], peer: Sequence[int]) -> int | None:
    """Index of the first difference, None where both are equal.

    Example:
        >>> first_difference([1, 2, 3], [1, 2]), first_difference([1], [1])
        (2, None)
    """
    if list(ours) == list(peer):
        return None
    pairs = zip(ours, peer, strict=False)
    shorter = min(len(ours), len(peer))
    return next((index for index, (one, other) in enumerate(pairs) if one != other), shorter)


def _at(ids: Sequence[int], index: int) -> int | None:
    return ids[index] if index < len(ids) else None

"""Acceptance by codebook, where one step decides a frame of codes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from mmspec.prefix import Frame
from mmspec.report.trace import Round


class Forcing(Protocol):
    """Says which cells of the coming frames no distribution decides."""

    def forced(self, frames: Sequence[Frame], drafted: Sequence[Frame]) -> list[Frame]:
        """Per coming frame, the forced ids, negative where a distribution decides."""
        ...


@dataclass(frozen=True, slots=True)
class CodeShare:
    """How the codes of frames came about. Forced cells are decided by nobody and count nowhere.

    Attributes:
        decided: codes of the emitted frames.
        proposed: codes that were drafted, per codebook.
        judged: codes of the frames that the target judged, per codebook: kept frames, and the one
            that it replaced.
        agreed: those among them that stand in the output.

    Example:
        >>> CodeShare(decided=6, proposed=(2, 2), judged=(2, 1), agreed=(1, 1)).shares
        (0.5, 1.0)
    """

    decided: int
    proposed: tuple[int, ...]
    judged: tuple[int, ...]
    agreed: tuple[int, ...]

    @property
    def shares(self) -> tuple[float | None, ...]:
        """Agreed over judged, per codebook; None where nothing was judged."""
        pairs = zip(self.agreed, self.judged, strict=True)
        return tuple(kept / seen if seen else None for kept, seen in pairs)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {**asdict(self), "shares": self.shares}


def count_codes(trace: Sequence[Round], prompt: Sequence[Frame], forcing: Forcing) -> CodeShare:
    """Count the codes of a session.

    Args:
        trace: its rounds; proposals and outputs are frames.
        prompt: the frames before the first of them.
        forcing: what was forced.
    """
    width, frames, decided = len(forcing.forced(prompt, ())[0]), list(prompt), 0
    proposed, judged, agreed = [0] * width, [0] * width, [0] * width
    for done in trace:
        drafted: Sequence[Any] = done.proposal
        emitted: Sequence[Any] = done.emitted
        for counts, seen in ((proposed, len(drafted)), (judged, done.judged)):
            for forced in forcing.forced(frames, drafted)[:seen]:
                _add(counts, (code < 0 for code in forced))
        for place, forced in enumerate(forcing.forced(frames, emitted)[: len(emitted)]):
            free = [code < 0 for code in forced]
            decided += sum(free)
            if place < done.judged:
                pairs = zip(free, drafted[place], emitted[place], strict=True)
                _add(
                    agreed, (distribution and draft == code for distribution, draft, code in pairs)
                )
        frames.extend(emitted)
    return CodeShare(decided, tuple(proposed), tuple(judged), tuple(agreed))


def add_codes(shares: Sequence[CodeShare]) -> CodeShare:
    """The codes of several sessions of models with equally many codebooks together.

    Raises:
        ValueError: their codebooks differ, or there is nothing to add.
    """
    if len({len(share.judged) for share in shares}) != 1:
        raise ValueError("codes of models with different codebooks can't be added up")

    def summed(name: str) -> tuple[int, ...]:
        return tuple(map(sum, zip(*(getattr(share, name) for share in shares), strict=True)))

    decided = sum(share.decided for share in shares)
    return CodeShare(decided, summed("proposed"), summed("judged"), summed("agreed"))


def _add(counts: list[int], flags: Iterable[bool]) -> None:
    for codebook, flag in enumerate(flags):
        counts[codebook] += flag

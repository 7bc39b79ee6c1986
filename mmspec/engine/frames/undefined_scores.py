"""Scores that are no distribution: every code forbidden, or NaN. Nothing may be drawn from them.

A drafted frame may run into such scores and do no harm, where it isn't kept. So rules are given any
distribution at all in their place, which keeps their arithmetic whole, and what they have decided
is looked
at: only a code that came from there is an error, as in the library's own sampling.
"""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from mmspec.acceptance.frames import FREE, FrameDecision, FrameProposal
from mmspec.engine.choosing import check_drawn
from mmspec.prefix import Frame


class UndefinedScores:
    """The places of a scored proposal whose scores are no distribution.

    Args:
        scored: a proposal that codes are to be drawn for.

    Attributes:
        judged: the same proposal, with some distribution in every place that a rule reads.
    """

    def __init__(self, scored: FrameProposal) -> None:
        rows, self._scored = scored.target_logits, scored
        without = ~rows.amax(-1).isfinite() & (scored.forced == FREE)
        if scored.target_rest is not None:
            without[-1, 1:] = False  # nobody has drafted these: they are asked for one by one
        self._taught = {(frame, k) for frame, k in without.nonzero().tolist()}
        self._asked: set[tuple[int, Frame]] = set()
        if self._taught:
            rows = rows.masked_fill(without[..., None], 0.0)
        rest = None if scored.target_rest is None else self._rest
        self.judged = replace(scored, target_logits=rows, target_rest=rest)

    def _rest(self, frame_idx: int, codes: Frame) -> Tensor:
        """The target's scores behind codes that weren't drafted, or some others in their place."""
        if self._scored.target_rest is None:
            raise ValueError("asked for the rest of independent codes")
        row = self._scored.target_rest(frame_idx, codes)
        if bool(row.amax().isfinite()):
            return row
        self._asked.add((frame_idx, codes))
        return row.new_zeros(row.shape)

    def check(self, decision: FrameDecision, start: int) -> None:
        """Raise where a frame that was decided has a code from no distribution.

        Args:
            decision: about `judged`.
            start: position of its first frame.

        Raises:
            ModelError: says where.
        """
        if not self._taught and not self._asked:
            return
        drafted: list[Frame] = [tuple(frame) for frame in self._scored.draft_codes.tolist()]
        for at, frame in enumerate([*drafted[: decision.accepted], decision.next_frame]):
            for k in range(len(frame)):
                wrong = (at, frame[:k]) in self._asked
                if (at, k) in self._taught:
                    # In a chain it was scored behind the draft's codes, and read behind no others.
                    chained = self._scored.target_rest is not None and k > 0
                    wrong = wrong or not chained or frame[:k] == drafted[at][:k]
                check_drawn(not wrong, start + at)

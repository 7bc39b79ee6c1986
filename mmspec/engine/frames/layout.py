"""Which cells of the coming frames are forced, and whether a frame is the last one.

A pure function of the frames so far: nothing to undo when drafted ones are rejected.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from mmspec.acceptance.frames import FREE
from mmspec.errors import OptionError
from mmspec.factorizations import DelayedFrames, DepthFrames
from mmspec.prefix import Frame


class Layout(Protocol):
    """What an order of codes prescribes, step by step."""

    def forced(self, frames: Sequence[Frame], drafted: Sequence[Frame]) -> list[Frame]:
        """What the coming steps are forced to.

        Args:
            frames: committed ones, the prompt included.
            drafted: n ones that may follow. Their own forced cells may hold anything.

        Returns:
            n + 1 frames: behind `frames`, and behind each drafted one. A cell holds the id that it
            is forced to, `FREE` where a distribution decides.
        """
        ...

    def ends(self, frames: Sequence[Frame], more: Sequence[Frame]) -> bool:
        """Whether nothing comes after the last of `frames` and the at least one of `more`."""
        ...


class DelayedLayout:
    """Rows of delayed codebooks: marks before the first frame and behind the last one.

    A known number of rows says where padding begins. Else codebook 0's end mark does: the other
    codebooks' ends follow as late as they are, then padding, and the last of them ends the output.

    Args:
        steps: the descriptor.
        rows: rows of the whole output, the row of start marks included, where that is known.
        longest: rows of the longest output, where codebook 0's end mark is forced just early enough
            for the others to catch up; None where nothing forces it.

    Raises:
        OptionError: there are fewer rows than the delays take; or end marks are to be seen, and
            another codebook is as early as the one that says the end.

    Example:
        >>> from mmspec.factorizations import Codebook
        >>> steps = DelayedFrames((Codebook(9, codes=8, start=8, pad=8),) * 2, delays=(0, 1))
        >>> DelayedLayout(steps, rows=4).forced([(8, 8)], [(1, 5), (3, 2)])
        [(-1, 8), (-1, -1), (8, -1)]
    """

    def __init__(
        self, steps: DelayedFrames, rows: int | None = None, longest: int | None = None
    ) -> None:
        self._steps, self._latest = steps, max(steps.delays)
        self._last_chance = None if longest is None else longest - 1 - self._latest
        self._frames = None if rows is None else rows - 1 - self._latest
        if self._frames is not None and self._frames < 0:
            raise OptionError(
                f"{rows} rows are too few: delays of {steps.delays} take {self._latest + 1}"
            )
        if rows is None and steps.stop_tokens and 0 in steps.delays[1:]:
            raise OptionError(
                f"delays of {steps.delays} with end marks: the codes of a row are independent, so "
                "only a codebook later than the first can end where the first has said so"
            )

    def forced(self, frames: Sequence[Frame], drafted: Sequence[Frame]) -> list[Frame]:
        """Start marks, ends and padding."""
        end = self._end_among(frames)
        found = []
        for row in range(len(frames), len(frames) + len(drafted) + 1):
            if end is None and row == self._last_chance:
                end = row
            found.append(tuple(self._mark(k, row, end) for k in range(len(self._steps.delays))))
            ahead = row - len(frames)
            if end is None and ahead < len(drafted) and self._is_end(drafted[ahead]):
                end = row
        return found

    def ends(self, frames: Sequence[Frame], more: Sequence[Frame]) -> bool:
        """Whether the latest codebook has said its end; one that a length forces is no such end."""
        end = len(frames) + len(more) - 1 - self._latest  # where codebook 0 must have said it
        if end < 1 or end == self._last_chance:
            return False
        return self._is_end(frames[end] if end < len(frames) else more[end - len(frames)])

    def _mark(self, k: int, row: int, end: int | None) -> int:
        codebook, frame = self._steps.codebooks[k], row - 1 - self._steps.delays[k]
        last = self._frames if end is None else end - 1  # one frame behind the last one
        if frame < 0:
            mark = codebook.start
        elif last is None or frame < last:
            mark = None
        elif frame == last and end is not None:
            mark = codebook.end
        else:
            mark = codebook.pad
        return FREE if mark is None else mark

    def _is_end(self, frame: Frame) -> bool:
        return self._frames is None and frame[0] in self._steps.stop_tokens

    def _end_among(self, frames: Sequence[Frame]) -> int | None:
        """The row of codebook 0's end mark. It is never further back than the latest codebook."""
        for row in range(len(frames) - 1, max(0, len(frames) - 2 - self._latest), -1):
            if self._is_end(frames[row]):
                return row
        return None


class DepthLayout:
    """Frames in depth: nothing is forced, and a frame of end marks is the last one.

    Args:
        steps: the descriptor.
    """

    def __init__(self, steps: DepthFrames) -> None:
        self._steps = steps

    def forced(self, frames: Sequence[Frame], drafted: Sequence[Frame]) -> list[Frame]:
        """Nothing."""
        return [(FREE,) * len(self._steps.codebooks)] * (len(drafted) + 1)

    def ends(self, frames: Sequence[Frame], more: Sequence[Frame]) -> bool:
        """Whether the last frame holds end marks where the descriptor looks."""
        return self._steps.stopping(more[-1])

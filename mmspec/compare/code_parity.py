"""Whether two runs of a codec-token model wrote the same codes, and if not, where they parted.

Parity is equality of integer arrays, all codebooks, never of waveforms: two decoders of the same
codes may differ in the last bit, and two sets of codes may sound alike.

What a model writes depends on what it wrote before, so only the difference that was decided first
needs a reason; the others may follow from it. The reason can be a numerical tie: where the target's
two best scores are closer than float32 arithmetic tells apart, another order of the same sums picks
the other code.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

import numpy as np

from mmspec.errors import InputError
from mmspec.factorizations import CodeSteps, Order
from mmspec.modalities.speech.grids import checked_codes

TIE = 1e-3
"""Scores of float32 that are less apart than this are a tie."""


class Verdict(StrEnum):
    """What the comparison comes to."""

    EQUAL = "equal"
    TIE = "tie"
    """They differ, and a numerical tie explains where they parted."""
    DIFFERENT = "different"
    """They differ, and no tie explains it, or one has codebooks or an end that the other hasn't."""
    UNEXPLAINED = "unexplained"
    """They differ, and nobody wrote down how close the scores were."""


@dataclass(frozen=True, slots=True)
class CodeDifference:
    """A cell of the grid where two runs differ.

    Attributes:
        frame: from 0.
        codebook: from 0.
        first: the code of the first run.
        second: the code of the second run.
        gap: between the target's two best scores there; None where nobody knows.
    """

    frame: int
    codebook: int
    first: int
    second: int
    gap: float | None

    @property
    def is_tie(self) -> bool:
        """Whether arithmetic alone may have decided it."""
        return self.gap is not None and self.gap < TIE


@dataclass(frozen=True, slots=True)
class CodecParity:
    """Two code arrays side by side.

    Attributes:
        first_shape: frames and codebooks of the first one.
        second_shape: of the second one.
        equal_codes: per codebook, how many frames have the same code in both.
        equal_frames: how many frames at the beginning are equal in all codebooks.
        difference: the first one by frame, then by codebook, in what both have; None without one.
        parted: those that were decided first, together where they don't depend on each other; the
            same as `difference` unless the order of decisions is known.
        verdict: what it comes to.
    """

    first_shape: tuple[int, int]
    second_shape: tuple[int, int]
    equal_codes: tuple[int, ...]
    equal_frames: int
    difference: CodeDifference | None
    parted: tuple[CodeDifference, ...]
    verdict: Verdict

    @property
    def equal(self) -> bool:
        """Whether every code is the same."""
        return self.verdict is Verdict.EQUAL

    @property
    def frames(self) -> int:
        """Of the longer one."""
        return max(self.first_shape[0], self.second_shape[0])

    @property
    def matches(self) -> tuple[float, ...]:
        """Per codebook, the share of frames with equal codes; one that only one has is unequal."""
        return tuple(count / self.frames if self.frames else 1.0 for count in self.equal_codes)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        computed = {"equal": self.equal, "verdict": str(self.verdict), "matches": self.matches}
        return {**asdict(self), **computed}


def compare_codes(
    first: Any,
    second: Any,
    *,
    gaps: tuple[np.ndarray | None, np.ndarray | None] = (None, None),
    decided_at: np.ndarray | None = None,
) -> CodecParity:
    """Compare two grids of codes.

    Args:
        first: codes, frames × codebooks.
        second: likewise.
        gaps: of each run, between the target's two best scores behind every code, same shape as
            its codes. Where both runs have one it is the larger that counts: up to where they
            parted, both saw the same.
        decided_at: which decision each code of one of them was (`when_decided`); without it, frame
            by frame and code by code.

    Raises:
        InputError: one of them is no grid of codes, or what is said about codes has another shape.

    Example:
        >>> found = compare_codes([(1, 2), (3, 4)], [(1, 2), (3, 5)])
        >>> found.difference
        CodeDifference(frame=1, codebook=1, first=4, second=5, gap=None)
        >>> found.matches, found.equal_frames, found.verdict.value
        ((1.0, 0.5), 1, 'unexplained')
    """
    one, other = checked_codes(first), checked_codes(second)
    for gap, codes in zip(gaps, (one, other), strict=True):
        _check_shape("gaps", gap, [codes.shape])
    _check_shape("decided_at", decided_at, [one.shape, other.shape])
    frames, width = (min(sizes) for sizes in zip(one.shape, other.shape, strict=True))
    unequal = one[:frames, :width] != other[:frames, :width]
    places = np.argwhere(unequal)

    def difference(place: np.ndarray) -> CodeDifference:
        frame, codebook = (int(index) for index in place)
        known = [float(gap[frame, codebook]) for gap in gaps if gap is not None]
        known = [gap for gap in known if not np.isnan(gap)]
        codes = int(one[frame, codebook]), int(other[frame, codebook])
        return CodeDifference(frame, codebook, *codes, max(known, default=None))

    parted = tuple(difference(place) for place in _decided_first(places, decided_at))
    rows = unequal.any(axis=1)
    return CodecParity(
        first_shape=(len(one), one.shape[1]),
        second_shape=(len(other), other.shape[1]),
        equal_codes=tuple(frames - int(count) for count in unequal.sum(axis=0)),
        equal_frames=int(rows.argmax()) if rows.any() else frames,
        difference=difference(places[0]) if len(places) else None,
        parted=parted,
        verdict=_verdict(parted, one.shape, other.shape),
    )


def when_decided(steps: CodeSteps, frames: int) -> np.ndarray:
    """Which decision each code of a grid was, in the order in which a model makes them.

    Args:
        steps: the model's descriptor.
        frames: of the grid.

    Returns:
        int32 `[frames, codebooks]`. Codes that one step decides independently of each other have
        the same number, those of a chain have one each.

    Example:
        >>> from mmspec.factorizations import Codebook, DelayedFrames
        >>> delayed = DelayedFrames((Codebook(9, 8, start=8, pad=8),) * 2, delays=(0, 1))
        >>> when_decided(delayed, frames=3).tolist()
        [[0, 1], [1, 2], [2, 3]]
    """
    numbers = np.zeros((frames, len(steps.codebooks)), np.int32)
    number = 0
    for index in range(steps.steps(frames)):
        step = steps.step(index, frames)
        for cell in step.decided:
            numbers[cell] = number
            number += step.order in (Order.CHAIN, Order.ONE)
        number += step.order in (Order.INDEPENDENT, Order.FILLED)
    return numbers


def _check_shape(name: str, values: np.ndarray | None, shapes: Sequence[tuple[int, ...]]) -> None:
    if values is not None and values.shape not in shapes:
        raise InputError(f"{name} of shape {values.shape}, the codes have {shapes[-1]}")


def _decided_first(places: np.ndarray, decided_at: np.ndarray | None) -> np.ndarray:
    if decided_at is None or not len(places):
        return places[:1]
    numbers = decided_at[places[:, 0], places[:, 1]]
    return places[numbers == numbers.min()]


def _verdict(
    parted: tuple[CodeDifference, ...], shape: tuple[int, ...], other: tuple[int, ...]
) -> Verdict:
    if not parted:
        return Verdict.EQUAL if shape == other else Verdict.DIFFERENT
    if shape[1] != other[1] or any(found.gap is not None and not found.is_tie for found in parted):
        return Verdict.DIFFERENT
    return Verdict.TIE if all(found.is_tie for found in parted) else Verdict.UNEXPLAINED

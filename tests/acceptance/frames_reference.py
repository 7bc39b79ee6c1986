"""The rules over frames once more, slow and obvious: every frame listed, plain lists.

A distribution is a function of (frame index, codes of that frame so far) behind the drafted frames
before it, and gives a list of V probabilities. `forced` holds, per frame `0..N` and codebook, a
code or None. The sampling rules aren't run here but written down: each gives the chance of every
`(accepted, next_frame)` for one drafted block, which is what the fast rules' draws must come to.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from functools import partial

Frame = tuple[int, ...]
Law = Callable[[int, Frame], Sequence[float]]
Forced = Sequence[Sequence[int | None]]
Outcomes = dict[tuple[int, Frame], float]


def highest(weights: Sequence[float]) -> int:
    """Finds the first code with the highest weight."""
    return max(range(len(weights)), key=lambda code: (weights[code], -code))


def own_frame(choose: Callable[[Frame], int], forced: Sequence[int | None]) -> Frame:
    """Goes through a frame code by code, with what is forced in its place."""
    codes: Frame = ()
    for code in forced:
        codes = (*codes, choose(codes) if code is None else code)
    return codes


def follow(
    choose: Callable[[int, Frame], int], drafted: Sequence[Frame], forced: Forced
) -> tuple[int, Frame]:
    """Keeps frames while they are what the target chooses (greedy, keyed)."""
    for frame_idx in range(len(drafted) + 1):
        own = own_frame(partial(choose, frame_idx), forced[frame_idx])
        if frame_idx == len(drafted) or own != drafted[frame_idx]:
            return frame_idx, own
    raise ValueError("forced has a row per drafted frame and one more")


def frame_law(law: Law, frame_idx: int, forced: Sequence[int | None]) -> dict[Frame, float]:
    """The chance of every frame: the product over the cells that are not forced.

    Example:
        >>> frame_law(lambda frame_idx, codes: [0.25, 0.75], 0, [None, 9])
        {(0, 9): 0.25, (1, 9): 0.75}
    """
    sizes = [range(len(law(frame_idx, ()))) if code is None else (code,) for code in forced]
    return {
        frame: math.prod(
            law(frame_idx, frame[:codebook])[frame[codebook]]
            for codebook, code in enumerate(forced)
            if code is None
        )
        for frame in itertools.product(*sizes)
    }


def by_code(target: Law, draft: Law, drafted: Sequence[Frame], forced: Forced) -> Outcomes:
    """Judges code by code; the rest of a rejected frame is the target's."""
    outcomes: Outcomes = {}
    left = 1.0
    for frame_idx, frame in enumerate(drafted):
        own = frame_law(target, frame_idx, forced[frame_idx])
        for codebook, code in enumerate(frame):
            if forced[frame_idx][codebook] is not None:
                continue
            before = frame[:codebook]
            allowed, claimed = target(frame_idx, before), draft(frame_idx, before)
            kept = min(1.0, allowed[code] / claimed[code])
            residual = [max(a - c, 0.0) for a, c in zip(allowed, claimed, strict=True)]
            for candidate, weight in own.items():
                if candidate[:codebook] == before and sum(residual) > 0:
                    other = candidate[codebook]
                    begun = [
                        chance for f, chance in own.items() if f[: codebook + 1] == (*before, other)
                    ]
                    rest = weight / sum(begun) if sum(begun) > 0 else 0.0
                    chance = left * (1 - kept) * residual[other] / sum(residual) * rest
                    _add(outcomes, (frame_idx, candidate), chance)
            left *= kept
    return _with_bonus(outcomes, left, target, len(drafted), forced)


def by_frame(target: Law, draft: Law, drafted: Sequence[Frame], forced: Forced) -> Outcomes:
    """Judges frame by frame; the residual is summed over all frames."""
    outcomes: Outcomes = {}
    left = 1.0
    for frame_idx, frame in enumerate(drafted):
        own = frame_law(target, frame_idx, forced[frame_idx])
        claimed = frame_law(draft, frame_idx, forced[frame_idx])
        kept = min(1.0, own[frame] / claimed[frame])
        _recover(outcomes, frame_idx, left * (1 - kept), 1.0, own, claimed)
        left *= kept
    return _with_bonus(outcomes, left, target, len(drafted), forced)


def block(target: Law, draft: Law, drafted: Sequence[Frame], forced: Forced) -> Outcomes:
    """Block verification with the sums S_i over all frames, from the longest level down."""
    levels = range(len(drafted))
    own = [frame_law(target, frame_idx, forced[frame_idx]) for frame_idx in levels]
    claimed = [frame_law(draft, frame_idx, forced[frame_idx]) for frame_idx in levels]
    joint = [1.0]
    for frame_idx, frame in enumerate(drafted):
        joint.append(min(1.0, joint[-1] * own[frame_idx][frame] / claimed[frame_idx][frame]))
    outcomes: Outcomes = {}
    left = 1 - joint[-1]
    for at in reversed(levels):
        excess = sum(max(joint[at] * own[at][f] - claimed[at][f], 0.0) for f in own[at])
        stops = 1.0 if joint[at] == 1 else excess / (excess + 1 - joint[at])
        _recover(outcomes, at, left * stops, joint[at], own[at], claimed[at])
        left *= 1 - stops
    return _with_bonus(outcomes, joint[-1], target, len(drafted), forced)


def _recover(
    outcomes: Outcomes,
    frame_idx: int,
    weight: float,
    joint: float,
    own: dict[Frame, float],
    claimed: dict[Frame, float],
) -> None:
    residual = {frame: max(joint * own[frame] - claimed[frame], 0.0) for frame in own}
    total = sum(residual.values())
    for frame, part in residual.items():
        if total > 0:
            _add(outcomes, (frame_idx, frame), weight * part / total)


def _with_bonus(
    outcomes: Outcomes, left: float, target: Law, behind: int, forced: Forced
) -> Outcomes:
    for frame, chance in frame_law(target, behind, forced[behind]).items():
        _add(outcomes, (behind, frame), left * chance)
    return outcomes


def _add(outcomes: Outcomes, outcome: tuple[int, Frame], chance: float) -> None:
    if chance > 0:
        outcomes[outcome] = outcomes.get(outcome, 0.0) + chance

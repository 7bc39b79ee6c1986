"""One transcript from the transcripts of overlapping chunks.

What two neighbours both said of their overlap is lined up, and the cut is made at a token on which
they agree: the left one keeps what comes before, the right one the rest. How closely their times
have to agree depends on where the times come from: words, segments, or nothing but the share of the
text. So one rule serves all three.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

from mmspec.factorizations import Segment

WORD_SLACK_S = 0.3
"""How far a word's time may be off."""

SEGMENT_SLACK_S = 2.0
"""How far a token's time may be off that was shared out within its segment."""

LEAST_AGREEMENT = 1 / 3
"""Share of the tokens lined up that must be equal; below it the likeness is chance."""

IsTime = Callable[[int], bool]


@dataclass(frozen=True, slots=True)
class Piece:
    """What was heard in a chunk.

    Attributes:
        start_s: where the chunk starts in the recording.
        end_s: where it ends.
        segments: in seconds of the recording; their ids one after the other are the chunk's.
        word_times: when each id was said, in seconds of the recording; None: not known.
    """

    start_s: float
    end_s: float
    segments: tuple[Segment, ...]
    word_times: tuple[float, ...] | None = None

    @property
    def ids(self) -> tuple[int, ...]:
        """Tokens, times included."""
        return tuple(token for segment in self.segments for token in segment.ids)

    def times(self, is_time: IsTime) -> list[float]:
        """When each token was said, in seconds of the recording, as well as is known."""
        if self.word_times is not None:
            return list(self.word_times)
        return [time for segment in self.segments for time in _shared_out(segment, is_time)]

    def slack_s(self, is_time: IsTime) -> float:
        """How far these times may be off."""
        if self.word_times is not None:
            return WORD_SLACK_S
        return SEGMENT_SLACK_S if any(map(is_time, self.ids)) else math.inf


def _shared_out(segment: Segment, is_time: IsTime) -> Iterator[float]:
    """A segment's time, in even shares for its text; marks stand where they point to."""
    words = sum(not is_time(token) for token in segment.ids)
    length_s, done = segment.end_s - segment.start_s, 0
    for token in segment.ids:
        if is_time(token):
            yield segment.end_s if done else segment.start_s
        else:
            yield segment.start_s + length_s * (done + 0.5) / words
            done += 1


@dataclass(frozen=True, slots=True)
class Merged:
    """The recording's transcript, and the part of each piece that went into it.

    Attributes:
        segments: in seconds of the recording.
        kept: for each piece, (first, behind the last) index of its ids.
    """

    segments: tuple[Segment, ...]
    kept: tuple[tuple[int, int], ...]


def merge(pieces: Sequence[Piece], is_time: IsTime) -> Merged:
    """One transcript of pieces in order, neighbours overlapping.

    Args:
        pieces: at least one.
        is_time: whether a token is a time mark.
    """
    begins, ends = [0], []
    for left, right in pairwise(pieces):
        end, begin = _cut(left, right, begins[-1], is_time)
        ends.append(end)
        begins.append(begin)
    kept = tuple(zip(begins, [*ends, len(pieces[-1].ids)], strict=True))
    return Merged(_segments(pieces, kept, is_time), kept)


class Run(NamedTuple):
    """Two sequences lined up: where in each, and for how many tokens."""

    left: int
    right: int
    length: int


def common_run(
    left: Sequence[int], right: Sequence[int], same: Callable[[int, int], bool] | None = None
) -> Run | None:
    """How the end of `left` lines up with the beginning of `right` best.

    Every shift of one along the other is tried; the share of equal tokens counts, and between equal
    shares the longer shift. This is the rule of transformers' `_find_longest_common_sequence`
    (models/whisper/tokenization_whisper.py), which cuts both in the middle of the run.

    Args:
        left: tokens.
        right: tokens.
        same: whether the tokens at two indices are the same; None compares them.

    Returns:
        None where no shift has two equal tokens.

    Example:
        >>> common_run([1, 2, 3, 4, 5], [3, 9, 5, 6])
        Run(left=2, right=0, length=3)
    """
    best, best_score = None, 0.0
    for shift in range(1, len(left) + len(right)):
        run = _lined_up(len(left), len(right), shift)
        equal = sum(_agreement(left, right, run, same))
        score = equal / shift + shift / 10_000
        if equal > 1 and score > best_score:
            best, best_score = run, score
    return best


def _lined_up(left: int, right: int, shift: int) -> Run:
    start, other = max(0, left - shift), max(0, shift - left)
    return Run(start, other, min(left - start, right - other))


def _agreement(
    left: Sequence[int],
    right: Sequence[int],
    run: Run,
    same: Callable[[int, int], bool] | None,
) -> list[bool]:
    indices = ((run.left + step, run.right + step) for step in range(run.length))
    if same is None:
        return [left[i] == right[j] for i, j in indices]
    return [left[i] == right[j] and same(i, j) for i, j in indices]


def _cut(left: Piece, right: Piece, begin: int, is_time: IsTime) -> tuple[int, int]:
    """Where the left piece ends and the right one begins, as indices of their ids.

    `begin`: where the left piece began; what lies before was left to its own neighbour.
    """
    overlap_s = left.end_s - right.start_s
    ours, theirs = left.times(is_time), right.times(is_time)
    words = [i for i, token in enumerate(left.ids) if i >= begin and not is_time(token)]
    others = [j for j, token in enumerate(right.ids) if not is_time(token)]
    if overlap_s > 0 and words and others:
        slack_s = max(left.slack_s(is_time), right.slack_s(is_time))
        near_s = min(slack_s, overlap_s)
        ending = [i for i in words if ours[i] >= right.start_s - near_s]
        beginning = [j for j in others if theirs[j] <= left.end_s + near_s]
        found = _agreed(
            [left.ids[i] for i in ending],
            [right.ids[j] for j in beginning],
            lambda i, j: abs(ours[ending[i]] - theirs[beginning[j]]) <= slack_s,
        )
        if found is not None:
            return _with_marks(left, right, ending[found[0]], beginning[found[1]], is_time)
        if math.isfinite(slack_s):
            middle_s = (right.start_s + left.end_s) / 2
            end = next((i for i in words if ours[i] >= middle_s), len(left.ids))
            first = next((j for j in others if theirs[j] >= middle_s), len(right.ids))
            return _with_marks(left, right, end, first, is_time)
    # When the text was said isn't known: better said twice than lost.
    return _with_marks(left, right, len(left.ids), others[0] if others else len(right.ids), is_time)


def _agreed(
    ending: Sequence[int], beginning: Sequence[int], same: Callable[[int, int], bool]
) -> tuple[int, int] | None:
    """The place nearest the middle of the common run where two tokens in a row agree."""
    run = common_run(ending, beginning, same)
    if run is None:
        return None
    equal = _agreement(ending, beginning, run, same)
    pairs = [step for step in range(1, run.length) if equal[step - 1] and equal[step]]
    if not pairs or sum(equal) < LEAST_AGREEMENT * run.length:
        return None
    step = min(pairs, key=lambda step: abs(step - run.length // 2))
    return run.left + step, run.right + step


def _with_marks(
    left: Piece, right: Piece, end: int, begin: int, is_time: IsTime
) -> tuple[int, int]:
    """Move a cut between words so that segments stay opened and closed.

    Where both begin a segment, it is the right one's. Where only the left one does, its mark opens
    a segment for the right one's words; where only the right one does, its words go on in the left
    one's.
    """
    ids, others = left.ids, right.ids
    if begin == len(others):
        return len(ids), begin
    opens = begin > 0 and is_time(others[begin - 1])
    if end == len(ids):
        closed = not ids or is_time(ids[-1])
        return end, begin - (opens and closed)
    if opens and end > 0 and is_time(ids[end - 1]):
        return end - 1, begin - 1
    return end, begin


class _Part(NamedTuple):
    """What is kept of a segment, and whether its end was cut off."""

    segment: Segment
    cut: bool


def _segments(
    pieces: Sequence[Piece], kept: Sequence[tuple[int, int]], is_time: IsTime
) -> tuple[Segment, ...]:
    """The kept parts, joined where a cut goes through a segment."""
    parts: list[_Part] = []
    for piece, (begin, end) in zip(pieces, kept, strict=True):
        for number, part in enumerate(_parts(piece, begin, end, is_time)):
            before = parts[-1] if parts and not number else None
            open_ = before and (before.cut or not is_time(before.segment.ids[-1]))
            if before is not None and open_:
                end_s = max(before.segment.end_s, part.segment.end_s)
                ids = before.segment.ids + part.segment.ids
                parts[-1] = _Part(replace(before.segment, end_s=end_s, ids=ids), part.cut)
            else:
                parts.append(part)
    if not parts:
        return (Segment(pieces[0].start_s, pieces[-1].end_s, ()),)
    return tuple(part.segment for part in parts)


def _parts(piece: Piece, begin: int, end: int, is_time: IsTime) -> Iterator[_Part]:
    """What a piece's segments keep, each with the times that this leaves it."""
    times, index = piece.times(is_time), 0
    for segment in piece.segments:
        behind = index + len(segment.ids)
        first, last = max(index, begin), min(behind, end)
        if first < last:
            start_s = segment.start_s if first == index else max(segment.start_s, times[first])
            end_s = segment.end_s if last == behind else max(start_s, times[last])
            yield _Part(Segment(start_s, end_s, piece.ids[first:last]), last < behind)
        index = behind

"""Merging overlapping transcripts: what a known text was cut into comes together again."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import pairwise

import pytest
from transformers.models.whisper.tokenization_whisper import _find_longest_common_sequence

from mmspec.factorizations import Segment
from mmspec.modalities.whisper.merge import Merged, Piece, common_run, merge

FIRST_TIME = 1000
"""Tokens from here on are time marks of 20 ms."""

CHUNK_S, OVERLAP_S = 10.0, 2.5


def is_time(token: int) -> bool:
    return token >= FIRST_TIME


def mark(second: float) -> int:
    return FIRST_TIME + round(second / 0.02)


def text_of(merged: Merged) -> list[int]:
    return [u for segment in merged.segments for u in segment.ids if not is_time(u)]


def spoken(seed: int, count: int = 80, alike: int = 900) -> list[tuple[float, int]]:
    """Tokens of a recording with the second at which each is said: some rush, some rest."""
    draw, second, said = random.Random(seed), 0.0, []
    for _ in range(count):
        second += draw.choice([0.2, 0.25, 0.3, 0.6])
        said.append((second, draw.randrange(alike)))
    return said


def spans(duration_s: float) -> list[tuple[float, float]]:
    starts = [0.0]
    while starts[-1] + CHUNK_S < duration_s:
        starts.append(starts[-1] + CHUNK_S - OVERLAP_S)
    return [(start, min(start + CHUNK_S, duration_s)) for start in starts]


def overlaps(said: Sequence[tuple[float, int]]) -> list[tuple[float, float]]:
    cut = spans(said[-1][0] + 0.5)
    return [(right[0], left[1]) for left, right in pairwise(cut)]


def heard(
    said: Sequence[tuple[float, int]], kind: str, errors: random.Random | None = None
) -> list[Piece]:
    """What good ears make of it chunk by chunk, with words', segments' or no times.

    With `errors`, a third of what is in overlaps is another token, missing, or there twice.
    """
    pieces = []
    for start, end in spans(said[-1][0] + 0.5):
        inside = [(second, token) for second, token in said if start <= second < end]
        if errors is not None:
            shared = overlaps(said)
            inside = [
                one
                for second, token in inside
                for one in _misheard(second, token, any(a <= second < b for a, b in shared), errors)
            ]
        if kind == "segments":
            segments = tuple(
                Segment(
                    part[0][0],
                    part[-1][0] + 0.2,
                    (
                        mark(part[0][0] - start),
                        *(token for _, token in part),
                        mark(part[-1][0] + 0.2 - start),
                    ),
                )
                for part in (inside[i : i + 6] for i in range(0, len(inside), 6))
            )
        else:
            segments = (Segment(start, end, tuple(token for _, token in inside)),)
        times = tuple(second for second, _ in inside) if kind == "words" else None
        pieces.append(Piece(start, end, segments, times))
    return pieces


def _misheard(
    second: float, token: int, shared: bool, errors: random.Random
) -> list[tuple[float, int]]:
    right = [(second, token)]
    wrong = ([(second, 901)], [], [*right, (second, token)])
    return errors.choice([*wrong, *[right] * 6]) if shared else right


def ids_of(merged: Merged, pieces: Sequence[Piece]) -> list[int]:
    return [u for piece, (a, b) in zip(pieces, merged.kept, strict=True) for u in piece.ids[a:b]]


KINDS = ("words", "segments", "none")


class TestTheRun:
    @pytest.mark.parametrize("seed", range(40))
    def test_it_is_transformers_own(self, seed: int) -> None:
        """Few different tokens, so that there are many likenesses to choose between."""
        draw = random.Random(seed)
        sequences = [
            [draw.randrange(4) for _ in range(draw.randrange(1, 12))]
            for _ in range(draw.randrange(2, 5))
        ]
        left, total = sequences[0], []
        for right in sequences[1:]:
            run = common_run(left, right)
            cut = len(left) if run is None else run.left + run.length // 2
            begin = 0 if run is None else run.right + run.length // 2
            if run is not None:  # its own arithmetic: the middles of both stretches
                cut = (2 * run.left + run.length) // 2
                begin = (2 * run.right + run.length) // 2
            total += left[:cut]
            left = right[begin:]
        assert total + left == _find_longest_common_sequence(sequences)

    def test_nothing_in_common(self) -> None:
        assert common_run([1, 2, 3], [4, 5]) is None
        assert common_run([], [4, 5]) is None
        assert common_run([1, 2], [2, 9]) is None  # one unit alone is chance


class TestWhole:
    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("seed", range(8))
    def test_it_comes_together_again(self, kind: str, seed: int) -> None:
        said = spoken(seed)
        pieces = heard(said, kind)
        assert len(pieces) > 2
        merged = merge(pieces, is_time)
        assert text_of(merged) == [token for _, token in said]
        assert ids_of(merged, pieces) == [u for s in merged.segments for u in s.ids]

    @pytest.mark.parametrize("seed", range(8))
    def test_words_that_are_repeated_over_and_over(self, seed: int) -> None:
        """Where times are known, a refrain isn't taken for the same words."""
        said = spoken(seed, alike=3)
        assert text_of(merge(heard(said, "words"), is_time)) == [token for _, token in said]

    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("seed", range(12))
    def test_errors_in_an_overlap_lose_nothing_outside_of_it(self, kind: str, seed: int) -> None:
        said = spoken(seed)
        shared = overlaps(said)
        outside = [u for second, u in said if not any(a <= second < b for a, b in shared)]
        merged = text_of(merge(heard(said, kind, random.Random(seed)), is_time))
        rest = iter(merged)
        assert all(token in rest for token in outside), "in order, none missing"
        assert len(merged) < len(said) + 12 * len(shared)

    @pytest.mark.parametrize("kind", KINDS)
    def test_overlaps_without_likeness(self, kind: str) -> None:
        """Both sides heard something else: the middle decides where times are known."""
        left, right = heard(spoken(1), kind)[:2]
        other = [
            Segment(s.start_s, s.end_s, tuple(u if is_time(u) else (u + 450) % 900 for u in s.ids))
            for s in right.segments
        ]
        right = Piece(right.start_s, right.end_s, tuple(other), right.word_times)
        merged = merge([left, right], is_time)
        (_, end), (begin, _) = merged.kept
        if kind == "none":
            assert (end, begin) == (len(left.ids), 0), "nothing is lost"
        else:
            middle = (right.start_s + left.end_s) / 2
            assert left.times(is_time)[end - 1] < middle + 0.7
            assert right.times(is_time)[begin] > middle - 0.7

    def test_likeness_by_chance_is_none(self) -> None:
        """Two frequent words in a row at another distance than everything else."""
        left = Piece(0, 10, (Segment(0, 10, (*range(20), 900, 901, *range(20, 26))),))
        right = Piece(8, 18, (Segment(8, 18, (*range(40, 46), 900, 901, *range(46, 66))),))
        merged = merge([left, right], is_time)
        assert text_of(merged) == [*left.ids, *right.ids]

    def test_a_word_that_the_left_chunk_has_half_of(self) -> None:
        left = Piece(0, 10, (Segment(0, 10, (*range(20), 700)),))
        right = Piece(7.5, 17.5, (Segment(7.5, 17.5, (701, *range(16, 40))),))
        assert text_of(merge([left, right], is_time)) == list(range(40))


class TestEdges:
    def test_one_piece_is_itself(self) -> None:
        piece = Piece(0, 10, (Segment(0, 4, (mark(0), 5, mark(4))), Segment(5, 9, (mark(5), 6))))
        merged = merge([piece], is_time)
        assert merged.segments == piece.segments
        assert merged.kept == ((0, 5),)

    def test_silence(self) -> None:
        said = Piece(0, 10, (Segment(0, 10, (1, 2, 3)),))
        nothing = Piece(8, 18, (Segment(8, 18, ()),))
        more = Piece(16, 26, (Segment(16, 26, (4, 5)),))
        assert text_of(merge([said, nothing, more], is_time)) == [1, 2, 3, 4, 5]
        assert text_of(merge([nothing, said], is_time)) == [1, 2, 3]
        only = merge([nothing, nothing], is_time)
        assert [segment.ids for segment in only.segments] == [()]

    def test_speech_beside_the_overlap_only(self) -> None:
        """Shares of the text would put the left one's last words into the silent overlap."""
        said = Piece(0, 10, (Segment(0, 10, tuple(range(30))),))
        more = Piece(6, 16, (Segment(6, 16, tuple(range(40, 70))),))
        assert text_of(merge([said, more], is_time)) == [*range(30), *range(40, 70)]

    def test_no_overlap(self) -> None:
        pieces = [
            Piece(0, 10, (Segment(0, 10, (1, 2, 3, 4)),)),
            Piece(10, 20, (Segment(10, 20, (3, 4, 5)),)),
        ]
        merged = merge(pieces, is_time)
        assert text_of(merged) == [1, 2, 3, 4, 3, 4, 5]

    def test_more_than_half_in_common(self) -> None:
        """Three chunks share a stretch; what the second left to the first isn't taken back."""
        tokens = list(range(60))
        pieces = [
            Piece(start, start + 10, (Segment(start, start + 10, tuple(tokens[a : a + 30])),))
            for start, a in ((0, 0), (3, 10), (6, 20), (9, 30))
        ]
        assert text_of(merge(pieces, is_time)) == tokens


class TestSegments:
    @pytest.mark.parametrize("seed", range(8))
    def test_marks_open_and_close_segments(self, seed: int) -> None:
        merged = merge(heard(spoken(seed), "segments"), is_time)
        for segment in merged.segments:
            assert is_time(segment.ids[0])
            assert is_time(segment.ids[-1])
            assert not any(map(is_time, segment.ids[1:-1]))
            assert segment.start_s < segment.end_s
        for before, after in pairwise(merged.segments):
            assert before.end_s <= after.end_s
            assert before.start_s < after.start_s

    def test_without_marks_there_is_one(self) -> None:
        merged = merge(heard(spoken(3), "none"), is_time)
        assert len(merged.segments) == 1
        assert merged.segments[0].start_s == 0.0

    def test_a_cut_through_a_segment_joins_its_halves(self) -> None:
        left = Piece(0, 10, (Segment(6.0, 10.0, (mark(6), 1, 2, 3, 4, 5, mark(10))),))
        right = Piece(7, 17, (Segment(7.0, 12.0, (mark(0), 2, 3, 4, 5, 6, 7, 8, mark(5))),))
        merged = merge([left, right], is_time)
        ids = (mark(6), 1, 2, 3, 4, 5, 6, 7, 8, mark(5))
        assert merged.segments == (Segment(6.0, 12.0, ids),)

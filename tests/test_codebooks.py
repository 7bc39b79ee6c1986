"""Codes are counted by codebook: what a law decided, what was judged, what stands in the output."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from mmspec.engine import Sampling
from mmspec.prefix import Frame
from mmspec.report.by_codebook import CodeShare, add_codes, count_codes
from mmspec.report.trace import Round
from tests.frame_toys import (
    DRAFTERS,
    MUSIC,
    ORDERS,
    SPEECH,
    Case,
    K,
    case,
    decode,
    ordinary,
)
from tests.toys import a_round


def counted(given: Case, trace: Sequence[Round]) -> CodeShare:
    return count_codes(trace, given.prompt, given.layout)


def slowly(given: Case, trace: Sequence[Round]) -> CodeShare:
    """The same, cell by cell, with the forced cells that the slow layout says."""
    frames = list(given.prompt)
    decided, proposed, judged, agreed = 0, [0] * K, [0] * K, [0] * K
    for done in trace:
        drafted: Any = done.proposal
        emitted: Any = done.emitted
        for place, frame in enumerate(drafted):
            marks = given.slow.forced([*frames, *drafted[:place]])
            for k in range(K):
                if marks[k] >= 0:
                    continue
                proposed[k] += 1
                if place < done.accepted or (place == done.accepted and done.rejected):
                    judged[k] += 1
                    agreed[k] += emitted[place][k] == frame[k]
        for frame in emitted:
            decided += sum(mark < 0 for mark in given.slow.forced(frames))
            frames.append(frame)
    return CodeShare(decided, tuple(proposed), tuple(judged), tuple(agreed))


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("kind", DRAFTERS)
@pytest.mark.parametrize("gamma", [0, 1, 4, 30])
def test_counts_are_those_of_a_slow_recount(order: str, kind: str, gamma: int) -> None:
    given = case(order)
    trace = decode(given, kind, gamma).tally.trace
    assert counted(given, trace) == slowly(given, trace)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("kind", ["copy", "wrong", "recalling", "lookup"])
@pytest.mark.parametrize("length", range(3, 12))
def test_counts_where_a_limit_cuts_a_block(order: str, kind: str, length: int) -> None:
    given = case(order)
    trace = decode(given, kind, 4, max_length=length).tally.trace
    assert counted(given, trace) == slowly(given, trace)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("rule", ["token", "frame", "block"])
def test_counts_of_sampled_frames(order: str, rule: str) -> None:
    given = case(order)
    for kind in ("wrong", "recalling"):
        trace = decode(given, kind, 4, sampling=Sampling(sample=True, rule=rule)).tally.trace
        assert counted(given, trace) == slowly(given, trace)


@pytest.mark.parametrize("kind", DRAFTERS)
def test_decided_codes_are_the_descriptors_decisions(kind: str) -> None:
    """Padding is decided by nobody, whoever drafted it."""
    given = case("known rows")
    share = counted(given, decode(given, kind, 4).tally.trace)
    assert share.decided == MUSIC.decisions(18) == 18 * K
    given = case("end mark")
    share = counted(given, decode(given, kind, 4).tally.trace)
    # The prompt holds one code of codebook 0 and the end mark is decided like a code.
    assert share.decided == SPEECH.decisions(17) - 1 + 1


@pytest.mark.parametrize("order", ["known rows", "end mark"])
@pytest.mark.parametrize("gamma", [1, 3, 30])
def test_forced_cells_are_no_accepted_codes(order: str, gamma: int) -> None:
    given = case(order)
    tally = decode(given, "copy", gamma).tally
    share = counted(given, tally.trace)
    assert share.judged == share.agreed == share.proposed
    assert share.shares == (1.0,) * K
    free = forced = 0
    frames = list(given.prompt)
    for done in tally.trace:
        emitted: Any = done.emitted
        for place, frame in enumerate(emitted):
            marks = sum(mark >= 0 for mark in given.slow.forced(frames))
            frames.append(frame)
            if place < done.accepted:
                free, forced = free + K - marks, forced + marks
    assert sum(share.agreed) == free
    assert forced > 0, "some of the accepted frames are padding in part"


class Nothing:
    """Forces the last codebook, always."""

    def forced(self, frames: Sequence[Frame], drafted: Sequence[Frame]) -> list[Frame]:
        return [(-1, -1, 9)] * (len(drafted) + 1)


def a_round_of(drafted: Any, emitted: Any, *, accepted: int, rejected: bool) -> Round:
    return replace(
        a_round(proposed=len(drafted), accepted=accepted, emitted=len(emitted)),
        proposal=drafted,
        emitted=emitted,
        path=tuple(range(accepted)),
        rejected=rejected,
    )


def test_a_rejected_frame_counts_the_codes_that_it_had_right() -> None:
    trace = [
        a_round_of(
            ((1, 2, 9), (3, 4, 9), (5, 6, 9)), ((1, 2, 9), (3, 0, 9)), accepted=1, rejected=True
        ),
        a_round_of((), ((7, 7, 9),), accepted=0, rejected=False),
    ]
    share = count_codes(trace, [(0, 0, 9)], Nothing())
    assert share == CodeShare(decided=6, proposed=(3, 3, 0), judged=(2, 2, 0), agreed=(2, 1, 0))
    assert share.shares == (1.0, 0.5, None)
    assert share.to_dict() == {
        "decided": 6,
        "proposed": (3, 3, 0),
        "judged": (2, 2, 0),
        "agreed": (2, 1, 0),
        "shares": (1.0, 0.5, None),
    }


def test_frames_that_a_stop_cut_off_were_not_judged() -> None:
    given = case("depth", frames=6)
    trace = decode(given, "recalling", 30).tally.trace
    share = counted(given, trace)
    last: Any = trace[-1].emitted
    assert last[-1] == (0, 0, 0)
    assert share.decided == K * len(ordinary(given).frames)
    assert share.judged[0] <= len(ordinary(given).frames)


def test_shares_of_several_sessions_are_added_up() -> None:
    one, two = CodeShare(6, (3, 3), (2, 2), (2, 1)), CodeShare(4, (1, 2), (1, 2), (0, 2))
    assert add_codes([one, two]) == CodeShare(10, (4, 5), (3, 4), (2, 3))
    assert add_codes([one]) == one
    for shares in ([], [one, CodeShare(1, (1,), (1,), (1,))]):
        with pytest.raises(ValueError, match="different codebooks can't be added up"):
            add_codes(shares)

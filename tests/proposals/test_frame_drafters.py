"""Drafters of frames: fed once, looked up rightly, silent where they know nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mmspec.engine import Sampling
from mmspec.engine.frames import FrameProcessors, FrameSampler
from mmspec.errors import DraftError
from mmspec.prefix import Frame, FramePrefix
from mmspec.proposals.base import Pick
from mmspec.proposals.frames import (
    DraftedFrames,
    FrameIndex,
    HeadsDrafter,
    LookupDrafter,
    RepeatDrafter,
)
from mmspec.proposals.frames.repeat import LONGEST, TOLD_APART
from tests.frame_toys import (
    CPU,
    ORDERS,
    FrameToy,
    K,
    V,
    case,
    decode,
    heads_of,
    model,
    open_session,
    ordinary,
)

NOBODY: Any = None


def prefix_of(frames: Sequence[Frame]) -> FramePrefix:
    return FramePrefix(frames, 64, CPU, len(frames[0]))


# A model.


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("kind", ["copy", "wrong"])
@pytest.mark.parametrize("gamma", [1, 3, 7])
def test_the_drafting_model_holds_the_committed_frames_after_every_round(
    order: str, kind: str, gamma: int
) -> None:
    run = open_session(case(order), kind, gamma)
    while run.session.finish_reason is None:
        run.session.round()
        held, committed = run.drafter.model.held(), list(run.session.prefix.ids)
        assert held == committed[: len(held)]
        # Behind by a round's two closing frames and by an undrafted last round, not by more.
        assert len(held) >= len(committed) - 3 or run.session.finish_reason


@pytest.mark.parametrize("gamma", [1, 4])
def test_drafting_costs_one_forward_per_frame_but_for_the_first(gamma: int) -> None:
    """The distribution of the first drafted frame is what reading the prompt has left behind."""
    for kind in ("copy", "wrong"):
        run = decode(case("known rows"), kind, gamma)
        prompt = 1
        assert run.drafter.forwards == prompt + run.tally.proposed - 1


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("capacity", [3, 4, 7, 12, 20, 21])
@pytest.mark.parametrize("seed", [0, 991])
def test_D9_a_drafters_context_may_be_smaller_than_the_targets(
    order: str, capacity: int, seed: int
) -> None:
    wanted, drafting = case(order), case(order, seed).law
    run = decode(wanted, model(drafting, wanted.prompt, capacity=capacity), 5)
    assert run.frames == ordinary(wanted).frames
    assert not run.tally.faults
    assert run.drafter.model.state.length <= capacity
    if seed == 0:
        assert run.tally.accepted == run.tally.proposed > 0


def test_a_model_that_has_broken_down_is_dismissed() -> None:
    given = case("known rows")
    drafter = model(given.law, given.prompt)
    drafter.first_row = torch.full_like(drafter.first_row, torch.nan)
    run = decode(given, drafter, 1)
    assert run.frames == ordinary(given).frames
    assert run.tally.faults == [
        "drafter model dismissed: DraftError: the drafting model's logits are NaN"
    ]


def test_closing_a_drafter_closes_its_model() -> None:
    given = case("known rows")
    drafter = model(given.law, given.prompt)
    drafter.close()
    toy: Any = drafter.model
    assert toy.closed == 1


# Repeats.


def test_a_run_goes_on_and_nothing_else() -> None:
    drafter = RepeatDrafter()
    assert drafter.propose(prefix_of([(1, 2)]), 3, NOBODY).ids == ()
    assert drafter.propose(prefix_of([(1, 2), (1, 3)]), 3, NOBODY).ids == ()
    assert drafter.outlook(prefix_of([(1, 2), (1, 3)])).available == 0
    run = prefix_of([(5, 5), (1, 2), (1, 2)])
    assert drafter.propose(run, 3, NOBODY).ids == ((1, 2),) * 3
    assert drafter.outlook(run).available == LONGEST


def test_the_longer_a_run_the_likelier_it_goes_on_up_to_a_point() -> None:
    outlooks = [RepeatDrafter().outlook(prefix_of([(1, 2)] * count)) for count in range(2, 14)]
    odds = [outlook.first for outlook in outlooks]
    assert odds == sorted(odds)
    labels = [outlook.context for outlook in outlooks]
    assert labels == [f"run {min(count, TOLD_APART)}" for count in range(2, 14)]


# Lookup.


def found_slowly(
    sequences: Sequence[Sequence[Frame]], ahead: Sequence[Frame], sizes: Sequence[int], width: int
) -> tuple[int, tuple[Frame, ...]]:
    """(longest run, what followed its latest place); of equals, the first sequence that has it."""

    def same(one: Sequence[Frame], other: Sequence[Frame]) -> bool:
        return [frame[:width] for frame in one] == [frame[:width] for frame in other]

    for size in sizes:
        for sequence in sequences:
            for end in range(len(sequence) - 1, size - 1, -1):
                if size <= len(ahead) and same(sequence[end - size : end], ahead[-size:]):
                    return size, tuple(sequence[end:])
    return 0, ()


FRAMES = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1)), min_size=1, max_size=14)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(FRAMES, max_size=2),
    FRAMES,
    st.integers(1, 3),
    st.integers(0, 2),
    st.sampled_from([None, 1]),
    st.integers(1, 5),
)
def test_what_followed_the_longest_run_is_proposed(
    earlier: list[list[Frame]],
    said: list[Frame],
    shortest: int,
    more: int,
    codebooks: int | None,
    limit: int,
) -> None:
    def index() -> FrameIndex:
        return FrameIndex(shortest + more, shortest, codebooks)

    indices = []
    for sequence in earlier:
        indices.append(index())
        indices[-1].add(sequence)
    drafter, sizes = LookupDrafter(indices, index()), range(shortest + more, shortest - 1, -1)
    prefix = prefix_of(said[:1])
    for length in range(1, len(said) + 1):  # frame by frame, as a session commits them
        size, ahead = found_slowly(
            [said[:length], *earlier], said[:length], list(sizes), codebooks or 2
        )
        assert drafter.propose(prefix, limit, NOBODY).ids == ahead[:limit]
        outlook = drafter.outlook(prefix)
        assert outlook.available == len(ahead)
        assert outlook.context == (f"match {size}" if size else "no match")
        prefix.extend(said[length : length + 1])


def test_what_the_voice_said_earlier_is_asked_after_what_it_says_now() -> None:
    earlier = FrameIndex(longest=3, shortest=1)
    earlier.add([(1, 1), (2, 2), (3, 3), (4, 4)])
    drafter = LookupDrafter([earlier], FrameIndex(longest=3, shortest=1))
    once = prefix_of([(2, 2), (9, 9), (2, 2)])
    assert drafter.propose(once, 2, NOBODY).ids == ((9, 9), (2, 2))
    drafter = LookupDrafter([earlier], FrameIndex(longest=3, shortest=1))
    longer = prefix_of([(2, 2), (9, 9), (1, 1), (2, 2)])
    assert drafter.propose(longer, 2, NOBODY).ids == ((3, 3), (4, 4)), "two alike beat one"


@pytest.mark.parametrize(("shortest", "longest"), [(0, 3), (4, 3)])
def test_runs_of_no_frames_are_refused(shortest: int, longest: int) -> None:
    with pytest.raises(ValueError, match="need 1 <= shortest <= longest"):
        FrameIndex(longest, shortest)


# Heads.


def pick_of(sampling: Sampling, order: str, prefix: FramePrefix) -> Pick:
    sampler = FrameSampler(sampling, CPU, case(order).layout, K)
    pick: Any = sampler.picker(FrameProcessors(None, K), prefix)
    return pick


def test_heads_see_the_state_behind_which_the_last_frame_was_decided() -> None:
    wanted = case("known rows")
    said = [*wanted.prompt, *ordinary(wanted).frames]
    target = FrameToy(wanted.law)
    target.score(said[:4], keep=2)  # states behind frames 2 and 3
    drafter = heads_of(target, said)
    seen = []

    def watching(hidden: torch.Tensor) -> torch.Tensor:
        seen.append(target.seen[int(hidden)])
        return torch.zeros(2, K, target.vocab_size)

    watcher = HeadsDrafter(target, watching, 2)
    for length, there in ((4, 3), (5, 4)):
        prefix = prefix_of(said[:length])
        assert drafter.outlook(prefix).available == 3
        watcher.propose(prefix, 2, pick_of(Sampling(), "known rows", prefix))
        assert seen[-1] == tuple(said[:there]), "all but the last, which wasn't fed"
    for length in (3, 6):
        prefix = prefix_of(said[:length])
        assert drafter.outlook(prefix).available == 0
        assert drafter.propose(prefix, 3, NOBODY).ids == ()


@pytest.mark.parametrize("gamma", [1, 2, 9])
def test_heads_draft_as_many_frames_as_there_are_from_the_second_round_on(gamma: int) -> None:
    given = case("known rows")
    run = decode(given, "heads", gamma)
    trace = run.tally.trace
    assert len(trace[0].proposal) == 0
    assert {len(done.proposal) for done in trace[1:-3]} == {min(gamma, 3)}
    assert run.tally.accepted > 0


def test_heads_that_are_sampled_state_their_laws() -> None:
    wanted = case("known rows")
    said = [*wanted.prompt, *ordinary(wanted).frames]
    target = FrameToy(wanted.law)
    target.score(said[:8], keep=1)
    prefix = prefix_of(said[:9])
    pick = pick_of(Sampling(sample=True), "known rows", prefix)
    proposal = heads_of(target, said).propose(prefix, 2, pick)
    assert proposal.draft_probs is not None
    assert proposal.draft_probs.shape == (2, K, target.vocab_size)
    proposal.check(2, target.vocab_size)


# The proposal.


def test_a_proposal_is_cropped_with_its_laws() -> None:
    probs = torch.full((3, 2, V), 1 / V)
    proposal = DraftedFrames(((1, 2), (3, 4), (5, 6)), probs, draft_rest=lambda *_: probs[0, 0])
    cropped = proposal.crop(2)
    assert cropped.ids == ((1, 2), (3, 4))
    assert cropped.draft_probs is not None
    assert cropped.draft_probs.shape == (2, 2, V)
    assert cropped.draft_rest is proposal.draft_rest
    assert proposal.crop(3) is proposal
    assert proposal.crop(0).ids == ()


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (((1, 2), (3, 4), (5, 6)), "proposed 3 frames where 2 were asked for"),
        (((1, 2), (3,)), "codes"),
        (((1, V),), f"proposed code {V}, outside 0..{V - 1}"),
        (((1, -1),), "proposed code -1, outside"),
        (((1, 2.0),), "proposed code 2.0, outside"),
    ],
)
def test_what_is_no_proposal_of_frames_is_refused(ids: Any, message: str) -> None:
    DraftedFrames(((1, 2),)).check(2, V)
    with pytest.raises(DraftError, match=message):
        DraftedFrames(ids).check(2, V)

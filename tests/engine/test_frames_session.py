"""The one session over frames emits, code for code, what ordinary decoding emits."""

from __future__ import annotations

import copy
import itertools
import re
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import MaxLengthCriteria, StoppingCriteria, TemperatureLogitsWarper
from transformers.generation.logits_process import (
    ClassifierFreeGuidanceLogitsProcessor,
    TopKLogitsWarper,
)
from transformers.generation.streamers import BaseStreamer

from mmspec.engine import Sampling
from mmspec.prefix import Frame
from mmspec.proposals.frames import DraftedFrames
from tests.frame_toys import (
    DRAFTERS,
    MUSIC,
    ORDERS,
    Case,
    FrameToy,
    K,
    Run,
    ScriptedFrames,
    V,
    case,
    decode,
    noise_of,
    open_session,
    ordinary,
)

EVERY_ORDER = pytest.mark.parametrize("order", ORDERS)
EVERY_KIND = pytest.mark.parametrize("kind", DRAFTERS)
GAMMAS = (0, 1, 2, 5, 17, 20, 60)
SAYING = ("copy", "wrong", "recalling", "lookup", "garbage", "none")


@EVERY_ORDER
@EVERY_KIND
@pytest.mark.parametrize("gamma", GAMMAS)
def test_any_drafter_and_gamma_emit_the_ordinary_frames(order: str, kind: str, gamma: int) -> None:
    given = case(order)
    plain = ordinary(given)
    run = decode(given, kind, gamma)
    assert run.frames == plain.frames
    assert run.session.finish_reason == plain.reason
    assert len(run.tally.faults) <= (kind == "failing")


@EVERY_ORDER
@EVERY_KIND
@pytest.mark.parametrize("seed", [1, 2])
def test_other_laws_and_lengths(order: str, kind: str, seed: int) -> None:
    given = case(order, seed, frames=4 + 5 * seed)
    assert decode(given, kind, 3).frames == ordinary(given).frames


@EVERY_ORDER
def test_what_comes_out_is_in_the_order_of_its_descriptor(order: str) -> None:
    """The slow decoding itself: rows that hold a grid, an end where the distribution says it."""
    given = case(order)
    rows = [*given.prompt, *ordinary(given).frames]
    if order == "known rows":
        assert len(MUSIC.to_grid(rows)) == 18
    elif order == "end mark":
        assert rows[18][0] == 4
        assert rows[18 + 3] == (5, 5, 4)
        assert len(rows) == 18 + 3 + 1
    else:
        assert rows[-1] == (0, 0, 0)
        assert len(rows) == 18 + 1


@EVERY_ORDER
@pytest.mark.parametrize("gamma", [1, 3, 8])
def test_a_copy_of_the_target_is_always_accepted_and_full_rounds_give_gamma_and_one(
    order: str, gamma: int
) -> None:
    run = decode(case(order), "copy", gamma)
    full, last = run.tally.trace[:-1], run.tally.trace[-1]
    assert run.tally.recovered == 0
    assert {len(done.emitted) for done in full} == {gamma + 1}
    assert all(done.accepted == len(done.proposal) > 0 for done in full)
    assert last.accepted >= len(last.emitted) - 1, "the end cuts the last one"


@EVERY_ORDER
def test_the_drafters_here_do_what_their_names_say(order: str) -> None:
    """Or the tests above test nothing."""
    given = case(order)

    def kept(kind: str) -> tuple[int, int]:
        tally = decode(given, kind, 4).tally
        return tally.accepted, tally.proposed

    for kind in ("recalling", "lookup", "repeat", *(["heads"] if order != "depth" else [])):
        accepted, proposed = kept(kind)
        assert 0 < accepted < proposed, kind
    for kind in ("wrong", "garbage"):
        accepted, proposed = kept(kind)
        assert accepted < proposed / 4, kind
    run = decode(given, "failing", 4)
    assert run.tally.faults == ["drafter scripted dismissed: RuntimeError: out of ideas"]
    assert run.tally.accepted > 0


# Where it ends.


@pytest.mark.parametrize("order", ["end mark", "depth"])
@pytest.mark.parametrize("kind", SAYING)
@pytest.mark.parametrize("frames", range(4, 12))
def test_an_end_at_every_offset_of_a_block(order: str, kind: str, frames: int) -> None:
    given = case(order, frames=frames)
    plain = ordinary(given)
    run = decode(given, kind, 3)
    assert run.frames == plain.frames
    assert (run.session.finish_reason, plain.reason) == ("stop", "stop")


@pytest.mark.parametrize("order", ["end mark", "depth"])
def test_an_end_that_is_drafted_too_early_is_rejected(order: str) -> None:
    """The drafter of the tests above has ended three frames too early, in its own opinion."""
    given = case(order)
    run = decode(given, "wrong", 6)
    end = (4, 0)[order == "depth"]
    drafted = [
        place
        for done in run.tally.trace
        for place, frame in enumerate(done.proposal)
        if frame[0] == end and place >= done.accepted
    ]
    assert drafted, "no end was drafted in vain"
    assert run.session.finish_reason == "stop"


@EVERY_ORDER
@pytest.mark.parametrize("kind", SAYING)
@pytest.mark.parametrize("gamma", [3, 5])
def test_never_more_frames_than_the_limit(order: str, kind: str, gamma: int) -> None:
    given = case(order)
    for room in range(gamma + 3):
        limit = len(given.prompt) + room
        run = decode(given, kind, gamma, max_length=limit)
        assert run.frames == ordinary(given, max_length=limit).frames
        assert len(run.frames) == room
        assert run.session.finish_reason == "length"
        assert run.target.state.length <= limit


def test_a_max_length_criterion_is_a_limit_like_any() -> None:
    given = case("known rows")
    run = decode(given, "copy", 8, criteria=[MaxLengthCriteria(7)])
    assert run.frames == ordinary(given, max_length=7).frames
    assert run.session.finish_reason == "length"


class StopOn(StoppingCriteria):
    """Says of each codebook whether its last code was ever this one; all of them have to."""

    def __init__(self, frame: Frame) -> None:
        self.frame, self.asked = torch.tensor(frame), list[list[list[int]]]()

    def __call__(self, input_ids: Tensor, scores: Any, **kwargs: Any) -> Tensor:
        self.asked.append(input_ids.tolist())
        return input_ids[:, -1] == self.frame


@EVERY_ORDER
@pytest.mark.parametrize("kind", SAYING)
@pytest.mark.parametrize("offset", [0, 1, 2, 5, 6, 11])
def test_a_criterion_ends_the_output_inside_a_block(order: str, kind: str, offset: int) -> None:
    given = case(order)
    last = ordinary(given).frames[offset]
    plain, ours = StopOn(last), StopOn(last)
    expected = ordinary(given, criteria=[plain])
    run = decode(given, kind, 5, criteria=[ours])
    assert run.frames == expected.frames
    assert (run.session.finish_reason, expected.reason) == ("criterion", "criterion")
    assert ours.asked == plain.asked, "asked about the same frames, in the same order"


# What is handed on, and when.


class Notes(BaseStreamer):
    """Writes down what it gets, and what was committed by then."""

    def __init__(self) -> None:
        self.frames: list[Frame] = []
        self.committed: list[int] = []
        self.ends = 0
        self.run: Run | None = None

    def put(self, value: Tensor) -> None:
        if self.ends or tuple(value.shape) != (1, K):
            raise ValueError(f"got {value} after {self.ends} ends")
        self.frames.append(tuple(value[0].tolist()))
        if self.run is not None:
            self.committed.append(len(self.run.session.prefix.emitted))

    def end(self) -> None:
        self.ends += 1


@EVERY_ORDER
@EVERY_KIND
def test_a_streamer_gets_the_committed_frames_in_order_and_no_other(order: str, kind: str) -> None:
    given, notes = case(order), Notes()
    run = notes.run = open_session(given, kind, 5, streamer=notes)
    assert run.session.run() == notes.frames == ordinary(given).frames
    assert notes.ends == 1
    assert all(count > place for place, count in enumerate(notes.committed))


@pytest.mark.parametrize("kind", ["copy", "recalling", "lookup"])
def test_an_iterator_yields_what_a_streamer_gets(kind: str) -> None:
    given = case("end mark")
    run = open_session(given, kind, 4)
    assert list(run.session) == ordinary(given).frames


# State.


def guidance(given: Case) -> list[Any]:
    return [ClassifierFreeGuidanceLogitsProcessor(2.5)] if given.law.guided else []


@pytest.mark.parametrize(
    ("order", "guided"), [*((order, False) for order in ORDERS), ("known rows", True)]
)
@EVERY_KIND
def test_the_states_hold_the_committed_frames_after_every_round(
    order: str, kind: str, guided: bool
) -> None:
    given = case(order, guided=guided)
    run = open_session(given, kind, 4, processors=guidance(given))
    while run.session.finish_reason is None:
        run.session.round()
        committed = list(run.session.prefix.ids)
        for half in range(1 + guided):
            assert run.target.held(half) == committed[:-1]
            if kind in ("copy", "wrong"):
                held = run.drafter.model.held(half)
                assert held == committed[: len(held)]


@EVERY_ORDER
@pytest.mark.parametrize("gamma", [1, 3, 8])
def test_one_target_forward_per_round_and_none_for_an_undrafted_start(
    order: str, gamma: int
) -> None:
    for kind in ("copy", "wrong", "recalling", "heads", "none"):
        run = decode(case(order), kind, gamma)
        starts_undrafted = not run.tally.trace[0].proposal
        assert run.target.forwards == 1 + run.tally.rounds - starts_undrafted
        assert [done.block for done in run.tally.trace if done.block] == [
            len(block) for block in run.target.blocks[1:]
        ]
    zero = decode(case(order), "copy", 0)
    assert zero.target.forwards == len(zero.frames) == zero.tally.rounds


def test_a_chain_is_taught_once_per_round_that_drafts() -> None:
    for kind in ("copy", "recalling", "lookup"):
        run = decode(case("depth"), kind, 4)
        assert run.chain is not None
        assert run.chain.taught == [len(d.proposal) for d in run.tally.trace if d.proposal]


@EVERY_ORDER
@pytest.mark.parametrize("gamma", [1, 4])
def test_accepted_frames_are_never_fed_again(order: str, gamma: int) -> None:
    run = decode(case(order), "copy", gamma)
    committed, model = list(run.session.prefix.ids), run.drafter.model
    for toy in (run.target, model):
        fed = [frame for block in toy.blocks for frame in block]
        assert fed[: len(committed)] == committed[: len(fed)], "a draft may go on behind an end"
    assert run.drafter.forwards == model.forwards


class Broken(Exception):
    """What the tests throw."""


class Fuse:
    """Raises at the n-th call, once."""

    def __init__(self, at: int) -> None:
        self.left = at

    def __call__(self, *args: Any) -> None:
        self.left -= 1
        if self.left == 0:
            raise Broken("blown")


def snapshot(run: Run) -> tuple[Any, ...]:
    prefix = run.session.prefix
    return list(prefix.ids), prefix.tensor().tolist(), run.target.held(), vars(run.tally).copy()


def goes_on_after_a_failure(run: Run, plain: list[Frame]) -> None:
    """Decode through the one failure, which changes nothing."""
    failures = 0
    while run.session.finish_reason is None:
        before = copy.deepcopy(snapshot(run))
        try:
            run.session.round()
        except Broken:
            failures += 1
            assert copy.deepcopy(snapshot(run)) == before
    assert failures == 1
    assert run.session.prefix.emitted == plain


@EVERY_ORDER
@pytest.mark.parametrize("kind", ["copy", "wrong", "recalling", "lookup", "none"])
@pytest.mark.parametrize("at", [1, 2, 3])
def test_a_target_that_raises_inside_a_forward(order: str, kind: str, at: int) -> None:
    given, notes = case(order), Notes()
    run = open_session(given, kind, 4, streamer=notes)
    run.target.fault = Fuse(at)
    goes_on_after_a_failure(run, ordinary(given).frames)
    assert notes.frames == run.session.prefix.emitted
    if kind == "copy":
        assert run.tally.accepted > run.tally.recovered == 0


@pytest.mark.parametrize("name", ["teach", "rest"])
@pytest.mark.parametrize("at", [1, 2, 3])
def test_a_chain_that_raises(name: str, at: int) -> None:
    given = case("depth")
    run = open_session(given, "recalling", 4)
    chain: Any = run.chain
    fuse, real = Fuse(at), getattr(chain, name)

    def failing(*args: Any) -> Tensor:
        fuse()
        answer: Tensor = real(*args)
        return answer

    setattr(chain, name, failing)
    goes_on_after_a_failure(run, ordinary(given).frames)


# Sampling with a seed.


def warpers() -> list[Any]:
    return [TemperatureLogitsWarper(0.8), TopKLogitsWarper(4)]


@EVERY_ORDER
@EVERY_KIND
@pytest.mark.parametrize(("gamma", "seed"), [(0, 0), (1, -7), (4, 0), (30, -7)])
def test_seeded_frames_are_the_same_for_every_drafter_and_for_none(
    order: str, kind: str, gamma: int, seed: int
) -> None:
    given = case(order)
    plain = ordinary(given, seed=seed, processors=warpers())
    seeded = Sampling(sample=True, seed=seed)
    run = decode(given, kind, gamma, sampling=seeded, said=plain.frames, processors=warpers())
    assert run.frames == plain.frames
    assert len(run.tally.faults) <= (kind == "failing")


@EVERY_ORDER
def test_a_copy_under_the_same_seed_is_always_accepted(order: str) -> None:
    seeded = Sampling(sample=True, seed=11)
    tally = decode(case(order), "copy", 4, sampling=seeded).tally
    assert tally.accepted > tally.recovered == 0


@EVERY_ORDER
def test_seeds_matter(order: str) -> None:
    outputs = {tuple(ordinary(case(order), seed=seed).frames) for seed in (None, 0, 1, 2, 3)}
    assert len(outputs) == 5


@EVERY_ORDER
@EVERY_KIND
def test_unseeded_frames_follow_torchs_global_seed(order: str, kind: str) -> None:
    outputs = []
    for seed in (5, 5, 6):
        torch.manual_seed(seed)
        run = decode(case(order), kind, 3, sampling=Sampling(sample=True))
        outputs.append(run.frames)
        assert len(run.tally.faults) <= (kind == "failing")
    assert outputs[0] == outputs[1] != outputs[2]


@pytest.mark.parametrize("rule", ["auto", "token", "frame", "block"])
@EVERY_ORDER
def test_a_copy_draws_what_the_target_would_have_drawn(order: str, rule: str) -> None:
    """With the target's own distribution nothing is ever rejected, whatever the rule."""
    sampling = Sampling(sample=True, rule=rule)
    tally = decode(case(order), "copy", 4, sampling=sampling).tally
    assert tally.accepted > tally.recovered == 0


# Proposals that are none.


GOOD = (1,) * K
WRONG: dict[str, tuple[Any, str]] = {
    "frames of two widths": ([GOOD, (1,) * (K - 1)], "DraftError: .* codes"),
    "too few codes": ([(1,) * (K - 1)], "Error"),
    "too many codes": ([(1,) * (K + 1)], "Error"),
    "no codes": ([()], "Error"),
    "single tokens": ([3], "Error"),
    "a code that isn't there": ([(V + 1,) * K], "DraftError: .* outside"),
    "a negative code": ([(1, -1, 1)], "DraftError: .* outside"),
    "no integers": ([(0.5,) * K], "DraftError: .* outside"),
}


@EVERY_ORDER
@pytest.mark.parametrize("name", WRONG)
def test_what_is_no_frame_dismisses_the_drafter(order: str, name: str) -> None:
    wrong, message = WRONG[name]
    given = case(order)
    run = decode(given, ScriptedFrames(lambda ids, limit: wrong), 3)
    assert run.frames == ordinary(given).frames
    (fault,) = run.tally.faults
    assert re.search(f"dismissed: .*{message}", fault)


@pytest.mark.parametrize(
    ("laws", "message"),
    [
        (torch.full((1, K, V), 0.5), "no probability distributions"),
        (torch.full((2, K, V), 1 / V), "have shape"),
        (torch.full((1, K, V), torch.nan), "no probability distributions"),
    ],
)
def test_laws_that_are_none_dismiss_the_drafter(laws: Tensor, message: str) -> None:
    class UndefinedScores(ScriptedFrames):
        def propose(self, *args: Any) -> DraftedFrames:
            return DraftedFrames(super().propose(*args).ids, laws)

    given = case("depth")
    run = decode(given, UndefinedScores(lambda ids, limit: [noise_of(ids, 0)]), 3)
    assert run.frames == ordinary(given).frames
    assert message in run.tally.faults[0]


# Forced cells, whatever is drafted there.


def told_with_noise_in_forced_cells(given: Case, said: list[Frame]) -> ScriptedFrames:
    """Knows every decided code, and leaves anything where none is decided."""
    whole = [*given.prompt, *said]

    def script(ids: Sequence[Frame], limit: int) -> list[Frame]:
        out = []
        for at in range(len(ids), min(len(whole), len(ids) + limit)):
            marks = given.slow.forced(whole[:at])
            junk = noise_of(ids, at)
            cells = zip(whole[at], marks, junk, strict=True)
            out.append(tuple(code if mark < 0 else other for code, mark, other in cells))
        return out

    return ScriptedFrames(script)


@pytest.mark.parametrize("order", ["known rows", "end mark"])
@pytest.mark.parametrize("gamma", [1, 3, 30])
def test_noise_in_forced_cells_is_never_committed(order: str, gamma: int) -> None:
    """Nor read by the target, and no frame is rejected for it."""
    given = case(order)
    for sampling in (Sampling(), Sampling(sample=True, seed=5)):
        plain = ordinary(given, seed=sampling.seed).frames
        drafter = told_with_noise_in_forced_cells(given, plain)
        run = decode(given, drafter, gamma, sampling=sampling)
        assert run.frames == plain
        assert run.target.held() == [*given.prompt, *plain][:-1]
        assert run.tally.accepted == run.tally.proposed > 0
        fed = [frame for block in run.target.blocks for frame in block]
        assert fed == [*given.prompt, *plain][: len(fed)]
        assert not run.tally.faults


def test_the_padding_of_these_orders_is_padding() -> None:
    """Some rows of the tests above are forced in part, at both ends."""
    for order in ("known rows", "end mark"):
        given = case(order)
        rows = [*given.prompt, *ordinary(given).frames]
        forced = [given.slow.forced(rows[:at]) for at in range(len(given.prompt), len(rows))]
        partly = [sum(mark >= 0 for mark in row) for row in forced]
        assert 0 < partly[0] < K
        assert partly[-2] > 0
        assert 0 in partly


# The toy itself.


@EVERY_ORDER
def test_no_row_of_a_block_depends_on_a_later_frame(order: str) -> None:
    rows = []
    for last in ((4, 4, 4), (5, 5, 5)):
        target = FrameToy(case(order).law)
        rows.append(target.score([(1, 2, 3), (2, 2, 2), last], keep=3))
    torch.testing.assert_close(rows[0][:2], rows[1][:2], rtol=0, atol=0)
    assert not torch.equal(rows[0][2], rows[1][2])


def test_every_code_of_every_frame_matters_to_the_toy() -> None:
    law = case("known rows").law
    frames = [(1, 2, 3), (4, 5, 6)]
    base = law.rows(frames)
    for at, k in itertools.product(range(2), range(K)):
        other = [list(frame) for frame in frames]
        other[at][k] = (other[at][k] + 1) % V
        assert not torch.equal(law.rows([tuple(frame) for frame in other]), base)

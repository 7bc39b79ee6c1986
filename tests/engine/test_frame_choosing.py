"""Whole sessions over frames draw from the target's distribution, and draft as the target would
have drawn.

The distribution of a session is added up over everything that chance may answer, in the rule and in
the
drafter: nothing is sampled here.
"""

from __future__ import annotations

import functools
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import TemperatureLogitsWarper

from mmspec.acceptance.frames import FREE, code_noise
from mmspec.engine import Sampling
from mmspec.engine.frames import FrameProcessors, FrameSampler, choosing
from mmspec.prefix import Frame, FramePrefix
from mmspec.proposals.frames import DraftedFrames
from tests.acceptance.branching import Branching, integrated
from tests.frame_toys import (
    CPU,
    Case,
    FrameLaw,
    K,
    ScriptedFrames,
    WholeFrames,
    case,
    model,
    open_session,
)

LIMIT = 1e-12
SMALL = 3
"""Codes in a codebook."""

Emitted = dict[tuple[Frame, ...], float]


@functools.cache
def sparse_row(seed: int, likely: int, given: tuple[int, ...]) -> Tensor:
    """Scores of two codes out of three. Distributions of one seed are alike but for `likely`."""
    generator = torch.Generator().manual_seed(hash((seed, *given)) & ((1 << 63) - 1))
    never = int(torch.randint(SMALL, (), generator=generator))
    row = torch.rand(SMALL, generator=generator).roll(likely).log()
    row[never] = -torch.inf
    return row


@dataclass(frozen=True)
class Sparse(FrameLaw):
    """Distributions of two possible codes each: everything that may happen can be listed.

    Attributes:
        likely: tells two distributions apart that know the same possible codes.
        marked: rows of which the forced cells have a distribution of one code only, another one.
    """

    likely: int = 0
    marked: tuple[str, ...] = ()

    def row(
        self, frames: Sequence[Frame], codebook: int, before: Frame = (), half: int = 0
    ) -> Tensor:
        row = len(frames)
        mark = self.told(row, codebook, FREE)
        if mark != FREE:
            return torch.eye(SMALL)[(mark + 1) % SMALL].log()
        inside = before if self.chain else ()
        return sparse_row(self.seed, self.likely, (codebook, row, *sum(frames, ()), *inside))

    def told(self, row: int, codebook: int, code: int) -> int:
        cell = self.marked[row][codebook] if row < len(self.marked) else "."
        return code if cell == "." else int(cell)


@dataclass(frozen=True)
class Marked:
    """Cells that are forced whatever is said, by row: `.` is free."""

    rows: tuple[str, ...]

    def _row(self, row: int) -> Frame:
        cells = self.rows[row] if row < len(self.rows) else "." * K
        return tuple(FREE if cell == "." else int(cell) for cell in cells)

    def forced(self, frames: Sequence[Frame], drafted: Sequence[Frame] = ()) -> Any:
        start = len(frames)
        return [self._row(row) for row in range(start, start + len(drafted) + 1)]

    def ends(self, frames: Sequence[Frame], more: Sequence[Frame]) -> bool:
        return False


@dataclass(frozen=True)
class SlowMarked(WholeFrames):
    """The same, one row."""

    end: int | None = None
    marked: Marked = Marked(())

    def forced(self, frames: Sequence[Frame]) -> Frame:
        return self.marked._row(len(frames))


def law_of(chain: bool, rows: tuple[str, ...], likely: int = 0) -> Sparse:
    return Sparse(1, codes=SMALL, chain=chain, likely=likely, marked=("000", *rows))


def small(chain: bool, rows: tuple[str, ...]) -> Case:
    """Rows 1 on are decided, but for what is forced in them."""
    law = law_of(chain, rows)
    marked = Marked(("000", *rows))
    slow = SlowMarked(marked=marked)
    return Case(law, marked, slow, ((0, 1, 2),), 1 + len(rows))


def law_of_rows(given: Case, scores: Callable[[Tensor], Tensor] = lambda row: row) -> Emitted:
    """The target's own distribution of all frames, code by code."""
    law: Emitted = {given.prompt: 1.0}
    for _ in range(given.max_length - len(given.prompt)):
        longer: Emitted = {}
        for frames, weight in law.items():
            begun: dict[Frame, float] = {(): weight}
            for k, mark in enumerate(given.slow.forced(frames)):
                begun = {
                    (*codes, code): chance * part
                    for codes, chance in begun.items()
                    for code, part in _codes(given, frames, k, codes, mark, scores)
                }
            longer |= {(*frames, codes): chance for codes, chance in begun.items()}
        law = longer
    return {frames[len(given.prompt) :]: chance for frames, chance in law.items()}


def _codes(
    given: Case, frames: Sequence[Frame], k: int, codes: Frame, mark: int, scores: Any
) -> list[tuple[int, float]]:
    if mark != FREE:
        return [(mark, 1.0)]
    row = given.law.row(frames, k, codes)
    law = scores(row).double().softmax(-1).tolist()
    return [(code, chance) for code, chance in enumerate(law) if chance > 0]


def distance(one: Emitted, other: Emitted) -> float:
    return sum(abs(one.get(key, 0.0) - other.get(key, 0.0)) for key in {*one, *other}) / 2


@contextmanager
def answered_by(chance: Branching, patch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every draw of a session, its drafter's included, is an answer of this chance."""

    def multinomial(laws: Tensor, count: int, generator: Any = None) -> Tensor:
        rows = laws.view(-1, laws.shape[-1])
        drawn = torch.tensor([chance.draw(row) for row in rows])
        return drawn.view(*laws.shape[:-1], 1)

    with patch.context() as answers:
        answers.setattr(choosing, "Coins", lambda generator: chance)
        answers.setattr(torch, "multinomial", multinomial)
        yield


def law_of_sessions(
    given: Case, drafter: Callable[[], Any], gamma: int, rule: str, **how: Any
) -> tuple[Emitted, float]:
    """(the law of what whole sessions emit, how many drafted frames they keep on average)."""
    patch = pytest.MonkeyPatch()
    kept = defaultdict[tuple[Frame, ...], float](float)

    def run(chance: Branching) -> tuple[tuple[Frame, ...], int]:
        with answered_by(chance, patch):
            sampling = Sampling(sample=True, rule=rule)
            opened = open_session(given, drafter(), gamma, sampling=sampling, **how)
            frames: Any = opened.session.run()
        if opened.tally.faults:
            raise AssertionError(opened.tally.faults)
        return tuple(frames), opened.tally.accepted

    summed = integrated(run).law
    for (frames, _), chance in summed.items():
        kept[frames] += chance
    return dict(kept), sum(accepted * chance for (_, accepted), chance in summed.items())


BEGINS, GAP = (".00", "..0", "..."), ("...", ".1.")
RULES = ("token", "frame", "block")
KINDS = pytest.mark.parametrize("chain", [False, True], ids=["independent", "chain"])


@pytest.mark.parametrize("rule", RULES)
@KINDS
@pytest.mark.parametrize(("rows", "gamma"), [(BEGINS, 2), (GAP, 1)], ids=["a delay", "a gap"])
def test_what_a_session_emits_has_the_targets_law(
    rule: str, chain: bool, rows: tuple[str, ...], gamma: int
) -> None:
    given = small(chain, rows)
    drafting = law_of(chain, rows, likely=1)
    emitted, kept = law_of_sessions(given, lambda: model(drafting, given.prompt), gamma, rule)
    assert math.isclose(sum(emitted.values()), 1.0)
    assert distance(emitted, law_of_rows(given)) < LIMIT
    assert 0.04 < kept < gamma * 0.9, "some is accepted and some rejected"


@pytest.mark.parametrize("rule", RULES)
@KINDS
def test_a_session_without_laws_of_its_drafter_has_the_targets_law(rule: str, chain: bool) -> None:
    """Lookup and the like: their frames are no draws."""
    given = small(chain, BEGINS)
    likely = max(law_of_rows(given).items(), key=lambda pair: pair[1])[0]

    def drafter() -> ScriptedFrames:
        return ScriptedFrames(lambda ids, limit: likely[len(ids) - 1 :])

    emitted, kept = law_of_sessions(given, drafter, 2, rule)
    assert distance(emitted, law_of_rows(given)) < LIMIT
    assert kept > 0.05


@pytest.mark.parametrize("rule", RULES)
def test_a_warped_session_has_the_warped_law(rule: str) -> None:
    given = small(False, GAP)
    warped: Any = lambda row: row / 0.5  # noqa: E731
    emitted, _ = law_of_sessions(
        given,
        lambda: model(law_of(False, GAP, likely=1), given.prompt),
        1,
        rule,
        processors=[TemperatureLogitsWarper(0.5)],
    )
    assert distance(emitted, law_of_rows(given, warped)) < 1e-7, "float32 scores were divided"
    assert distance(emitted, law_of_rows(given)) > 0.01


def test_judging_more_at_once_keeps_more_frames_of_a_session() -> None:
    given = small(False, GAP)
    drafting = law_of(False, GAP, likely=1)
    kept = [
        law_of_sessions(given, lambda: model(drafting, given.prompt), 1, rule)[1] for rule in RULES
    ]
    assert kept[0] < kept[1] - 1e-3
    assert kept[1] == pytest.approx(kept[2]), "one frame at a time is a block of one"


class Flat(ScriptedFrames):
    """States another distribution than it draws from."""

    def propose(self, *args: Any) -> DraftedFrames:
        proposal = super().propose(*args)
        return DraftedFrames(proposal.ids, torch.full((len(proposal), K, SMALL), 1 / SMALL))


@pytest.mark.parametrize("rule", RULES)
def test_a_planted_bias_is_seen(rule: str) -> None:
    """The sum above sees distributions that the frames weren't drawn from."""
    given = small(False, GAP)
    drafted = next(iter(law_of_rows(given)))[0]
    emitted, _ = law_of_sessions(given, lambda: Flat(lambda ids, limit: [drafted]), 1, rule)
    assert distance(emitted, law_of_rows(given)) > 1e-3


# How a drafter draws.


BEFORE = FramePrefix([(6, 6, 6), (1, 6, 6)], 12, CPU, K)


def sampler(sampling: Sampling, order: str = "end mark") -> FrameSampler:
    return FrameSampler(sampling, CPU, case(order).layout, K)


def test_a_drafters_frame_has_forced_codes_in_place_and_the_laws_of_the_others() -> None:
    rows = torch.randn(K, 7)
    pick = sampler(Sampling(sample=True)).picker(FrameProcessors(None, K), BEFORE)
    frame, laws = pick(rows, 0)
    assert laws is not None
    assert frame[1:] == (6, 6)
    torch.testing.assert_close(laws, rows.double().softmax(-1))
    after, _ = pick(rows, 1)
    assert after[2] == 6
    greedy = sampler(Sampling()).picker(FrameProcessors(None, K), BEFORE)
    assert greedy(rows, 0) == ((int(rows[0].argmax()), 6, 6), None)


def test_an_end_that_was_drafted_forces_what_is_drafted_behind_it() -> None:
    rows = torch.zeros(K, 7)
    rows[0, 4] = 9.0  # the end mark, again and again
    pick = sampler(Sampling()).picker(FrameProcessors(None, K), BEFORE)
    drafted = [pick(rows, offset)[0] for offset in range(4)]
    assert drafted == [(4, 6, 6), (5, 0, 6), (5, 4, 0), (5, 5, 4)]


@pytest.mark.parametrize("seed", [0, 9])
def test_seeded_drafts_take_the_noise_of_their_own_position_and_codebook(seed: int) -> None:
    rows = torch.randn(K, 7)
    pick = sampler(Sampling(sample=True, seed=seed)).picker(FrameProcessors(None, K), BEFORE)
    for offset in range(5):
        frame, laws = pick(rows, offset)
        assert laws is None, "a function of the rows: one-hot"
        noise = code_noise(seed, torch.tensor(len(BEFORE) + offset), K, 7)
        own = (rows + noise).argmax(-1).tolist()
        for k, code in enumerate(frame):
            assert code in (own[k], 6, 5, 4)
        assert frame[0] in (own[0], 5)


@pytest.mark.parametrize("seed", [0, 9])
def test_codes_of_a_chain_are_drawn_with_the_noise_of_a_whole_frame(seed: int) -> None:
    rows = torch.randn(K, 7)
    seeded = Sampling(sample=True, seed=seed)
    pick = sampler(seeded, "depth").picker(FrameProcessors(None, K), BEFORE)
    for offset in range(3):
        codes = [pick.first(rows[:1]), *(pick.code(rows[k], k) for k in range(1, K))]
        noise = code_noise(seed, torch.tensor(len(BEFORE) + offset), K, 7)
        assert codes == [(code, None) for code in (rows + noise).argmax(-1).tolist()]
        pick.done(tuple(code for code, _ in codes))


def test_codes_of_a_chain_come_with_their_laws_or_are_the_likeliest() -> None:
    row = torch.tensor([0.0, -torch.inf, 1.0, 0.5, 0.0, 0.0, 0.0])
    code, law = sampler(Sampling(sample=True)).draw(row, 5, 1)
    assert code != 1
    torch.testing.assert_close(law, row.double().softmax(-1))
    assert sampler(Sampling()).draw(row, 5, 1) == (2, None)


@pytest.mark.parametrize(
    ("sampling", "laws", "rule"),
    [
        (Sampling(), True, "greedy"),
        (Sampling(sample=True, seed=1), True, "keyed"),
        (Sampling(sample=True), True, "block"),
        (Sampling(sample=True), False, "token"),
        (Sampling(sample=True, rule="frame"), True, "frame"),
        (Sampling(sample=True, rule="token"), True, "token"),
    ],
)
def test_the_default_rule(sampling: Sampling, laws: bool, rule: str) -> None:
    probs = torch.full((1, K, 7), 1 / 7) if laws else None
    assert sampler(sampling).rule(DraftedFrames(((1, 2, 3),), probs)) == rule

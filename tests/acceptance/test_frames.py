"""Rules over frames emit the target's distribution exactly; wrong versions of them are seen."""

from __future__ import annotations

import importlib
import itertools
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from mmspec.acceptance import frames
from mmspec.acceptance.frames import FREE, Chance, Coins, FrameDecision, FrameProposal
from mmspec.acceptance.frames.proposal import Reading
from tests.acceptance import frames_reference as reference

from .branching import Branching, integrated

SAMPLING = importlib.import_module("mmspec.acceptance.frames.sampling")

LIMIT = 1e-12
PAD = 1
"""The code of forced cells; a real one, so that taking it for a decision isn't refused."""

Frame = tuple[int, ...]
Emitted = dict[tuple[Frame, ...], float]
Rule = Callable[[FrameProposal, Chance], FrameDecision]
RULES = (frames.by_code, frames.by_frame, frames.block)
EVERY_RULE = pytest.mark.parametrize("rule", RULES)


class Model:
    """A distribution per frame history, codebook and, in a chain, codes of the frame before it."""

    def __init__(self, seed: int, codes: int, chain: bool, forbidden: float = 0.0) -> None:
        self.codes, self.chain = codes, chain
        self._seed, self._forbidden = seed, forbidden
        self.law = cache(self._law)

    def _law(self, history: tuple[Frame, ...], before: Frame) -> np.ndarray:
        inside = before if self.chain else (0,) * len(before)
        key = [self._seed, len(history), len(before), *itertools.chain(*history, inside)]
        rng = np.random.default_rng(key)
        law = rng.dirichlet(np.full(self.codes, 0.8))
        if rng.random() < self._forbidden:
            law[rng.integers(self.codes)] = 0.0
        return law / law.sum()


@dataclass(frozen=True)
class Toy:
    """Two models and a pattern of decided cells; `decided` has a row per frame `0..N`."""

    target: Model
    draft: Model
    decided: tuple[tuple[bool, ...], ...]

    @property
    def length(self) -> int:
        return len(self.decided) - 1

    @property
    def forced(self) -> list[list[int | None]]:
        return [[None if free else PAD for free in row] for row in self.decided]

    def sequences(self, model: Model, begun: tuple[Frame, ...], length: int) -> Emitted:
        law = {begun: 1.0}
        for _ in range(length - len(begun)):
            law = {
                (*history, frame): weight * chance
                for history, weight in law.items()
                for frame, chance in frame_law(self, model, history).items()
                if chance > 0
            }
        return law

    def proposal(self, drafted: tuple[Frame, ...]) -> FrameProposal:
        """What a rule is given; everything it must not read is poisoned."""
        books, codes = len(self.decided[0]), self.target.codes
        scores = torch.full((self.length + 1, books, codes), torch.nan, dtype=torch.float64)
        probs = torch.full((self.length, books, codes), torch.nan, dtype=torch.float64)
        ids = torch.full((self.length, books), -7)
        for at, row in enumerate(self.decided):
            for book in np.flatnonzero(row):
                before = drafted[at][:book] if at < self.length else (0,) * int(book)
                if at < self.length or book == 0 or not self.target.chain:
                    law = self.target.law(drafted[:at], before)
                    scores[at, book] = torch.from_numpy(law).log()
                if at < self.length:
                    probs[at, book] = torch.from_numpy(self.draft.law(drafted[:at], before))
                    ids[at, book] = drafted[at][book]
        forced = [[FREE if code is None else code for code in row] for row in self.forced]

        def target_rest(frame_idx: int, before: Frame) -> Tensor:
            return torch.from_numpy(self.target.law(drafted[:frame_idx], before)).log()

        def draft_rest(frame_idx: int, before: Frame) -> Tensor:
            return torch.from_numpy(self.draft.law(drafted[:frame_idx], before))

        return FrameProposal(
            scores,
            ids,
            torch.tensor(forced),
            probs,
            target_rest if self.target.chain else None,
            draft_rest if self.draft.chain else None,
        )


@cache
def frame_law(given: Toy, model: Model, history: tuple[Frame, ...]) -> dict[Frame, float]:
    return reference.frame_law(
        lambda _, codes: model.law(history, codes).tolist(), 0, given.forced[len(history)]
    )


def pattern(*rows: str) -> tuple[tuple[bool, ...], ...]:
    return tuple(tuple(cell == "x" for cell in row) for row in rows)


PATTERNS = {
    "one frame": pattern("xxx", "xxx"),
    "delayed start": pattern("x..", "xx.", "xxx"),
    "delayed end": pattern(".xx", "..x", "..."),
    "whole frames": pattern("xxx", "xxx", "xxx"),
    "pairs": pattern("xx", "xx", "xx"),
}
KINDS = {"independent": (False, False), "chain": (True, True), "heads for a chain": (True, False)}


@cache
def toy(name: str, kind: str = "independent", codes: int = 3, forbidden: float = 0.2) -> Toy:
    target, draft = KINDS[kind]
    return Toy(
        Model(5, codes, target, forbidden), Model(6, codes, draft, forbidden / 2), PATTERNS[name]
    )


def law_of(rule: Rule, given: Toy, change: Change | None = None) -> tuple[Emitted, float, float]:
    """The law of the frames that come out and, on average, frames kept and attempts made."""
    reached: Emitted = defaultdict(float)
    kept = attempts = 0.0
    for drafted, weight in given.sequences(given.draft, (), given.length).items():
        proposal = given.proposal(drafted)
        if change is not None:
            proposal = change(proposal)
        summed = integrated(partial(rule, proposal))
        attempts += weight * summed.attempts
        for decision, chance in summed.law.items():
            kept += weight * chance * decision.accepted
            begun = (*drafted[: decision.accepted], decision.next_frame)
            length = given.length + 1
            for full, rest in given.sequences(given.target, begun, length).items():
                reached[full] += weight * chance * rest
    return reached, kept, attempts


Change = Callable[[FrameProposal], FrameProposal]


def distance(rule: Rule, given: Toy, change: Change | None = None) -> float:
    reached, *_ = law_of(rule, given, change)
    want = given.sequences(given.target, (), given.length + 1)
    return sum(abs(reached.get(f, 0) - want.get(f, 0)) for f in {*reached, *want}) / 2


def decisions(rule: Rule, proposal: FrameProposal) -> dict[FrameDecision, float]:
    return integrated(lambda chance: rule(proposal, chance)).law


def outcomes(rule: Rule, proposal: FrameProposal) -> dict[tuple[int, Frame], float]:
    law = decisions(rule, proposal)
    return {(d.accepted, d.next_frame): chance for d, chance in law.items()}


@EVERY_RULE
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["one frame", "delayed start", "delayed end"])
def test_what_is_emitted_has_the_targets_law(rule: Rule, kind: str, name: str) -> None:
    assert distance(rule, toy(name, kind)) < LIMIT


@EVERY_RULE
def test_two_whole_frames_have_the_targets_law(rule: Rule) -> None:
    assert distance(rule, toy("whole frames", codes=2, forbidden=0.0)) < LIMIT


@EVERY_RULE
@pytest.mark.parametrize("kind", KINDS)
def test_every_outcome_is_as_likely_as_the_reference_says(rule: Rule, kind: str) -> None:
    for name in ("one frame", "delayed start"):
        given = toy(name, kind)
        for drafted in itertools.islice(given.sequences(given.draft, (), given.length), 0, None, 5):
            slow = getattr(reference, rule.__name__)(*laws(given, drafted), drafted, given.forced)
            fast = outcomes(rule, given.proposal(drafted))
            for outcome in {*slow, *fast}:
                assert fast.get(outcome, 0) == pytest.approx(slow.get(outcome, 0), abs=1e-12)


def laws(given: Toy, drafted: tuple[Frame, ...]) -> tuple[reference.Law, reference.Law]:
    def law(model: Model) -> reference.Law:
        return lambda at, codes: model.law(drafted[:at], codes).tolist()

    return law(given.target), law(given.draft)


@EVERY_RULE
def test_a_deterministic_proposal_has_the_targets_law(rule: Rule) -> None:
    given = toy("delayed start", "chain")
    want = given.sequences(given.target, (), 3)
    for drafted in list(given.sequences(given.draft, (), 2))[::9]:
        proposal = replace(given.proposal(drafted), draft_probs=None, draft_rest=None)
        reached: Emitted = defaultdict(float)
        for (accepted, frame), chance in outcomes(rule, proposal).items():
            begun = (*drafted[:accepted], frame)
            for full, rest in given.sequences(given.target, begun, 3).items():
                reached[full] += chance * rest
        assert sum(abs(reached[full] - want.get(full, 0)) for full in {*reached, *want}) < LIMIT


def test_judging_more_at_once_keeps_more_frames() -> None:
    given = toy("pairs", codes=2, forbidden=0.0)
    by_code, by_frame, block = (law_of(rule, given)[1] for rule in RULES)
    assert by_code < by_frame - 1e-3
    assert by_frame < block - 1e-4


def test_a_residual_takes_one_draw_per_judged_frame_at_most() -> None:
    one = toy("one frame", "chain", codes=2)
    assert law_of(frames.by_frame, one)[2] == pytest.approx(1.0)  # one frame is judged, always
    assert law_of(frames.block, one)[2] == pytest.approx(1.0)
    two = toy("delayed start")
    assert law_of(frames.by_frame, two)[2] < 2
    assert law_of(frames.block, two)[2] < 4  # with the turns of the other coin


@EVERY_RULE
def test_a_draft_with_the_targets_law_is_always_kept(rule: Rule) -> None:
    given = toy("delayed start", "chain")
    same = Toy(given.target, given.target, given.decided)
    for drafted in same.sequences(same.draft, (), 2):
        proposal = same.proposal(drafted)
        kept = replace(proposal, draft_probs=proposal.target_logits[:-1].softmax(-1))
        assert {accepted for accepted, _ in outcomes(rule, kept)} == {2}


@EVERY_RULE
def test_nothing_drafted_is_an_ordinary_step(rule: Rule) -> None:
    given = toy("one frame", "chain")
    empty = Toy(given.target, given.draft, given.decided[:1])
    decided = outcomes(rule, empty.proposal(()))
    for frame, chance in frame_law(given, given.target, ()).items():
        assert decided.get((0, frame), 0) == pytest.approx(chance, abs=1e-14)


@EVERY_RULE
def test_32_codebooks_of_unlikely_codes_do_not_underflow(rule: Rule) -> None:
    scores = torch.zeros(2, 32, 2, dtype=torch.float64)
    scores[..., 0] = -60.0  # a frame of these has a chance of exp(-1920)
    probs = scores[:1].softmax(-1)
    given = FrameProposal(
        scores, torch.zeros(1, 32, dtype=torch.int64), torch.full((2, 32), FREE), probs
    )
    generator = torch.Generator().manual_seed(0)
    assert rule(given, Coins(generator)).accepted == 1


# Rules in which the target's own codes are fixed before


def own_codes(given: Toy, noise: Tensor | None, length: int) -> tuple[Frame, ...]:
    """Ordinary decoding, one code at a time."""
    history: tuple[Frame, ...] = ()
    for at in range(length):

        def choose(codes: Frame, history: tuple[Frame, ...] = history) -> int:
            scores = torch.from_numpy(given.target.law(history, codes)).log()
            here = 0.0 if noise is None else noise[len(history), len(codes)]
            return int((scores + here).argmax())

        history = (*history, reference.own_frame(choose, given.forced[at]))
    return history


def fixed(proposal: FrameProposal, noise: Tensor | None) -> FrameDecision:
    return frames.greedy(proposal) if noise is None else frames.keyed(proposal, noise)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", [None, 3])
def test_frames_come_out_as_the_target_alone_has_them_whatever_is_drafted(
    kind: str, seed: int | None
) -> None:
    given = toy("delayed start", kind)
    noise = None if seed is None else frames.code_noise(seed, torch.arange(3), 3, 3)
    own = own_codes(given, noise, 3)
    seen = set()
    for drafted in given.sequences(given.draft, (), 2):
        decision = fixed(given.proposal(drafted), noise)
        seen.add(decision.accepted)
        emitted = (*drafted[: decision.accepted], decision.next_frame)
        assert emitted == own[: len(emitted)]
        assert (decision.accepted == 2) == (drafted == own[:2])
        assert (decision.accepted, decision.next_frame) == slow_follow(given, drafted, noise)
    assert seen == {0, 1, 2}


def slow_follow(given: Toy, drafted: tuple[Frame, ...], noise: Tensor | None) -> tuple[int, Frame]:
    def choose(at: int, codes: Frame) -> int:
        with np.errstate(divide="ignore"):
            scores = np.log(given.target.law(drafted[:at], codes))
        return reference.highest(
            (scores if noise is None else scores + noise[at, len(codes)].numpy()).tolist()
        )

    return reference.follow(choose, drafted, given.forced)


def test_keyed_codes_have_the_targets_law() -> None:
    """The share of each code in independent positions, within 5 standard deviations."""
    count = 4000
    law = torch.tensor([0.6, 0.3, 0.1], dtype=torch.float64)
    noise = frames.code_noise(11, torch.arange(count), 3, 3)
    codes = (law.log() + noise).argmax(-1)
    share = torch.stack([(codes == code).double().mean(0) for code in range(3)], -1)
    assert ((share - law).abs() < 5 * (law * (1 - law) / count).sqrt()).all()
    # Codebooks are independent of each other: both hit code 0 with the product of the chances.
    both = ((codes[:, 0] == 0) & (codes[:, 1] == 0)).double().mean()
    assert abs(float(both) - 0.36) < 5 * (0.36 * 0.64 / count) ** 0.5


def test_noise_belongs_to_seed_frame_position_and_codebook() -> None:
    noise = frames.code_noise(7, torch.arange(4), 3, 5)
    assert noise.shape == (4, 3, 5)
    assert len({tuple(row) for row in noise.reshape(12, 5).tolist()}) == 12
    assert torch.equal(frames.code_noise(7, torch.tensor([2]), 3, 5)[0], noise[2])
    assert not torch.equal(frames.code_noise(8, torch.arange(4), 3, 5), noise)
    with pytest.raises(ValueError, match="codebooks is 0"):
        frames.code_noise(7, torch.arange(4), 0, 5)


# Forced cells


@EVERY_RULE
def test_forced_cells_are_in_the_frames_and_in_no_figure(rule: Rule) -> None:
    given = toy("delayed start")
    for drafted in given.sequences(given.draft, (), 2):
        for decision in decisions(rule, given.proposal(drafted)):
            assert_forced_cells_hold(given, decision)


def assert_forced_cells_hold(given: Toy, decision: FrameDecision) -> None:
    cells = given.forced[decision.accepted]
    pairs = zip(decision.next_frame, cells, strict=True)
    if any(cell is not None and code != cell for code, cell in pairs):
        raise AssertionError(f"a forced cell was decided: {decision}")
    counted = sum(sum(row) for row in given.decided[: decision.accepted])
    if decision.accepted_codes != counted:
        raise AssertionError(f"{decision.accepted_codes} codes accepted, {counted} were decided")


# Wrong versions


def assert_mutant_is_seen(rule: Rule, given: Toy, change: Change | None = None) -> None:
    assert distance(rule, given, change) > 1e-3


@EVERY_RULE
def test_counting_forced_cells_as_accepted_is_seen(
    rule: Rule, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = toy("delayed start")
    whole_drafts = given.sequences(given.target, (), 2)
    proposal = replace(given.proposal(next(iter(whole_drafts))), draft_probs=None)
    for decision in decisions(rule, proposal):
        assert_forced_cells_hold(given, decision)

    def whole(self: Reading, accepted: int, frame: Frame) -> FrameDecision:
        return FrameDecision(accepted, frame, accepted * self.given.codebooks)

    monkeypatch.setattr(Reading, "decision", whole)
    most = max(decisions(rule, proposal), key=lambda decision: decision.accepted)
    with pytest.raises(AssertionError, match="codes accepted"):
        assert_forced_cells_hold(given, most)


@EVERY_RULE
def test_judging_forced_cells_is_biased(rule: Rule) -> None:
    """The cells of a pattern have scores too; whoever judges them draws other frames."""
    given = toy("delayed start")
    tempting = torch.tensor([0.2, 0.5, 0.3], dtype=torch.float64)

    def judged(proposal: FrameProposal) -> FrameProposal:
        hidden = proposal.forced != FREE
        assert proposal.draft_probs is not None
        probs = torch.where(hidden[:-1, :, None], tempting.flip(0), proposal.draft_probs)
        return replace(
            proposal,
            target_logits=torch.where(hidden[..., None], tempting.log(), proposal.target_logits),
            draft_codes=torch.where(hidden[:-1], PAD, proposal.draft_codes),
            draft_probs=probs,
            forced=torch.full_like(proposal.forced, FREE),
        )

    assert_mutant_is_seen(rule, given, judged)


@pytest.mark.parametrize("kind", KINDS)
def test_later_codes_of_a_rejected_frame_kept_from_the_draft_are_biased(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = toy("one frame", kind)
    whole = SAMPLING.own_frame

    def drafted_rest(
        reading: Reading, frame_idx: int, begun: Frame, chance: Branching
    ) -> tuple[Frame, float]:
        if frame_idx < len(reading.drafted):
            return (*begun, *reading.drafted[frame_idx][len(begun) :]), 0.0
        found: tuple[Frame, float] = whole(reading, frame_idx, begun, chance)
        return found

    monkeypatch.setattr(SAMPLING, "own_frame", drafted_rest)
    assert_mutant_is_seen(frames.by_code, given)


def test_the_rest_of_a_recovered_chain_scored_behind_the_draft_is_biased(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given = toy("one frame", "heads for a chain", codes=2)
    monkeypatch.setattr(Reading, "_is_drafted", lambda self, at, codes: at < len(self.drafted))
    for rule in RULES:
        assert_mutant_is_seen(rule, given)


def test_a_greedy_rest_scored_behind_the_draft_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    given = toy("one frame", "chain")
    (own,) = own_codes(given, None, 1)
    others = [frame for frame in itertools.product(range(3), repeat=3) if frame != own]

    def recovered() -> set[Frame]:
        return {frames.greedy(given.proposal((other,))).next_frame for other in others}

    assert recovered() == {own}
    monkeypatch.setattr(Reading, "_is_drafted", lambda self, at, codes: at < len(self.drafted))
    assert recovered() != {own}


@pytest.mark.parametrize("rule", [frames.by_frame, frames.block])
def test_a_residual_without_thinning_is_biased(rule: Rule, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SAMPLING, "_kept_of_target", lambda joint, allowed, claimed: 1.0)
    assert_mutant_is_seen(rule, toy("delayed start"))


def test_thinning_without_the_joint_ratio_breaks_the_block_rule(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    right = SAMPLING._kept_of_target
    monkeypatch.setattr(SAMPLING, "_kept_of_target", lambda joint, *logs: right(1.0, *logs))
    assert_mutant_is_seen(frames.block, toy("delayed start"))


def test_a_joint_ratio_that_is_not_clipped_breaks_the_block_rule(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def unclipped(joint: float, allowed: float, claimed: float) -> float:
        return joint * float(np.exp(allowed - claimed))

    right = Branching.happens
    monkeypatch.setattr(Branching, "happens", lambda self, p: right(self, min(max(p, 0.0), 1.0)))
    assert distance(frames.block, toy("delayed start")) < LIMIT
    monkeypatch.setattr(SAMPLING, "_next_joint", unclipped)
    assert_mutant_is_seen(frames.block, toy("delayed start"))


@EVERY_RULE
@pytest.mark.parametrize("side", ["target_logits", "draft_probs"])
def test_ratios_with_the_shifted_frame_are_biased(rule: Rule, side: str) -> None:
    given = toy("pairs", codes=2, forbidden=0.0)

    def shifted(proposal: FrameProposal) -> FrameProposal:
        return replace(proposal, **{side: getattr(proposal, side).roll(-1, 0)})

    assert_mutant_is_seen(rule, given, shifted)


# The caller


def refusals() -> Iterator[tuple[str, Tensor, str]]:
    yield "target_logits", torch.zeros(3, 4), r"target_logits is torch.float32 \[3, 4\]"
    yield "target_logits", torch.zeros(3, 0, 5), r"at least one frame, codebook and code"
    yield "draft_codes", torch.zeros(2, 4), r"draft_codes is torch.float32"
    yield (
        "draft_codes",
        torch.zeros(3, 4).long(),
        r"draft_codes is .* \[3, 4\]; expected .* \[2, 4\]",
    )
    yield "forced", torch.zeros(2, 4).long(), r"forced is .* \[2, 4\]; expected .* \[3, 4\]"
    yield "forced", torch.zeros(3, 4, device="meta").long(), r"forced is on meta"
    yield "draft_probs", torch.zeros(2, 4, 5).half(), r"draft_probs is torch.float16"


@pytest.mark.parametrize(("name", "wrong", "message"), list(refusals()))
def test_what_does_not_fit_is_refused(name: str, wrong: Tensor, message: str) -> None:
    given: dict[str, Any] = {
        "target_logits": torch.zeros(3, 4, 5),
        "draft_codes": torch.zeros(2, 4, dtype=torch.int64),
        "forced": torch.full((3, 4), FREE),
        "draft_probs": torch.full((2, 4, 5), 0.2),
    }
    FrameProposal(**given)
    with pytest.raises(ValueError, match=message):
        FrameProposal(**(given | {name: wrong}))


def test_noise_that_does_not_fit_is_refused() -> None:
    given = toy("one frame").proposal(((0, 0, 0),))
    with pytest.raises(ValueError, match=r"noise is torch.float32 \[1, 3, 3\]; expected"):
        frames.keyed(given, torch.zeros(1, 3, 3))


def test_coins_answer_with_the_chances_asked_for() -> None:
    coins, count = Coins(torch.Generator().manual_seed(2)), 4000
    share = sum(coins.happens(0.3) for _ in range(count)) / count
    assert abs(share - 0.3) < 5 * (0.3 * 0.7 / count) ** 0.5
    weights = torch.tensor([3.0, 0.0, 1.0], dtype=torch.float64)
    drawn = np.bincount([coins.draw(weights) for _ in range(count)], minlength=3) / count
    assert drawn[1] == 0
    assert abs(drawn[0] - 0.75) < 5 * (0.75 * 0.25 / count) ** 0.5
    tries: Iterator[str | None] = iter([None, None, "found", "too late"])
    assert coins.first(lambda: next(tries)) == "found"


# The check itself


def test_repeated_attempts_are_summed_as_a_series() -> None:
    def until_heads(chance: Branching) -> tuple[int, int]:
        first = chance.first(lambda: 1 if chance.happens(0.25) else None)
        other = chance.first(lambda: (None, 5, 6)[chance.draw(torch.tensor([2.0, 1.0, 1.0]))])
        return first, other

    summed = integrated(until_heads)
    assert summed.law == pytest.approx({(1, 5): 0.5, (1, 6): 0.5})
    assert summed.attempts == pytest.approx(4 + 2)

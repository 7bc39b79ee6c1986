"""The tensor rules decide as the slow ones do, row by row."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from mmspec.acceptance import Decision, block, greedy, gumbel, keyed, token
from tests.acceptance import reference

CASES = settings(max_examples=150, deadline=None, derandomize=True, database=None)


@dataclass(frozen=True)
class Case:
    logits: Tensor
    ids: Tensor
    lengths: Tensor
    draft_probs: Tensor
    uniforms: Tensor

    def rows(self, reference_rule: Callable[..., tuple[int, int]], *extra: str) -> Decision:
        """Takes each row out of the padding and asks the slow rule."""
        decided = []
        for row, length in enumerate(self.lengths.tolist()):
            uniforms = self.uniforms[row].tolist()
            parts: dict[str, object] = {
                "one-hot": None,
                "draft_probs": self.draft_probs[row, :length].tolist(),
                "uniforms": [*uniforms[:length], uniforms[-1]],
                "noise": self.noise[row, : length + 1].tolist(),
            }
            given_row = self.logits[row, : length + 1].tolist(), self.ids[row, :length].tolist()
            decided.append(reference_rule(*given_row, *(parts[name] for name in extra)))
        accepted, next_ids = torch.tensor(decided).T
        return Decision(accepted, next_ids)

    @property
    def block(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.logits, self.ids, self.lengths

    @property
    def noise(self) -> Tensor:
        rows, scored, tokens = self.logits.shape
        return gumbel(5, torch.arange(rows * scored).reshape(rows, scored), tokens)


@st.composite
def cases(draw: st.DrawFn, coarse: bool = False) -> Case:
    """Ragged blocks with poisoned padding, forbidden tokens and partly equal distributions."""
    count, width = draw(st.integers(1, 5)), draw(st.integers(0, 5))
    tokens = draw(st.integers(1, 6))
    lengths = draw(st.lists(st.integers(0, width), min_size=count, max_size=count))
    forbidden = draw(st.sampled_from([0.0, 0.3, 0.8]))
    equal = draw(st.sampled_from([0.0, 0.3, 1.0]))
    dtype = draw(st.sampled_from([torch.float32, torch.float64]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))

    def scores(shape: tuple[int, ...]) -> Tensor:
        values = rng.normal(size=shape) * 2
        values = np.round(values) if coarse else values
        values[rng.random(shape) < forbidden] = -np.inf
        # Every row keeps one unit.
        np.put_along_axis(values, rng.integers(tokens, size=(*shape[:-1], 1)), 0.0, -1)
        return torch.from_numpy(values).to(dtype)

    logits = scores((count, width + 1, tokens))
    draft_probs = scores((count, width, tokens)).double().softmax(-1)
    same = torch.from_numpy(rng.random((count, width)) < equal)
    draft_probs[same] = logits[:, :width].double().softmax(-1)[same]
    ids = torch.from_numpy(rng.integers(tokens, size=(count, width)))
    if equal and width:
        # Drawn from the law. A unit that equal laws both forbid would rest on 0/0 before it, where
        # one last bit of a softmax decides; no drafter can draw it.
        best_noisy = draft_probs.log().numpy() + rng.gumbel(size=draft_probs.shape)
        ids = torch.from_numpy(best_noisy.argmax(-1))
    if coarse:  # follow the target most of the time, or nothing would be accepted
        follow = torch.from_numpy(rng.random((count, width)) < 0.8)
        ids = torch.where(follow, logits[:, :width].argmax(-1), ids)
    uniforms = torch.from_numpy(rng.random((count, width + 1)))
    uniforms[torch.from_numpy(rng.random((count, width + 1)) < 0.1)] = 0.0
    for row, length in enumerate(lengths):
        logits[row, length + 1 :] = draft_probs[row, length:] = uniforms[row, length:-1] = math.nan
        ids[row, length:] = -1
    return Case(logits, ids, torch.tensor(lengths), draft_probs, uniforms)


def assert_same_decision(given: Decision, expected: Decision) -> None:
    torch.testing.assert_close(given.accepted, expected.accepted, rtol=0, atol=0)
    torch.testing.assert_close(given.next_ids, expected.next_ids, rtol=0, atol=0)


@CASES
@given(cases(coarse=True))
def test_greedy_decides_as_the_reference_also_at_equal_scores(case: Case) -> None:
    assert_same_decision(greedy(*case.block), case.rows(reference.greedy))


@CASES
@given(cases(coarse=True))
def test_keyed_decides_as_the_reference(case: Case) -> None:
    noise = case.noise
    for row, length in enumerate(case.lengths.tolist()):
        noise[row, length + 1 :] = math.nan
    assert_same_decision(keyed(*case.block, noise), case.rows(reference.keyed, "noise"))


@CASES
@pytest.mark.parametrize("rule", [token, block])
@given(case=cases())
def test_sampled_proposals_are_decided_as_by_the_reference(
    rule: Callable[..., Decision], case: Case
) -> None:
    slow = getattr(reference, rule.__name__)
    given = rule(*case.block, case.draft_probs, case.uniforms)
    assert_same_decision(given, case.rows(slow, "draft_probs", "uniforms"))


@CASES
@pytest.mark.parametrize("rule", [token, block])
@given(case=cases())
def test_deterministic_proposals_are_decided_as_by_the_reference(
    rule: Callable[..., Decision], case: Case
) -> None:
    slow = getattr(reference, rule.__name__)
    given = rule(*case.block, None, case.uniforms)
    assert_same_decision(given, case.rows(slow, "one-hot", "uniforms"))


@CASES
@given(
    seed=st.integers(-(2**63), 2**64 - 1),
    position=st.integers(-(2**63), 2**63 - 1),
    token=st.integers(0, 3000),
)
def test_noise_is_the_reference_hash_in_64_bit_arithmetic(
    seed: int, position: int, token: int
) -> None:
    value = gumbel(seed, torch.tensor(position), token + 1)[token].item()
    assert value == pytest.approx(reference.gumbel(seed, position, token), rel=1e-13, abs=1e-13)


def test_reference_residual_stands_in_for_the_target_where_nothing_is_left() -> None:
    assert reference.residual([0.5, 0.5], [0.5, 0.5]) == [0.5, 0.5]
    assert reference.residual([0.75, 0.25], [0.5, 0.5]) == [0.25, 0.0]


def test_reference_draw_gives_each_unit_its_share() -> None:
    drawn = [reference.draw([1.0, 0.0, 2.0, 1.0, 0.0], (step + 0.5) / 8) for step in range(8)]
    assert drawn == [0, 0, 2, 2, 2, 2, 3, 3]
    assert reference.draw([1.0, 3.0, 0.0], 1 - 2.0**-53) == 1


def test_reference_rules_on_cases_worked_by_hand() -> None:
    half, flat = [math.log(0.2), math.log(0.8)], [0.0, 0.0]
    draft = [[0.8, 0.2], [0.2, 0.8]]
    rows = [half, half[::-1], flat]
    # Unit ratios are 1/4 and 4: token stops at a coin of 0.3, block needs P_2 = 1 only.
    assert reference.token(rows, [0, 0], draft, [0.3, 0.9, 0.5]) == (0, 1)
    assert reference.token(rows, [0, 0], draft, [0.2, 0.9, 0.6]) == (2, 1)
    assert reference.block(rows, [0, 0], draft, [0.9, 0.9, 0.6]) == (2, 1)
    assert reference.greedy(rows, [1, 1]) == (1, 0)
    assert reference.keyed(rows, [0, 0], [[9.0, 0.0], [0.0, 0.0], [0.0, 1.0]]) == (2, 1)

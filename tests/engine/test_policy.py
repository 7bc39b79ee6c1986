"""Policies: the documented formula, switching off where nothing pays, and what probing may cost."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence

import pytest

from mmspec.engine import AdaptivePolicy, BlockCosts, FixedPolicy
from mmspec.engine.costs import MEMORY, ROW_PRIOR
from mmspec.engine.policy import (
    CANDIDATES,
    EXPECTED_TOKENS,
    FIRST_PROBE,
    MARGIN,
)
from mmspec.errors import OptionError
from mmspec.proposals import Outlook
from tests.toys import PROMPT, a_round, decode, drafter_for, ordinary, perfect, toy_law

SURE = Outlook("sure", 0.9, 0.95, 1000)
HOPELESS = Outlook("hopeless", 0.05, 0.05, 1000)


@pytest.mark.parametrize("gamma", [-1, -100])
def test_a_negative_gamma_is_refused(gamma: int) -> None:
    with pytest.raises(OptionError, match=rf"gamma must be 0 or more, got {gamma}"):
        FixedPolicy(gamma)


@pytest.mark.parametrize(
    ("gamma", "available", "room", "chosen"),
    [(0, 9, 9, 0), (4, 9, 9, 4), (4, 2, 9, 2), (4, 9, 3, 3), (4, 0, 9, 0), (99, 9, 7, 7)],
)
def test_a_fixed_policy_is_cut_to_what_there_is(
    gamma: int, available: int, room: int, chosen: int
) -> None:
    outlook = Outlook("any", 0.5, 0.5, available)
    assert FixedPolicy(gamma).choose(outlook, 0.1, room).depth == chosen


def block_costs(line: Callable[[int], float], sizes: Sequence[int] = range(1, 60)) -> BlockCosts:
    costs = BlockCosts()
    for size in sizes:
        costs.add(size, line(size))
    return costs


def slow_gain(
    first: float, rest: float, gamma: int, draft: float, block: Callable[[int], float]
) -> float:
    """E(γ) / (γ·c + v(γ)) by adding up the survivals one by one.

    Each size was measured once, so its cost is half measurement, half expectation.
    """
    survivals = [first * rest**offset for offset in range(gamma)]
    cost = (1 + ROW_PRIOR * gamma + block(gamma + 1) / block(1)) / 2
    return (1 + sum(survivals)) / (gamma * draft + cost)


@pytest.mark.parametrize("draft", [0.0, 0.05, 0.3, 0.9])
@pytest.mark.parametrize("slope", [0.0, 0.02, 0.2])
@pytest.mark.parametrize(("first", "rest"), [(0.9, 0.95), (0.6, 0.6), (0.2, 0.9)])
@pytest.mark.parametrize("room", [1, 5, 1000])
def test_the_choice_is_the_argmax_of_the_documented_formula(
    first: float, rest: float, slope: float, draft: float, room: int
) -> None:
    def line(rows: int) -> float:
        return 0.01 * (1 + slope * (rows - 1))

    policy = AdaptivePolicy(block_costs(line))
    outlook = Outlook("any", first, rest, 1000)
    gains = {
        gamma: slow_gain(first, rest, gamma, draft, line) for gamma in CANDIDATES if gamma <= room
    }
    for gamma, gain in gains.items():
        assert policy.gain(outlook, draft, gamma) == pytest.approx(gain)
    best = max(gains.values())
    chosen = policy.choose(outlook, draft, room).depth
    if best >= MARGIN:
        assert gains[chosen] == pytest.approx(best)
    else:
        assert chosen == 0


def test_what_was_seen_outweighs_what_was_expected() -> None:
    policy = AdaptivePolicy(block_costs(lambda rows: 0.01))
    assert policy.choose(SURE, 0.4, 20).depth > 4
    for _ in range(12):
        policy.observe(a_round(context="sure", proposed=4, accepted=0, emitted=1, draft_s=0.016))
    assert policy.choose(SURE, 0.4, 20).depth == 0
    assert policy.gain(SURE, 0.4, 4) < 1
    other = Outlook("another context", 0.9, 0.95, 1000)
    assert policy.gain(other, 0.4, 4) > 1, "acceptance is kept apart by context"
    for _ in range(60):
        policy.observe(a_round(context="sure", proposed=4, accepted=4, emitted=5, draft_s=0.016))
    assert policy.choose(SURE, 0.4, 20).depth > 4, "and what was seen long ago fades"


def test_the_cost_of_drafting_is_measured() -> None:
    policy = AdaptivePolicy(block_costs(lambda rows: 0.01))
    before = policy.gain(SURE, 0.01, 4)
    for _ in range(10):
        policy.observe(a_round(context="sure", proposed=4, accepted=4, emitted=5, draft_s=0.08))
    expected = policy.gain(SURE, 0.01, 4)
    assert expected < before / 2, "a prior of 0.01 was wrong: a token costs two steps"


def test_nothing_available_or_no_room_is_an_ordinary_step() -> None:
    policy = AdaptivePolicy()
    assert policy.choose(Outlook("none", 0.9, 0.9, 0), 0.0, 10).depth == 0
    assert policy.choose(SURE, 0.0, 0).depth == 0
    assert policy.choose(SURE, 0.0, -1).depth == 0
    assert AdaptivePolicy(most=3).choose(SURE, 0.0, 100).depth <= 3


def simulate(
    policy: AdaptivePolicy,
    outlook: Outlook,
    *,
    acceptance: float,
    draft: float,
    slope: float,
    tokens: int,
    seed: int = 0,
) -> tuple[float, list[int]]:
    """Time of `tokens` tokens in ordinary steps, and after how many tokens each probe came."""
    chance, step = random.Random(seed), 0.01
    time, done, probes = 0.0, 0, []
    while done < tokens:
        gamma = policy.choose(outlook, draft, tokens - done - 1).depth
        kept = 0
        while kept < gamma and chance.random() < acceptance:
            kept += 1
        verify = step * (1 + slope * gamma)
        policy.costs.add(gamma + 1, verify)
        time += gamma * draft + verify / step
        probes += [done] if gamma else []
        done += kept + 1
        policy.observe(
            a_round(
                context=outlook.context,
                proposed=gamma,
                accepted=kept,
                emitted=kept + 1,
                draft_s=gamma * draft * step,
                verify_s=verify,
            )
        )
    return time, probes


@pytest.mark.parametrize("tokens", [200, 400, 1000])
@pytest.mark.parametrize("draft", [0.0, 0.1, 0.3])
@pytest.mark.parametrize("slope", [0.06, 0.2])
def test_G2_probing_what_never_pays_costs_at_most_three_percent(
    slope: float, draft: float, tokens: int
) -> None:
    time, probes = simulate(
        AdaptivePolicy(), HOPELESS, acceptance=0.0, draft=draft, slope=slope, tokens=tokens
    )
    assert time / tokens <= 1.03
    assert probes, "it is tried again from time to time"


def test_probes_come_at_doubling_distances() -> None:
    _, probes = simulate(
        AdaptivePolicy(), HOPELESS, acceptance=0.0, draft=0.3, slope=0.1, tokens=600
    )
    gaps = [after - before for before, after in zip([0, *probes], probes, strict=False)]
    assert gaps[0] == FIRST_PROBE
    for before, after in itertools.pairwise(gaps):
        assert after == pytest.approx(2 * before, abs=1)


def test_speculation_that_pays_is_found_even_when_nobody_expected_it() -> None:
    policy, doubted = AdaptivePolicy(), Outlook("doubted", 0.05, 0.6, 1000)
    time, _ = simulate(policy, doubted, acceptance=0.95, draft=0.02, slope=0.02, tokens=1500)
    assert time / 1500 < 0.3
    assert policy.choose(doubted, 0.02, 100).depth > 4


def test_speculation_that_stops_paying_is_switched_off() -> None:
    policy = AdaptivePolicy()
    simulate(policy, SURE, acceptance=0.95, draft=0.1, slope=0.1, tokens=300)
    assert policy.choose(SURE, 0.1, 100).depth > 1
    time, _ = simulate(policy, SURE, acceptance=0.05, draft=0.1, slope=0.1, tokens=400)
    assert time / 400 <= 1.25, "what was learned before the change takes a while to fade"
    assert policy.choose(SURE, 0.1, 100).depth <= 1


@pytest.mark.parametrize("kind", ["perfect", "noisy", "ngram", "hypothesis", "garbage"])
def test_an_adaptive_policy_changes_the_speed_and_never_the_output(kind: str) -> None:
    law = toy_law(0)
    costs = BlockCosts()
    policy = AdaptivePolicy(costs)
    for _ in range(3):  # what it has learned is kept
        run = decode(law, drafter_for(kind, law), policy, max_length=60, costs=costs)
        assert run.ids == ordinary(law, max_length=60).ids


def test_gamma_zero_is_ordinary_decoding_in_forwards_too() -> None:
    law = toy_law(0)
    drafter = perfect(law)
    run = decode(law, drafter, 0, max_length=len(PROMPT) + 12)
    assert run.target.forwards == decode(law, None, 0, max_length=len(PROMPT) + 12).target.forwards
    assert [len(block) for block in run.target.blocks] == [len(PROMPT), *[1] * 11]
    assert drafter.forwards == 0


def test_costs_are_lower_quartiles_of_the_latest() -> None:
    costs = BlockCosts()
    for seconds in (9.0, 0.01, 0.02, 0.03, 9.0):
        costs.add(1, seconds)
    assert costs.seconds(1) == pytest.approx(0.02)
    for _ in range(MEMORY):
        costs.add(1, 0.5)
    assert costs.seconds(1) == pytest.approx(0.5)


def test_costs_between_measured_sizes_are_interpolated_and_beyond_them_extrapolated() -> None:
    costs = block_costs(lambda rows: 0.1 * rows, sizes=[2, 6])
    assert costs.seconds(4) == pytest.approx(0.4)
    grown = 0.6 * (1 + ROW_PRIOR * 9) / (1 + ROW_PRIOR * 5)
    assert costs.seconds(10) == pytest.approx(grown)
    shrunk = 0.2 / (1 + ROW_PRIOR)
    assert costs.seconds(1) == pytest.approx(shrunk)
    assert costs.relative(2) == pytest.approx((1 + ROW_PRIOR + 0.2 / shrunk) / 2)


def test_one_disturbed_pass_does_not_rule_its_size_out() -> None:
    costs = block_costs(lambda rows: 0.01)
    for size in range(1, 10):
        costs.add(size, 0.01)
    calm = costs.relative(5)
    costs.add(5, 0.4)  # another process had the core
    assert costs.relative(5) == pytest.approx(calm, rel=0.1)
    fresh = block_costs(lambda rows: 0.4 if rows == 5 else 0.01)
    assert fresh.relative(5) <= (5 + 1 + 4 * ROW_PRIOR) / 2, "never dearer than its rows one by one"


def test_the_first_pass_of_a_size_is_not_believed_before_settled_sizes() -> None:
    costs = BlockCosts()
    costs.add(1, 0.5)  # prepares its kernels
    assert costs.seconds(1) == pytest.approx(0.5), "where it is all that is known"
    for _ in range(3):
        costs.add(8, 0.02)
    assert costs.seconds(1) == pytest.approx(0.02 / (1 + 7 * ROW_PRIOR))
    costs.add(1, 0.01)
    assert costs.seconds(1) == pytest.approx(0.01)


def test_costs_without_measurements_are_priors() -> None:
    assert BlockCosts().seconds(3) is None
    assert BlockCosts().relative(3) == pytest.approx(1 + 2 * ROW_PRIOR)


def test_a_drafter_is_opened_only_where_the_gain_repays_it() -> None:
    policy = AdaptivePolicy(block_costs(lambda rows: 0.01))
    cheap = Outlook("any", 0.9, 0.95, 1000, opening_s=0.01)
    dear = Outlook("any", 0.9, 0.95, 1000, opening_s=5.0)
    assert policy.choose(cheap, 0.1, 100).depth > 0
    assert policy.choose(dear, 0.1, 100).depth == 0
    for _ in range(10):  # nor is it opened for a probe
        policy.observe(a_round("none", proposed=0, accepted=0, emitted=50))
        assert policy.choose(dear, 0.1, 100).depth == 0
    fresh = AdaptivePolicy().choose(cheap, 0.1, 100)
    assert fresh.depth == 0, "what a step is worth isn't known yet"
    saved_s = EXPECTED_TOKENS * 0.01
    never = Outlook("any", 0.9, 0.95, 1000, opening_s=saved_s)
    assert policy.choose(never, 0.0, 10_000).depth == 0, "more than all the time there is to save"

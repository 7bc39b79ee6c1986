import itertools

import numpy as np
import pytest

from mmspec.acceptance import block, token

from .enumeration import (
    LIMIT,
    NAN,
    TEMPTING,
    Model,
    Poison,
    Proposal,
    Rule,
    Setup,
    assert_exact,
    distance_to_target,
    measure,
    mixed,
    random_model,
    sampled_proposals,
    tempered,
)

BOTH_RULES = pytest.mark.parametrize("rule", [token, block])
BOTH_POISONS = pytest.mark.parametrize("poison", [NAN, TEMPTING], ids=["nan", "tempting"])


def models(seed: int, vocab_size: int, length: int, forbidden: float = 0.0) -> tuple[Model, Model]:
    rng = np.random.default_rng(seed)
    target = random_model(rng, vocab_size, length + 1, forbidden=forbidden)
    return target, random_model(rng, vocab_size, length + 1, forbidden=forbidden)


@BOTH_RULES
@pytest.mark.parametrize(
    ("vocab_size", "length"), [(2, 1), (3, 0), (3, 1), (3, 2), (4, 2), (3, 3), (2, 4), (3, 4)]
)
def test_sampled_proposals_emit_the_target_law(rule: Rule, vocab_size: int, length: int) -> None:
    for seed in range(3):
        target, draft = models(seed, vocab_size, length)
        assert_exact(rule, Setup(target, draft, sampled_proposals(draft, length)))


@BOTH_RULES
def test_units_of_probability_zero_on_either_side_keep_the_law(rule: Rule) -> None:
    for seed in range(6):
        target, draft = models(seed, 4, 2, forbidden=0.5)
        assert_exact(rule, Setup(target, draft, sampled_proposals(draft, 2)))


@BOTH_RULES
def test_equal_laws_keep_the_law_and_every_unit(rule: Rule) -> None:
    target, _ = models(0, 3, 3)
    setup = Setup(target, target, sampled_proposals(target, 3))
    assert_exact(rule, setup)
    assert measure(rule, setup).mean_accepted == pytest.approx(3, abs=LIMIT)


@BOTH_RULES
def test_laws_equal_at_some_units_only_keep_the_law(rule: Rule) -> None:
    target, other = models(1, 3, 3)
    for equal_lengths in ((0,), (1,), (2,), (0, 1), (0, 2), (1, 2)):
        draft = {c: (target if len(c) in equal_lengths else other)[c] for c in target}
        assert_exact(rule, Setup(target, draft, sampled_proposals(draft, 3)))


@BOTH_RULES
def test_one_deterministic_proposal_emits_the_target_law(rule: Rule) -> None:
    target, _ = models(2, 3, 4)
    for ids in [(0,), (2, 1), (1, 1, 1), (0, 2, 1, 0)]:
        assert_exact(rule, Setup(target, None, [Proposal(ids, 1.0)]))


@BOTH_RULES
@BOTH_POISONS
def test_deterministic_proposals_of_any_length_and_origin_emit_the_target_law(
    rule: Rule, poison: Poison
) -> None:
    target, _ = models(3, 3, 3, forbidden=0.3)
    every = [ids for n in range(4) for ids in itertools.product(range(3), repeat=n)]
    chances = np.random.default_rng(0).dirichlet(np.ones(len(every)))
    proposals = [Proposal(*pair) for pair in zip(every, chances.tolist(), strict=True)]
    assert_exact(rule, Setup(target, None, proposals, poison=poison))


@BOTH_RULES
@BOTH_POISONS
def test_ragged_lengths_chosen_before_drafting_keep_the_law(rule: Rule, poison: Poison) -> None:
    target, draft = models(4, 3, 3)
    lengths = [sampled_proposals(draft, n) for n in (0, 1, 2, 3)]
    assert_exact(rule, Setup(target, draft, mixed(lengths), poison=poison))


@BOTH_RULES
@BOTH_POISONS
def test_padding_wider_than_every_proposal_keeps_the_law(rule: Rule, poison: Poison) -> None:
    target, draft = models(5, 3, 4)
    proposals = mixed([sampled_proposals(draft, n) for n in (1, 2)])
    assert_exact(rule, Setup(target, draft, proposals, width=3, poison=poison))


@BOTH_RULES
def test_one_temperature_on_both_sides_keeps_the_law(rule: Rule) -> None:
    target, draft = (tempered(model, 0.6) for model in models(6, 3, 2))
    assert_exact(rule, Setup(target, draft, sampled_proposals(draft, 2)))


def drafted_until(draft: Model, length: int, policy: str) -> list[Proposal]:
    """Drafts with a stopping policy; every path with its probability."""
    done: list[Proposal] = []

    def go_on(ids: tuple[int, ...], weight: float) -> None:
        law = draft[ids]
        entropy = -sum(chance * np.log(chance) for chance in law if chance > 0)
        if len(ids) == length or (policy == "entropy" and entropy > 0.7):
            done.append(Proposal(ids, weight))
            return
        for id_, chance in enumerate(law):
            doubtful = chance < 0.4
            if doubtful and policy == "discard":
                done.append(Proposal(ids, weight * chance))
            elif doubtful and policy == "keep":
                done.append(Proposal((*ids, id_), weight * chance))
            else:
                go_on((*ids, id_), weight * chance)

    go_on((), 1.0)
    return done


def stopped(seed: int, policy: str) -> Setup:
    target, draft = models(seed, 3, 3)
    return Setup(target, draft, drafted_until(draft, 3, policy), width=3)


@BOTH_RULES
@pytest.mark.parametrize("policy", ["entropy", "keep"])
def test_stopping_by_what_is_known_before_the_draw_or_kept_after_it_is_exact(
    rule: Rule, policy: str
) -> None:
    setups = [stopped(seed, policy) for seed in range(3)]
    lengths = {len(proposal.ids) for setup in setups for proposal in setup.proposals}
    assert len(lengths) > 1, "the policy never stopped early, so the test shows nothing"
    for setup in setups:
        assert_exact(rule, setup)


@BOTH_RULES
def test_discarding_a_drawn_unit_that_looks_doubtful_is_biased(rule: Rule) -> None:
    assert max(distance_to_target(rule, stopped(seed, "discard")) for seed in range(3)) > 0.01


@BOTH_RULES
def test_a_unit_that_the_target_forbids_is_never_emitted(rule: Rule) -> None:
    for seed in range(4):
        target, draft = models(seed, 4, 2, forbidden=0.5)
        emitted = measure(rule, Setup(target, draft, sampled_proposals(draft, 2))).emitted
        for ids, weight in emitted.items():
            allowed = all(target[ids[:i]][id_] > 0 for i, id_ in enumerate(ids))
            assert allowed or weight < 1e-15

"""Each known way to get a rule wrong turns the same check red that the rule passes."""

import importlib
from functools import partial

import numpy as np
import pytest
import torch
from torch import Tensor

from mmspec.acceptance import Decision, block, greedy, keyed, token

from .enumeration import (
    NAN,
    TEMPTING,
    Model,
    Poison,
    Proposal,
    Rule,
    Setup,
    assert_exact,
    mixed,
    random_model,
    sampled_proposals,
    tempered,
)

# By name: `mmspec.acceptance.block` is the function, which hides the module it lives in.
BLOCK = importlib.import_module("mmspec.acceptance.block")
TOKEN = importlib.import_module("mmspec.acceptance.token")
GREEDY = importlib.import_module("mmspec.acceptance.greedy")
LAWS = importlib.import_module("mmspec.acceptance.distributions")

BOTH_RULES = pytest.mark.parametrize("rule", [token, block])


def models(seed: int = 7, length: int = 3) -> tuple[Model, Model]:
    rng = np.random.default_rng(seed)
    return random_model(rng, 3, length + 1), random_model(rng, 3, length + 1)


def sampled(length: int = 3) -> Setup:
    target, draft = models()
    return Setup(target, draft, sampled_proposals(draft, length))


def ragged(poison: Poison) -> Setup:
    target, draft = models()
    lengths = [sampled_proposals(draft, n) for n in (0, 1, 2, 3)]
    return Setup(target, draft, mixed(lengths), poison=poison)


def assert_mutant_is_seen(rule: Rule, setup: Setup) -> None:
    with pytest.raises(AssertionError, match=r"TV (0\.[0-9]+|nan) between"):
        assert_exact(rule, setup)


def until_first_failure(succeeded: Tensor) -> Tensor:
    return succeeded.to(torch.int64).cumprod(1).sum(1)


def test_stopping_at_the_first_failed_coin_breaks_block_verification(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert_exact(block, sampled())
    monkeypatch.setattr(BLOCK, "_longest_success", until_first_failure)
    assert_mutant_is_seen(block, sampled())


def test_the_token_residual_breaks_block_verification(monkeypatch: pytest.MonkeyPatch) -> None:
    assert_exact(block, sampled())
    monkeypatch.setattr(
        BLOCK,
        "closing_distribution",
        lambda *arguments: LAWS.closing_distribution(*arguments[:-1], None),
    )
    assert_mutant_is_seen(block, sampled())


def test_a_joint_ratio_that_is_not_clipped_breaks_block_verification(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert_exact(block, sampled())
    monkeypatch.setattr(
        BLOCK, "_next_joint", lambda joint, allowed, drafted: joint * allowed / drafted
    )
    assert_mutant_is_seen(block, sampled())


def test_plain_products_of_ratios_as_thresholds_break_block_verification(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert_exact(block, sampled())
    monkeypatch.setattr(BLOCK, "_thresholds", lambda joint, recoverable, lengths: joint[:, 1:])
    assert_mutant_is_seen(block, sampled())


@BOTH_RULES
def test_a_one_hot_ratio_with_a_dense_residual_is_biased(
    rule: Rule, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, draft = models()
    setup = Setup(target, None, [Proposal((int(draft[()].argmax()),), 1.0)])
    assert_exact(rule, setup)
    dense = torch.from_numpy(draft[()])

    def with_dense_residual(
        logits: Tensor,
        ids: Tensor,
        lengths: Tensor,
        _: None,
        accepted: Tensor,
        scale: Tensor | None = None,
    ) -> Tensor:
        rows = dense.expand(ids.shape[0], 1, -1)
        return LAWS.closing_distribution(logits, ids, lengths, rows, accepted, scale)

    monkeypatch.setattr(
        TOKEN if rule is token else BLOCK, "closing_distribution", with_dense_residual
    )
    assert_mutant_is_seen(rule, setup)


@BOTH_RULES
def test_target_rows_shifted_by_one_are_biased(rule: Rule) -> None:
    assert_exact(rule, sampled())
    assert_mutant_is_seen(lambda logits, *rest: rule(logits.roll(-1, 1), *rest), sampled())


@BOTH_RULES
def test_draft_rows_shifted_by_one_are_biased(rule: Rule) -> None:
    def shifted(
        logits: Tensor, ids: Tensor, lengths: Tensor, draft_probs: Tensor, uniforms: Tensor
    ) -> Decision:
        return rule(logits, ids, lengths, draft_probs.roll(1, 1), uniforms)

    assert_exact(rule, sampled())
    assert_mutant_is_seen(shifted, sampled())


@BOTH_RULES
def test_a_temperature_that_one_side_misses_is_biased(rule: Rule) -> None:
    target, draft = models()
    cold_target, cold_draft = tempered(target, 0.5), tempered(draft, 0.5)
    proposals = sampled_proposals(cold_draft, 3)
    setup = partial(Setup, cold_target, cold_draft, proposals)
    assert_exact(rule, setup())
    assert_mutant_is_seen(rule, setup(scored=target))
    assert_mutant_is_seen(rule, setup(claimed=draft))


@BOTH_RULES
def test_a_residual_that_still_holds_the_drafted_unit_is_biased(
    rule: Rule, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, _ = models()
    setup = Setup(target, None, [Proposal((0, 1), 1.0)])
    assert_exact(rule, setup)

    def without_residual(
        logits: Tensor,
        ids: Tensor,
        lengths: Tensor,
        _: None,
        accepted: Tensor,
        scale: Tensor | None = None,
    ) -> Tensor:
        rows = torch.arange(accepted.shape[0])
        return LAWS.target_distribution(logits[rows, accepted])

    monkeypatch.setattr(TOKEN if rule is token else BLOCK, "closing_distribution", without_residual)
    assert_mutant_is_seen(rule, setup)


@BOTH_RULES
def test_a_closing_unit_drawn_with_the_coin_that_rejected_is_biased(rule: Rule) -> None:
    def reused(
        logits: Tensor, ids: Tensor, lengths: Tensor, draft_probs: Tensor, uniforms: Tensor
    ) -> Decision:
        uniforms = uniforms.clone()
        uniforms[:, -1] = uniforms[:, 0]
        return rule(logits, ids, lengths, draft_probs, uniforms)

    assert_exact(rule, sampled())
    assert_mutant_is_seen(reused, sampled())


@BOTH_RULES
def test_reading_padded_ids_is_refused_by_the_lookup(
    rule: Rule, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert_exact(rule, ragged(NAN))
    monkeypatch.setattr(TOKEN if rule is token else BLOCK, "live_tokens", everything_is_live)
    with pytest.raises(RuntimeError, match="index -1 is out of bounds"):
        assert_exact(rule, ragged(NAN))


@BOTH_RULES
def test_following_padded_coins_is_seen_through_the_poison(
    rule: Rule, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert_exact(rule, ragged(TEMPTING))
    monkeypatch.setattr(TOKEN if rule is token else BLOCK, "live_tokens", everything_is_live)
    assert_mutant_is_seen(rule, ragged(TEMPTING))


@BOTH_RULES
def test_taking_the_padded_width_for_the_length_is_seen_through_the_poison(rule: Rule) -> None:
    def with_padded_length(
        logits: Tensor, ids: Tensor, lengths: Tensor, draft_probs: Tensor, uniforms: Tensor
    ) -> Decision:
        return rule(logits, ids, torch.full_like(lengths, ids.shape[1]), draft_probs, uniforms)

    assert_exact(rule, ragged(TEMPTING))
    assert_mutant_is_seen(with_padded_length, ragged(TEMPTING))


def everything_is_live(lengths: Tensor, width: int) -> Tensor:
    return torch.ones(len(lengths), width, dtype=torch.bool)


def poisoned_greedy_block() -> tuple[Tensor, Tensor, Tensor]:
    """One live token, then padding that the target would choose if it were asked."""
    logits = torch.zeros(1, 4, 3, dtype=torch.float64)
    logits[0, :2, 1] = 5.0
    logits[0, 2:] = torch.nan
    return logits, torch.tensor([[1, 1, 0]]), torch.tensor([1])


def assert_padding_is_not_followed(rule: Rule) -> None:
    decision = rule(*poisoned_greedy_block())
    if decision.accepted.tolist() != [1] or decision.next_ids.tolist() != [1]:
        raise AssertionError(f"padding was followed: {decision}")


def keyed_without_noise(logits: Tensor, ids: Tensor, lengths: Tensor) -> Decision:
    return keyed(logits, ids, lengths, torch.zeros(1, 4, 3))


@pytest.mark.parametrize(
    "rule",
    [greedy, keyed_without_noise],
    ids=["greedy", "keyed"],
)
def test_following_padding_is_seen_in_rules_without_coins(
    rule: Rule, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert_padding_is_not_followed(rule)
    monkeypatch.setattr(GREEDY, "live_tokens", everything_is_live)
    with pytest.raises(AssertionError, match="padding was followed"):
        assert_padding_is_not_followed(rule)

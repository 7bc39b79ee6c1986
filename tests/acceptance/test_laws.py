"""Relations between rules, and between runs of one rule, that hold whatever the numbers are."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from mmspec.acceptance import Decision, block, greedy, gumbel, keyed, token

from .enumeration import Proposal, Setup, measure, random_model, sampled_proposals

BOTH_RULES = pytest.mark.parametrize("rule", [token, block])
Rule = Callable[..., Decision]


def random_block(
    seed: int, rows: int, width: int, tokens: int
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Scores, ids drawn from the draft laws, ragged lengths, draft laws and coins."""
    rng = torch.Generator().manual_seed(seed)
    logits = torch.randn(rows, width + 1, tokens, generator=rng, dtype=torch.float64) * 2
    draft_probs = (torch.randn(rows, width, tokens, generator=rng).double() * 2).softmax(-1)
    ids = torch.multinomial(draft_probs.flatten(0, 1), 1, generator=rng).reshape(rows, width)
    lengths = torch.randint(width + 1, (rows,), generator=rng)
    coins = torch.rand(rows, width + 1, generator=rng, dtype=torch.float64)
    return logits, ids, lengths, draft_probs, coins


def assert_same(one: Decision, other: Decision) -> None:
    torch.testing.assert_close(one.accepted, other.accepted, rtol=0, atol=0)
    torch.testing.assert_close(one.next_ids, other.next_ids, rtol=0, atol=0)


@BOTH_RULES
@pytest.mark.parametrize("tokens", [2, 7, 1000])
def test_a_drafter_with_the_target_law_is_always_accepted(rule: Rule, tokens: int) -> None:
    logits, ids, lengths, _, coins = random_block(0, 64, 5, tokens)
    logits[torch.rand(logits.shape, generator=torch.Generator().manual_seed(1)) < 0.3] = -torch.inf
    logits[..., 0] = 0.0
    draft_probs = logits[:, :-1].softmax(-1)
    ids = torch.multinomial(draft_probs.flatten(0, 1), 1).reshape(ids.shape)
    for fill in (None, 0.0, 1 - 2.0**-53):
        coins = coins if fill is None else torch.full_like(coins, fill)
        decision = rule(logits, ids, lengths, draft_probs, coins)
        torch.testing.assert_close(decision.accepted, lengths, rtol=0, atol=0)


@BOTH_RULES
@pytest.mark.parametrize("real_laws", [True, False])
def test_a_target_that_allows_one_unit_per_row_is_followed_as_by_greedy(
    rule: Rule, real_laws: bool
) -> None:
    logits, ids, lengths, draft_probs, coins = random_block(2, 2000, 4, 3)
    only = logits.argmax(-1, keepdim=True)
    logits = torch.full_like(logits, -torch.inf).scatter(-1, only, 0.0)
    expected = greedy(logits, ids, lengths)
    assert set(expected.accepted.tolist()) == {0, 1, 2, 3, 4}
    laws = draft_probs if real_laws else None
    for given in (coins, torch.zeros_like(coins), torch.full_like(coins, 1 - 2.0**-53)):
        assert_same(rule(logits, ids, lengths, laws, given), expected)


@BOTH_RULES
def test_no_draft_probs_mean_one_hot_rows(rule: Rule) -> None:
    logits, ids, lengths, _, coins = random_block(3, 500, 4, 5)
    one_hot = torch.nn.functional.one_hot(ids, 5).double()
    assert_same(rule(logits, ids, lengths, None, coins), rule(logits, ids, lengths, one_hot, coins))


@BOTH_RULES
def test_a_row_is_decided_as_if_it_were_alone(rule: Rule) -> None:
    whole = random_block(4, 30, 4, 6)
    together = rule(*whole)
    for row, length in enumerate(whole[2].tolist()):
        logits, ids, lengths, draft_probs, coins = (part[row : row + 1] for part in whole)
        alone = rule(
            logits[:, : length + 1],
            ids[:, :length],
            lengths,
            draft_probs[:, :length],
            torch.cat([coins[:, :length], coins[:, -1:]], 1),
        )
        assert alone.accepted.item() == together.accepted[row].item()
        assert alone.next_ids.item() == together.next_ids[row].item()


@BOTH_RULES
def test_a_constant_added_to_a_row_of_scores_changes_nothing(rule: Rule) -> None:
    logits, ids, lengths, draft_probs, coins = random_block(5, 300, 4, 5)
    shift = torch.arange(300.0).reshape(300, 1, 1) - 150
    assert_same(
        rule(logits, ids, lengths, draft_probs, coins),
        rule(logits + shift, ids, lengths, draft_probs, coins),
    )


def test_token_and_block_are_one_rule_for_a_single_drafted_unit() -> None:
    logits, ids, _, draft_probs, coins = random_block(6, 500, 1, 4)
    lengths = torch.ones(500, dtype=torch.int64)
    given = (logits, ids, lengths, draft_probs, coins)
    assert_same(token(*given), block(*given))


def test_block_keeps_at_least_as_much_as_token_on_average() -> None:
    gains = []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        target, draft = random_model(rng, 3, 4), random_model(rng, 3, 4)
        for length in (1, 2, 3):
            setup = Setup(target, draft, sampled_proposals(draft, length))
            kept = [measure(rule, setup).mean_accepted for rule in (token, block)]
            gains.append((length, kept[1] - kept[0]))
    assert all(gain > -1e-12 for _, gain in gains)
    assert all(abs(gain) < 1e-12 for length, gain in gains if length == 1)
    assert all(gain > 1e-6 for length, gain in gains if length == 3)


def test_the_published_two_unit_example_keeps_ten_and_eleven_ninths() -> None:
    contexts = [(), (0,), (1,), (0, 0), (0, 1), (1, 0), (1, 1)]
    target = {context: np.array([1 / 3, 2 / 3]) for context in contexts}
    draft = {context: np.array([2 / 3, 1 / 3]) for context in contexts}
    setup = Setup(target, draft, sampled_proposals(draft, 2))
    assert measure(token, setup).mean_accepted == pytest.approx(10 / 9, abs=1e-12)
    assert measure(block, setup).mean_accepted == pytest.approx(11 / 9, abs=1e-12)


def test_a_deterministic_proposal_is_kept_as_often_by_either_rule() -> None:
    target = random_model(np.random.default_rng(9), 3, 4)
    setup = Setup(target, None, [Proposal((0, 2, 1), 1.0)])
    kept = [measure(rule, setup).mean_accepted for rule in (token, block)]
    assert kept[0] == pytest.approx(kept[1], abs=1e-12)


UNITS = 11


def toy_scores(context: tuple[int, ...]) -> Tensor:
    """A target whose scores depend on everything before, and which forbids some tokens."""
    seed = hash(context[-3:]) % 2**32
    rng = torch.Generator().manual_seed(seed)
    scores = torch.randn(UNITS, generator=rng) * 1.5
    scores[torch.randint(UNITS, (2,), generator=rng)] = -torch.inf
    return scores


def noise_at(seed: int, start: int, count: int) -> Tensor:
    return gumbel(seed, torch.arange(start, start + count)[None], UNITS)


def propose(kind: str, seed: int, context: tuple[int, ...], count: int) -> list[int]:
    """Garbage from a generator, the target's own choices, or those with every third one spoilt."""
    if kind == "garbage":
        return torch.randint(
            UNITS, (count,), generator=torch.Generator().manual_seed(len(context))
        ).tolist()
    drafted: list[int] = []
    for _ in range(count):
        here = (*context, *drafted)
        choice = int((toy_scores(here) + noise_at(seed, len(here), 1)[0, 0]).argmax())
        drafted.append((choice + 1) % UNITS if kind == "spoilt" and len(here) % 3 == 0 else choice)
    return drafted


def decode(seed: int, kind: str, count: int, length: int) -> tuple[list[int], int]:
    """Decodes with the keyed rule; returns the ids and the number of rounds."""
    output: tuple[int, ...] = ()
    rounds = 0
    while len(output) < length:
        drafted = propose(kind, seed, output, count)
        rows = [toy_scores((*output, *drafted[:i])) for i in range(count + 1)]
        decision = keyed(
            torch.stack(rows)[None],
            torch.tensor([drafted], dtype=torch.int64),
            torch.tensor([count]),
            noise_at(seed, len(output), count + 1),
        )
        kept = drafted[: int(decision.accepted)]
        output = (*output, *kept, int(decision.next_ids))
        rounds += 1
    return list(output[:length]), rounds


@pytest.mark.parametrize("seed", [0, 1])
def test_one_seed_gives_one_output_whatever_is_proposed(seed: int) -> None:
    ordinary, rounds = decode(seed, "garbage", 0, length=36)
    assert rounds == 36
    assert len(set(ordinary)) > 3
    for kind in ("garbage", "perfect", "spoilt"):
        for count in range(1, 9):
            ids, rounds = decode(seed, kind, count, length=36)
            assert ids == ordinary, (kind, count)
            if kind == "perfect":
                assert rounds == math.ceil(36 / (count + 1))


def test_another_seed_gives_another_output() -> None:
    assert decode(0, "perfect", 4, 36)[0] != decode(1, "perfect", 4, 36)[0]


def test_noise_counted_from_the_round_instead_of_the_start_depends_on_the_drafter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The fault that the test above is there for: noise by offset in the block.
    offset_noise = gumbel(0, torch.arange(9)[None], UNITS)
    monkeypatch.setitem(globals(), "noise_at", lambda seed, start, count: offset_noise[:, :count])
    assert decode(0, "perfect", 4, 36)[0] != decode(0, "garbage", 0, 36)[0]

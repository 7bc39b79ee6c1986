"""Grounded and syntactic tokens: drops against the slow definition, and shares by class."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from mmspec.errors import OptionError
from mmspec.report.grounding import (
    Grounding,
    add_shares,
    log_prob_drops,
    share_by_class,
    threshold_of,
)
from mmspec.report.report import RoundStats
from mmspec.report.trace import Origin


def rows(seed: int, count: int = 7, vocab: int = 11) -> Tensor:
    return 4 * torch.randn(count, vocab, generator=torch.Generator().manual_seed(seed))


def slow_log_prob(row: Tensor, token: int) -> float:
    weights = [math.exp(value) for value in row.double().tolist()]
    return math.log(weights[token] / math.fsum(weights))


IDS = [3, 0, 10, 5, 5, 1, 7]


class TestDrops:
    @pytest.mark.parametrize("seed", range(5))
    def test_they_are_the_definition(self, seed: int) -> None:
        true, ablated = rows(seed), rows(100 + seed)
        want = [
            slow_log_prob(one, token) - slow_log_prob(other, token)
            for one, other, token in zip(true, ablated, IDS, strict=True)
        ]
        torch.testing.assert_close(log_prob_drops(true, ablated, IDS), torch.tensor(want))

    def test_without_a_difference_nothing_is_grounded(self) -> None:
        drops = log_prob_drops(rows(1), rows(1), IDS)
        assert drops.tolist() == [0.0] * len(IDS)
        assert set(Grounding(0.0, tuple(drops.tolist())).classes) == {"syntactic"}

    def test_a_level_of_the_logits_is_no_drop(self) -> None:
        moved = rows(1) + torch.arange(7.0)[:, None]
        torch.testing.assert_close(
            log_prob_drops(rows(1), moved, IDS), torch.zeros(7), atol=1e-5, rtol=0
        )

    def test_a_drop_turns_round_with_the_rows(self) -> None:
        forth, back = log_prob_drops(rows(1), rows(2), IDS), log_prob_drops(rows(2), rows(1), IDS)
        torch.testing.assert_close(forth, -back)
        assert forth.abs().max() > 1

    def test_half_precision_is_summed_in_float32(self) -> None:
        true, ablated = rows(1).half(), rows(2).half()
        want = log_prob_drops(true.float(), ablated.float(), IDS)
        assert log_prob_drops(true, ablated, IDS).tolist() == want.tolist()

    def test_nothing_drops_nothing(self) -> None:
        assert log_prob_drops(rows(1, 0), rows(2, 0), []).tolist() == []

    @pytest.mark.parametrize(
        ("true", "ablated", "count"),
        [((7, 11), (6, 11), 7), ((7, 11), (7, 12), 7), ((7, 11), (7, 11), 6), ((7,), (7,), 7)],
    )
    def test_rows_that_do_not_fit_are_refused(self, true: Any, ablated: Any, count: int) -> None:
        with pytest.raises(ValueError, match=f"expected two blocks of {count} rows"):
            log_prob_drops(torch.zeros(true), torch.zeros(ablated), IDS[:count])


def test_a_drop_at_the_threshold_is_syntactic() -> None:
    classes = Grounding(1.0, (1.0, 1.0001, -3.0)).classes
    assert classes == ("syntactic", "grounded", "syntactic")


KINDS = ("accepted", "recovered", "bonus")


def drawn(seed: int, count: int = 40) -> tuple[Grounding, list[Origin]]:
    chance = random.Random(seed)
    kinds: list[Any] = [chance.choice(KINDS) for _ in range(count)]
    origins = [Origin(kind, None, number) for number, kind in enumerate(kinds)]
    return Grounding(1.0, tuple(chance.uniform(-1, 4) for _ in range(count))), origins


class TestShares:
    @pytest.mark.parametrize("seed", range(3))
    def test_every_unit_is_counted_once(self, seed: int) -> None:
        grounding, origins = drawn(seed)
        shares = share_by_class(grounding, origins)
        assert list(shares) == ["grounded", "syntactic"]
        for kind in KINDS:
            found = sum(getattr(share, kind) for share in shares.values())
            assert found == [origin.kind for origin in origins].count(kind)
        for name, share in shares.items():
            assert share.tokens == share.accepted + share.recovered + share.bonus
            assert share.tokens == grounding.classes.count(name)
        whole = sum(share.tokens * share.mean_drop for share in shares.values())
        assert whole == pytest.approx(sum(grounding.drops))
        assert shares["grounded"].mean_drop > 1.0 > shares["syntactic"].mean_drop

    def test_a_bonus_was_never_judged(self) -> None:
        grounding, origins = drawn(1)
        share = share_by_class(grounding, origins)["grounded"]
        more = replace(share, tokens=share.tokens + 9, bonus=share.bonus + 9)
        rate = share.acceptance_rate
        assert rate == share.accepted / (share.accepted + share.recovered)
        assert more.acceptance_rate == rate
        assert replace(share, accepted=0, recovered=0).acceptance_rate is None

    def test_shares_add_up(self) -> None:
        one, other = drawn(1), drawn(2, 25)
        both = Grounding(1.0, one[0].drops + other[0].drops), one[1] + other[1]
        added = add_shares([share_by_class(*one), share_by_class(*other)])
        for name, share in share_by_class(*both).items():
            assert added[name].to_dict() == pytest.approx(share.to_dict())

    def test_no_units_no_shares(self) -> None:
        for share in share_by_class(Grounding(1.0, ()), []).values():
            assert share.tokens == 0
            assert share.acceptance_rate is None
            assert share.mean_drop == 0.0

    def test_an_origin_is_needed_for_each_unit(self) -> None:
        grounding, origins = drawn(1)
        with pytest.raises(ValueError, match="found 39 origins for 40 tokens"):
            share_by_class(grounding, origins[1:])

    def test_a_report_says_them_as_plain_data(self) -> None:
        facts = {"drafter_forwards": 0, "conditioning": "none", "target_forwards": 0}
        facts |= {"encoder_runs": 0, "drafter_encoder_runs": 0, "parity": "L0"}
        seconds = dict.fromkeys(("draft", "verify", "reconcile"), 0.0)
        report = RoundStats().report(**facts, finish_reason="stop", seconds=seconds)
        assert report.to_dict()["by_class"] is None
        shares = share_by_class(*drawn(1))
        said = replace(report, by_class=shares).to_dict()["by_class"]
        assert said["grounded"] == shares["grounded"].to_dict()
        assert said["syntactic"]["acceptance_rate"] == shares["syntactic"].acceptance_rate


class TestThreshold:
    @pytest.mark.parametrize(
        ("wanted", "nats"), [(None, None), (False, None), (True, 1.0), (0, 0.0), (2.5, 2.5)]
    )
    def test_what_is_meant(self, wanted: Any, nats: float | None) -> None:
        assert threshold_of(wanted) == nats

    @pytest.mark.parametrize("wanted", [-0.1, math.nan, math.inf, "1", [1.0]])
    def test_what_is_none(self, wanted: Any) -> None:
        with pytest.raises(OptionError, match=r"grounding: found .*, expected True or a threshold"):
            threshold_of(wanted)

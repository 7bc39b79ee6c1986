"""B: sampling. The laws themselves are enumerated in tests/acceptance; here, through Whisper."""

from __future__ import annotations

import pytest
import torch

import mmspec
from tests.modalities.test_whisper_sampling import (
    DRAWS,
    counted,
    drawn,
    exact_law,
    g_statistic,
    null_bracket,
)
from tests.modalities.tiny import features, shared


@pytest.mark.parametrize("drafter", ["other-seed", "hypothesis-right"])
def test_B1_B2_draft_laws_are_the_ones_drawn_from(drafter: str) -> None:
    """Real draft distributions in the ratio; one-hot where the draft is deterministic."""
    sequences, reports = drawn(drafter, 2, None)
    assert sum(report.proposed for report in reports) > DRAWS
    assert g_statistic(counted(sequences), exact_law().double()) < null_bracket()


@pytest.mark.parametrize("temperature", [0.01, 1.0])
def test_B3_temperature_holds_for_verified_units(temperature: float) -> None:
    """Nearly cold draws are nearly greedy, whatever drafts."""
    plain = shared().generate(features(), language="en", max_new_tokens=8)
    agreeing = 0
    for seed in range(4):
        for draft in ("none", shared(11)):
            made = mmspec.generate(
                shared(),
                features(),
                draft,
                gamma=3,
                seed=seed,
                temperature=temperature,
                language="en",
                max_new_tokens=8,
            )
            width = min(made.sequences.shape[1], plain.shape[1])
            agreeing += bool(torch.equal(made.sequences[:, :width], plain[:, :width]))
    assert (agreeing >= 7) if temperature < 0.1 else (agreeing < 4), agreeing


def test_B4_a_warm_drafter_is_not_the_argmax() -> None:
    sequences, _ = drawn("other-seed", 2, None)
    assert len({tuple(row) for row in sequences.tolist()}) > 15


def test_B5_a_block_of_two_drafted_units_keeps_its_rows_apart() -> None:
    """The joint law of three tokens needs row i for token i: a shift shows in the third."""
    sequences, reports = drawn("hypothesis-right", 2, None)
    assert max(max(report.accepted_length_histogram, default=0) for report in reports) == 2
    thirds = counted(sequences).view(4, 4, 4).sum((0, 1))
    law = exact_law().double().view(4, 4, 4).sum((0, 1))
    assert g_statistic(thirds, law) < 21.1  # the 0.9999 quantile of chi-square with 3 degrees

"""Sampling: seeded ids don't depend on the drafter, and the law is the target's."""

from __future__ import annotations

import functools
import itertools
import math
from typing import Any

import pytest
import torch
from torch import Tensor

import mmspec

from .drafting import DRAFTERS, GAMMAS, THREE, drafter_options, emitted, same_ids
from .tiny import EN, EOS, NO_TIMES, START, TRANSCRIBE, VOCAB, features, shared

WARM: dict[str, Any] = {"language": "en", "temperature": 0.9}
KINDS: list[dict[str, Any]] = [
    WARM,
    {**WARM, "top_k": 7},
    {**WARM, "top_p": 0.8, "temperature": 1.4},
    {**WARM, "min_p": 0.1, "repetition_penalty": 1.3},
    {**WARM, "return_timestamps": True},
]


@functools.cache
def plain(kind: int, seed: int) -> Tensor:
    return mmspec.generate(shared(5), features(), seed=seed, gamma=0, **KINDS[kind]).sequences


def check(kind: int, seed: int, drafter: str, gamma: int | str) -> None:
    model, want = shared(5), plain(kind, seed)
    chosen = drafter_options(drafter, model, emitted(want))
    made = mmspec.generate(model, features(), seed=seed, gamma=gamma, **KINDS[kind], **chosen)
    same_ids(made.sequences, want)
    assert {report.parity for report in made.reports} == {"L1"}
    assert not [fault for report in made.reports for fault in report.faults]


@pytest.mark.parametrize("drafter", DRAFTERS)
@pytest.mark.parametrize("kind", range(len(KINDS)))
def test_seeded_ids_are_the_same_for_every_drafter(kind: int, drafter: str) -> None:
    check(kind, 3, drafter, 4)


@pytest.mark.parametrize("gamma", GAMMAS)
@pytest.mark.parametrize("drafter", THREE)
def test_seeded_ids_are_the_same_for_every_gamma(drafter: str, gamma: int | str) -> None:
    check(0, 4, drafter, gamma)


def test_same_weights_and_noise_are_accepted_whole() -> None:
    """A drafter that draws with the target's noise from the target's distribution can't miss."""
    model = shared(5)
    made = mmspec.generate(model, features(), draft=model, seed=3, gamma=4, **WARM)
    for report in made.reports:
        assert report.accepted == report.proposed > 0


def test_seeds_matter_and_repeat() -> None:
    outputs = {tuple(plain(0, seed)[0].tolist()) for seed in range(6)}
    assert len(outputs) == 6
    again = mmspec.generate(shared(5), features(), seed=2, gamma=0, **WARM).sequences
    same_ids(again, plain(0, 2))


def test_a_custom_loop_repeats_itself() -> None:
    loop = mmspec.custom_generate("ngram", gamma=3, seed=3)
    first, second = (shared(5).generate(features(), custom_generate=loop, **WARM) for _ in range(2))
    same_ids(second, first)
    other = mmspec.custom_generate(shared(11), gamma=2, seed=3)
    same_ids(shared(5).generate(features(), custom_generate=other, **WARM), first)


def test_a_further_go_at_a_window_draws_its_own_noise() -> None:
    """The same input decoded again in one call: not the same noise at the same positions."""
    asked: dict[str, Any] = {**WARM, "logprob_threshold": 0.0, "temperature": (0.9, 0.9)}
    made = mmspec.generate(shared(5), features(), seed=3, gamma=0, max_new_tokens=12, **asked)
    alone = mmspec.generate(shared(5), features(), seed=3, gamma=0, max_new_tokens=12, **WARM)
    fallback = made.sequences if isinstance(made.sequences, Tensor) else made.sequences["sequences"]
    assert not torch.equal(fallback[:, :6], alone.sequences[:, :6])


def test_rows_with_the_same_prompt_draw_their_own() -> None:
    batch = features().expand(4, -1, -1)
    rows = mmspec.generate(shared(5), batch, draft="ngram", gamma=3, seed=3, **WARM).sequences
    assert len({tuple(row.tolist()) for row in rows}) == 4
    first = plain(0, 3)
    same_ids(rows[:1, : first.shape[1]], first)


# --- The law: three units over four possible ones, enumerated. ---

ALLOWED, LENGTH, DRAWS = (4, 17, 30, 41), 3, 600
OUTCOMES = list(itertools.product(ALLOWED, repeat=LENGTH))
LAW_OPTIONS: dict[str, Any] = {
    "language": "en",
    "temperature": 1.5,
    "repetition_penalty": 1.2,
    "max_new_tokens": LENGTH,
    "suppress_tokens": [token for token in range(VOCAB) if token not in ALLOWED],
    "begin_suppress_tokens": [EOS],
}


@functools.cache
def exact_law() -> Tensor:
    """Probability of every outcome, from full forwards without cache or speculation."""
    model, prompt = shared(5), [START, EN, TRANSCRIBE, NO_TIMES]
    prefixes = [
        prefix for size in range(LENGTH) for prefix in itertools.product(ALLOWED, repeat=size)
    ]
    conditional: dict[tuple[int, ...], Tensor] = {}
    for prefix in prefixes:
        ids = torch.tensor([[*prompt, *prefix]])
        with torch.no_grad():
            row = model(features(), decoder_input_ids=ids, use_cache=False).logits[0, -1].double()
        for token in {*prompt, *prefix}:
            row[token] = row[token] * 1.2 if row[token] < 0 else row[token] / 1.2
        conditional[prefix] = (row[list(ALLOWED)] / 1.5).softmax(-1)
    return torch.tensor(
        [
            math.prod(
                float(conditional[outcome[:at]][ALLOWED.index(token)])
                for at, token in enumerate(outcome)
            )
            for outcome in OUTCOMES
        ],
        dtype=torch.double,
    )


def g_statistic(counts: Tensor, law: Tensor) -> float:
    """2 Σ n log(n / expected): large where the counts don't fit the distribution."""
    seen = counts > 0
    return float(2 * (counts[seen] * (counts[seen] / (counts.sum() * law[seen])).log()).sum())


@functools.cache
def null_bracket() -> float:
    """What true draws of the distribution reach at most."""
    generator = torch.Generator().manual_seed(1)
    law, worst = exact_law(), 0.0
    for _ in range(400):
        draws = torch.multinomial(law, DRAWS, replacement=True, generator=generator)
        counts = torch.bincount(draws, minlength=len(law)).double()
        worst = max(worst, g_statistic(counts, law))
    return worst


def counted(sequences: Tensor) -> Tensor:
    number = {outcome: index for index, outcome in enumerate(OUTCOMES)}
    counts = torch.zeros(len(OUTCOMES), dtype=torch.double)
    for row in sequences.tolist():
        counts[number[tuple(row)]] += 1
    return counts


@functools.cache
def drawn(drafter: str, gamma: int, seed: int | None) -> tuple[Tensor, tuple[Any, ...]]:
    model = shared(5)
    chosen = drafter_options(drafter, model, [ALLOWED[1], ALLOWED[0], ALLOWED[2]])
    with torch.random.fork_rng():
        torch.manual_seed(8)
        made = mmspec.generate(
            model,
            features().expand(DRAWS, -1, -1),
            gamma=gamma,
            packed=False,
            seed=seed,
            **chosen,
            **LAW_OPTIONS,
        )
    return made.sequences, made.reports


def test_the_law_of_seeded_rows_is_the_targets() -> None:
    """Unseeded ones, over draft laws and one-hot drafts: known_faults/test_b_law.py."""
    sequences, reports = drawn("other-seed", 2, 5)
    assert sum(report.proposed for report in reports) > DRAWS
    assert g_statistic(counted(sequences), exact_law()) < null_bracket()


def test_the_law_has_room_to_be_wrong() -> None:
    law = exact_law()
    assert abs(float(law.sum()) - 1) < 1e-9
    assert float(law.max()) < 0.5
    assert int((law > 0.005).sum()) > 12


def test_a_planted_bias_would_be_seen() -> None:
    """15 % of the mass moved by one outcome is far beyond the bracket."""
    law = exact_law()
    biased = 0.85 * law + 0.15 * law.roll(1)
    generator = torch.Generator().manual_seed(2)
    draws = torch.multinomial(biased, DRAWS, replacement=True, generator=generator)
    counts = torch.bincount(draws, minlength=len(law)).double()
    assert g_statistic(counts, law) > null_bracket()


def test_neighbouring_rows_are_independent() -> None:
    """Seeded rows with one prompt: the pair's distribution is the product."""
    sequences, _ = drawn("other-seed", 2, 5)
    firsts = sequences[:, 0].tolist()
    table = torch.zeros(len(ALLOWED), len(ALLOWED), dtype=torch.double)
    for one, other in itertools.pairwise(firsts):
        table[ALLOWED.index(one), ALLOWED.index(other)] += 1
    expected = table.sum(1, keepdim=True) * table.sum(0, keepdim=True) / table.sum()
    seen = table > 0
    g = float(2 * (table[seen] * (table[seen] / expected[seen]).log()).sum())
    assert g < 33.7  # the 0.9999 quantile of chi-square with 9 degrees of freedom

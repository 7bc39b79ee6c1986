"""Seeded sampling gives the same ids whatever drafts; unseeded sampling has the target's law."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import LogitsProcessorList, TemperatureLogitsWarper, TopKLogitsWarper
from transformers.generation.logits_process import (
    RepetitionPenaltyLogitsProcessor,
    TopPLogitsWarper,
)

from mmspec.engine import AcceptanceSampler, Sampling
from mmspec.errors import ModelError, OptionError
from mmspec.prefix import Prefix
from mmspec.proposals import Drafter, ModelDrafter, NgramDrafter, Proposal, SameVocabulary
from tests.proposals.scripted import ScriptedDrafter
from tests.toys import CPU, DRAFTERS, PROMPT, ToyTarget, decode, drafter_for, ordinary, toy_law

LONG = len(PROMPT) + 20


def warpers() -> list[Any]:
    return [
        RepetitionPenaltyLogitsProcessor(1.2),
        TemperatureLogitsWarper(0.8),
        TopKLogitsWarper(9),
    ]


@pytest.mark.parametrize("kind", DRAFTERS)
@pytest.mark.parametrize("gamma", [0, 1, 2, 5, 30])
@pytest.mark.parametrize("seed", [0, 12345, -7])
def test_seeded_ids_are_the_same_for_every_drafter_and_for_none(
    kind: str, gamma: int, seed: int
) -> None:
    law = toy_law(0)
    run = decode(
        law,
        drafter_for(kind, law),
        gamma,
        max_length=LONG,
        processors=warpers(),
        sampling=Sampling(sample=True, seed=seed),
    )
    assert run.ids == ordinary(law, max_length=LONG, processors=warpers(), seed=seed).ids
    assert not run.tally.faults


def test_a_copy_of_the_target_under_the_same_seed_is_always_accepted() -> None:
    law = toy_law(0)
    tally = decode(
        law,
        drafter_for("perfect", law),
        4,
        max_length=LONG,
        processors=warpers(),
        sampling=Sampling(sample=True, seed=11),
    ).tally
    assert tally.accepted == tally.proposed > 0


def test_seeds_matter_and_sampling_differs_from_greedy() -> None:
    law = toy_law(0)
    outputs = {
        tuple(decode(law, max_length=LONG, sampling=sampling).ids)
        for sampling in (Sampling(), *(Sampling(sample=True, seed=seed) for seed in range(5)))
    }
    assert len(outputs) == 6


@pytest.mark.parametrize("kind", DRAFTERS)
def test_unseeded_sampling_follows_torchs_global_seed(kind: str) -> None:
    law = toy_law(0)
    outputs = []
    for seed in (5, 5, 6):
        torch.manual_seed(seed)
        run = decode(
            law, drafter_for(kind, law), 3, max_length=LONG, sampling=Sampling(sample=True)
        )
        outputs.append(run.ids)
    assert outputs[0] == outputs[1] != outputs[2]


@pytest.mark.parametrize("kind", ["perfect", "ngram", "tree", "none"])
@pytest.mark.parametrize("seed", [3, None])
@pytest.mark.parametrize("score", [-torch.inf, torch.nan])
def test_nothing_is_drawn_from_a_row_that_is_no_law(
    score: float, seed: int | None, kind: str
) -> None:
    """transformers' sampling raises there too; its greedy decoding takes the first token."""
    law = toy_law(0)
    broken: Any = lambda ids: torch.full((13,), score) if len(ids) == LONG - 6 else law(ids)  # noqa: E731
    sampling = Sampling(sample=True, seed=seed)
    with pytest.raises(ModelError, match=f"nothing to draw from at position {LONG - 6}: "):
        decode(broken, drafter_for(kind, law), 4, max_length=LONG, sampling=sampling)
    greedy = decode(broken, drafter_for(kind, law), 4, max_length=LONG)
    assert greedy.ids == ordinary(broken, max_length=LONG).ids


@pytest.mark.parametrize("seed", [3, None])
def test_a_row_that_is_no_law_does_no_harm_behind_a_unit_that_is_not_kept(seed: int | None) -> None:
    """A grammar may have nothing to say behind what it has forbidden."""
    law = toy_law(0)

    def strict(ids: Any) -> Tensor:
        if ids[-1] == 5:
            return torch.full((13,), -torch.inf)
        return law(ids).index_fill(0, torch.tensor([5]), -torch.inf)

    drafter = ScriptedDrafter(lambda ids, limit: [5] * limit)
    run = decode(strict, drafter, 3, max_length=LONG, sampling=Sampling(sample=True, seed=seed))
    assert len(run.ids) == 20
    assert run.tally.proposed > run.tally.accepted == 0


# The law of two units over a vocabulary of four, from whole sessions.

V = 4
START = (0, 1, 2, 0, 1)  # "0 1" was followed by 2: an n-gram drafter has a hit
RUNS = 500
Warpers = Callable[[], list[Any]]

PLAIN: Warpers = lambda: []  # noqa: E731
COLD: Warpers = lambda: [TemperatureLogitsWarper(0.4)]  # noqa: E731
TOP: Warpers = lambda: [TemperatureLogitsWarper(2.5), TopKLogitsWarper(2)]  # noqa: E731
NUCLEUS: Warpers = lambda: [TopPLogitsWarper(0.7)]  # noqa: E731
BOUND: Warpers = lambda: [RepetitionPenaltyLogitsProcessor(2.0)]  # noqa: E731
WARPERS = {"plain": PLAIN, "cold": COLD, "top_k": TOP, "top_p": NUCLEUS, "penalty": BOUND}


def small_law(seed: int) -> Callable[..., Tensor]:
    return toy_law(seed, vocab_size=V, copying=0.0)


def exact_law(law: Any, make: Warpers) -> Tensor:
    """Probability of each pair of tokens, `[16]`."""
    processors = LogitsProcessorList(make())

    def probs(ids: tuple[int, ...]) -> Tensor:
        row = processors(torch.tensor([ids]), law(ids)[None].clone())[0]
        return row.double().softmax(-1)

    first = probs(START)
    return torch.cat([first[token] * probs((*START, token)) for token in range(V)])


class Biased(ModelDrafter):
    """States another law than it draws from: what a framework with a planted fault would do."""

    def propose(self, *args: Any) -> Proposal:
        proposal = super().propose(*args)
        flat = torch.full((len(proposal), V), 1 / V, dtype=torch.float64)
        return Proposal(proposal.ids, flat)


class Greedy(ModelDrafter):
    """Takes the mode and says so: one-hot."""

    def propose(self, prefix: Any, limit: int, pick: Any) -> Proposal:
        return super().propose(prefix, limit, lambda row, offset: (int(row.argmax()), None))


def model(kind: type[ModelDrafter] = ModelDrafter, **options: Any) -> ModelDrafter:
    target = ToyTarget(small_law(81), vocab_size=V, capacity=16)
    return kind(target, START, SameVocabulary(V), **options)


DRAWING: dict[str, Callable[[], Drafter | None]] = {
    "model": model,
    "greedy model": lambda: model(Greedy),
    "unsure model": lambda: model(sure=0.5),
    "ngram": lambda: NgramDrafter(2, 1),
    "none": lambda: None,
}


def drawn_law(
    law: Any, make: Warpers, open_drafter: Callable[[], Drafter | None], gamma: int, **given: Any
) -> Tensor:
    """Frequencies of the pairs over fresh sessions, `[16]`."""
    sampling = given.pop("sampling", Sampling(sample=True))
    counts: Counter[int] = Counter()
    for _ in range(given.pop("runs", RUNS)):
        # Two more units than are looked at: a block of four really is drafted.
        run = decode(
            law,
            open_drafter(),
            gamma,
            prompt=START,
            max_length=len(START) + max(2, min(gamma + 1, 5)),
            processors=make(),
            sampling=sampling,
        )
        counts[run.ids[0] * V + run.ids[1]] += 1
        assert not run.tally.faults
    return torch.tensor([counts[pair] for pair in range(V * V)], dtype=torch.float64)


def g_statistic(counts: Tensor, law: Tensor) -> float:
    """Twice the log-likelihood ratio; χ² with (cells − 1) degrees of freedom under the law."""
    assert float(counts[law < 1e-12].sum()) == 0, "a token that the distribution forbids was drawn"
    seen = counts > 0
    expected = counts.sum() * law
    return float(2 * (counts[seen] * (counts[seen] / expected[seen]).log()).sum())


def limit(law: Tensor, deviations: float = 4.0) -> float:
    """χ² quantile for that many normal deviations (one-sided 3e-5), by Wilson and Hilferty."""
    freedom = int((law >= 1e-12).sum()) - 1
    share = 2 / (9 * freedom)
    return freedom * (1 - share + deviations * math.sqrt(share)) ** 3


CELLS = [
    ("model", "plain", 4),
    ("model", "cold", 1),
    ("model", "top_k", 4),
    *(
        pytest.param("model", warped, gamma, marks=pytest.mark.grid)
        for warped, gamma in (("plain", 1), ("cold", 4), ("top_k", 1))
    ),
    ("model", "top_p", 4),
    ("model", "penalty", 4),
    *itertools.product(["greedy model", "ngram"], ["penalty"], [4]),
    ("ngram", "plain", 1),
    ("unsure model", "plain", 4),
]


@pytest.mark.parametrize(("drafter", "warped", "gamma"), CELLS)
def test_B1_B2_B3_B4_B5_the_law_of_two_units_is_the_targets(
    drafter: str, warped: str, gamma: int
) -> None:
    law, make = small_law(10), WARPERS[warped]
    exact = exact_law(law, make)
    counts = drawn_law(law, make, DRAWING[drafter], gamma)
    assert g_statistic(counts, exact) < limit(exact)


@pytest.mark.parametrize("rule", ["block", "token"])
def test_B1_both_rules_have_the_targets_law(rule: str) -> None:
    law = small_law(10)
    exact = exact_law(law, PLAIN)
    counts = drawn_law(law, PLAIN, model, 4, sampling=Sampling(sample=True, rule=rule))
    assert g_statistic(counts, exact) < limit(exact)


def test_B1_the_null_bracket_ordinary_sampling_passes_the_same_test() -> None:
    law = small_law(10)
    exact = exact_law(law, PLAIN)
    assert g_statistic(drawn_law(law, PLAIN, DRAWING["none"], 0), exact) < limit(exact)


@pytest.mark.parametrize("gamma", [1, 4])
def test_B1_a_planted_bias_fails_the_same_test(gamma: int) -> None:
    """The test has power: laws that the tokens weren't drawn from are seen in as many runs."""
    law = small_law(10)
    exact = exact_law(law, PLAIN)
    assert g_statistic(drawn_law(law, PLAIN, lambda: model(Biased), gamma), exact) > limit(exact)


def test_B3_laws_differ_between_the_cells() -> None:
    """Warping that isn't applied would be seen: every cell's law is far from every other's."""
    laws = [exact_law(small_law(10), make) for make in WARPERS.values()]
    for one, other in itertools.combinations(laws, 2):
        assert float((one - other).abs().sum()) / 2 > 0.05


def test_B4_every_unit_of_the_law_appears() -> None:
    rows = torch.tensor([2.0, 1.5, 1.0, 0.5])
    target_distribution: Any = lambda prefix: rows  # noqa: E731
    seen: set[int] = set()
    for _ in range(60):
        drafter = ModelDrafter(
            ToyTarget(lambda prefix: -rows, vocab_size=V), START, SameVocabulary(V)
        )
        run = decode(
            target_distribution,
            drafter,
            3,
            prompt=START,
            max_length=len(START) + 4,
            sampling=Sampling(sample=True),
        )
        seen |= set(run.ids)
    assert seen == set(range(V))


BEFORE = Prefix([0] * 5, 8, CPU)


def test_a_drafter_draws_by_the_requests_processors_and_states_that_law() -> None:
    sampler = AcceptanceSampler(Sampling(sample=True), CPU)
    token, law = sampler.pick(torch.tensor([0.0, -torch.inf, 1.0]), BEFORE, [])
    assert law is not None
    assert token in (0, 2)
    torch.testing.assert_close(
        law, torch.tensor([0.0, -torch.inf, 1.0], dtype=torch.float64).softmax(-1)
    )
    assert sampler.pick(torch.tensor([0.0, -torch.inf, 1.0]), BEFORE, [])[1] is not None
    seeded = AcceptanceSampler(Sampling(sample=True, seed=1), CPU)
    assert seeded.pick(torch.zeros(3), BEFORE, [])[1] is None, "a function of the row: one-hot"
    assert AcceptanceSampler(Sampling(), CPU).pick(torch.tensor([0.0, 2.0]), BEFORE, []) == (
        1,
        None,
    )


@pytest.mark.parametrize(
    ("sample", "seed", "rule", "message"),
    [
        (False, None, "keyd", r"unknown acceptance rule 'keyd': expected one of"),
        (True, None, "greedy", r"rule 'greedy' doesn't go with sampling True"),
        (False, None, "block", r"rule 'block' doesn't go with sampling False"),
        (False, None, "frame", r"rule 'frame' doesn't go with sampling False"),
        (True, None, "keyed", r"rule 'keyed' needs a seed"),
        (True, 3, "token", r"rule 'token' doesn't go with a seed: .*leave one of the two out"),
        (True, 3, "block", r"rule 'block' doesn't go with a seed: .*leave one of the two out"),
        (True, 0, "frame", r"rule 'frame' doesn't go with a seed: .*leave one of the two out"),
        (True, 1 << 70, "auto", r"seed: found 1180591620717411303424, expected an integer"),
    ],
)
def test_sampling_options_that_contradict_each_other(
    sample: bool, seed: int | None, rule: str, message: str
) -> None:
    with pytest.raises(OptionError, match=message):
        Sampling(sample, seed, rule)


@pytest.mark.parametrize(
    ("sampling", "laws", "rule"),
    [
        (Sampling(), True, "greedy"),
        (Sampling(sample=True, seed=1), True, "keyed"),
        (Sampling(sample=True), True, "block"),
        (Sampling(sample=True), False, "token"),
        (Sampling(sample=True, rule="token"), True, "token"),
    ],
)
def test_the_default_rule(sampling: Sampling, laws: bool, rule: str) -> None:
    proposal = Proposal((1,), torch.eye(V)[[1]] if laws else None)
    assert AcceptanceSampler(sampling, CPU).rule(proposal) == rule

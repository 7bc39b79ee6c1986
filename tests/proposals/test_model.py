"""A drafting model is fed each committed token once, in its own vocabulary, within its context."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from mmspec.engine import Sampling
from mmspec.prefix import Prefix
from mmspec.proposals import (
    EarlyExitDrafter,
    LazyDrafter,
    ModelDrafter,
    NgramDrafter,
    Outlook,
    Proposal,
    SameVocabulary,
    VocabularyBridge,
    fit_vocabulary,
)
from tests.proposals.scripted import ScriptedDrafter
from tests.toys import (
    CPU,
    PROMPT,
    ToyTarget,
    V,
    decode,
    drafter_for,
    open_session,
    ordinary,
    perfect,
    toy_law,
)

LONG = len(PROMPT) + 20


def modelled(drafter: ModelDrafter) -> ToyTarget:
    assert isinstance(drafter.model, ToyTarget)
    return drafter.model


@pytest.mark.parametrize("seed", [0, 991])
@pytest.mark.parametrize("gamma", [1, 3, 7])
def test_the_drafting_model_holds_the_committed_prefix_after_every_round(
    gamma: int, seed: int
) -> None:
    law = toy_law(0)
    drafter = perfect(toy_law(seed))
    run = open_session(law, drafter, gamma, max_length=LONG)
    while run.session.finish_reason is None:
        run.session.round()
        held, committed = modelled(drafter).held, tuple(run.session.prefix.ids)
        assert held == committed[: len(held)]
        # Behind by a round's two closing units and by an undrafted last round, not by more.
        assert len(held) >= len(committed) - 3, "what was agreed on is kept"


def test_a_perfect_drafter_is_never_advanced_twice() -> None:
    """Every id is fed once: the catch-up block holds only what the model hasn't seen."""
    law = toy_law(0)
    drafter = perfect(law)
    run = decode(law, drafter, 4, max_length=LONG)
    fed = [token for block in modelled(drafter).blocks for token in block]
    assert fed == list(run.session.prefix.ids)[: len(fed)]
    assert drafter.forwards == modelled(drafter).forwards == len(modelled(drafter).blocks)


@pytest.mark.parametrize("gamma", [1, 4])
def test_drafting_costs_one_forward_per_unit(gamma: int) -> None:
    law = toy_law(0)
    for kind in ("perfect", "noisy"):
        drafter = drafter_for(kind, law)
        assert drafter is not None
        run = decode(law, drafter, gamma, max_length=LONG)
        assert drafter.forwards == run.tally.proposed


@pytest.mark.parametrize("capacity", [9, 10, 12, 15, 20, 28, 29])
@pytest.mark.parametrize("seed", [0, 991])
def test_D9_Z3_G6_a_drafters_context_may_be_smaller_than_the_targets(
    seed: int, capacity: int
) -> None:
    law = toy_law(0)
    model = ToyTarget(toy_law(seed), capacity=capacity)
    run = decode(law, ModelDrafter(model, PROMPT, SameVocabulary(V)), 5, max_length=LONG)
    assert run.ids == ordinary(law, max_length=LONG).ids
    assert not run.tally.faults
    assert model.state.length <= capacity
    if seed == 0 and capacity > len(PROMPT):
        assert run.tally.accepted == run.tally.proposed > 0


def test_D9_a_drafters_prompt_that_fills_its_context_drafts_nothing() -> None:
    law = toy_law(0)
    model = ToyTarget(law, capacity=4)
    run = decode(law, ModelDrafter(model, PROMPT, SameVocabulary(V)), 5, max_length=LONG)
    assert run.ids == ordinary(law, max_length=LONG).ids
    assert (run.tally.proposed, model.forwards) == (0, 0)
    assert not run.tally.faults


def one_sure_unit(prefix: Sequence[int]) -> Tensor:
    """Sure of 5 behind an even length, unsure elsewhere."""
    row = torch.zeros(V)
    row[5] = 9.0 if len(prefix) % 2 == 0 else 0.5
    return row


def test_drafting_stops_after_an_unsure_unit_and_keeps_it() -> None:
    prefix = Prefix(PROMPT, 40, CPU)  # length 9: the first unit is unsure

    def pick(row: Tensor, offset: int) -> tuple[int, Tensor]:
        return int(row.argmax()), row.softmax(-1)

    drafter = ModelDrafter(ToyTarget(one_sure_unit), PROMPT, SameVocabulary(V), sure=0.5)
    proposal = drafter.propose(prefix, 6, pick)
    assert proposal.ids == (5,)
    assert proposal.draft_probs is not None
    assert proposal.draft_probs.shape == (1, V)
    prefix.extend([5])
    drafter.commit(prefix, len(prefix))
    assert drafter.propose(prefix, 6, pick).ids == (5, 5), "one sure, then the unsure one"


def test_drafting_ends_at_a_stop_unit() -> None:
    law = toy_law(0)
    stop = ordinary(law, max_length=LONG).ids[2]
    drafter = perfect(law, stop_tokens={stop})
    run = decode(law, drafter, 10, max_length=LONG, stop_tokens=[stop])
    assert drafter.forwards == run.tally.proposed == len(run.ids)


def test_E1_E2_padding_is_cropped_or_padded_and_never_drawn() -> None:
    wide, narrow = fit_vocabulary(torch.arange(20.0), V), fit_vocabulary(torch.arange(4.0), V)
    assert wide.shape == narrow.shape == (V,)
    assert bool((narrow[4:] == -torch.inf).all())
    torch.testing.assert_close(wide, torch.arange(20.0)[:V])
    same = torch.arange(float(V))
    assert fit_vocabulary(same, V).data_ptr() == same.data_ptr()


@pytest.mark.parametrize("draft_size", [V - 3, V, V + 8])
@pytest.mark.parametrize(
    "sampling",
    [Sampling(), Sampling(sample=True, seed=4), Sampling(sample=True)],
    ids=["greedy", "seeded", "sampled"],
)
def test_E1_E2_a_family_with_other_padding_drafts(draft_size: int, sampling: Sampling) -> None:
    used = V - 3  # ids that the shared tokenizer has

    def masked(size: int) -> Callable[[Sequence[int]], Tensor]:
        def law(prefix: Sequence[int]) -> Tensor:
            row = torch.full((size,), 50.0)  # padding, with nonsense on it
            row[:used] = toy_law(0)(prefix)[:used]
            return row

        return law

    def target_distribution(prefix: Sequence[int]) -> Tensor:
        row = masked(V)(prefix)
        row[used:] = -50.0
        return row

    model = ToyTarget(masked(draft_size), vocab_size=draft_size)
    run = decode(
        target_distribution,
        ModelDrafter(model, PROMPT, SameVocabulary(V)),
        4,
        max_length=LONG,
        sampling=sampling,
    )
    assert not run.tally.faults
    if not sampling.sample:
        assert run.ids == ordinary(target_distribution, max_length=LONG).ids
    if sampling.seed is not None:
        assert run.ids == ordinary(target_distribution, max_length=LONG, seed=sampling.seed).ids
    assert max(run.ids) < used
    if draft_size == used:
        assert run.tally.accepted == run.tally.proposed, "but for the padding it is a copy"


# Two tokenizers of other granularity: the target says "ab" in one unit, the drafter "a", "b".

TARGET_STRINGS = {"a": 0, "b": 1, "ab": 2, "abc": 3, "c": 4, "<|end|>": 5, "é": 6, "ca": 7}
DRAFT_STRINGS = {"b": 0, "a": 1, "c": 2, "bc": 3, "<|begin|>": 4, "<|fin|>": 5}


def bridge() -> VocabularyBridge:
    return VocabularyBridge(TARGET_STRINGS, DRAFT_STRINGS, V, 6)


def test_E3_a_unit_becomes_the_same_string_and_nothing_else() -> None:
    strings = {token: string for string, token in DRAFT_STRINGS.items()}
    for string, token in TARGET_STRINGS.items():
        spelled = bridge().to_draft(token)
        joined = "".join(strings[piece] for piece in spelled)
        assert joined in (string, ""), "spelled exactly, or not at all"
        assert not any(strings[piece].startswith("<|") for piece in spelled)
    assert list(bridge().to_draft(3)) == [DRAFT_STRINGS["a"], DRAFT_STRINGS["bc"]]
    assert list(bridge().to_draft(5)) == [], "a mark of the target's own"
    assert list(bridge().to_draft(6)) == [], "can't be spelled"
    assert list(bridge().to_draft(99)) == [], "padding has no string"


def test_E3_rows_come_back_to_where_their_strings_are() -> None:
    row = torch.tensor([10.0, 11.0, 12.0, 13.0, 14.0, 15.0])
    laid = bridge().to_target(row)
    assert laid.shape == (V,)
    for string, token in TARGET_STRINGS.items():
        expected = row[DRAFT_STRINGS[string]] if string in DRAFT_STRINGS else -torch.inf
        assert laid[token] == expected
    assert bool((laid[8:] == -torch.inf).all()), "padding can't be drawn"
    assert bridge().shared == 3


def test_E3_twins_beyond_either_models_width_are_none() -> None:
    short = VocabularyBridge({"a": 0, "b": 1, "ba": 2}, {"a": 0, "b": 9}, V, 6)
    assert [short.to_draft(token) for token in range(3)] == [(0,), (), ()], "no row of the model's"
    narrow = VocabularyBridge({"a": 0, "b": 40}, {"a": 0, "b": 1}, V, 6)
    assert narrow.shared == 1
    assert VocabularyBridge({"a": 0}, {"a": 9}, V, 6).shared == 0


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(sample=True, seed=2)])
def test_E3_a_bridged_drafter_is_fed_its_own_prompt_and_no_special_units(
    sampling: Sampling,
) -> None:
    def law(prefix: Sequence[int]) -> Tensor:
        row = toy_law(0)(prefix).clone()
        row[8:] = -torch.inf
        return row

    own_prompt = [4, 1]
    model = ToyTarget(toy_law(1, vocab_size=6), vocab_size=6, capacity=120)
    drafter = ModelDrafter(model, own_prompt, bridge())
    run = decode(law, drafter, 4, max_length=LONG, sampling=sampling)
    assert run.ids == ordinary(law, max_length=LONG, seed=sampling.seed).ids
    assert not run.tally.faults
    assert run.tally.proposed > 0
    held = model.held
    assert held[:2] == tuple(own_prompt)
    spelled = [piece for token in run.ids for piece in bridge().to_draft(token)]
    assert list(held[2:]) == spelled[: len(held) - 2]
    assert 4 not in held[2:]


def test_E3_a_committed_unit_without_a_counterpart_is_left_out() -> None:
    def law(prefix: Sequence[int]) -> Tensor:
        row = torch.zeros(V)
        row[(0, 6, 5)[len(prefix) % 3]] = 5.0  # "a", "é", "<|end|>": two can't be said
        return row

    model = ToyTarget(toy_law(1, vocab_size=6), vocab_size=6)
    run = decode(law, ModelDrafter(model, [4], bridge()), 3, max_length=LONG)
    assert run.ids == ordinary(law, max_length=LONG).ids
    assert not run.tally.faults
    assert set(model.held[1:]) <= {DRAFT_STRINGS["a"]}


@pytest.mark.parametrize("gamma", [1, 4])
def test_early_exit_drafts_over_the_targets_own_state(gamma: int) -> None:
    law = toy_law(0)
    run = open_session(law, None, gamma, max_length=LONG)
    model = ToyTarget(toy_law(991))
    model.state.close()
    model.state = run.target.state.lend(1)
    drafter = EarlyExitDrafter(model, PROMPT, SameVocabulary(V))
    run.session._drafter = drafter
    memory = run.target.state._growing[0].keys.data_ptr()
    ids = run.session.run()
    assert ids == ordinary(law, max_length=LONG).ids
    assert not run.tally.faults
    assert run.tally.proposed == drafter.forwards > 0
    assert model.state._growing[0].keys.data_ptr() == memory
    # It never reads the prompt, nor what else the target holds: only what that has yet to read.
    assert {len(block) for block in model.blocks} == {1}
    assert run.tally.trace[0].proposal == ()
    drafter.close()
    assert run.target.held == tuple(run.session.prefix.ids)[:-1], "the lender lost nothing"


def test_a_lazy_drafter_is_opened_at_the_first_proposal_only() -> None:
    law, opened = toy_law(0), []

    def open_drafter() -> ModelDrafter:
        opened.append(perfect(law))
        return opened[-1]

    before = Outlook("closed", 0.9, 0.9, 100)
    lazy = LazyDrafter("lazy", 0.1, "own", before, open_drafter)
    assert lazy.outlook(Prefix(PROMPT, 20, CPU)) == before
    assert lazy.forwards == 0
    idle = decode(law, lazy, 0, max_length=LONG)
    assert opened == []
    lazy.close()
    run = decode(law, lazy, 4, max_length=LONG)
    assert idle.ids == run.ids == ordinary(law, max_length=LONG).ids
    assert len(opened) == 1
    assert run.tally.accepted == run.tally.proposed == lazy.forwards
    lazy.close()
    assert modelled(opened[0]).closed == 1


def test_a_lazy_drafter_that_cant_be_opened_costs_nothing() -> None:
    def open_drafter() -> ModelDrafter:
        raise OSError("no such file")

    lazy = LazyDrafter("lazy", 0.1, "own", Outlook("closed", 0.9, 0.9, 9), open_drafter)
    law = toy_law(0)
    run = decode(law, lazy, 4, max_length=LONG)
    assert run.ids == ordinary(law, max_length=LONG).ids
    assert run.tally.faults == ["drafter lazy dismissed: OSError: no such file"]


def test_a_proposal_is_cropped_with_its_laws() -> None:
    proposal = Proposal((1, 2, 3), torch.eye(V)[[1, 2, 3]])
    cropped = proposal.crop(2)
    assert cropped.ids == (1, 2)
    assert cropped.draft_probs is not None
    assert cropped.draft_probs.shape == (2, V)
    assert proposal.crop(3) is proposal
    assert proposal.crop(0).ids == ()
    assert len(Proposal((1,)).crop(0)) == 0


@pytest.mark.parametrize("kind", ["ngram", "scripted"])
def test_drafters_without_a_model_cost_no_forwards(kind: str) -> None:
    drafter: Any = NgramDrafter() if kind == "ngram" else ScriptedDrafter(lambda ids, n: [1] * n)
    assert drafter.forwards == 0
    drafter.commit(Prefix(PROMPT, 20, CPU), len(PROMPT))
    drafter.close()

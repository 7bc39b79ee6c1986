"""What is special about trees; that they emit the ordinary ids is tested with every drafter."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace
from typing import Any

import pytest
import torch
from transformers import LogitsProcessor
from transformers.generation import logits_process as hf

from mmspec.engine import AdaptivePolicy, BlockCosts, FixedPolicy
from mmspec.engine.policy import Plan
from mmspec.errors import DraftError
from mmspec.prefix import Prefix
from mmspec.proposals import Drafter, Outlook, Pick, Proposal
from mmspec.proposals.hypothesis import tree_of
from tests.toys import PROMPT, TreeDrafter, V, a_round, decode, open_session, ordinary, toy_law

LONG = len(PROMPT) + 24


def test_the_trees_of_this_suite_branch_and_are_walked_past_their_first_branch() -> None:
    law = toy_law(0)
    rounds = [
        done
        for seed in range(4)
        for done in decode(
            toy_law(seed), TreeDrafter(toy_law(seed)), 4, max_length=LONG
        ).tally.trace
    ]
    assert any(done.branches > 1 for done in rounds)
    assert {done.branch for done in rounds if done.path} >= {0, 1, 2}
    assert any(len(done.path) > 1 and done.path[1] != done.path[0] + 1 for done in rounds)
    assert decode(law, TreeDrafter(law), 4, max_length=LONG).ids


def test_the_state_holds_the_accepted_path_and_nothing_else() -> None:
    law = toy_law(2)
    run = open_session(law, TreeDrafter(law), 5, max_length=LONG)
    while run.session.finish_reason is None:
        run.session.round()
        assert run.target.held == tuple(run.session.prefix.ids[:-1])


@pytest.mark.parametrize(
    "processors",
    [
        [hf.RepetitionPenaltyLogitsProcessor(1.7)],
        [hf.NoRepeatNGramLogitsProcessor(2)],
        [hf.SuppressTokensLogitsProcessor([3, 4])],
        [hf.SuppressTokensAtBeginLogitsProcessor([5], begin_index=len(PROMPT) + 2)],
        [hf.RepetitionPenaltyLogitsProcessor(1.7), hf.TemperatureLogitsWarper(0.5)],
    ],
    ids=lambda given: "+".join(type(one).__name__ for one in given),
)
@pytest.mark.parametrize("seed", range(3))
def test_every_branch_is_processed_at_its_own_prefix(processors: list[Any], seed: int) -> None:
    law = toy_law(seed)
    want = ordinary(law, max_length=LONG, processors=processors, collects=True)
    run = decode(law, TreeDrafter(law), 5, max_length=LONG, processors=processors, collects=True)
    assert run.ids == want.ids
    assert run.scores is not None
    for ours, theirs in zip(run.scores.processed, want.processed, strict=True):
        torch.testing.assert_close(ours, theirs)


class Counting(LogitsProcessor):
    """Has a memory, so it can follow one branch only."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        self.calls += 1
        return scores + torch.nn.functional.one_hot(torch.tensor(self.calls % V), V) * 2.0


def test_a_processor_with_a_memory_gets_chains() -> None:
    law = toy_law(1)
    want = ordinary(law, max_length=LONG, processors=[Counting()])
    run = decode(law, TreeDrafter(law), 5, max_length=LONG, processors=[Counting()])
    assert run.ids == want.ids
    assert {done.branches for done in run.tally.trace} <= {0, 1}
    assert run.tally.proposed > 0


def test_a_target_that_takes_no_trees_gets_chains() -> None:
    law = toy_law(1)
    run = open_session(law, TreeDrafter(law), 5, max_length=LONG)
    run.target.takes_trees = False
    assert run.session.run() == ordinary(law, max_length=LONG).ids
    assert {done.branches for done in run.session.tally.trace} <= {0, 1}


class Wide(Drafter):
    """Forty branches of noise: more than the state has room for."""

    name = "wide"

    def outlook(self, prefix: Prefix) -> Outlook:
        return Outlook("wide", 0.5, 0.5, 4, beside=(0.5,) * 39)

    def propose(self, prefix: Prefix, limit: int, pick: Pick) -> Proposal:
        raise AssertionError("it was asked for one branch")

    def propose_tree(self, prefix: Prefix, limit: int, branches: int) -> Proposal:
        chance = random.Random(len(prefix))
        return tree_of([[chance.randrange(V) for _ in range(limit)] for _ in range(branches)])


def test_D9_side_branches_never_overrun_the_state() -> None:
    law = toy_law(0)
    run = decode(law, Wide(), 4, max_length=96)  # the toy's capacity
    assert run.ids == ordinary(law, max_length=96).ids
    assert not run.tally.faults


@pytest.mark.parametrize(
    ("ids", "parents", "limit", "said"),
    [
        ((1, 2), (-1,), 4, "no tree"),
        ((1, 2), (0, -1), 4, "no tree"),
        ((1, 2), (-1, 1), 4, "no tree"),
        ((1, 2, 3), (-1, 0, 1), 2, "at most 2"),
        ((1, 2, 3, 4, 5), (-1,) * 5, 2, "at most 2"),
        ((1, V), (-1, -1), 4, "outside"),
    ],
)
def test_what_is_no_tree_is_refused(
    ids: tuple[int, ...], parents: tuple[int, ...], limit: int, said: str
) -> None:
    with pytest.raises(DraftError, match=said):
        Proposal(ids, parents=parents).check(limit, V, branches=2)


def test_a_tree_has_no_laws() -> None:
    with pytest.raises(DraftError, match="deterministic"):
        Proposal((1,), torch.full((1, V), 1 / V), parents=(-1,)).check(2, V, branches=2)


def test_runs_hold_every_unit_once_with_what_leads_to_it() -> None:
    chance = random.Random(3)
    for _ in range(200):
        size = chance.randrange(9)
        parents = tuple(chance.randrange(-1, node) for node in range(size))
        tree = Proposal(tuple(range(100, 100 + size)), parents=parents)
        seen: list[int] = []
        for tokens, chain in tree.runs():
            seen += chain
            for before, node in itertools.pairwise(chain):
                assert parents[node] == before
            path, node = [], chain[-1]
            while node >= 0:
                path.append(100 + node)
                node = parents[node]
            assert tokens == path[::-1]
        assert sorted(seen) == list(range(size))


def test_nothing_follows_a_stop_unit_in_any_branch() -> None:
    tree = Proposal((1, 9, 2, 3, 9, 4), parents=(-1, 0, 1, 0, -1, 4)).until({9})
    assert tree.ids == (1, 9, 3, 9)
    assert tree.parents == (-1, 0, 0, -1)


def flat(seconds: float = 0.01, more: float = 0.0) -> BlockCosts:
    costs = BlockCosts()
    for rows in range(1, 160):
        for _ in range(9):
            costs.add(rows, seconds * (1 + more * (rows - 1)))
    return costs


LOST = Outlook("lost", 0.3, 0.9, 1000, beside=(0.6, 0.85))


def test_branches_are_taken_where_rows_are_cheap_and_only_there() -> None:
    assert AdaptivePolicy(flat()).choose(LOST, 0.0, 100).branches == 3
    assert AdaptivePolicy(flat(more=0.3)).choose(LOST, 0.0, 100).branches == 1
    assert FixedPolicy(4).choose(LOST, 0.0, 100) == Plan(4, 3)


def test_a_tree_teaches_what_fewer_branches_would_have_found() -> None:
    policy = AdaptivePolicy(flat())
    lost = Outlook("lost", 0.5, 0.9, 1000, beside=(0.5, 0.5))  # it expects nothing of branches
    template = a_round(context="lost", proposed=6, accepted=2, emitted=3)
    for _ in range(40):  # it is always the second branch
        policy.observe(replace(template, depth=2, branches=3, branch=1, rejected=True))
    one, two, three = (policy.gain(lost, 0.0, 2, branches) for branches in (1, 2, 3))
    assert two > 1.3 * one
    assert 0.95 * two < three < two, "a third one adds nothing but rows"

"""A switch gives the turn to who did well lately, and never changes the output."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from mmspec.engine import AdaptivePolicy, BlockCosts, Sampling
from mmspec.errors import DraftError
from mmspec.prefix import Prefix
from mmspec.proposals import (
    AcceptanceRate,
    Drafter,
    HypothesisDrafter,
    LazyDrafter,
    ModelDrafter,
    NgramDrafter,
    Outlook,
    Pick,
    Proposal,
    RelayDrafter,
    SwitchDrafter,
)
from mmspec.proposals.acceptance_rate import emitted_tokens
from mmspec.proposals.hypothesis import tree_of
from mmspec.proposals.switch import DECLINED, PATIENCE, TRIAL
from tests.toys import (
    CPU,
    PROMPT,
    ToyTarget,
    TreeDrafter,
    V,
    decode,
    garbage,
    open_session,
    ordinary,
    perfect,
    spoilt,
    toy_law,
)

LONG = len(PROMPT) + 40
TRUTH = [(7 * index * index + 3) % V for index in range(4000)]
"""What the "target" of `play` says, whatever is drafted."""

Right = Callable[[int], bool]


class Member(Drafter):
    """Right wherever `right` says so; insists on being told of every round, and the truth of it."""

    def __init__(self, name: str, right: Right, first: float = 0.7, **given: Any) -> None:
        self.name, self.right, self.first = name, right, first
        self.cost_prior = given.pop("cost", 0.0)
        self.opening_s = given.pop("opening_s", 0.0)
        self.beside = given.pop("beside", ())
        self.context = given.pop("context", "any")
        self.conditioning = f"what {name} knows"
        self.at, self.drafted, self.closed = 0, 0, 0

    def outlook(self, prefix: Prefix) -> Outlook:
        assert len(prefix.emitted) == self.at, f"{self.name} wasn't told of a round"
        opening_s = 0.0 if self.drafted else self.opening_s
        return Outlook(self.context, self.first, 0.8, 1000, opening_s, self.beside)

    def propose(self, prefix: Prefix, limit: int, pick: Pick) -> Proposal:
        self.drafted += 1
        self.proposed = limit
        places = range(self.at, self.at + limit)
        return Proposal(tuple((TRUTH[at] + (not self.right(at))) % V for at in places))

    def commit(self, prefix: Prefix, agreed: int) -> None:
        known = self.at + prefix.prompt_length
        assert known <= agreed <= known + getattr(self, "proposed", 0), "agreed on nothing drafted"
        self.at, self.proposed = len(prefix.emitted), 0

    def close(self) -> None:
        self.closed += 1


def always(at: int) -> bool:
    return True


def never(at: int) -> bool:
    return False


def play(switch: SwitchDrafter, tokens: int, gamma: int = 4) -> list[tuple[str, int, int]]:
    """Rounds against `TRUTH`: (whose turn, where it began, tokens that it emitted)."""
    prefix, rounds = Prefix([0], tokens + 64, CPU), []
    while (at := len(prefix.emitted)) < tokens:
        outlook = switch.outlook(prefix)
        limit = min(gamma, outlook.available)
        proposal = switch.propose(prefix, limit, pick=None) if limit else Proposal()  # type: ignore
        kept = len(proposal.follow(TRUTH[at : at + limit]))
        prefix.extend(TRUTH[at : at + kept + 1])
        rounds.append((switch.name, at, kept + 1))
        switch.commit(prefix, len(prefix) - 1)
    return rounds


def turns(rounds: list[tuple[str, int, int]], start: int = 0) -> Counter[str]:
    return Counter(name for name, at, _ in rounds if at >= start)


def test_the_better_one_has_the_turn_after_a_few_rounds() -> None:
    switch = SwitchDrafter([Member("boaster", never, first=0.95), Member("modest", always, 0.5)])
    rounds = play(switch, 400)
    assert rounds[0][0] == "boaster", "its own account is all that is known at first"
    assert turns(rounds[:12])["boaster"] <= 7
    late = turns(rounds, start=60)
    assert late["boaster"] <= 0.04 * late["modest"]


@pytest.mark.parametrize("turn", [80, 400])
def test_another_takes_over_when_the_better_one_turns_bad_and_back(turn: int) -> None:
    def early(at: int) -> bool:
        return at < turn

    one, other = Member("one", early), Member("other", lambda at: not early(at))
    rounds = play(SwitchDrafter([one, other]), 2 * turn)
    assert turns(rounds[5:])["one"] >= 0.9 * len([at for _, at, _ in rounds[5:] if at < turn])
    after = [name for name, at, _ in rounds if at >= turn]
    assert after.index("other") <= 12
    assert Counter(after[14:])["other"] >= 0.9 * len(after[14:])


def test_one_that_did_badly_is_tried_again_though_another_does_well() -> None:
    """Right half of the time is good enough to keep the turn, but not to keep hope away."""
    late = Member("late", lambda at: at >= 300)
    fair = Member("fair", lambda at: at % 5 > 1)
    rounds = play(SwitchDrafter([late, fair]), 900)
    assert 1 <= turns([r for r in rounds if 60 <= r[1] < 300])["late"] <= 12
    taken_over = turns(rounds, start=700)
    assert taken_over["late"] > 5 * taken_over["fair"]


def test_waiting_grows_with_failure_and_a_trial_is_short() -> None:
    bad = Member("bad", never)
    limits: list[tuple[int, int]] = []
    propose = bad.propose

    def noting(prefix: Prefix, limit: int, pick: Pick) -> Proposal:
        limits.append((bad.at, limit))
        return propose(prefix, limit, pick)

    bad.propose = noting  # type: ignore[method-assign]
    play(SwitchDrafter([Member("good", lambda at: at % 7 > 0), bad]), 3000, gamma=6)
    limits = [(at, limit) for at, limit in limits if at > 60]  # both are known by then
    assert {limit for _, limit in limits} == {TRIAL}
    gaps = [after - before for (before, _), (after, _) in itertools.pairwise(limits)]
    assert len(gaps) >= 4
    assert PATIENCE < gaps[0] < gaps[1] < gaps[2] < gaps[3]


def test_what_couldnt_win_even_if_all_were_kept_is_never_tried() -> None:
    dear = Member("dear", always, cost=0.9)
    rounds = play(SwitchDrafter([Member("free", lambda at: at % 5 > 0, 0.9), dear]), 2000)
    assert set(turns(rounds)) == {"free"}


def test_who_announces_units_and_proposes_none_loses_the_turn() -> None:
    class Shy(Member):
        def propose(self, prefix: Prefix, limit: int, pick: Pick) -> Proposal:
            return Proposal()

    late = turns(play(SwitchDrafter([Shy("shy", always, 0.9), Member("fair", always)]), 300), 40)
    assert late["shy"] <= 0.1 * late["fair"]


def test_cost_counts() -> None:
    members = [Member("dear", always, 0.9, cost=0.6), Member("free", always, 0.7)]
    assert set(turns(play(SwitchDrafter(members), 60))) == {"free"}
    members = [Member("dear", always, 0.9, cost=0.05), Member("free", always, 0.4)]
    assert play(SwitchDrafter(members), 60)[0][0] == "dear"


def test_contexts_are_kept_apart() -> None:
    class Moody(Member):
        def outlook(self, prefix: Prefix) -> Outlook:
            mood = "good" if self.at % 40 < 20 else "bad"
            return replace(super().outlook(prefix), context=mood)

    moody, fair = Moody("moody", lambda at: at % 40 < 20), Member("fair", lambda at: at % 3 > 0)
    rounds = play(SwitchDrafter([moody, fair]), 1200)
    late = [(name, at % 40 < 20) for name, at, _ in rounds if at > 200]
    assert Counter(name for name, good in late if good)["moody"] > 0.8 * sum(g for _, g in late)
    bad = Counter(name for name, good in late if not good)
    assert bad["fair"] > 0.7 * sum(bad.values())


def test_what_was_learned_can_be_kept_for_the_next_request() -> None:
    def opened(seen: AcceptanceRate) -> SwitchDrafter:
        return SwitchDrafter([Member("boaster", never, 0.95), Member("modest", always, 0.5)], seen)

    seen = AcceptanceRate()
    first, second = (turns(play(opened(seen), 60))["boaster"] for _ in range(2))
    assert second < first / 2


def toys(law: Any) -> list[Drafter]:
    want = ordinary(law, max_length=LONG).ids
    noisy = perfect(toy_law(991), name="noisy", cost_prior=0.1)
    copy = perfect(law, name="copy", cost_prior=0.1)
    return [noisy, TreeDrafter(law), HypothesisDrafter(spoilt(want)[:15]), NgramDrafter(3, 1), copy]


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(sample=True, seed=3)])
def test_the_same_request_gives_the_same_rounds(sampling: Sampling) -> None:
    law = toy_law(4)
    runs = [
        decode(law, SwitchDrafter(toys(law)), 3, max_length=LONG, sampling=sampling)
        for _ in range(2)
    ]
    assert runs[0].tally.trace == runs[1].tally.trace
    assert len(runs[0].tally.by_drafter) >= 3, "several had the turn"
    assert runs[0].ids == ordinary(law, max_length=LONG, seed=sampling.seed).ids


def test_every_model_holds_the_committed_prefix_whoever_had_the_turn() -> None:
    had_turns: set[str] = set()
    for seed in range(3):
        law = toy_law(seed)
        members = [one for one in toys(law) if one.name != "hypothesis"]
        run = open_session(law, SwitchDrafter(members), 4, max_length=LONG)
        while run.session.finish_reason is None:
            run.session.round()
            committed = tuple(run.session.prefix.ids)
            for model in (one.model for one in members if isinstance(one, ModelDrafter)):
                assert isinstance(model, ToyTarget)
                assert model.held == committed[: len(model.held)]
        assert run.session._drafter is not None
        assert run.session._drafter.forwards == sum(one.forwards for one in members)
        had_turns |= {one.name for one in members if one.forwards}
    assert had_turns == {"noisy", "copy"}


class Failing(Member):
    """Goes wrong at the n-th call of one method, in one way or the other."""

    def __init__(self, where: str, at: int = 2, wrong: Any = None) -> None:
        super().__init__("failing", always, first=0.99)
        self.where, self.left, self.wrong = where, at, wrong

    def _goes_wrong(self, where: str) -> bool:
        self.left -= where == self.where
        if where == self.where and self.left == 0 and self.wrong is None:
            raise OSError("no\nidea")
        return where == self.where and self.left == 0

    def outlook(self, prefix: Prefix) -> Outlook:
        return self.wrong if self._goes_wrong("outlook") else super().outlook(prefix)

    def propose(self, prefix: Prefix, limit: int, pick: Pick) -> Proposal:
        super().propose(prefix, limit, pick)
        right = ordinary(toy_law(0), max_length=90).ids[self.at : self.at + limit]
        return self.wrong if self._goes_wrong("propose") else Proposal(tuple(right))

    def commit(self, prefix: Prefix, agreed: int) -> None:
        self._goes_wrong("commit")
        super().commit(prefix, agreed)


@pytest.mark.parametrize(
    ("failing", "said"),
    [
        (lambda: Failing("outlook"), "OSError: no idea"),
        (lambda: Failing("propose"), "OSError: no idea"),
        (lambda: Failing("commit"), "OSError: no idea"),
        (lambda: Failing("outlook", wrong=7), "AttributeError"),
        (lambda: Failing("propose", wrong=Proposal((V,))), "DraftError: proposed token 13"),
        (lambda: Failing("propose", wrong=Proposal((1,) * 9)), "DraftError: proposed 9 tokens"),
        (lambda: Failing("propose", wrong=[1]), "AttributeError"),
    ],
)
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_member_that_fails_is_dropped_and_the_others_go_on(
    failing: Callable[[], Failing], said: str, place: int
) -> None:
    law, broken = toy_law(0), failing()
    copy, noisy = perfect(law, name="copy"), perfect(toy_law(991), name="noisy", cost_prior=0.1)
    members: list[Drafter] = [copy, noisy]
    members.insert(place, broken)
    switch = SwitchDrafter(members)
    run = decode(law, switch, 4, max_length=LONG)
    assert run.ids == ordinary(law, max_length=LONG).ids
    assert len(run.tally.faults) == 1
    assert run.tally.faults[0].startswith(f"drafter failing dismissed: {said}")
    proposed, accepted = run.tally.by_drafter["copy"]
    assert accepted == proposed > 8, "who is left was told of everything"
    switch.close()
    assert broken.closed == 1


def test_when_the_last_one_fails_decoding_is_ordinary() -> None:
    law = toy_law(0)
    broken = perfect(law, name="broken")
    assert isinstance(broken.model, ToyTarget)

    def fault(ids: Any) -> None:
        raise OSError("gone")

    broken.model.fault = fault
    run = decode(law, SwitchDrafter([broken, Failing("outlook", at=1)]), 4, max_length=LONG)
    assert run.ids == ordinary(law, max_length=LONG).ids
    assert sorted(run.tally.faults) == [
        "drafter broken dismissed: OSError: gone",
        "drafter failing dismissed: OSError: no idea",
    ]
    assert run.session._drafter is None


def test_the_others_hear_of_a_round_though_one_raises_when_told() -> None:
    heard = Member("heard", always, first=0.4)
    switch = SwitchDrafter([Failing("commit", at=1), heard])
    prefix = Prefix([0], 40, CPU)
    switch.outlook(prefix)
    prefix.extend(TRUTH[:1])
    switch.commit(prefix, 1)
    assert heard.at == 1
    with pytest.raises(OSError, match="no"):
        switch.outlook(prefix)
    assert switch.without_failed() is switch
    assert switch.outlook(prefix).context == "heard: any"
    assert switch.without_failed() is None, "nobody is left"


def test_trees_pass_through_and_teach_by_branch() -> None:
    class Second(Member):
        """The second continuation is always the right one."""

        def propose_tree(self, prefix: Prefix, limit: int, branches: int) -> Proposal:
            self.proposed = limit
            right = TRUTH[self.at : self.at + limit]
            return tree_of([[(right[0] + 1) % V, *right[1:]], right][:branches])

    seen = AcceptanceRate()
    switch = SwitchDrafter([Second("second", never, first=0.5, beside=(0.5,))], seen)
    prefix = Prefix([0], 200, CPU)
    for _ in range(20):
        outlook = switch.outlook(prefix)
        at = len(prefix.emitted)
        tree = switch.propose_tree(prefix, 3, 2)
        path = tree.follow(TRUTH[at : at + 3])
        assert len(path) == 3
        assert path != (0, 1, 2)
        prefix.extend(TRUTH[at : at + 4])
        switch.commit(prefix, len(prefix) - 1)
    assert outlook.first < 0.15, "the first branch alone is worth nothing"
    assert outlook.beside[0] > 0.85


def test_branches_that_the_policy_doesnt_want_are_no_promise() -> None:
    """A chain is all that is asked for; who might be right with a tree isn't so."""
    wide = Member("wide", never, 0.4, beside=(0.8, 0.95))
    fair = Member("fair", lambda at: at % 3 > 0, 0.5)
    late = turns(play(SwitchDrafter([wide, fair]), 600), start=60)
    assert late["wide"] <= 0.2 * late["fair"]


@pytest.mark.parametrize("seed", range(4))
def test_trees_in_sessions(seed: int) -> None:
    law = toy_law(seed)
    switch = SwitchDrafter([TreeDrafter(law), perfect(toy_law(991), name="noisy", cost_prior=0.1)])
    run = decode(law, switch, 4, max_length=LONG)
    assert run.ids == ordinary(law, max_length=LONG).ids
    assert any(done.branches > 1 for done in run.tally.trace)
    assert run.session._drafter is switch


def lazy(law: Any, opened: list[str], opening_s: float = 0.0) -> LazyDrafter:
    def open_drafter() -> Drafter:
        opened.append("model")
        return perfect(law, name="model", cost_prior=0.1)

    before = Outlook("model", 0.7, 0.8, 1000, opening_s=opening_s)
    return LazyDrafter("model", 0.1, "own", before, open_drafter)


def test_a_model_isnt_opened_while_a_free_one_does_well() -> None:
    law = toy_law(0)
    want = ordinary(law, max_length=LONG).ids
    for opening_s in (0.0, 0.5):
        opened: list[str] = []
        switch = SwitchDrafter([lazy(law, opened, opening_s), HypothesisDrafter(want)])
        assert decode(law, switch, 4, max_length=LONG).ids == want
        assert opened == []
        opened = []
        switch = SwitchDrafter([lazy(law, opened, opening_s), NgramDrafter(9, 9)])
        run = decode(law, switch, 4, max_length=LONG)
        assert run.ids == want
        assert opened == ["model"], "once, where there is nothing else"
        assert run.tally.by_drafter["model"][1] > 0
        switch.close()


@pytest.mark.parametrize(
    ("opening_s", "step_s", "who"),
    [
        (0.1, 0.01, "closed"),  # ten steps: repaid by the next 64 units
        (0.4, 0.01, "fair"),
        (0.4, 0.1, "closed"),
        (0.1, None, "fair"),  # nobody knows what a step is worth
        (0.0, None, "closed"),
    ],
)
def test_opening_is_weighed_against_what_it_saves(
    opening_s: float, step_s: float | None, who: str
) -> None:
    closed = Member("closed", always, 0.9, opening_s=opening_s)
    fair = Member("fair", always, 0.4)
    prefix = Prefix([0], 40, CPU)
    switch = SwitchDrafter([closed, fair], step_s=lambda: step_s)
    switch.outlook(prefix)
    assert switch.name == who


def test_nothing_is_opened_out_of_hope() -> None:
    closed = Member("closed", always, 0.3, opening_s=0.01)
    fair = Member("fair", lambda at: at % 3 > 0, 0.9)
    rounds = play(SwitchDrafter([closed, fair], step_s=lambda: 0.01), 2000)
    assert set(turns(rounds)) == {"fair"}


def test_who_is_preferred_here_and_wanted_by_no_policy_steps_back() -> None:
    """A policy may know better what drafting costs: then the others are in front for a while."""
    seen = AcceptanceRate()
    switch = SwitchDrafter([Member("dear", always, 0.9), Member("fair", always, 0.5)], seen)
    prefix, names = Prefix([0], 4000, CPU), []
    for token in TRUTH[:100]:
        switch.outlook(prefix)
        names.append(switch.name)
        if switch.name == "fair":
            switch.propose(prefix, 1, pick=None)  # type: ignore[arg-type]
        before = len(prefix)
        prefix.extend([token])
        switch.commit(prefix, before + (switch.name == "fair"))
    assert names[:3] == ["dear", "fair", "fair"]
    assert 1 <= names[1:].count("dear") <= 100 / -DECLINED + 1


def test_an_adaptive_policy_takes_a_corrected_outlook_as_it_is() -> None:
    costs = BlockCosts()
    for rows in range(1, 40):
        costs.add(rows, 0.01)
    policy = AdaptivePolicy(costs)
    outlook = Outlook("any", 0.5, 0.8, 100)
    before = policy.gain(outlook, 0.0, 4), policy.gain(replace(outlook, corrected=True), 0.0, 4)
    for _ in range(8):
        policy._acceptance_rate.observe("any", accepted=4, judged=4)
    after = policy.gain(outlook, 0.0, 4), policy.gain(replace(outlook, corrected=True), 0.0, 4)
    assert after[0] > 1.2 * before[0]
    assert after[1] == before[1], "what was seen is in it already"


def test_what_drafting_costs_is_kept_apart_by_drafter() -> None:
    """The free one's rounds don't make the model look free."""
    law, costs = toy_law(0), BlockCosts()
    policy = AdaptivePolicy(costs)
    switch = SwitchDrafter(toys(law))
    run = decode(law, switch, policy, max_length=80, costs=costs)
    assert run.ids == ordinary(law, max_length=80).ids
    drafted = {done.context.split(":")[0] for done in run.tally.trace if done.proposal}
    assert {context.split(":")[0] for context, seen in policy._draft_s.items() if seen} == drafted


def test_laws_and_descriptions_are_those_of_the_one_whose_turn_it_is() -> None:
    class Drawing(Member):
        def propose(self, prefix: Prefix, limit: int, pick: Pick) -> Proposal:
            return drawn

    drawn = Proposal((1, 2), torch.eye(V)[[1, 2]])
    one, other = Drawing("one", always, cost=0.2), Member("other", always, 0.1)
    switch, prefix = SwitchDrafter([other, one]), Prefix([0], 40, CPU)
    switch.outlook(prefix)
    assert switch.propose(prefix, 2, pick=None) is drawn  # type: ignore[arg-type]
    assert (switch.name, switch.cost_prior) == ("one", 0.2)
    assert switch.conditioning == "what one knows"


def test_all_are_closed_though_one_raises() -> None:
    class Stuck(Member):
        def close(self) -> None:
            raise OSError("stuck")

    members = [Member("a", always), Stuck("b", always), Member("c", always)]
    with pytest.raises(OSError, match="stuck"):
        SwitchDrafter(members).close()
    assert [member.closed for member in members] == [1, 0, 1]


def test_nobody_and_namesakes_are_refused() -> None:
    for drafters in ([], [NgramDrafter(), NgramDrafter(3)]):
        with pytest.raises(DraftError, match="expected at least one, each with a name of its own"):
            SwitchDrafter(drafters)


def test_nothing_to_propose_is_an_ordinary_round() -> None:
    switch = SwitchDrafter([HypothesisDrafter([]), NgramDrafter(3, 3)])
    prefix = Prefix([1, 2, 3], 20, CPU)
    assert switch.outlook(prefix).available == 0
    prefix.extend([9])
    switch.commit(prefix, agreed=3)
    assert switch.outlook(prefix).available == 0


def test_a_failed_round_teaches_nothing_and_rolls_only_the_proposer_back() -> None:
    seen, member, other = AcceptanceRate(), Member("a", always, 0.9), Member("b", always)
    switch, prefix = SwitchDrafter([member, other], seen), Prefix([0], 40, CPU)
    outlook = switch.outlook(prefix)
    switch.propose(prefix, 4, pick=None)  # type: ignore[arg-type]
    switch.commit(prefix, agreed=1)
    assert member.at == other.at == 0
    assert switch.outlook(prefix) == outlook
    assert not seen.passed


def test_a_switch_does_no_worse_than_a_relay_where_the_boaster_is_wrong() -> None:
    """The relay believes what it is told for ever."""
    law = toy_law(1)
    want = ordinary(law, max_length=80).ids

    def members() -> list[Drafter]:
        return [garbage(), perfect(law, name="copy", cost_prior=0.1)]

    switched = decode(law, SwitchDrafter(members()), 4, max_length=80)
    relayed = decode(law, RelayDrafter(members()), 4, max_length=80)
    assert switched.ids == relayed.ids == want
    assert switched.target.forwards < 0.9 * relayed.target.forwards


def test_expected_units_are_the_sum_of_the_survivals() -> None:
    outlook = Outlook("any", 0.6, 0.9, 9, beside=(0.8,))
    for branches, first in ((1, 0.6), (2, 0.8)):
        lengths = emitted_tokens(outlook, branches)
        for gamma in range(1, 6):
            survivals = [first * 0.9**offset for offset in range(gamma)]
            assert next(lengths) == pytest.approx(1 + sum(survivals))

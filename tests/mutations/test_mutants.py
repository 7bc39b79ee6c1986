"""The tests' own test: each classic fault, planted in production code, is caught by a named check.

Every check passes on the real code and raises `Caught` on the mutant that it is named for.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from transformers import LogitsProcessor
from transformers.generation.logits_process import (
    RepetitionPenaltyLogitsProcessor,
    SequenceBiasLogitsProcessor,
)

from mmspec import acceptance
from mmspec.engine import AcceptanceSampler, Processors, Sampling, Session, Stops
from mmspec.errors import StateError
from mmspec.prefix import Prefix
from mmspec.proposals import (
    Drafter,
    ModelDrafter,
    Outlook,
    Pick,
    Proposal,
    SameVocabulary,
    SwitchDrafter,
)
from mmspec.proposals import model as model_drafting
from mmspec.state import DecoderState
from mmspec.state.layers import FrozenLayer, GrowingLayer
from tests.toys import (
    PROMPT,
    ToyTarget,
    TreeDrafter,
    V,
    decode,
    drafter_for,
    open_session,
    ordinary,
    perfect,
    toy_law,
)

from .catching import (
    Caught,
    Check,
    Mutant,
    Patch,
    expect,
)
from .catching import test_every_check_catches_something as test_every_check_catches_something
from .catching import test_the_mutant_is_caught as test_the_mutant_is_caught
from .catching import test_the_real_code_passes as test_the_real_code_passes

LONG = len(PROMPT) + 20
KINDS = ("perfect", "noisy", "ngram", "hypothesis")
RUNS = 150
"""Draws of a token whose share is looked at: five deviations are 0.18."""

# The checks.


def greedy_ids_are_ordinary() -> None:
    law = toy_law(0)
    for kind, gamma in itertools.product(KINDS, (1, 4)):
        run = decode(law, drafter_for(kind, law), gamma, max_length=LONG)
        expect(run.ids == ordinary(law, max_length=LONG).ids, "ids differ from ordinary decoding")


def trees_emit_ordinary_ids() -> None:
    for seed in range(3):
        law = toy_law(seed)
        run = decode(law, TreeDrafter(law), 5, max_length=LONG)
        expect(run.ids == ordinary(law, max_length=LONG).ids, "a tree changed the ids")
        seeded = Sampling(sample=True, seed=seed)
        run = decode(law, TreeDrafter(law), 5, max_length=LONG, sampling=seeded)
        expect(run.ids == ordinary(law, max_length=LONG, seed=seed).ids, "a tree changed the ids")


def every_branch_is_processed_at_its_own_prefix() -> None:
    def steered(ids: Sequence[int]) -> Tensor:
        row = toy_law(0)(ids).clone()
        row[(ids[-1] + 3) % V] += 9.0
        return row

    bias = {(token, (token + 3) % V): 9.0 for token in range(V)}
    processors = [SequenceBiasLogitsProcessor(bias)]
    plain = ordinary(toy_law(0), max_length=LONG, processors=processors)
    for branches in (2, 3):
        drafter = TreeDrafter(steered, branches)
        run = decode(toy_law(0), drafter, 5, max_length=LONG, processors=processors)
        expect(run.ids == plain.ids, "a branch was processed at another prefix")


def forwards_are_rounds() -> None:
    law = toy_law(0)
    run = decode(law, perfect(law), 4, max_length=LONG)
    expect(run.target.forwards == run.tally.rounds + 1, "more target forwards than rounds")


def a_copy_is_accepted_and_fed_once() -> None:
    law = toy_law(0)
    drafter = perfect(law)
    run = decode(law, drafter, 4, max_length=LONG)
    model: Any = drafter.model
    fed = [token for block in model.blocks for token in block]
    expect(run.tally.accepted == run.tally.proposed > 0, "a copy of the target was rejected")
    expect(fed == list(run.session.prefix.ids)[: len(fed)], "the drafter was fed other tokens")


def a_drafter_follows_the_committed_prefix() -> None:
    law = toy_law(0)
    drafter = perfect(toy_law(991))
    run = open_session(law, drafter, 4, max_length=LONG)
    while run.session.finish_reason is None:
        run.session.round()
        model: Any = drafter.model
        committed = tuple(run.session.prefix.ids)
        expect(model.held == committed[: len(model.held)], "a drafter kept what was rejected")


def penalties_act_at_every_drafted_prefix() -> None:
    law = toy_law(0)
    plain = ordinary(law, max_length=LONG, processors=[RepetitionPenaltyLogitsProcessor(1.8)])
    for kind in KINDS:
        run = decode(
            law,
            drafter_for(kind, law),
            4,
            max_length=LONG,
            processors=[RepetitionPenaltyLogitsProcessor(1.8)],
        )
        expect(run.ids == plain.ids, "a penalty saw another prefix than ordinary decoding's")


class Presence(LogitsProcessor):
    """A presence penalty that counts what it was called with."""

    def __init__(self) -> None:
        self.counts: Counter[int] = Counter()

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        self.counts[int(input_ids[0, -1])] += 1
        scores = scores.clone()
        for token, count in self.counts.items():
            scores[0, token] -= 2.0 * count
        return scores


def memories_hold_what_was_committed() -> None:
    law = toy_law(0)
    plain = Presence()
    expected = ordinary(law, max_length=LONG, processors=[plain]).ids
    for kind in KINDS:
        ours = Presence()
        run = decode(law, drafter_for(kind, law), 4, max_length=LONG, processors=[ours])
        expect(run.ids == expected, "a processor's memory changed the output")
        expect(ours.counts == plain.counts, "a processor remembers what wasn't committed")


def rollback_is_strict() -> None:
    target = ToyTarget(toy_law(0))
    target.score(PROMPT, keep=1)
    target.state.freeze()
    for to in (len(PROMPT) + 1, len(PROMPT) - 1):
        try:
            target.state.rollback(to)
        except StateError:
            continue
        raise Caught("a rollback out of bounds went through")


def stops_are_where_ordinary_decoding_stops() -> None:
    law = toy_law(0)
    for offset in range(8):
        stop = ordinary(law, max_length=LONG).ids[offset]
        plain = ordinary(law, max_length=LONG, stop_tokens=[stop])
        run = decode(law, perfect(law), 4, max_length=LONG, stop_tokens=[stop])
        expect(run.ids == plain.ids, "the output goes on behind a stop token")


def the_limit_holds() -> None:
    law = toy_law(0)
    for room, gamma in itertools.product(range(1, 7), (1, 3, 9)):
        limit = len(PROMPT) + room
        run = open_session(law, perfect(law), gamma, max_length=limit)

        def within(ids: Sequence[int], target: ToyTarget = run.target, limit: int = limit) -> None:
            # The last unit of an output is never fed.
            expect(target.state.length + len(ids) < limit, "a block reaches past the limit")

        run.target.fault = within
        expect(len(run.session.run()) == room, "more tokens than the limit")


def seeded_ids_are_the_same_for_every_drafter() -> None:
    law = toy_law(0)
    plain = ordinary(law, max_length=LONG, seed=9)
    for kind, gamma in itertools.product(KINDS, (1, 4)):
        sampling = Sampling(sample=True, seed=9)
        run = decode(law, drafter_for(kind, law), gamma, max_length=LONG, sampling=sampling)
        expect(run.ids == plain.ids, "seeded ids depend on the drafter")


def a_failed_round_changes_nothing() -> None:
    law = toy_law(0)
    for kind in KINDS:
        run = open_session(law, drafter_for(kind, law), 4, max_length=LONG)
        run.session.round()
        held, once = run.target.held, iter([True])

        def verdict(*args: Any, once: Iterator[bool] = once) -> bool:
            if next(once, False):
                raise InterruptedError
            return False

        run.session._stops.others.append(verdict)
        try:
            run.session.round()
        except InterruptedError:
            expect(run.target.held == held, "a failed round has moved the state")
        run.session.run()
        expected = ordinary(law, max_length=LONG).ids
        expect(run.session.prefix.emitted == expected, "a failed round has changed the output")


def a_failed_round_moves_no_drafter() -> None:
    law = toy_law(0)
    run = open_session(law, perfect(law), 4, max_length=LONG)
    run.session.round()
    once = iter([True])

    def fault(ids: Sequence[int]) -> None:
        if next(once, False):
            raise InterruptedError

    run.target.fault = fault
    try:
        run.session.round()
    except InterruptedError:
        run.session.run()
    expect(run.tally.accepted == run.tally.proposed, "a copy was rejected after a failed round")


def attention_reads_no_slot_past_the_length() -> None:
    state = DecoderState(1, 8, cross_attention=False)
    block = torch.ones(1, 1, 2, 3)
    for _ in range(2):
        with state.block(2):
            keys, values = state.cache.update(block, block, 0)
        expect(not bool((keys + values).isnan().any()), "poison was read")
        state.poison_unused()


def conditioning_is_written_once() -> None:
    layer, block = FrozenLayer(), torch.ones(1, 1, 2, 3)
    layer.update(block, block)
    try:
        layer.update(block * 2, block * 2)
    except StateError:
        return
    raise Caught("conditioning was written a second time")


def padding_is_never_drawn() -> None:
    law = toy_law(0)
    narrow = ToyTarget(lambda prefix: toy_law(0)(prefix)[: V - 3] - 40.0, vocab_size=V - 3)
    asked: list[int] = []
    drafter = ModelDrafter(narrow, PROMPT, SameVocabulary(V))
    propose = drafter.propose

    def noting(*args: Any) -> Any:
        proposal = propose(*args)
        asked.extend(proposal.ids)
        return proposal

    drafter.propose = noting  # type: ignore[method-assign]
    decode(law, drafter, 3, max_length=LONG)
    expect(bool(asked) and max(asked) < V - 3, "a drafter drew a token that it doesn't have")


class Attentive(Drafter):
    """Proposes noise, and knows what it may be told of a round."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.known, self.drafted = len(PROMPT), 0

    def outlook(self, prefix: Prefix) -> Outlook:
        expect(self.known == len(prefix), "a drafter wasn't told of a round")
        return Outlook("any", 0.6, 0.6, 100)

    def propose(self, prefix: Prefix, limit: int, pick: Pick) -> Proposal:
        self.drafted = limit
        return Proposal(((len(prefix) + len(self.name)) % V,) * limit)

    def commit(self, prefix: Prefix, agreed: int) -> None:
        expect(agreed <= self.known + self.drafted, "a drafter agreed with what it never drafted")
        self.known, self.drafted = len(prefix), 0


def a_switch_tells_everybody_the_truth() -> None:
    for law in map(toy_law, range(3)):
        members = [perfect(law, name="copy"), Attentive("a"), Attentive("another")]
        run = decode(law, SwitchDrafter(members), 4, max_length=LONG)
        for fault in run.tally.faults:
            raise Caught(fault)


def a_switch_draws_by_the_targets_law() -> None:
    def law(prefix: Sequence[int]) -> Tensor:
        return torch.tensor([0.0, 0.5, 0.0])

    seen: Counter[int] = Counter()
    torch.manual_seed(0)
    for _ in range(RUNS):
        models = [ToyTarget(law, vocab_size=3, capacity=4) for _ in range(3)]
        members = [
            ModelDrafter(model, [0, 1], SameVocabulary(3), name=name)
            for name, model in zip("abc", models, strict=True)
        ]
        sampling = Sampling(sample=True)
        switch = SwitchDrafter(members)
        run = decode(law, switch, 1, prompt=[0, 1], max_length=4, sampling=sampling)
        seen[run.ids[0]] += 1
    share, expected = seen[2] / RUNS, float(law([]).softmax(-1)[2])
    bound = 5 * (expected * (1 - expected) / RUNS) ** 0.5
    expect(abs(share - expected) < bound, f"token 2 was drawn in {share:.0%} of all runs")


CHECKS: list[Check] = [
    greedy_ids_are_ordinary,
    trees_emit_ordinary_ids,
    every_branch_is_processed_at_its_own_prefix,
    forwards_are_rounds,
    a_copy_is_accepted_and_fed_once,
    a_drafter_follows_the_committed_prefix,
    penalties_act_at_every_drafted_prefix,
    memories_hold_what_was_committed,
    rollback_is_strict,
    stops_are_where_ordinary_decoding_stops,
    the_limit_holds,
    seeded_ids_are_the_same_for_every_drafter,
    a_failed_round_changes_nothing,
    a_failed_round_moves_no_drafter,
    attention_reads_no_slot_past_the_length,
    conditioning_is_written_once,
    padding_is_never_drawn,
    a_switch_tells_everybody_the_truth,
    a_switch_draws_by_the_targets_law,
]


# The mutants: each wraps or replaces one named piece of production code.


def row_shift_by_one(patch: Patch) -> None:
    real = Session._processed

    def mutant(self: Session, rows: Tensor, proposal: Any) -> Tensor:
        return torch.roll(real(self, rows, proposal), -1, 0)

    patch.setattr(Session, "_processed", mutant)


def prompts_last_token_fed_twice(patch: Patch) -> None:
    def mutant(self: Session, proposal: Any) -> Any:
        return [self.prefix.ids[-1], *proposal.ids], None

    patch.setattr(Session, "_block", mutant)
    patch.setattr(Session, "_has_pending", True)


def verification_without_the_prefix_state(patch: Patch) -> None:
    real = ToyTarget.score

    def mutant(self: ToyTarget, ids: Sequence[int], keep: int, parents: Any = None) -> Tensor:
        length = self.state.length
        if length < len(PROMPT):
            return real(self, ids, keep, parents)
        with rolled_back(self.state, 0):
            raw = real(self, ids, keep, parents)
        self.state._length = length + len(ids)
        return raw

    patch.setattr(ToyTarget, "score", mutant)


@contextmanager
def rolled_back(state: DecoderState, to: int) -> Iterator[None]:
    state.rollback(to)
    yield


def accepted_units_replayed_one_by_one(patch: Patch) -> None:
    real = Session._commit

    def mutant(self: Session, done: Any, *, tree: bool) -> None:
        start = len(self.prefix) - 1
        real(self, done, tree=tree)
        self._target.state.rollback(start)
        for token in self.prefix.ids[start:-1]:
            self._target.score([token], keep=1)

    patch.setattr(Session, "_commit", mutant)


def draft_state_advanced_twice(patch: Patch) -> None:
    real = ModelDrafter._score

    def mutant(self: ModelDrafter, ids: Sequence[int]) -> Tensor:
        real(self, ids)
        return real(self, ids)

    patch.setattr(ModelDrafter, "_score", mutant)


def draft_state_not_rolled_back(patch: Patch) -> None:
    patch.setattr(ModelDrafter, "commit", lambda self, prefix, agreed: None)


def processors_at_the_committed_prefix_only(patch: Patch) -> None:
    def mutant(self: Processors, processor: Any, rows: Tensor, prefix: Any, start: int) -> Tensor:
        return torch.cat([processor(prefix.tensor(start), row[None]) for row in rows])

    patch.setattr(Processors, "_row_by_row", mutant)


def processors_one_unit_late(patch: Patch) -> None:
    real = Processors._row_by_row

    def mutant(self: Processors, processor: Any, rows: Tensor, prefix: Any, start: int) -> Tensor:
        return real(self, processor, rows, prefix, start - 1)

    patch.setattr(Processors, "_row_by_row", mutant)


def rollback_clamped(patch: Patch) -> None:
    def mutant(self: DecoderState, to: int) -> None:
        self._length = max(self.frozen, min(to, self._length))

    patch.setattr(DecoderState, "rollback", mutant)


def rollback_one_short(patch: Patch) -> None:
    real = DecoderState.commit

    def mutant(self: DecoderState, to: int) -> None:
        real(self, to)
        self._length = min(self._length + 1, self.capacity)

    patch.setattr(DecoderState, "commit", mutant)


def stop_check_on_the_last_unit_only(patch: Patch) -> None:
    real = Stops.cut

    def mutant(self: Stops, prefix: Any, tokens: Sequence[int], scores: Any = None) -> Any:
        kept, reason = real(self, prefix, tokens, scores)
        return (kept, reason) if kept == len(tokens) else (len(tokens), None)

    patch.setattr(Stops, "cut", mutant)
    patch.setattr(Proposal, "until", lambda self, stop_tokens: self)


def bonus_not_counted_in_the_limit(patch: Patch) -> None:
    real = Stops._reason

    def mutant(self: Stops, prefix: Any, length: int, token: int, scores: Any) -> Any:
        return real(self, prefix, length - 1, token, scores)

    patch.setattr(Stops, "_reason", mutant)


def draft_as_long_as_the_room(patch: Patch) -> None:
    real = Stops.room
    patch.setattr(Stops, "room", lambda self, prefix: real(self, prefix) + 1)


def processors_shared_with_the_drafter(patch: Patch) -> None:
    patch.setattr(Processors, "fork", lambda self: self)


def memory_not_restored(patch: Patch) -> None:
    def mutant(self: Processors, rows_kept: int) -> None:
        for memory in self._with_memory:
            memory.before = []

    patch.setattr(Processors, "commit", mutant)


def memory_copied_by_reference(patch: Patch) -> None:
    from mmspec.engine import processing

    patch.setattr(processing, "_memory_of", lambda processor, *owner: dict(vars(processor)))


def noise_by_draft_offset(patch: Patch) -> None:
    real = AcceptanceSampler._noise

    def mutant(self: AcceptanceSampler, rows: Tensor, start: int) -> Tensor:
        return real(self, rows, 0)

    patch.setattr(AcceptanceSampler, "_noise", mutant)


def failed_round_not_undone(patch: Patch) -> None:
    patch.setattr(DecoderState, "restore", lambda self, mark: None)


def drafter_not_told_of_a_failed_round(patch: Patch) -> None:
    real = Session._tell_drafter

    def mutant(self: Session, agreed: int) -> None:
        if agreed != len(self.prefix):
            real(self, agreed)

    patch.setattr(Session, "_tell_drafter", mutant)


def view_one_slot_too_long(patch: Patch) -> None:
    real = GrowingLayer.update

    def mutant(self: GrowingLayer, keys: Tensor, values: Tensor, *args: Any) -> Any:
        end = real(self, keys, values)[0].shape[2] + 1
        return self.keys[:, :, :end], self.values[:, :, :end]

    patch.setattr(GrowingLayer, "update", mutant)


def conditioning_writable(patch: Patch) -> None:
    def mutant(self: FrozenLayer, keys: Tensor, values: Tensor, *args: Any) -> Any:
        self.lazy_initialization(keys, values)
        return keys, values

    patch.setattr(FrozenLayer, "update", mutant)


def padding_scored_zero(patch: Patch) -> None:
    def mutant(row: Tensor, vocab_size: int) -> Tensor:
        return torch.nn.functional.pad(row, (0, vocab_size - row.shape[-1]))

    patch.setattr(model_drafting, "fit_vocabulary", mutant)


def path_left_where_it_was(patch: Patch) -> None:
    patch.setattr(GrowingLayer, "move", lambda self, positions, start: None)


def tree_fed_as_a_chain(patch: Patch) -> None:
    real = Session._block

    def mutant(self: Session, proposal: Any) -> Any:
        return real(self, proposal)[0], None

    patch.setattr(Session, "_block", mutant)


def every_branch_processed_at_the_first_one(patch: Patch) -> None:
    real = Proposal.runs

    def mutant(self: Proposal) -> Any:
        trunk = next(iter(real(self)), ([], []))[0]
        for tokens, chain in real(self):
            yield (trunk * len(tokens))[: len(tokens)] or tokens, chain

    patch.setattr(Proposal, "runs", mutant)


def noise_by_node(patch: Patch) -> None:
    real = AcceptanceSampler._noise_at

    def mutant(self: AcceptanceSampler, rows: Tensor, positions: Tensor) -> Tensor:
        return real(self, rows, positions[0] + torch.arange(len(positions)))

    patch.setattr(AcceptanceSampler, "_noise_at", mutant)


def last_branch_wins(patch: Patch) -> None:
    def mutant(choices: Sequence[int], ids: Sequence[int], parents: Sequence[int]) -> Any:
        path = [
            node
            for node, (token, parent) in enumerate(zip(ids, parents, strict=True))
            if parent == -1 and token != choices[0]
        ]
        return tuple(path[-1:]), choices[path[-1] + 1 if path else 0]

    patch.setattr(acceptance, "walk", mutant)


def only_the_proposer_is_told(patch: Patch) -> None:
    def mutant(self: SwitchDrafter, prefix: Prefix, agreed: int) -> None:
        self._turn.drafter.commit(prefix, agreed)

    patch.setattr(SwitchDrafter, "commit", mutant)


def all_are_told_what_the_proposer_is(patch: Patch) -> None:
    def mutant(self: SwitchDrafter, prefix: Prefix, agreed: int) -> None:
        for member in self._members:
            member.drafter.commit(prefix, agreed)

    patch.setattr(SwitchDrafter, "commit", mutant)


def turn_by_what_was_drafted(patch: Patch) -> None:
    def mutant(self: SwitchDrafter, prefix: Prefix, limit: int, pick: Pick) -> Proposal:
        drawn = [member.drafter.propose(prefix, limit, pick) for member in self._members]
        return max(drawn, key=lambda proposal: proposal.ids)

    patch.setattr(SwitchDrafter, "propose", mutant)


MUTANTS: list[Mutant] = [
    (row_shift_by_one, greedy_ids_are_ordinary, "ids differ"),
    (prompts_last_token_fed_twice, greedy_ids_are_ordinary, "ids differ"),
    (verification_without_the_prefix_state, greedy_ids_are_ordinary, "ids differ"),
    (accepted_units_replayed_one_by_one, forwards_are_rounds, "more target forwards"),
    (draft_state_advanced_twice, a_copy_is_accepted_and_fed_once, "rejected|fed other tokens"),
    (draft_state_not_rolled_back, a_drafter_follows_the_committed_prefix, "kept what was"),
    (
        processors_at_the_committed_prefix_only,
        penalties_act_at_every_drafted_prefix,
        "another prefix",
    ),
    (processors_one_unit_late, penalties_act_at_every_drafted_prefix, "another prefix"),
    (rollback_clamped, rollback_is_strict, "out of bounds"),
    (rollback_one_short, greedy_ids_are_ordinary, "ids differ"),
    (stop_check_on_the_last_unit_only, stops_are_where_ordinary_decoding_stops, "behind a stop"),
    (bonus_not_counted_in_the_limit, the_limit_holds, "past the limit|more tokens"),
    (draft_as_long_as_the_room, the_limit_holds, "past the limit|more tokens"),
    (processors_shared_with_the_drafter, memories_hold_what_was_committed, "memory|remembers"),
    (memory_not_restored, memories_hold_what_was_committed, "memory|remembers"),
    (memory_copied_by_reference, memories_hold_what_was_committed, "memory|remembers"),
    (noise_by_draft_offset, seeded_ids_are_the_same_for_every_drafter, "depend on the drafter"),
    (failed_round_not_undone, a_failed_round_changes_nothing, "moved the state"),
    (drafter_not_told_of_a_failed_round, a_failed_round_moves_no_drafter, "copy was rejected"),
    (view_one_slot_too_long, attention_reads_no_slot_past_the_length, "poison was read"),
    (conditioning_writable, conditioning_is_written_once, "a second time"),
    (padding_scored_zero, padding_is_never_drawn, "doesn't have"),
    (path_left_where_it_was, trees_emit_ordinary_ids, "a tree changed"),
    (tree_fed_as_a_chain, trees_emit_ordinary_ids, "a tree changed"),
    (
        every_branch_processed_at_the_first_one,
        every_branch_is_processed_at_its_own_prefix,
        "another prefix",
    ),
    (noise_by_node, trees_emit_ordinary_ids, "a tree changed"),
    (last_branch_wins, trees_emit_ordinary_ids, "a tree changed"),
    (only_the_proposer_is_told, a_switch_tells_everybody_the_truth, "wasn't told"),
    (all_are_told_what_the_proposer_is, a_switch_tells_everybody_the_truth, "never drafted"),
    (turn_by_what_was_drafted, a_switch_draws_by_the_targets_law, "token 2 was drawn"),
]


def test_replaying_units_is_seen_by_counting_only(monkeypatch: Patch) -> None:
    """Its output is right: that is why forwards have to be counted."""
    accepted_units_replayed_one_by_one(monkeypatch)
    greedy_ids_are_ordinary()

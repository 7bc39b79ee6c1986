"""Processors judge every drafted prefix as ordinary decoding would; memories keep what stays."""

from __future__ import annotations

import copy
import itertools
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor
from transformers import LogitsProcessor, LogitsProcessorList
from transformers.generation import logits_process as hf

from mmspec.engine import Processors
from mmspec.prefix import Prefix
from tests.toys import CPU, DRAFTERS, PROMPT, Run, V, decode, drafter_for, ordinary, toy_law

LONG = len(PROMPT) + 20
BEGIN = len(PROMPT)

IGNORING: dict[str, Callable[[], Any]] = {
    "temperature": lambda: hf.TemperatureLogitsWarper(0.7),
    "top_k": lambda: hf.TopKLogitsWarper(4),
    "top_p": lambda: hf.TopPLogitsWarper(0.8),
    "min_p": lambda: hf.MinPLogitsWarper(0.1),
    "typical": lambda: hf.TypicalLogitsWarper(0.8),
    "epsilon": lambda: hf.EpsilonLogitsWarper(0.05),
    "eta": lambda: hf.EtaLogitsWarper(0.05),
    "inf_nan": hf.InfNanRemoveLogitsProcessor,
    "normalise": hf.LogitNormalization,
}
PREFIX_BOUND: dict[str, Callable[[], Any]] = {
    "repetition": lambda: hf.RepetitionPenaltyLogitsProcessor(1.8),
    "no_repeat_ngram": lambda: hf.NoRepeatNGramLogitsProcessor(2),
    "bad_words": lambda: hf.NoBadWordsLogitsProcessor([[4], [2, 3]], eos_token_id=12),
    "bias": lambda: hf.SequenceBiasLogitsProcessor([[[5, 6], 8.0], [[7], -9.0]]),
    "encoder_repetition": lambda: hf.EncoderRepetitionPenaltyLogitsProcessor(
        1.5, torch.tensor([[3, 8, 9]])
    ),
    "encoder_no_repeat": lambda: hf.EncoderNoRepeatNGramLogitsProcessor(
        2, torch.tensor([[3, 8, 9, 1, 5, 0]])
    ),
    "min_length": lambda: hf.MinLengthLogitsProcessor(BEGIN + 7, [0, 5, 8], device="cpu"),
    "min_new": lambda: hf.MinNewTokensLengthLogitsProcessor(BEGIN, 6, [0, 5, 8], device="cpu"),
    "suppress": lambda: hf.SuppressTokensLogitsProcessor([1, 8], device="cpu"),
    "suppress_at_begin": lambda: hf.SuppressTokensAtBeginLogitsProcessor(
        [0, 3, 8], BEGIN, device="cpu"
    ),
    "suppress_none": lambda: hf.SuppressTokensLogitsProcessor([], device="cpu"),
    "suppress_none_at_begin": lambda: hf.SuppressTokensAtBeginLogitsProcessor(
        [], BEGIN, device="cpu"
    ),
    "suppress_unknown": lambda: hf.SuppressTokensLogitsProcessor([1, 500], device="cpu"),
    "suppress_unknown_at_begin": lambda: hf.SuppressTokensAtBeginLogitsProcessor(
        [3, 500], BEGIN, device="cpu"
    ),
    "suppress_later": lambda: hf.SuppressTokensAtBeginLogitsProcessor(
        [0, 3, 8], BEGIN + 4, device="cpu"
    ),
    "forced_bos": lambda: hf.ForcedBOSTokenLogitsProcessor(3),
    "forced_eos": lambda: hf.ForcedEOSTokenLogitsProcessor(LONG, [7], device="cpu"),
    "decay": lambda: hf.ExponentialDecayLengthPenalty((3, 1.2), [8], BEGIN),
    "constrained": lambda: hf.PrefixConstrainedLogitsProcessor(
        lambda _, ids: [int(ids[-1] + 1) % V, int(ids[-1] + 5) % V], 1
    ),
}
OTHERS: dict[str, Callable[[], Any]] = {  # that the engine knows nothing about, some stateful
    "top_h": lambda: hf.TopHLogitsWarper(0.5),
    "watermark": lambda: hf.WatermarkLogitsProcessor(V, "cpu", 0.3, 3.0, context_width=2),
    "synthid": lambda: hf.SynthIDTextWatermarkLogitsProcessor(
        ngram_len=3,
        keys=[5, 6, 7],
        sampling_table_size=64,
        sampling_table_seed=0,
        context_history_size=8,
        device=CPU,
    ),
}
KNOWN = IGNORING | PREFIX_BOUND | OTHERS


@pytest.mark.parametrize("kind", DRAFTERS)
@pytest.mark.parametrize("name", KNOWN)
def test_C1_C3_every_processor_of_transformers_acts_at_every_drafted_prefix(
    name: str, kind: str
) -> None:
    law, make = toy_law(0), KNOWN[name]
    run = decode(law, drafter_for(kind, law), 5, max_length=LONG, processors=[make()])
    assert run.ids == ordinary(law, max_length=LONG, processors=[make()]).ids
    assert not run.tally.faults


@pytest.mark.parametrize("name", KNOWN)
def test_a_block_form_gives_the_rows_that_transformers_gives(name: str) -> None:
    law, drafted = toy_law(4), [5, 6, 0, 8]
    prefix = Prefix(PROMPT, LONG, CPU)
    prefix.show_draft(drafted)
    ids = [*PROMPT, *drafted]
    raw = torch.stack([law(ids[:end]) for end in range(BEGIN, len(ids) + 1)])
    ours = Processors(LogitsProcessorList([KNOWN[name]()]))(raw.clone(), prefix, drafted)
    alone = KNOWN[name]()
    for row, end in enumerate(range(BEGIN, len(ids) + 1)):
        theirs = alone(torch.tensor([ids[:end]]), raw[row : row + 1].clone())
        torch.testing.assert_close(ours[row : row + 1], theirs, rtol=0, atol=0)
    if name in OTHERS:
        return  # what follows asks for the last row without the ones before it
    single = Processors(LogitsProcessorList([KNOWN[name]()])).single(raw[-1], prefix, drafted)
    torch.testing.assert_close(single, ours[-1], rtol=0, atol=0)


@pytest.mark.parametrize("name", ["repetition", "suppress", "no_repeat_ngram", "bias"])
def test_C3_the_processors_here_change_the_output(name: str) -> None:
    """A penalty that is silently ignored would pass the equality above; these can't be."""
    law = toy_law(0)
    changed = ordinary(law, max_length=LONG, processors=[KNOWN[name]()], stop_tokens=[8]).ids
    assert changed != ordinary(law, max_length=LONG, stop_tokens=[8]).ids


@pytest.mark.parametrize("kind", DRAFTERS)
@pytest.mark.parametrize("least", range(9))
@pytest.mark.parametrize("counted", ["all", "new"])
def test_A7_no_stop_unit_before_the_least_length(counted: str, least: int, kind: str) -> None:
    law = toy_law(0)
    stop = ordinary(law, max_length=LONG).ids[3]

    def make() -> Any:
        if counted == "all":
            return hf.MinLengthLogitsProcessor(BEGIN + least, [stop], device="cpu")
        return hf.MinNewTokensLengthLogitsProcessor(BEGIN, least, [stop], device="cpu")

    run = decode(
        law, drafter_for(kind, law), 5, max_length=LONG, processors=[make()], stop_tokens=[stop]
    )
    expected = ordinary(law, max_length=LONG, processors=[make()], stop_tokens=[stop])
    assert run.ids == expected.ids
    assert len(run.ids) > least


@pytest.mark.parametrize("kind", DRAFTERS)
def test_C1_processors_in_a_chain_keep_their_order(kind: str) -> None:
    names = "repetition", "suppress_at_begin", "temperature", "no_repeat_ngram", "top_k", "min_new"
    for order in itertools.islice(itertools.permutations(names), 0, 720, 171):
        law = toy_law(0)
        run = decode(
            law,
            drafter_for(kind, law),
            4,
            max_length=LONG,
            processors=[KNOWN[name]() for name in order],
        )
        plain = ordinary(law, max_length=LONG, processors=[KNOWN[name]() for name in order])
        assert run.ids == plain.ids


class Presence(LogitsProcessor):
    """A presence penalty with a counter that is fed one token per call: a memory by reference."""

    def __init__(self, penalty: float = 2.5) -> None:
        self.penalty, self.calls, self.counts = penalty, 0, Counter[int]()

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        if self.calls:
            self.counts[int(input_ids[0, -1])] += 1
        self.calls += 1
        scores = scores.clone()
        for token, count in self.counts.items():
            scores[0, token] -= self.penalty * count
        return scores


class Automaton(LogitsProcessor):
    """A grammar: `codes` may be emitted only between `opener` and `closer`, nothing else there.

    It is advanced by the last token at each call, like a matcher of a grammar library.
    """

    opener, closer, codes = 1, 2, (7, 8, 9)

    def __init__(self) -> None:
        self.inside = False
        self.calls = 0
        self.opened: list[int] = []

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        last = int(input_ids[0, -1])
        if self.calls and last in (self.opener, self.closer):
            self.inside = last == self.opener
            self.opened += [self.calls] if self.inside else []
        self.calls += 1
        mask = torch.ones(V, dtype=torch.bool)
        allowed = [*self.codes, self.closer] if self.inside else self._outside()
        mask[allowed] = False
        return scores.masked_fill(mask, -torch.inf)

    def _outside(self) -> list[int]:
        return [token for token in range(V) if token not in (*self.codes, self.closer)]


def memory_of(processor: Any) -> dict[str, Any]:
    return copy.deepcopy(vars(processor))


@pytest.mark.parametrize("kind", DRAFTERS)
@pytest.mark.parametrize("gamma", [0, 1, 4, 30])
@pytest.mark.parametrize("make", [Presence, Automaton])
@pytest.mark.parametrize("law_seed", [0, 1])
def test_C2_C7_a_processor_with_a_memory_remembers_what_was_committed(
    make: Callable[[], Any], gamma: int, kind: str, law_seed: int
) -> None:
    law, ours, plain = toy_law(law_seed), make(), make()
    run = decode(law, drafter_for(kind, law), gamma, max_length=LONG, processors=[ours])
    assert run.ids == ordinary(law, max_length=LONG, processors=[plain]).ids
    assert memory_of(ours) == memory_of(plain)
    assert not run.tally.faults


def test_C2_the_drafts_here_are_accepted_and_rejected_under_a_memory() -> None:
    law = toy_law(0)
    perfect = decode(
        law, drafter_for("perfect", law), 4, max_length=LONG, processors=[Presence()]
    ).tally
    assert perfect.accepted == perfect.proposed > 0
    noisy = decode(
        law, drafter_for("noisy", law), 4, max_length=LONG, processors=[Presence()]
    ).tally
    assert noisy.recovered > 0


def test_C7_the_grammar_opens_and_closes_a_region_inside_a_block() -> None:
    law = toy_law(0)
    run = decode(law, drafter_for("perfect", law), 30, max_length=LONG, processors=[Automaton()])
    assert max(len(block) for block in run.target.blocks[1:] or run.target.blocks) > 10
    assert Automaton.opener in run.ids
    assert Automaton.closer in run.ids[run.ids.index(Automaton.opener) :]
    inside = False
    for token in run.ids:
        assert (token in Automaton.codes or token == Automaton.closer) == inside
        inside = token == Automaton.opener or (inside and token != Automaton.closer)


class Uncopyable(Presence):
    """Its memory can't be copied, as those of compiled matchers can't."""

    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()


class LateUncopyable(Presence):
    """As above, but it builds what can't be copied at its first call."""

    lock: Any = None

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        if self.lock is None:
            self.lock = threading.Lock()
        return super().__call__(input_ids, scores)


@pytest.mark.parametrize("kind", DRAFTERS)
@pytest.mark.parametrize("make", [Uncopyable, LateUncopyable])
@pytest.mark.parametrize("beside", [[], [Presence]])
def test_C2_a_memory_that_cant_be_copied_refuses_blocks_and_says_so(
    make: Callable[[], Any], kind: str, beside: list[Callable[[], Any]]
) -> None:
    law = toy_law(0)
    ours = [make(), *(other() for other in beside)]
    run = decode(law, drafter_for(kind, law), 4, max_length=LONG, processors=ours)
    plain = [make(), *(other() for other in beside)]
    assert run.ids == ordinary(law, max_length=LONG, processors=plain).ids
    assert ours[0].counts == plain[0].counts
    if kind == "none":
        assert not run.tally.faults
    else:
        (fault,) = run.tally.faults
        assert "can't be copied" in fault
        assert make.__name__ in fault
        assert run.tally.accepted == 0


@pytest.mark.parametrize("at", [1, 3, 8])
@pytest.mark.parametrize("kind", ["perfect", "ngram", "switch"])
def test_what_was_drafted_before_the_refusal_stays_its_drafters(kind: str, at: int) -> None:
    """The memory is past copying in the middle of a block: what stands before is kept of it."""

    class Later(Presence):
        lock: Any = None

        def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
            if self.calls == at:
                self.lock = threading.Lock()
            return super().__call__(input_ids, scores)

    law = toy_law(0)
    run = decode(law, drafter_for(kind, law), 4, max_length=LONG, processors=[Later()])
    assert run.ids == ordinary(law, max_length=LONG, processors=[Presence()]).ids
    assert len(run.tally.faults) == 1
    assert "none" not in run.tally.by_drafter
    assert all(origin.drafter != "none" for origin in run.tally.origins())
    assert sum(drafted for drafted, _ in run.tally.by_drafter.values()) == run.tally.proposed > 0


class Shared:
    """A memory outside of the processors that use it."""

    def __init__(self) -> None:
        self.calls = 0


class Counts(LogitsProcessor):
    def __init__(self, shared: Shared) -> None:
        self.shared = shared

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        self.shared.calls += 1
        return scores


class ReadsCount(LogitsProcessor):
    def __init__(self, shared: Shared) -> None:
        self.shared = shared

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        return scores.index_fill(1, torch.tensor([self.shared.calls % V]), -torch.inf)


@pytest.mark.parametrize("kind", DRAFTERS)
def test_C2_a_memory_that_two_processors_share_refuses_blocks_and_says_so(kind: str) -> None:
    law, ours, plain = toy_law(0), Shared(), Shared()
    run = decode(
        law,
        drafter_for(kind, law),
        4,
        max_length=LONG,
        processors=[Counts(ours), ReadsCount(ours)],
    )
    expected = ordinary(law, max_length=LONG, processors=[Counts(plain), ReadsCount(plain)])
    assert run.ids == expected.ids
    assert ours.calls == plain.calls
    assert all("Counts and ReadsCount share a memory" in fault for fault in run.tally.faults)
    assert len(run.tally.faults) == (kind != "none")


class Phases(LogitsProcessor):
    """Keeps what to do next as one of its own methods: its memory refers to itself."""

    def __init__(self) -> None:
        self.calls, self.phase = 0, self.first

    def first(self) -> None:
        self.phase = self.second

    def second(self) -> None:
        self.phase = self.first

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        self.calls += 1
        self.phase()
        forbidden = [self.calls % V, 5 if self.phase == self.first else 8]
        return scores.index_fill(1, torch.tensor(forbidden), -torch.inf)


@pytest.mark.parametrize("kind", DRAFTERS)
def test_C2_a_memory_that_refers_to_its_own_processor(kind: str) -> None:
    law, ours, plain = toy_law(0), Phases(), Phases()
    run = decode(law, drafter_for(kind, law), 4, max_length=LONG, processors=[ours])
    assert run.ids == ordinary(law, max_length=LONG, processors=[plain]).ids
    assert not run.tally.faults
    assert ours.calls == plain.calls
    assert ours.phase in (ours.first, ours.second), "its own method, not that of a copy"
    twin = Processors(LogitsProcessorList([ours])).fork()._processors[0]
    assert twin is not ours
    assert twin.phase.__self__ is twin


def test_models_and_tokenizers_are_remembered_by_reference_and_may_be_shared() -> None:
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel({"a": 0})))
    module = torch.nn.Linear(2, 2)

    def make() -> list[Any]:
        processors = [Presence(), Presence()]
        for processor in processors:
            processor.tokenizer, processor.model = tokenizer, module  # type: ignore[attr-defined]
        return processors

    law, ours = toy_law(0), make()
    run = decode(law, drafter_for("noisy", law), 4, max_length=LONG, processors=ours)
    assert run.ids == ordinary(law, max_length=LONG, processors=make()).ids
    assert not run.tally.faults
    for processor in ours:
        assert processor.tokenizer is tokenizer
        assert processor.model is module


class Slotted(LogitsProcessor):
    """Keeps its memory where `vars` doesn't look."""

    __slots__ = ("calls",)

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        self.calls += 1
        return scores.index_fill(1, torch.tensor([self.calls % V, self.calls * 5 % V]), -torch.inf)


@pytest.mark.parametrize("kind", DRAFTERS)
def test_C2_a_memory_in_slots_is_not_overlooked(kind: str) -> None:
    law = toy_law(0)
    run = decode(law, drafter_for(kind, law), 4, max_length=LONG, processors=[Slotted()])
    assert run.ids == ordinary(law, max_length=LONG, processors=[Slotted()]).ids
    assert len(run.tally.faults) == (kind != "none")


@pytest.mark.parametrize("kind", DRAFTERS)
def test_any_callable_is_a_processor_as_in_transformers(kind: str) -> None:
    class Duck:
        def __init__(self) -> None:
            self.calls = 0

        def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
            self.calls += 1
            return scores.index_fill(1, torch.tensor([self.calls % V]), -torch.inf)

    law = toy_law(0)
    run = decode(law, drafter_for(kind, law), 4, max_length=LONG, processors=[Duck()])
    assert run.ids == ordinary(law, max_length=LONG, processors=[Duck()]).ids


@pytest.mark.parametrize("kind", DRAFTERS)
@pytest.mark.parametrize("name", ["repetition", "top_k", "suppress_at_begin", None])
def test_C6_scores_are_the_ordinary_rows_one_per_unit(kind: str, name: str | None) -> None:
    law = toy_law(1)
    make = [KNOWN[name]] if name else []
    stop = ordinary(law, max_length=LONG).ids[13]
    options: dict[str, Any] = {"max_length": LONG, "stop_tokens": [stop], "collects": True}
    run = decode(law, drafter_for(kind, law), 4, processors=[m() for m in make], **options)
    plain = ordinary(law, processors=[m() for m in make], **options)
    assert_same_scores(run, plain)


def assert_same_scores(run: Run, plain: Any) -> None:
    assert run.ids == plain.ids
    assert run.scores is not None
    for ours, theirs in (
        (run.scores.processed, plain.processed),
        (run.scores.raw, plain.raw),
    ):
        assert len(ours) == len(theirs) == len(run.ids)
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0)


@pytest.mark.parametrize("kind", ["perfect", "noisy"])
def test_Z1_target_and_drafter_never_share_a_processor(kind: str) -> None:
    law = toy_law(0)

    class Watched(Presence):
        called: ClassVar[list[int]] = []

        def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
            Watched.called.append(id(self))
            return super().__call__(input_ids, scores)

    ours = Watched()
    decode(law, drafter_for(kind, law), 4, max_length=LONG, processors=[ours])
    assert id(ours) in Watched.called
    assert len(set(Watched.called)) > 1, "the drafter has its own"
    processors = Processors(LogitsProcessorList([ours, hf.TopKLogitsWarper(3)]))
    fork = processors.fork()
    theirs = {id(step) for step in fork._processors}
    assert not theirs & {id(step) for step in processors._processors}
    assert fork._processors[0].counts == ours.counts
    assert fork._processors[0].counts is not ours.counts


@pytest.mark.parametrize("kind", ["perfect", "noisy"])
def test_Z1_C4_a_begin_rule_begins_once(kind: str) -> None:
    """The drafter's rows know where the output began, not where the round did."""
    law = toy_law(0)

    def make() -> Any:
        return hf.SuppressTokensAtBeginLogitsProcessor([0, 3, 5, 8], BEGIN, device="cpu")

    ours = make()
    run = decode(law, drafter_for(kind, law), 3, max_length=LONG, processors=[ours])
    assert run.ids == ordinary(law, max_length=LONG, processors=[make()]).ids
    assert ours.begin_index == BEGIN
    if kind == "perfect":
        assert run.tally.accepted == run.tally.proposed

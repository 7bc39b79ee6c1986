"""A round that fails leaves everything as it was; a drafter that fails costs nothing but speed."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import LogitsProcessor, StoppingCriteria
from transformers.generation.streamers import BaseStreamer

from mmspec.engine import Sampling
from mmspec.errors import OptionError
from mmspec.prefix import Prefix
from mmspec.proposals import Drafter, ModelDrafter, Outlook, Pick, Proposal, SameVocabulary
from tests.toys import (
    PROMPT,
    Run,
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
KINDS = ("perfect", "noisy", "ngram", "none")


class Broken(Exception):
    """What the tests throw."""


class Fuse:
    """Raises at the n-th call, once."""

    def __init__(self, at: int, error: type[BaseException] = Broken) -> None:
        self.left, self.error = at, error

    def __call__(self, *args: Any) -> None:
        self.left -= 1
        if self.left == 0:
            raise self.error("blown")


class Counting(LogitsProcessor):
    """A memory, and a fuse that isn't part of it."""

    fuse: Callable[..., None] = staticmethod(lambda *args: None)

    def __init__(self) -> None:
        self.seen: list[int] = []

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        self.seen.append(input_ids.shape[1])
        type(self).fuse()
        return scores.index_fill(1, torch.tensor([len(self.seen) % V]), -torch.inf)


def snapshot(run: Run, processor: Counting) -> tuple[Any, ...]:
    prefix = run.session.prefix
    tally = copy.deepcopy(vars(run.tally))
    return list(prefix.ids), prefix.tensor().tolist(), run.target.held, list(processor.seen), tally


def finish(run: Run, error: type[BaseException], processor: Counting) -> int:
    """Decode on through every failure; the number of failures."""
    failures = 0
    while run.session.finish_reason is None:
        before = snapshot(run, processor)
        try:
            run.session.round()
        except error:
            failures += 1
            assert snapshot(run, processor) == before
            assert failures < 3
    return failures


@pytest.mark.parametrize("error", [Broken, KeyboardInterrupt, MemoryError])
@pytest.mark.parametrize("at", [1, 2, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_a_target_that_raises_inside_a_forward(
    kind: str, at: int, error: type[BaseException]
) -> None:
    law = toy_law(0)
    ours, plain = Counting(), Counting()
    run = open_session(law, drafter_for(kind, law), 4, max_length=LONG, processors=[ours])
    run.target.fault = Fuse(at, error)
    assert finish(run, error, ours) == 1
    assert run.session.prefix.emitted == ordinary(law, max_length=LONG, processors=[plain]).ids
    assert ours.seen == plain.seen


@pytest.mark.parametrize("error", [Broken, KeyboardInterrupt])
@pytest.mark.parametrize("at", [1, 2, 4, 7])
@pytest.mark.parametrize("kind", ["noisy", "ngram", "none"])
def test_a_processor_that_raises_at_a_drafted_prefix(
    kind: str, at: int, error: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    law = toy_law(0)
    expected = ordinary(law, max_length=LONG, processors=[Counting()]).ids
    ours = Counting()
    run = open_session(law, drafter_for(kind, law), 4, max_length=LONG, processors=[ours])
    monkeypatch.setattr(Counting, "fuse", staticmethod(Fuse(at, error)))
    finish(run, error, ours)
    assert run.session.prefix.emitted == expected
    assert ours.seen == list(range(len(PROMPT), LONG))


class Blowing(StoppingCriteria):
    """Never ends an output, may raise."""

    def __init__(self, fuse: Fuse) -> None:
        self.fuse = fuse

    def __call__(self, input_ids: Tensor, scores: Any, **kwargs: Any) -> Tensor:
        self.fuse()
        return torch.tensor([False])


@pytest.mark.parametrize("error", [Broken, KeyboardInterrupt])
@pytest.mark.parametrize("at", [1, 2, 3, 6])
@pytest.mark.parametrize("kind", KINDS)
def test_a_criterion_that_raises_inside_a_block(
    kind: str, at: int, error: type[BaseException]
) -> None:
    law = toy_law(0)
    ours = Counting()
    run = open_session(
        law,
        drafter_for(kind, law),
        4,
        max_length=LONG,
        processors=[ours],
        criteria=[Blowing(Fuse(at, error))],
    )
    assert finish(run, error, ours) == 1
    expected = ordinary(law, max_length=LONG, processors=[Counting()]).ids
    assert run.session.prefix.emitted == expected
    assert ours.seen == list(range(len(PROMPT), LONG))


@pytest.mark.parametrize("at", [1, 2, 4])
def test_a_failed_round_rolls_the_drafter_back_too(at: int) -> None:
    """Both states describe the committed prefix again: a copy goes on being accepted."""
    law = toy_law(0)
    drafter = perfect(law)
    run = open_session(law, drafter, 4, max_length=LONG)
    run.target.fault = Fuse(at)
    with pytest.raises(Broken, match="blown"):
        run.session.run()
    assert isinstance(drafter.model, ToyTarget)
    committed = tuple(run.session.prefix.ids)
    assert drafter.model.held == committed[: len(drafter.model.held)]
    assert len(drafter._sequence) <= len(committed)
    run.session.run()
    assert run.session.prefix.emitted == ordinary(law, max_length=LONG).ids
    assert run.tally.accepted == run.tally.proposed


@pytest.mark.parametrize("at", range(1, 12))
def test_an_interrupt_inside_the_drafter_leaves_the_request_intact(at: int) -> None:
    law = toy_law(0)
    drafter = perfect(law)
    assert isinstance(drafter.model, ToyTarget)
    ours = Counting()
    run = open_session(law, drafter, 4, max_length=LONG, processors=[ours])
    drafter.model.fault = Fuse(at, KeyboardInterrupt)
    assert finish(run, KeyboardInterrupt, ours) == 1
    expected = ordinary(law, max_length=LONG, processors=[Counting()]).ids
    assert run.session.prefix.emitted == expected
    assert run.tally.accepted == run.tally.proposed
    assert not run.tally.faults


class Faulty(Drafter):
    """Proposes well, until the n-th call of one of its methods."""

    name = "faulty"

    def __init__(self, where: str, at: int, how: Callable[[int], Any]) -> None:
        self.inner = perfect(toy_law(0))
        self.where, self.left, self.how, self.calls = where, at, how, 0

    def _goes_wrong(self, where: str) -> bool:
        self.left -= where == self.where
        self.calls += 1
        return where == self.where and self.left == 0

    def outlook(self, prefix: Prefix) -> Outlook:
        return self.how(0) if self._goes_wrong("outlook") else self.inner.outlook(prefix)

    def propose(self, prefix: Prefix, limit: int, pick: Pick) -> Proposal:
        if self._goes_wrong("propose"):
            return self.how(limit)
        return self.inner.propose(prefix, limit, pick)

    def commit(self, prefix: Prefix, agreed: int) -> None:
        if self._goes_wrong("commit"):
            self.how(0)
        self.inner.commit(prefix, agreed)


def raises(limit: int) -> Any:
    raise Broken("no idea")


def with_probs(probs: Callable[[int], Tensor]) -> Callable[[int], Proposal]:
    return lambda limit: Proposal((1,) * limit, probs(limit))


BAD_PROPOSALS: dict[str, Callable[[int], Any]] = {
    "raises": raises,
    "nothing of the kind": lambda limit: None,
    "a list": lambda limit: [1, 2],
    "too many": lambda limit: Proposal((1,) * (limit + 1)),
    "beyond the vocabulary": lambda limit: Proposal((1, V)[:limit]),
    "below it": lambda limit: Proposal((-1,)),
    "tensors for ids": lambda limit: Proposal((torch.tensor(1),)),  # type: ignore[arg-type]
    "floats for ids": lambda limit: Proposal((1.0,)),  # type: ignore[arg-type]
    "nan": with_probs(lambda n: torch.full((n, V), torch.nan)),
    "one nan": with_probs(
        lambda n: torch.full((n, V), 1 / V).index_fill(1, torch.tensor([3]), torch.nan)
    ),
    "infinite": with_probs(lambda n: torch.full((n, V), torch.inf)),
    "negative": with_probs(lambda n: torch.eye(V)[[1] * n] * 2 - torch.eye(V)[[2] * n]),
    "not normalised": with_probs(lambda n: torch.ones(n, V)),
    "a row too few": with_probs(lambda n: torch.full((n - 1, V), 1 / V)),
    "another width": with_probs(lambda n: torch.full((n, V + 1), 1 / (V + 1))),
    "flat": with_probs(lambda n: torch.full((V,), 1 / V)),
    "half precision": with_probs(lambda n: torch.eye(V, dtype=torch.float16)[[1] * n]),
    "whole numbers": with_probs(lambda n: torch.eye(V, dtype=torch.long)[[1] * n]),
}


@pytest.mark.parametrize("at", [1, 3])
@pytest.mark.parametrize("name", BAD_PROPOSALS)
@pytest.mark.parametrize(
    "sampling",
    [Sampling(), Sampling(sample=True, seed=3), Sampling(sample=True)],
    ids=["greedy", "seeded", "sampled"],
)
def test_a_bad_proposal_costs_nothing_but_its_drafter(
    name: str, at: int, sampling: Sampling
) -> None:
    law = toy_law(0)
    drafter = Faulty("propose", at, BAD_PROPOSALS[name])
    run = decode(law, drafter, 3, max_length=LONG, sampling=sampling)
    assert len(run.ids) == 20
    if not sampling.sample or sampling.seed is not None:
        assert run.ids == ordinary(law, max_length=LONG, seed=sampling.seed).ids
    (fault,) = run.tally.faults
    assert fault.startswith("drafter faulty dismissed: ")
    assert "\n" not in fault
    assert drafter.left == 0, "it isn't asked again"


@pytest.mark.parametrize("at", [1, 3])
@pytest.mark.parametrize(
    ("where", "how"),
    [("outlook", raises), ("commit", raises), ("outlook", lambda limit: None)],
)
def test_a_drafter_that_fails_elsewhere(where: str, how: Callable[[int], Any], at: int) -> None:
    law = toy_law(0)
    drafter = Faulty(where, at, how)
    run = decode(law, drafter, 3, max_length=LONG)
    assert run.ids == ordinary(law, max_length=LONG).ids
    assert len(run.tally.faults) == 1
    assert drafter.left == 0
    calls = drafter.calls
    assert run.session.round() == ()
    assert drafter.calls == calls


def test_a_drafting_model_that_fails_at_its_third_forward() -> None:
    law = toy_law(0)
    drafter = perfect(law)
    assert isinstance(drafter.model, ToyTarget)
    drafter.model.fault = Fuse(3)
    run = decode(law, drafter, 4, max_length=LONG)
    assert run.ids == ordinary(law, max_length=LONG).ids
    assert run.tally.faults == ["drafter model dismissed: Broken: blown"]


def test_a_drafter_whose_logits_are_nan_costs_nothing() -> None:
    law = toy_law(0)
    model = ToyTarget(lambda prefix: torch.full((V,), torch.nan))
    drafter = ModelDrafter(model, PROMPT, SameVocabulary(V))
    assert decode(law, drafter, 4, max_length=LONG).ids == ordinary(law, max_length=LONG).ids
    model = ToyTarget(lambda prefix: torch.full((V,), torch.nan))
    drafter = ModelDrafter(model, PROMPT, SameVocabulary(V))
    run = decode(law, drafter, 4, max_length=LONG, sampling=Sampling(sample=True))
    assert len(run.ids) == 20
    assert len(run.tally.faults) == 1


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_E4_rows_of_a_drafter_on_another_device_are_moved() -> None:
    law = toy_law(0)
    for sampling in (Sampling(), Sampling(sample=True, seed=1), Sampling(sample=True)):
        drafter = ModelDrafter(
            ToyTarget(lambda prefix: law(prefix).cuda()), PROMPT, SameVocabulary(V)
        )
        run = decode(law, drafter, 4, max_length=LONG, sampling=sampling)
        assert run.tally.accepted == run.tally.proposed > 0
        assert not run.tally.faults


def test_E4_what_a_drafter_draws_from_is_moved_to_the_targets_device() -> None:
    moved: list[torch.device] = []

    class Elsewhere:
        def to(self, device: torch.device) -> Tensor:
            moved.append(device)
            return torch.arange(float(V))

    class Far(Faulty):
        def propose(self, prefix: Prefix, limit: int, pick: Pick) -> Proposal:
            return Proposal((pick(Elsewhere(), 0)[0],))  # type: ignore[arg-type]

    law = toy_law(0)
    run = decode(law, Far("nowhere", 0, raises), 1, max_length=LONG)
    assert set(moved) == {run.target.device}
    assert not run.tally.faults


def test_after_the_end_a_round_does_nothing() -> None:
    law = toy_law(0)
    run = decode(law, perfect(law), 4, max_length=LONG)
    forwards = run.target.forwards
    assert run.session.round() == ()
    assert list(run.session) == []
    assert run.target.forwards == forwards
    assert run.session.prefix.emitted == run.ids


def test_a_session_refuses_a_target_that_has_not_read_the_prompt() -> None:
    target = ToyTarget(toy_law(0))
    target.score([1, 2], keep=1)
    law = toy_law(0)
    run = open_session(law, None, 0)
    session = run.session
    with pytest.raises(OptionError, match=r"state holds 2 positions, the prompt 9"):
        type(session)(
            target,
            PROMPT,
            torch.zeros(1, V),
            drafter=None,
            policy=session._policy,
            sampler=session._sampler,
            processors=session._processors,
            stops=session._stops,
            clock=session.clock,
        )


class Notes(BaseStreamer):
    """Writes down what it gets."""

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self.shapes: list[tuple[int, ...]] = []
        self.ends = 0

    def put(self, value: Tensor) -> None:
        assert not self.ends
        self.tokens += value.tolist()
        self.shapes.append(tuple(value.shape))

    def end(self) -> None:
        self.ends += 1


@pytest.mark.parametrize("kind", ["perfect", "noisy", "ngram", "hypothesis", "none"])
def test_A1_a_streamer_gets_the_committed_units_one_by_one_and_none_after_the_stop(
    kind: str,
) -> None:
    law = toy_law(0)
    for offset in range(8):
        stop = ordinary(law, max_length=LONG).ids[offset]
        notes = Notes()
        run = decode(
            law, drafter_for(kind, law), 5, max_length=LONG, stop_tokens=[stop], streamer=notes
        )
        assert notes.tokens == run.ids
        assert set(notes.shapes) == {(1,)}
        assert notes.ends == 1


def test_a_streamer_sees_nothing_of_a_round_that_failed() -> None:
    law, notes = toy_law(0), Notes()
    run = open_session(law, perfect(law), 4, max_length=LONG, streamer=notes)
    run.target.fault = Fuse(3)
    with pytest.raises(Broken, match="blown"):
        run.session.run()
    assert notes.tokens == run.session.prefix.emitted
    run.session.run()
    assert notes.tokens == ordinary(law, max_length=LONG).ids


class BlownNotes(Notes):
    """Writes down what it gets, until a fuse blows."""

    def __init__(self, fuse: Fuse) -> None:
        super().__init__()
        self.fuse = fuse

    def put(self, value: Tensor) -> None:
        self.fuse()
        super().put(value)


@pytest.mark.parametrize("error", [Broken, KeyboardInterrupt])
@pytest.mark.parametrize("at", [1, 2, 5, 8])
@pytest.mark.parametrize("kind", KINDS)
def test_a_round_whose_streamer_raises_is_done_and_counted(
    kind: str, at: int, error: type[BaseException]
) -> None:
    law = toy_law(0)
    drafter = drafter_for(kind, law)
    run = open_session(law, drafter, 4, max_length=LONG, streamer=BlownNotes(Fuse(at, error)))
    with pytest.raises(error, match="blown"):
        run.session.run()
    assert run.tally.tokens == len(run.session.prefix.emitted) >= at
    assert run.target.held == tuple(run.session.prefix.ids)[: len(run.target.held)]
    run.session.run()
    assert run.session.prefix.emitted == ordinary(law, max_length=LONG).ids
    assert [
        token for done in run.tally.trace for token in done.emitted
    ] == run.session.prefix.emitted
    if kind == "perfect":
        assert run.tally.accepted == run.tally.proposed


@pytest.mark.parametrize("offset", range(4))
def test_an_interrupt_while_the_drafter_hears_of_a_round(offset: int) -> None:
    """The end of the output isn't forgotten, and what was committed is counted and streamed."""
    law, notes = toy_law(0), Notes()
    base = ordinary(law, max_length=LONG).ids
    stop = max(base, key=base.index)
    expected = ordinary(law, max_length=LONG, stop_tokens=[stop]).ids
    rounds = decode(law, perfect(law), 2, max_length=LONG, stop_tokens=[stop]).tally.rounds
    drafter = Faulty("commit", rounds - offset, lambda limit: Fuse(1, KeyboardInterrupt)())
    run = open_session(law, drafter, 2, max_length=LONG, stop_tokens=[stop], streamer=notes)
    with pytest.raises(KeyboardInterrupt, match="blown"):
        run.session.run()
    assert run.tally.tokens == len(run.session.prefix.emitted) == len(notes.tokens)
    run.session.run()
    assert run.session.prefix.emitted == notes.tokens == expected
    assert run.tally.tokens == len(expected)


def test_transformers_text_streamer_prints_what_was_committed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    from transformers import TextStreamer

    class Letters:
        def decode(self, ids: Sequence[int], **kwargs: Any) -> str:
            return " ".join("abcdefghijklm"[token] for token in ids)

    law = toy_law(0)
    decode(law, perfect(law), 4, max_length=LONG, streamer=TextStreamer(Letters()))
    printed = capsys.readouterr().out.split()
    assert printed == ["abcdefghijklm"[token] for token in ordinary(law, max_length=LONG).ids]


@pytest.mark.parametrize("kind", KINDS)
def test_the_iterator_yields_what_a_streamer_gets(kind: str) -> None:
    law = toy_law(0)
    stop = ordinary(law, max_length=LONG).ids[10]
    run = open_session(law, drafter_for(kind, law), 4, max_length=LONG, stop_tokens=[stop])
    tokens: Iterator[int] = iter(run.session)
    first = next(tokens)
    assert run.session.prefix.emitted[0] == first
    assert [first, *tokens] == ordinary(law, max_length=LONG, stop_tokens=[stop]).ids


@pytest.mark.parametrize("gamma", [1, 3, 8])
def test_one_target_forward_per_round_and_none_for_an_undrafted_start(gamma: int) -> None:
    law = toy_law(0)
    for kind in KINDS:
        run = decode(law, drafter_for(kind, law), gamma, max_length=LONG)
        rounds = run.tally.rounds
        prefills = 1
        undrafted_start = kind == "none"
        assert run.target.forwards == prefills + rounds - undrafted_start
    zero = decode(law, perfect(law), 0, max_length=LONG)
    assert zero.target.forwards == 1 + 20 - 1, "γ = 0 is ordinary decoding, forward for forward"
    assert zero.tally.rounds == 20


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("gamma", [1, 4])
def test_accepted_units_are_never_fed_again(kind: str, gamma: int) -> None:
    """Each block starts where the committed prefix was, with one token that isn't in the state."""
    law = toy_law(0)
    run = decode(law, drafter_for(kind, law), gamma, max_length=LONG)
    fed = sum(len(block) for block in run.target.blocks[1:])
    assert fed <= run.tally.proposed + run.tally.rounds
    assert run.target.held == tuple(run.session.prefix.ids)[:-1]
    perfect_run = decode(law, perfect(law), gamma, max_length=LONG)
    sequence = [token for block in perfect_run.target.blocks for token in block]
    assert sequence == list(perfect_run.session.prefix.ids)[: len(sequence)]

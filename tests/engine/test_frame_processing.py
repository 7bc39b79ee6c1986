"""Processors over blocks of frames give what transformers' own give, called step by step."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import LogitsProcessor, LogitsProcessorList
from transformers.generation import logits_process as hf

from mmspec.engine.frames import FRAME_FORMS, FrameProcessors, over_codebooks, register_frame_form
from mmspec.prefix import Frame, FramePrefix
from tests.frame_toys import CPU, FrameLaw, K, V, case, decode, open_session, ordinary

PROMPT: list[Frame] = [(1, 2, 3), (4, 4, 4), (0, 2, 6)]
DRAFTED: Any = [(5, 2, 3), (4, 1, 0), (5, 5, 5), (5, 2, 3)]

Make = Callable[[], Any]


class Rising(LogitsProcessor):
    """Has a memory: forbids one more code of each codebook at every call, then begins anew."""

    def __init__(self) -> None:
        self.calls = 0
        self.seen: list[list[int]] = []

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        self.calls += 1
        self.seen.append(input_ids[:, -1].tolist())
        forbidden = [(self.calls + k) % V for k in range(len(scores))]
        mask = torch.zeros_like(scores).bool()
        mask[range(len(scores)), forbidden] = True
        return scores.masked_fill(mask, -torch.inf)


LOOKS_AT_SCORES: dict[str, Make] = {
    "temperature": lambda: hf.TemperatureLogitsWarper(0.7),
    "top_k": lambda: hf.TopKLogitsWarper(3),
    "top_p": lambda: hf.TopPLogitsWarper(0.8),
    "min_p": lambda: hf.MinPLogitsWarper(0.1),
    "typical": lambda: hf.TypicalLogitsWarper(0.8),
    "epsilon": lambda: hf.EpsilonLogitsWarper(0.05),
    "suppress": lambda: hf.SuppressTokensLogitsProcessor([1, 4], device="cpu"),
    "normalise": hf.LogitNormalization,
}
BY_ROW: dict[str, Make] = {
    "repetition": lambda: hf.RepetitionPenaltyLogitsProcessor(1.8),
    "no_repeat_ngram": lambda: hf.NoRepeatNGramLogitsProcessor(2),
    "min_length": lambda: hf.MinLengthLogitsProcessor(5, [0, 3], device="cpu"),
    "suppress_at_begin": lambda: hf.SuppressTokensAtBeginLogitsProcessor([0, 5], 4, device="cpu"),
    "memory": Rising,
}
KNOWN = LOOKS_AT_SCORES | BY_ROW
GUIDANCE: Make = lambda: hf.ClassifierFreeGuidanceLogitsProcessor(3.0)  # noqa: E731
LISTS: dict[str, list[Make]] = {
    **{name: [make] for name, make in KNOWN.items()},
    "guidance": [GUIDANCE],
    "guidance, then warpers": [GUIDANCE, *(KNOWN[n] for n in ("temperature", "top_k", "top_p"))],
    "temperature, then guidance": [KNOWN["temperature"], GUIDANCE, KNOWN["min_p"]],
    "a penalty before guidance": [KNOWN["repetition"], GUIDANCE, KNOWN["top_k"]],
    "guidance and a memory": [GUIDANCE, Rising, KNOWN["temperature"]],
}


def listed(name: str) -> LogitsProcessorList:
    return LogitsProcessorList([make() for make in LISTS[name]])


def prefix_of() -> FramePrefix:
    prefix = FramePrefix(PROMPT, 12, CPU, K)
    prefix.show_draft(DRAFTED)
    return prefix


def raw_rows(guided: bool) -> Tensor:
    """Rows behind the prompt and every drafted frame, `[n, R, V]`."""
    law = FrameLaw(3, guided=guided)
    frames = [*PROMPT, *DRAFTED]
    return torch.stack([law.pairs(frames[:end]) for end in range(len(PROMPT), len(frames) + 1)])


@pytest.mark.parametrize("name", LISTS)
def test_a_block_gives_the_rows_that_transformers_gives_step_by_step(name: str) -> None:
    raw = raw_rows("guidance" in name)
    ours = FrameProcessors(listed(name), K)(raw.clone(), prefix_of(), DRAFTED)
    theirs, frames = listed(name), [*PROMPT, *DRAFTED]
    assert ours.shape == (len(DRAFTED) + 1, K, V)
    for row, end in enumerate(range(len(PROMPT), len(frames) + 1)):
        ids = torch.tensor(frames[:end]).t()
        torch.testing.assert_close(ours[row], theirs(ids, raw[row].clone()), rtol=0, atol=0)


@pytest.mark.parametrize("name", [name for name in LISTS if "memory" not in name])
def test_a_drafters_single_step_is_the_last_row_of_a_block(name: str) -> None:
    raw = raw_rows("guidance" in name)
    prefix = prefix_of()
    block = FrameProcessors(listed(name), K)(raw.clone(), prefix, DRAFTED)
    before = raw.clone()
    single = FrameProcessors(listed(name), K).single(raw[-1], prefix, DRAFTED)
    torch.testing.assert_close(single, block[-1], rtol=0, atol=0)
    torch.testing.assert_close(raw, before, rtol=0, atol=0)


@pytest.mark.parametrize("name", LISTS)
def test_the_processors_here_change_the_rows(name: str) -> None:
    guided = "guidance" in name
    raw = raw_rows(guided)
    processed = FrameProcessors(listed(name), K)(raw.clone(), prefix_of(), DRAFTED)
    assert not torch.equal(processed, raw[:, :K])


def test_a_drafter_without_an_unconditional_half_is_not_guided() -> None:
    rows = raw_rows(guided=False)
    processors = FrameProcessors(listed("guidance"), K)
    torch.testing.assert_close(processors(rows.clone(), prefix_of(), DRAFTED), rows)


def test_a_penalty_knows_each_codebooks_own_codes() -> None:
    """Code 5 was drafted in every codebook, code 6 was said in the last one only."""
    processors = FrameProcessors(listed("repetition"), K)
    raw = torch.full((5, K, V), 2.0)
    penalised = processors(raw.clone(), prefix_of(), DRAFTED) < raw
    assert penalised[:, :, 6].tolist() == [[False, False, True]] * 5
    assert penalised[:, :, 5].tolist() == [
        [False, False, False],
        [True, False, False],
        [True, False, False],
        [True, True, True],
        [True, True, True],
    ]


@pytest.mark.parametrize("kept", range(len(DRAFTED) + 2))
def test_a_memory_comes_back_as_it_was_after_the_kept_rows(kept: int) -> None:
    memory = Rising()
    processors = FrameProcessors(LogitsProcessorList([memory]), K)
    processors(raw_rows(guided=False), prefix_of(), DRAFTED)
    assert memory.calls == len(DRAFTED) + 1
    processors.commit(kept)
    assert memory.calls == min(kept, len(DRAFTED) + 1)
    assert memory.seen == [list(frame) for frame in [PROMPT[-1], *DRAFTED]][: memory.calls]


@pytest.mark.parametrize("order", ["known rows", "end mark"])
@pytest.mark.parametrize("kind", ["copy", "wrong", "recalling", "lookup", "none"])
@pytest.mark.parametrize("gamma", [0, 1, 4, 30])
def test_C2_a_processor_with_a_memory_remembers_what_was_committed(
    order: str, kind: str, gamma: int
) -> None:
    given, ours, plain = case(order), Rising(), Rising()
    run = decode(given, kind, gamma, processors=[ours])
    assert run.frames == ordinary(given, processors=[plain]).frames
    assert vars(ours) == vars(plain)
    assert not run.tally.faults


def test_a_fork_shares_no_memory() -> None:
    memory = Rising()
    processors = FrameProcessors(LogitsProcessorList([memory]), K)
    fork: Any = processors.fork()
    assert isinstance(fork, FrameProcessors)
    before = copy.deepcopy(vars(memory))
    fork.single(raw_rows(guided=False)[-1], prefix_of(), DRAFTED)
    assert vars(memory) == before


# transformers' penalty looks marks up in the scores, so they must be ids of the heads.
GUIDED = [
    ("known rows", "guidance"),
    ("known rows", "guidance, then warpers"),
    ("end mark", "guidance"),
    ("end mark", "a penalty before guidance"),
]


@pytest.mark.parametrize(("order", "name"), GUIDED)
@pytest.mark.parametrize("kind", ["copy", "unguided", "wrong", "recalling", "lookup", "none"])
def test_the_guided_law_is_what_is_verified(order: str, name: str, kind: str) -> None:
    given = case(order, guided=True)
    plain = ordinary(given, processors=listed(name))
    run = decode(given, kind, 4, processors=listed(name), said=plain.frames)
    assert run.frames == plain.frames
    assert not run.tally.faults
    if kind == "copy":
        assert run.tally.accepted == run.tally.proposed > 0
    if kind == "unguided":
        assert 0 < run.tally.accepted < run.tally.proposed, "guidance changes what is said"


@pytest.mark.parametrize("kind", ["copy", "wrong", "recalling"])
def test_pairs_move_together(kind: str) -> None:
    """Both halves of target and drafter hold the committed frames after every round."""
    given = case("known rows", guided=True)
    run = open_session(given, kind, 3, processors=listed("guidance"))
    while run.session.finish_reason is None:
        run.session.round()
        committed = list(run.session.prefix.ids)
        assert run.target.held(0) == run.target.held(1) == committed[:-1]
        if kind != "recalling":
            model = run.drafter.model
            assert model.held(0) == model.held(1)
            assert model.held(0) == committed[: len(model.held(0))]
    assert run.target.forwards == 1 + run.tally.rounds, "one pass for both halves"


class Doubling(LogitsProcessor):
    """Looks at scores only, which nobody has been told."""

    def __call__(self, input_ids: Any, scores: Tensor) -> Tensor:
        return scores * 2


@contextmanager
def registered(kind: Any, form: Any) -> Iterator[None]:
    register_frame_form(kind)(form)
    try:
        yield
    finally:
        del FRAME_FORMS[kind]


def test_an_adapter_may_add_a_form() -> None:
    raw = raw_rows(guided=False)
    by_row = FrameProcessors(LogitsProcessorList([Doubling()]), K)
    assert by_row.has_memory, "taken for one, as nothing is known of it"
    with registered(Doubling, lambda processor, codebooks: over_codebooks(processor)):
        formed = FrameProcessors(LogitsProcessorList([Doubling()]), K)
    assert not formed.has_memory
    for processors in (by_row, formed):
        torch.testing.assert_close(processors(raw.clone(), prefix_of(), DRAFTED), raw * 2)

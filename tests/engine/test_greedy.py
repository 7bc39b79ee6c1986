"""Greedy decoding with any drafter emits, id for id, what ordinary decoding emits."""

from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import MaxLengthCriteria, StoppingCriteria
from transformers.generation.stopping_criteria import EosTokenCriteria, StopStringCriteria

from tests.toys import (
    DRAFTERS,
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

ROOM = 22
LONG = len(PROMPT) + ROOM


@pytest.mark.parametrize("kind", DRAFTERS)
@pytest.mark.parametrize("gamma", [0, 1, 2, 3, 5, 8, ROOM - 1, ROOM, ROOM + 1, 60])
@pytest.mark.parametrize("law_seed", [0, 1])
def test_any_drafter_and_gamma_emit_the_ordinary_ids(kind: str, gamma: int, law_seed: int) -> None:
    law = toy_law(law_seed)
    run = decode(law, drafter_for(kind, law), gamma, max_length=LONG)
    assert run.ids == ordinary(law, max_length=LONG).ids
    assert run.session.finish_reason == "length"
    assert not run.tally.faults


@pytest.mark.parametrize("length", [1, 2, 3, 7, 8])
@pytest.mark.parametrize("kind", DRAFTERS)
def test_any_prompt_length(kind: str, length: int) -> None:
    law, prompt = toy_law(3), (PROMPT * 2)[:length]
    run = decode(law, drafter_for(kind, law, prompt), 3, prompt=prompt, max_length=length + 14)
    assert run.ids == ordinary(law, prompt, max_length=length + 14).ids


@pytest.mark.parametrize("gamma", [1, 3, 8])
def test_A11_a_copy_of_the_target_is_always_accepted(gamma: int) -> None:
    law = toy_law(0)
    tally = decode(law, perfect(law), gamma, max_length=LONG).tally
    assert tally.proposed == tally.accepted > 0
    assert tally.recovered == 0


def test_another_seed_is_mostly_rejected_and_an_ngram_hits() -> None:
    """The drafters of this suite do what their names say, or the tests above test nothing."""
    law = toy_law(0)
    noisy = decode(law, drafter_for("noisy", law), 4, max_length=LONG).tally
    assert noisy.accepted < noisy.proposed / 2
    ngram = decode(law, drafter_for("ngram", law), 4, max_length=LONG).tally
    assert 0 < ngram.accepted < ngram.proposed
    hypothesis = decode(law, drafter_for("hypothesis", law), 4, max_length=LONG).tally
    assert 0 < hypothesis.accepted < hypothesis.proposed


@pytest.mark.parametrize("kind", DRAFTERS)
@pytest.mark.parametrize("gamma", [3, 5])
def test_A4_never_more_units_than_the_limit(kind: str, gamma: int) -> None:
    law = toy_law(0)
    for room in range(gamma + 3):
        limit = len(PROMPT) + room
        run = decode(law, drafter_for(kind, law), gamma, max_length=limit)
        assert run.ids == ordinary(law, max_length=limit).ids
        assert len(run.ids) == room
        assert run.session.finish_reason == "length"
        assert run.target.state.length <= limit


def test_A4_a_max_length_criterion_is_a_limit_like_any() -> None:
    law = toy_law(0)
    limit = MaxLengthCriteria(len(PROMPT) + 5)
    run = decode(law, perfect(law), 8, max_length=60, criteria=[limit])
    assert run.ids == ordinary(law, max_length=len(PROMPT) + 5).ids


@pytest.mark.parametrize("kind", ["perfect", "noisy", "ngram", "hypothesis"])
@pytest.mark.parametrize("gamma", [3, 8])
@pytest.mark.parametrize("law_seed", range(3))
def test_A1_stops_at_a_stop_unit_at_every_offset_of_a_block(
    kind: str, gamma: int, law_seed: int
) -> None:
    law = toy_law(law_seed)
    base = ordinary(law, max_length=LONG).ids
    for stop in sorted(set(base)):
        expected = ordinary(law, max_length=LONG, stop_tokens=[stop])
        run = decode(law, drafter_for(kind, law), gamma, max_length=LONG, stop_tokens=[stop])
        assert run.ids == expected.ids
        assert run.ids[-1] == stop
        assert stop not in run.ids[:-1]
        assert run.session.finish_reason == "stop"


def test_A1_stop_units_fall_on_every_offset_here() -> None:
    """With everything accepted and γ = 3, the stops above end blocks at offsets 0 to 3."""
    offsets = set()
    for law_seed in range(3):
        base = ordinary(toy_law(law_seed), max_length=LONG).ids
        offsets |= {base.index(stop) % 4 for stop in base}
    assert offsets == {0, 1, 2, 3}


@pytest.mark.parametrize("kind", ["perfect", "noisy", "ngram"])
def test_A2_several_stop_units_and_stop_units_in_the_prompt(kind: str) -> None:
    law = toy_law(0)
    base = ordinary(law, max_length=LONG).ids
    for stops in ({base[3], base[9]}, {base[6], PROMPT[0], PROMPT[3]}, {base[0], base[1]}):
        run = decode(law, drafter_for(kind, law), 5, max_length=LONG, stop_tokens=stops)
        assert run.ids == ordinary(law, max_length=LONG, stop_tokens=stops).ids
        run = decode(
            law,
            drafter_for(kind, law),
            5,
            max_length=LONG,
            criteria=[EosTokenCriteria(sorted(stops))],
        )
        assert run.ids == ordinary(law, max_length=LONG, stop_tokens=stops).ids
        assert run.session.finish_reason == "stop"


@pytest.mark.parametrize("kind", DRAFTERS)
def test_A3_no_stop_unit_at_all_is_legal(kind: str) -> None:
    law = toy_law(2)
    run = decode(law, drafter_for(kind, law), 5, stop_tokens=[], max_length=LONG)
    assert len(run.ids) == ROOM


@pytest.mark.parametrize("rejects_from", range(6))
def test_units_behind_a_drafted_stop_unit_are_not_paid_for(rejects_from: int) -> None:
    law = toy_law(0)
    base = ordinary(law, max_length=LONG).ids
    stop = base[rejects_from]
    run = decode(law, perfect(law), 60, max_length=LONG, stop_tokens=[stop])
    longest = max(len(block) for block in run.target.blocks[1:]) if run.target.blocks[1:] else 0
    assert longest <= base.index(stop) + 1


class FakeTokenizer:
    """As much of a tokenizer as stop strings need: token u is the u-th letter."""

    def get_vocab(self) -> dict[str, int]:
        return {chr(ord("a") + token): token for token in range(V)}

    def __call__(self, text: str, add_special_tokens: bool = False) -> dict[str, list[int]]:
        return {"input_ids": [ord(letter) - ord("a") for letter in text]}

    def _convert_id_to_token(self, token: int) -> str:
        return chr(ord("a") + token)

    def convert_tokens_to_string(self, tokens: list[str]) -> str:
        return "".join(tokens)


@pytest.mark.parametrize("kind", ["perfect", "noisy", "hypothesis", "none"])
@pytest.mark.parametrize("width", [1, 2, 3])
def test_A5_A6_stop_strings_end_the_output_inside_a_block(kind: str, width: int) -> None:
    law = toy_law(0)
    base = ordinary(law, max_length=LONG).ids
    text = "".join(chr(ord("a") + token) for token in base)
    for start in range(0, 12, 2):
        criterion = StopStringCriteria(FakeTokenizer(), [text[start : start + width]])
        expected = ordinary(law, max_length=LONG, criteria=[criterion])
        assert expected.reason == "criterion"
        run = decode(
            law, drafter_for(kind, law), 5, max_length=LONG, criteria=[criterion], collects=True
        )
        assert run.ids == expected.ids
        assert run.session.finish_reason == "criterion"
        assert len(run.scores.processed) == len(run.scores.raw) == len(run.ids)


class StopOn(StoppingCriteria):
    """Ends on a token, and counts how often it was asked and about what."""

    def __init__(self, token: int, kind: Any = torch.tensor) -> None:
        self.token, self.kind = token, kind
        self.asked: list[tuple[int, ...]] = []

    def __call__(self, input_ids: Tensor, scores: Any, **kwargs: Any) -> Any:
        self.asked.append(tuple(input_ids[0].tolist()))
        found = int(input_ids[0, -1]) == self.token
        return torch.tensor([found]) if self.kind is torch.tensor else found


@pytest.mark.parametrize("kind", DRAFTERS)
@pytest.mark.parametrize("offset", range(0, 9))
def test_Z4_a_custom_criterion_ends_the_output_inside_a_block(kind: str, offset: int) -> None:
    law = toy_law(1)
    stop = ordinary(law, max_length=LONG).ids[offset]
    plain, ours = StopOn(stop), StopOn(stop)
    expected = ordinary(law, max_length=LONG, criteria=[plain])
    run = decode(law, drafter_for(kind, law), 5, max_length=LONG, criteria=[ours])
    assert run.ids == expected.ids
    assert run.session.finish_reason == "criterion"
    assert ours.asked == plain.asked, "asked about the same prefixes, in the same order"


def test_Z4_a_criterion_may_answer_with_a_plain_bool() -> None:
    """transformers' list takes both, so both are accepted."""
    law = toy_law(1)
    stop = ordinary(law, max_length=LONG).ids[4]
    run = decode(law, perfect(law), 5, max_length=LONG, criteria=[StopOn(stop, kind=bool)])
    assert run.ids == ordinary(law, max_length=LONG, criteria=[StopOn(stop)]).ids


class StopAfter(StoppingCriteria):
    """Has a memory: ends at the n-th call."""

    def __init__(self, calls: int) -> None:
        self.left = calls

    def __call__(self, input_ids: Tensor, scores: Any, **kwargs: Any) -> Any:
        self.left -= 1
        return torch.tensor([self.left == 0])


@pytest.mark.parametrize("kind", DRAFTERS)
@pytest.mark.parametrize("calls", [1, 2, 5, 6, 7, 11])
def test_Z4_a_criterion_that_counts_its_calls(kind: str, calls: int) -> None:
    law = toy_law(1)
    run = decode(law, drafter_for(kind, law), 5, max_length=LONG, criteria=[StopAfter(calls)])
    assert len(run.ids) == calls


class StopOnRow(StoppingCriteria):
    """Looks at the rows: ends where the last one's highest score passes a limit."""

    def __init__(self, limit: float) -> None:
        self.limit = limit
        self.seen: list[int] = []

    def __call__(self, input_ids: Tensor, scores: Any, **kwargs: Any) -> Any:
        self.seen.append(len(scores))
        return torch.tensor([float(scores[-1].max()) > self.limit])


@pytest.mark.parametrize("kind", ["perfect", "noisy", "none"])
def test_C6_a_criterion_sees_the_rows_up_to_its_own_unit(kind: str) -> None:
    law = toy_law(1)
    highest = [float(row.max()) for row in ordinary(law, max_length=LONG).processed]
    limit = sorted(highest)[-2]  # exceeded once, somewhere
    plain, ours = StopOnRow(limit), StopOnRow(limit)
    expected = ordinary(law, max_length=LONG, criteria=[plain], collects=True)
    run = decode(law, drafter_for(kind, law), 5, max_length=LONG, criteria=[ours], collects=True)
    assert run.ids == expected.ids
    assert ours.seen == plain.seen


@pytest.mark.parametrize("kind", DRAFTERS)
def test_C8_a_second_call_on_the_same_objects_equals_the_first(kind: str) -> None:
    law = toy_law(0)
    stop = ordinary(law, max_length=LONG).ids[15]
    first, second = (
        decode(law, drafter_for(kind, law), 4, max_length=LONG, stop_tokens=[stop])
        for _ in range(2)
    )
    assert first.ids == second.ids
    assert vars(first.tally) == vars(second.tally), "the same rounds, not only the same ids"
    assert first.target.blocks == second.target.blocks


@pytest.mark.parametrize("kind", DRAFTERS)
def test_D11_two_interleaved_requests_equal_separate_ones(kind: str) -> None:
    one, other = toy_law(0), toy_law(7)
    prompts = PROMPT, PROMPT[::-1]
    runs = [
        open_session(law, drafter_for(kind, law, prompt), 4, prompt=prompt, max_length=LONG)
        for law, prompt in zip((one, other), prompts, strict=True)
    ]
    while any(run.session.finish_reason is None for run in runs):
        for run in runs:
            if run.session.finish_reason is None:
                run.session.round()
    for run, law, prompt in zip(runs, (one, other), prompts, strict=True):
        assert run.session.prefix.emitted == ordinary(law, prompt, max_length=LONG).ids


def test_Z2_no_row_of_a_block_depends_on_a_later_unit() -> None:
    """Of the toy, so that the tests above rest on it; adapters are probed in the same way."""
    rows = []
    for last in (4, 5):
        target = ToyTarget(toy_law(0))
        rows.append(target.score([1, 2, 3, last], keep=4))
    torch.testing.assert_close(rows[0][:3], rows[1][:3], rtol=0, atol=0)
    assert not torch.equal(rows[0][3], rows[1][3])

"""The law of the whole adapter: whatever drafts, the ids are those of transformers' `generate`."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import LogitsProcessor, LogitsProcessorList, StoppingCriteria
from transformers.generation.stopping_criteria import StoppingCriteriaList

import mmspec

from .drafting import DRAFTERS, FORCED_HIT, GAMMAS, THREE, drafter_options, emitted, same_ids
from .tiny import (
    CONTEXT,
    DE,
    EN,
    EOS,
    PREVIOUS,
    START,
    TRANSCRIBE,
    english_only,
    features,
    shared,
    tiny,
)


@dataclass(frozen=True, eq=False)
class Scenario:
    """A model and what it is asked."""

    model: Callable[[], Any] = shared
    options: dict[str, Any] = field(default_factory=dict)
    features: Callable[[], Tensor] = features


EN_ = {"language": "en"}
TIMES = {"language": "en", "return_timestamps": True}


@functools.cache
def made(kind: str) -> Any:
    """Models that differ from the common one in what their configs say."""
    forced = {
        "forced": [[1, DE], [2, TRANSCRIBE]],
        "forced-detected": [[1, None], [2, TRANSCRIBE]],
    }
    if kind in forced:
        return tiny(1, says={"forced_decoder_ids": forced[kind]})
    builders: dict[str, Callable[[], Any]] = {
        "english": english_only,
        "eager": lambda: tiny(1, attention="eager"),
        "free": lambda: tiny(1, says={"suppress_tokens": None, "begin_suppress_tokens": None}),
        "free-start": lambda: tiny(5, says={"max_initial_timestamp_index": None}),
        "short-length": lambda: tiny(1, says={"max_length": 11}),
        "two-ends": lambda: tiny(1, says={"eos_token_id": [EOS, 93]}),
    }
    return builders[kind]()


def of(kind: str) -> Callable[[], Any]:
    return functools.partial(made, kind)


SCENARIOS = {
    "language": Scenario(options=EN_),
    "times": Scenario(functools.partial(shared, 5), TIMES),
    "times-detected": Scenario(options={"return_timestamps": True}),
    "times-no-initial-limit": Scenario(of("free-start"), TIMES),
    "detected": Scenario(functools.partial(shared, 7), {}),
    "translate": Scenario(options={"language": "german", "task": "translate"}),
    "english-only": Scenario(of("english")),
    "english-only-times": Scenario(of("english"), {"return_timestamps": True}),
    "forced-ids": Scenario(of("forced")),
    "forced-ids-detected": Scenario(of("forced-detected")),
    "forced-ids-overruled": Scenario(of("forced"), {"language": "en", "task": "translate"}),
    "previous-text": Scenario(options={**EN_, "prompt_ids": torch.tensor([PREVIOUS, 4, 9, 21])}),
    "previous-text-times": Scenario(
        functools.partial(shared, 5), {**TIMES, "prompt_ids": torch.tensor([PREVIOUS, 8, 4])}
    ),
    "forced-hit": Scenario(options={**EN_, "prompt_ids": FORCED_HIT}),
    "eager-attention": Scenario(of("eager"), EN_),
    "nothing-suppressed": Scenario(of("free"), EN_),
    "config-length": Scenario(of("short-length"), EN_),
    "several-end-tokens": Scenario(of("two-ends"), EN_),
    "max-new-tokens": Scenario(options={**EN_, "max_new_tokens": 13}),
    "repetition-penalty": Scenario(options={**EN_, "repetition_penalty": 1.4}),
    "no-repeat-ngram": Scenario(options={**EN_, "no_repeat_ngram_size": 2}),
    "min-new-tokens": Scenario(functools.partial(shared, 9), {**EN_, "min_new_tokens": 20}),
    "bad-words": Scenario(options={**EN_, "bad_words_ids": [[93], [51, 95]]}),
    "sequence-bias": Scenario(options={**EN_, "sequence_bias": [[[93], -6.0], [[4, 4], 4.0]]}),
    "forced-end": Scenario(options={**EN_, "max_new_tokens": 9, "forced_eos_token_id": EOS}),
    "length-decay": Scenario(options={**EN_, "exponential_decay_length_penalty": (5, 1.3)}),
    "renormalized": Scenario(options={**EN_, "renormalize_logits": True}),
    "other-features": Scenario(options=EN_, features=functools.partial(features, 12)),
}


@functools.cache
def expected(name: str) -> Tensor:
    scenario = SCENARIOS[name]
    return scenario.model().generate(scenario.features(), **scenario.options)


def check(name: str, drafter: str, gamma: int | str) -> Any:
    scenario, want = SCENARIOS[name], expected(name)
    model = scenario.model()
    chosen = drafter_options(drafter, model, emitted(want))
    made = mmspec.generate(model, scenario.features(), gamma=gamma, **chosen, **scenario.options)
    same_ids(made.sequences, want)
    faults = [fault for report in made.reports for fault in report.faults]
    assert not faults
    return made


def test_the_scenarios_are_not_trivial() -> None:
    lengths = {name: expected(name).shape[1] for name in SCENARIOS}
    assert min(lengths.values()) >= 4, lengths
    assert len({tuple(expected(name)[0].tolist()) for name in SCENARIOS}) > 20


@pytest.mark.parametrize("gamma", GAMMAS)
@pytest.mark.parametrize("drafter", DRAFTERS)
def test_same_ids_for_every_drafter_and_gamma(drafter: str, gamma: int | str) -> None:
    check("language", drafter, gamma)


@pytest.mark.parametrize("drafter", DRAFTERS)
def test_same_ids_over_several_goes(drafter: str) -> None:
    made = check("times", drafter, 3)
    assert len(made.reports) >= 2


def rotating() -> dict[str, list[tuple[str, int | str]]]:
    """Every scenario with the three telling drafters and two more, gammas in turn."""
    others = itertools.cycle(sorted(set(DRAFTERS) - set(THREE)))
    gammas: Iterator[int | str] = itertools.cycle((4, "adaptive", 3, 7, 1, 2))
    return {
        name: [(drafter, next(gammas)) for drafter in (*THREE, next(others), next(others))]
        for name in sorted(set(SCENARIOS) - {"language", "times"})
    }


ROTATING = rotating()


@pytest.mark.parametrize("turn", range(5))
@pytest.mark.parametrize("name", ROTATING)
def test_same_ids_for_every_scenario(name: str, turn: int) -> None:
    check(name, *ROTATING[name][turn])


@pytest.mark.parametrize("drafter", THREE)
@pytest.mark.parametrize("name", ["language", "times", "previous-text"])
def test_custom_generate_is_a_drop_in(name: str, drafter: str) -> None:
    scenario, want = SCENARIOS[name], expected(name)
    model = scenario.model()
    chosen = drafter_options(drafter, model, emitted(want))
    loop = mmspec.custom_generate(gamma=3, **chosen)
    for _ in range(2):  # the second call equals the first
        got = model.generate(scenario.features(), custom_generate=loop, **scenario.options)
        same_ids(got, want)
    assert sum(report.tokens for report in loop.history) > 0


@pytest.mark.parametrize(
    ("drafter", "gamma"), [("same-weights", 4), ("other-seed", 3), ("ngram", 5)]
)
@pytest.mark.parametrize("prompt_length", range(0, 12))
def test_odd_prompt_lengths(prompt_length: int, drafter: str, gamma: int) -> None:
    model, options = shared(), {"language": "en"}
    if prompt_length:
        words = [PREVIOUS, *range(4, 3 + prompt_length)]
        options["prompt_ids"] = torch.tensor(words)  # type: ignore[assignment]
    want = model.generate(features(), **options)
    chosen = drafter_options(drafter, model, [])
    same_ids(mmspec.generate(model, features(), gamma=gamma, **chosen, **options).sequences, want)


class Counting(LogitsProcessor):
    """Pushes down what it has seen chosen before: a processor with a memory."""

    def __init__(self) -> None:
        self.counts: dict[int, int] = {}
        self.length = 0

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        for token in input_ids[0, self.length :].tolist():
            self.counts[token] = self.counts.get(token, 0) + 1
        self.length = input_ids.shape[1]
        scores = scores.clone()
        for token, count in self.counts.items():
            scores[:, token] -= 0.8 * count
        return scores


class EveryThird(LogitsProcessor):
    """Counts its calls: wrong as soon as it is called once too often or too seldom."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        self.calls += 1
        if self.calls % 3 == 0:
            scores = scores.roll(1, dims=-1)
        return scores


class StopAt(StoppingCriteria):
    def __init__(self, token: int) -> None:
        self.token = token

    def __call__(self, input_ids: Tensor, scores: Any, **kwargs: Any) -> Tensor:
        return input_ids[:, -1] == self.token


class StopAfterCalls(StoppingCriteria):
    """A criterion with a memory."""

    def __init__(self, calls: int) -> None:
        self.calls = calls

    def __call__(self, input_ids: Tensor, scores: Any, **kwargs: Any) -> Tensor:
        self.calls -= 1
        return torch.full((len(input_ids),), self.calls <= 0)


@pytest.mark.parametrize("kind", [Counting, EveryThird])
@pytest.mark.parametrize("drafter", THREE)
@pytest.mark.parametrize("gamma", [0, 3, 40])
def test_processors_with_a_memory(kind: type[LogitsProcessor], drafter: str, gamma: int) -> None:
    model = shared()
    want = model.generate(features(), language="en", logits_processor=LogitsProcessorList([kind()]))
    chosen = drafter_options(drafter, model, [])
    for processors in ([kind()], LogitsProcessorList([kind()])):
        got = mmspec.generate(
            model, features(), gamma=gamma, language="en", logits_processor=processors, **chosen
        )
        same_ids(got.sequences, want)


@pytest.mark.parametrize("drafter", THREE)
@pytest.mark.parametrize("position", [1, 2, 3, 5, 8, 13, 21])
def test_a_criterion_ends_the_output_where_plain_decoding_does(drafter: str, position: int) -> None:
    model = shared()
    plain = emitted(expected("language"))
    chosen = drafter_options(drafter, model, [])
    for make in (lambda: StopAt(plain[position]), lambda: StopAfterCalls(position)):
        want = model.generate(
            features(), language="en", stopping_criteria=StoppingCriteriaList([make()])
        )
        got = mmspec.generate(
            model, features(), gamma=4, language="en", stopping_criteria=[make()], **chosen
        )
        same_ids(got.sequences, want)


@pytest.mark.parametrize("drafter", [*THREE, "none", "hypothesis-right"])
@pytest.mark.parametrize("options", [{"repetition_penalty": 1.3}, {}])
def test_scores_and_logits_are_those_of_plain_decoding(
    drafter: str, options: dict[str, Any]
) -> None:
    model = shared()
    asked = {
        "language": "en",
        "return_dict_in_generate": True,
        "output_scores": True,
        "output_logits": True,
        **options,
    }
    want = model.generate(features(), **asked)
    chosen = drafter_options(drafter, model, emitted(want.sequences[:, 4:]))
    hypothesis = {key: chosen.pop(key) for key in ("hypothesis",) if key in chosen}
    loop = mmspec.custom_generate(gamma=4, **chosen, **hypothesis)
    got = model.generate(features(), custom_generate=loop, **asked)
    same_ids(got.sequences, want.sequences)
    for kind in ("scores", "logits"):
        mine, theirs = getattr(got, kind), getattr(want, kind)
        assert len(mine) == len(theirs) == loop.report.tokens
        for row, reference in zip(mine, theirs, strict=True):
            torch.testing.assert_close(row, reference, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("drafter", THREE)
@pytest.mark.parametrize("timestamps", [False, True])
def test_rows_of_a_batch_are_their_single_runs(drafter: str, timestamps: bool) -> None:
    model, batch = shared(5), torch.cat([features(seed) for seed in (5, 6, 12)])
    asked = {"language": "en", "return_timestamps": timestamps}
    want = model.generate(batch, **asked)
    chosen = drafter_options(drafter, model, [])
    got = mmspec.generate(model, batch, gamma=4, **asked, **chosen)
    same_ids(got.sequences, want)
    for row in range(len(batch)):
        alone = model.generate(batch[row : row + 1], **asked)
        same_ids(got.sequences[row : row + 1, : alone.shape[1]], alone)


def test_a_batch_of_languages() -> None:
    model, batch = shared(), torch.cat([features(seed) for seed in (5, 6)])
    want = model.generate(batch, language=["en", "de"])
    got = mmspec.generate(model, batch, draft="ngram", gamma=3, language=["en", "de"])
    same_ids(got.sequences, want)


def test_left_padded_prompts_are_decoded_ordinarily() -> None:
    model, batch = shared(), torch.cat([features(seed) for seed in (5, 6)])
    prompts = torch.tensor(
        [[EOS, EOS, START, EN, TRANSCRIBE], [PREVIOUS, 4, START, EN, TRANSCRIBE]]
    )
    asked = {"decoder_input_ids": prompts, "decoder_attention_mask": (prompts != EOS).long()}
    want = model.generate(batch, **asked)
    got = model.generate(batch, custom_generate=mmspec.custom_generate("ngram", gamma=4), **asked)
    same_ids(got, want)


@pytest.mark.parametrize("room", range(0, 6))
@pytest.mark.parametrize("drafter", THREE)
def test_the_context_ends_inside_a_block(room: int, drafter: str) -> None:
    """The prompt leaves so few positions that drafts would pass the end."""
    model = tiny(1, context=24)
    words = [PREVIOUS, *(4 + i % 9 for i in range(24 - 5 - room))]
    asked = {"language": "en", "prompt_ids": torch.tensor(words)}
    chosen = drafter_options(drafter, model, [])
    if room == 0:
        with pytest.raises((mmspec.MMSpecError, ValueError), match="input_ids"):
            mmspec.generate(model, features(), gamma=4, **asked, **chosen)
        return
    want = model.generate(features(), **asked)
    assert want.shape[1] == room
    same_ids(mmspec.generate(model, features(), gamma=4, **asked, **chosen).sequences, want)


def test_the_whole_context_is_used() -> None:
    for drafter in THREE:
        made = check("language", drafter, 40)
        assert made.report.tokens + 4 == CONTEXT
        assert made.report.finish_reason == "length"

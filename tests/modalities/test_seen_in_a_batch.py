"""What a caller's own code is shown of a batch is what transformers shows it: columns and rows."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import (
    LogitsProcessor,
    LogitsProcessorList,
    StoppingCriteria,
    StoppingCriteriaList,
)

import mmspec
from mmspec import generation

from . import tiny as whisper
from . import tiny_crossing
from .drafting import same_ids
from .prefix_runs import model_of
from .speech import bed_higgs_audio as higgs
from .tiny_prefix import inputs


class ByWidth(LogitsProcessor):
    """Makes a token likelier by how wide the batch is."""

    def __call__(self, ids: Tensor, scores: Tensor) -> Tensor:
        scores = scores.clone()
        scores[:, 3 + ids.shape[1] % 80] += 30.0
        return scores


class AtWidth(StoppingCriteria):
    """Ends all rows at a width."""

    def __call__(self, ids: Tensor, scores: Any, **more: Any) -> Tensor:
        return torch.full((len(ids),), ids.shape[1] >= 22)


def by_row(row: int, ids: Tensor) -> list[int]:
    return [10 + row, 20 + row, 30]


OPTIONS: dict[str, dict[str, Any]] = {
    "a processor": {"logits_processor": LogitsProcessorList([ByWidth()])},
    "a criterion": {"stopping_criteria": StoppingCriteriaList([AtWidth()]), "eos_token_id": 98},
    "a penalty on the prompt": {"encoder_repetition_penalty": 3.0},
    "a function of rows": {"prefix_allowed_tokens_fn": by_row},
    "several of each": {
        "prefix_allowed_tokens_fn": by_row,
        "do_sample": True,
        "temperature": 1e-5,
        "num_return_sequences": 2,
    },
}


def both(options: dict[str, Any], *cases: str, seed: int = 0) -> tuple[Tensor, Any]:
    model = model_of("llava")
    batch = inputs("llava", model, cases, seed=seed)
    asked = {"max_new_tokens": 8, "do_sample": False, "eos_token_id": None}
    want = model.generate(**batch, **copy.deepcopy({**asked, **options}))
    got = mmspec.generate(model, batch, "ngram", gamma=3, **copy.deepcopy({**asked, **options}))
    return want, got


@pytest.mark.parametrize("name", OPTIONS)
def test_a_padded_batch(name: str) -> None:
    for seed in range(4):
        want, got = both(OPTIONS[name], "text", "images", seed=seed)
        same_ids(got.sequences, want)
        left_to_the_library = name == "a penalty on the prompt"
        assert len(got.reports) == (0 if left_to_the_library else len(want))


def test_a_function_of_rows_beside_rows_of_one_length() -> None:
    want, got = both(OPTIONS["a function of rows"], "text", "text")
    assert want[0, -1] != want[1, -1]
    same_ids(got.sequences, want)


def test_what_sees_nothing_of_the_padding_is_speculated_upon() -> None:
    for options in ({}, {"repetition_penalty": 1.3, "no_repeat_ngram_size": 2}):
        want, got = both(options, "text", "images")
        same_ids(got.sequences, want)
        assert len(got.reports) == 2


@pytest.mark.parametrize("name", ["a processor", "a criterion", "a function of rows"])
def test_shown_its_row_alone_it_would_say_something_else(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tests above see the fault that they are for."""
    monkeypatch.setattr(generation, "as_in_batch", lambda options, *of_row: options)
    pairs = [both(OPTIONS[name], "text", "images", seed=seed) for seed in range(4)]
    assert not all(torch.equal(got.sequences, want) for want, got in pairs)


def test_images_that_were_encoded_already_are_counted() -> None:
    """They are no tensor with an axis of rows, and only the first was decoded once."""
    model = tiny_crossing.tiny("trocr")
    with torch.no_grad():
        pixels = tiny_crossing.inputs("trocr", model, "image", rows=3)["pixel_values"]
        three, one = (model.get_encoder()(some) for some in (pixels, pixels[:1]))
    with pytest.raises(mmspec.MMSpecError, match=r"encoder_outputs: .* of 3 rows"):
        mmspec.generate(model, {"encoder_outputs": three}, max_new_tokens=3)
    got = mmspec.generate(model, {"encoder_outputs": one}, max_new_tokens=3).sequences
    same_ids(got, model.generate(encoder_outputs=one, max_new_tokens=3))


def test_a_loop_for_a_model_that_speaks_is_refused_in_a_line() -> None:
    loop = mmspec.custom_generate("ngram")
    with pytest.raises(mmspec.MMSpecError, match=r"says codes.*mmspec\.generate") as error:
        higgs.tiny().generate(**higgs.inputs(), max_new_tokens=4, custom_generate=loop)
    assert "\n" not in str(error.value)


def test_one_prompt_for_several_recordings_fails_as_in_transformers() -> None:
    """Its own loop can't take them either; the error is that one's."""

    def error_of(call: Callable[[], Any]) -> tuple[type, str]:
        with pytest.raises(Exception) as error:  # noqa: PT011
            call()
        return error.type, str(error.value)

    model, features = whisper.shared(), whisper.features(rows=2)
    prompt = torch.tensor([[whisper.START, whisper.EN, whisper.TRANSCRIBE, whisper.NO_TIMES]])
    asked: dict[str, Any] = {"decoder_input_ids": prompt, "max_new_tokens": 4}
    asked["attention_mask"] = torch.ones(2, whisper.FRAMES, dtype=torch.long)
    want = error_of(lambda: model.generate(features, **asked))
    loop = mmspec.custom_generate("ngram")
    assert error_of(lambda: model.generate(features, custom_generate=loop, **asked)) == want
    assert "2 rows, prompts of 1" in str(loop.ordinary)


class AfterSeven(StoppingCriteria):
    """A row ends behind a token that 7 divides."""

    def __call__(self, ids: Tensor, scores: Any, **more: Any) -> Tensor:
        return ids[:, -1] % 7 == 0


@pytest.mark.parametrize("seed", range(3))
def test_without_an_end_a_row_speaks_on_until_the_others_have_ended(seed: int) -> None:
    """The library fills up with padding only where it knows an end."""
    model = tiny_crossing.tiny("donut", seed)
    given = tiny_crossing.inputs("donut", model, "prompted", rows=3)
    asked: dict[str, Any] = {"eos_token_id": None, "max_new_tokens": 12}
    asked["stopping_criteria"] = StoppingCriteriaList([AfterSeven()])
    want = model.generate(**given, **copy.deepcopy(asked))
    same_ids(mmspec.generate(model, given, "ngram", **asked).sequences, want)

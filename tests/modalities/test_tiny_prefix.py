"""The tiny prefix models are a test bed only if what they say depends on what they are shown."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
from torch import Tensor

from .tiny_prefix import CASES, EOS, MEDIA, NAMES, VOCAB, inputs, tiny

every_family = pytest.mark.parametrize("name", NAMES)

model_of = functools.cache(tiny)


def said(model: Any, given: dict[str, Tensor], tokens: int = 24) -> list[list[int]]:
    made = model.generate(**given, max_new_tokens=tokens, do_sample=False)
    return made[:, given["input_ids"].shape[1] :].tolist()


@every_family
def test_says_different_units_to_different_prompts(name: str) -> None:
    outputs = [said(model_of(name), inputs(name, model_of(name), case), 16)[0] for case in CASES]
    assert len(set(map(tuple, outputs))) == len(CASES)
    assert len({token for output in outputs for token in output}) > 20
    assert len(set(outputs[0])) >= 6


@every_family
def test_listens_to_the_image(name: str) -> None:
    model = model_of(name)
    given = inputs(name, model, "image")
    other = dict(given)
    seen = "input_features" if "input_features" in given else "pixel_values"
    other[seen] = -given[seen]
    assert said(model, given, 8) != said(model, other, 8)


@every_family
def test_the_placeholders_are_as_many_as_the_features(name: str) -> None:
    model = model_of(name)
    for case in CASES:
        given = inputs(name, model, case)
        some = (given["input_ids"] == MEDIA).any()
        assert some == (case != "text") == ("pixel_values" in given or "input_features" in given)
        with torch.no_grad():
            model(**given)
        if some:  # not one fewer, else the forward had failed, and here not one more
            given["input_ids"][0, -1] = MEDIA
            with pytest.raises((ValueError, RuntimeError), match=r"tokens|elements"):
                model(**given)


@every_family
def test_rows_of_a_batch_are_those_of_the_next_seeds(name: str) -> None:
    model = model_of(name)
    together = inputs(name, model, ("image", "text", "images"), seed=4)
    assert (together["attention_mask"] == 0).any()
    rows = said(model, together, 6)
    for row, case in enumerate(("image", "text", "images")):
        alone = said(model, inputs(name, model, case, seed=4 + row), 6)[0]
        assert rows[row][: len(alone)] == alone


@every_family
def test_a_seed_decides_everything_and_a_drafter_is_a_smaller_sibling(name: str) -> None:
    again, drafter = tiny(name), tiny(name, seed=1, layers=1)
    pairs = zip(model_of(name).parameters(), again.parameters(), strict=True)
    assert all(torch.equal(one, other) for one, other in pairs)
    assert len(drafter.get_decoder().layers) == 1 < len(again.get_decoder().layers)
    given = inputs(name, drafter, "image")
    assert said(drafter, given, 8) != said(again, given, 8)
    assert drafter.get_output_embeddings().weight.shape[0] == VOCAB


def test_an_output_may_end_early() -> None:
    model = model_of("internvl")
    output = said(model, inputs("internvl", model, "text"))[0]
    assert output[-1] == EOS
    assert len(output) < 24

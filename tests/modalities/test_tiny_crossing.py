"""The test bed itself: what the tiny models say varies and hangs on their input."""

from __future__ import annotations

import functools
from typing import Any

import pytest
from torch import Tensor

from .tiny_crossing import CASES, FAMILIES, PROMPT, inputs, tiny

LENGTH = 24


@functools.cache
def model_of(name: str) -> Any:
    return tiny(name)


def plain(name: str, given: dict[str, Tensor], length: int = LENGTH) -> Tensor:
    """Greedy output `[rows, length]`, without what it goes on from."""
    settings = {"max_new_tokens": length, "min_new_tokens": length, "do_sample": False}
    return model_of(name).generate(**given, **settings)[:, -length:]


@functools.cache
def said(name: str, case: str, seed: int = 0) -> Tensor:
    return plain(name, inputs(name, model_of(name), case, seed=seed))[0]


@pytest.mark.parametrize(("name", "case"), CASES)
def test_output_varies(name: str, case: str) -> None:
    assert len(said(name, case).unique()) >= 6


@pytest.mark.parametrize(("name", "case"), [pair for pair in CASES if pair[1] != "text"])
def test_output_hangs_on_the_image(name: str, case: str) -> None:
    model = model_of(name)
    pixels = "flattened_patches" if name == "pix2struct" else "pixel_values"
    other = inputs(name, model, case, seed=2)[pixels]
    with_other = plain(name, {**inputs(name, model, case), pixels: other})[0]
    assert said(name, case).tolist() != with_other.tolist()


@pytest.mark.parametrize(("name", "case"), CASES)
def test_rows_of_a_batch_are_its_inputs(name: str, case: str) -> None:
    together = plain(name, inputs(name, model_of(name), case, rows=2), length=8)
    for row in range(2):
        assert together[row].tolist() == said(name, case, row)[:8].tolist()


@pytest.mark.parametrize("name", FAMILIES)
def test_small_drafter(name: str) -> None:
    drafter = tiny(name, seed=1, layers=1)
    assert sum(p.numel() for p in drafter.parameters()) < sum(
        p.numel() for p in model_of(name).parameters()
    )
    case = FAMILIES[name].cases[0]
    output = drafter.generate(**inputs(name, drafter, case), max_new_tokens=3, do_sample=False)
    assert output.shape[0] == 1


def test_ragged_prompts_are_padded_where_the_tokenizer_pads() -> None:
    left = inputs("mllama", model_of("mllama"), "image", rows=2, ragged=True)["attention_mask"]
    right = inputs("florence2", model_of("florence2"), "text", rows=2, ragged=True)
    assert left.tolist() == [[0] + [1] * (PROMPT + 2), [1] * (PROMPT + 3)]
    assert right["attention_mask"].tolist() == [[1] * (PROMPT + 2) + [0], [1] * (PROMPT + 3)]


def test_unknown_case() -> None:
    with pytest.raises(ValueError, match=r"trocr knows \('image',\), not 'text'"):
        inputs("trocr", model_of("trocr"), "text")

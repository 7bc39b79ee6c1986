"""What each token of an answer owes to the images: against the model's own forward pass."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
from torch import Tensor

from mmspec.modalities.base.checkpoint import Checkpoint
from mmspec.modalities.base.preparation import prepare
from mmspec.modalities.vlm.grounding import log_prob_drops_without_images

from .tiny_prefix import inputs, tiny

model_of = functools.cache(tiny)

IDS = [5, 60, 7, 31]
"""Some tokens; it doesn't matter who said them."""


def shown(given: dict[str, Tensor], value: float) -> dict[str, Tensor]:
    return {**given, "pixel_values": torch.full_like(given["pixel_values"], value)}


def drops(name: str, seen: dict[str, Tensor], unseen: dict[str, Tensor]) -> tuple[float, ...]:
    model = model_of(name)
    prepared = [prepare(model, given, max_new_tokens=8) for given in (seen, unseen)]
    return log_prob_drops_without_images(Checkpoint.of(model).family, *prepared, IDS)


@torch.no_grad()
def log_probs(model: Any, given: dict[str, Tensor]) -> Tensor:
    """Of each token, from one pass over prompt and tokens."""
    ids, count = given["input_ids"], len(IDS)
    behind = {
        name: torch.cat([value, value.new_full((1, count), name == "attention_mask")], 1)
        for name, value in given.items()
        if value.shape == ids.shape
    }
    behind["input_ids"] = torch.cat([ids, torch.tensor([IDS])], 1)
    laws = model(**{**given, **behind}).logits[0, -count - 1 : -1].log_softmax(-1)
    return laws.gather(-1, torch.tensor(IDS)[:, None])[:, 0]


@pytest.mark.parametrize("name", ["llava", "qwen2_vl", "idefics3"])
def test_drops_are_what_whole_passes_say(name: str) -> None:
    model = model_of(name)
    given = inputs(name, model, "image")
    grey = shown(given, 0.1)
    expected = log_probs(model, given) - log_probs(model, grey)
    found = torch.tensor(drops(name, given, grey))
    torch.testing.assert_close(found, expected, atol=2e-3, rtol=1e-3)
    assert found.abs().max() > 0.1
    torch.testing.assert_close(torch.tensor(drops(name, grey, given)), -found)


def test_nothing_is_owed_to_an_image_that_shows_nothing() -> None:
    grey = shown(inputs("llava", model_of("llava"), "image"), 0.1)
    assert drops("llava", grey, dict(grey)) == (0.0,) * len(IDS)


def test_no_units_take_no_passes() -> None:
    family: Any = None
    assert log_prob_drops_without_images(family, family, family, []) == ()

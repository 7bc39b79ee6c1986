"""Models that aren't plain: wrapped, or with layers that blocks can't run through."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

import mmspec
from mmspec.errors import ModelError
from mmspec.modalities.base.layers import mixes_rows, seen_through

from . import tiny


class Adapted(torch.nn.Module):
    """What PEFT's wrapper looks like: `generate` takes nothing by position."""

    def __init__(self, model: Any, adds_to_the_prompt: bool = False) -> None:
        super().__init__()
        self.inner = model
        config = type("Config", (), {"is_prompt_learning": adds_to_the_prompt})
        self.peft_config = {"default": config()}

    def get_base_model(self) -> Any:
        return self.inner

    def generate(self, **options: Any) -> Any:
        return self.inner.generate(**options)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("inner"), name)


def quantised(model: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.ao.quantization.quantize_dynamic(
            model, {torch.nn.Linear}, dtype=torch.qint8
        ).eval()


def test_a_wrapper_is_seen_through_wherever_a_model_is_taken() -> None:
    model = tiny.tiny()
    wrapped, features = Adapted(model), tiny.features()
    want = model.generate(features, max_new_tokens=12)
    for inputs in (features, {"input_features": features}, {"inputs": features}):
        found = mmspec.generate(wrapped, inputs, "ngram", max_new_tokens=12).sequences
        assert torch.equal(want, found)
    loop = mmspec.custom_generate(wrapped)
    assert torch.equal(want, model.generate(features, max_new_tokens=12, custom_generate=loop))
    with mmspec.load(wrapped, processor=tiny.tiny_processor()) as recogniser:
        assert recogniser.model is model
    assert seen_through(model) is model
    assert seen_through("a name") == "a name"


def test_a_wrapper_that_adds_to_the_prompt_is_refused_in_a_line() -> None:
    with pytest.raises(ModelError, match="adds to the prompt"):
        mmspec.load(Adapted(tiny.tiny(), adds_to_the_prompt=True))


@pytest.mark.parametrize("draft", ["none", "early-exit:1"])
def test_dynamic_int8_is_left_to_transformers_own_loop_and_says_why(draft: str) -> None:
    model, features = quantised(tiny.tiny()), tiny.features()
    assert mixes_rows(model)
    assert not mixes_rows(tiny.shared())
    loop = mmspec.custom_generate(draft)
    want = model.generate(features, max_new_tokens=12)
    assert torch.equal(want, model.generate(features, max_new_tokens=12, custom_generate=loop))
    assert "quantised" in str(loop.ordinary)


@pytest.mark.parametrize(
    "use",
    [
        lambda model: mmspec.load(model),
        lambda model: tiny.tiny().generate(
            tiny.features(), custom_generate=mmspec.custom_generate(model)
        ),
    ],
)
def test_dynamic_int8_is_refused_in_a_line_where_there_is_no_other_loop(
    use: Callable[[Any], Any],
) -> None:
    with pytest.raises(ModelError, match="dynamically quantised"):
        use(quantised(tiny.tiny()))

"""A fast pass stands in only for what is proven to do what its class says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.modules import module as torch_module
from torch.nn.utils import parametrize

from mmspec.kernels import first_oddity, oddity
from mmspec.kernels.plain import Part


class Own(nn.Linear):
    """A layer of a user's."""


class Weight(nn.Parameter):
    """A weight of another kind."""


def hooked(layer: nn.Linear) -> None:
    layer.register_forward_hook(lambda *_: None)


def hooked_before(layer: nn.Linear) -> None:
    layer.register_forward_pre_hook(lambda *_: None)


def with_a_forward(layer: nn.Linear) -> None:
    layer.forward = lambda x: x  # type: ignore[method-assign]


def parametrized(layer: nn.Linear) -> None:
    parametrize.register_parametrization(layer, "weight", nn.Identity())


def of_another_class(layer: nn.Linear) -> None:
    layer.__class__ = Own


def with_another_kind_of_weight(layer: nn.Linear) -> None:
    weight = layer.weight.detach().as_subclass(Weight)
    layer._parameters["weight"] = weight  # as quantising libraries have it


ODD: dict[Callable[[nn.Linear], None], str] = {
    hooked: "hooks",
    hooked_before: "hooks",
    with_a_forward: "has a forward of its own",
    parametrized: "is of class Parametrized",
    of_another_class: "is of class Own",
    with_another_kind_of_weight: "weight of type Weight",
}


@pytest.mark.parametrize("change", ODD)
def test_what_may_do_something_else_is_told_by_name(change: Callable[[nn.Linear], None]) -> None:
    layer = nn.Linear(3, 3)
    assert oddity(layer, nn.Linear) is None
    change(layer)
    assert ODD[change] in str(oddity(layer, nn.Linear))


def test_hooks_on_all_modules_are_hooks() -> None:
    handle = torch_module.register_module_forward_hook(lambda *_: None)
    assert "hooks" in str(oddity(nn.Linear(3, 3), nn.Linear))
    handle.remove()
    assert oddity(nn.Linear(3, 3), nn.Linear) is None


def test_a_class_whose_forward_was_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nn.Linear, "forward", lambda self, x: x)
    assert "forward was replaced" in str(oddity(nn.Linear(3, 3), nn.Linear))


def test_our_own_stand_in_is_nobody_elses() -> None:
    class Ours:
        def forward(self, x: Any) -> Any:
            return x

    class Theirs(Ours):
        pass

    layer = nn.Linear(3, 3)
    layer.forward = Ours().forward  # type: ignore[method-assign]
    assert oddity(layer, nn.Linear, stand_in=Ours) is None
    assert oddity(layer, nn.Linear) is not None
    layer.forward = Theirs().forward  # type: ignore[method-assign]
    assert oddity(layer, nn.Linear, stand_in=Ours) is not None


def test_the_first_odd_part_is_named_and_training_is_odd() -> None:
    layers = [nn.Linear(2, 2).eval() for _ in range(3)]
    parts: list[Part] = [(f"layers.{i}", layer, nn.Linear) for i, layer in enumerate(layers)]
    assert first_oddity(parts) is None
    with_a_forward(layers[2])
    assert first_oddity(parts) == "layers.2 has a forward of its own"
    layers[1].train()
    assert first_oddity(parts) == "layers.1 is in training mode"


def test_tensors_of_a_models_buffers_are_plain() -> None:
    norm = nn.BatchNorm1d(3)
    assert oddity(norm, nn.BatchNorm1d) is None
    norm._buffers["running_mean"] = torch.zeros(3).as_subclass(Weight)
    assert "running_mean" in str(oddity(norm, nn.BatchNorm1d))

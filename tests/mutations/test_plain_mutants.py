"""Fast passes that stand in for what isn't plain, and packed weights that are stale: caught.

Every check passes on the real code and raises `Caught` on the mutant that it is named for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn.modules import module as torch_module

import mmspec
from mmspec.kernels import content, packed, plain
from tests.modalities import tiny

from .catching import Check, Mutant, Patch, expect
from .catching import test_every_check_catches_something as test_every_check_catches_something
from .catching import test_the_mutant_is_caught as test_the_mutant_is_caught
from .catching import test_the_real_code_passes as test_the_real_code_passes


class Turned(nn.Module):
    """A decoder layer of a user's: what the layer says, the other way round."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, hidden: Any, *args: Any, **kwargs: Any) -> Any:
        return -self.inner(hidden, *args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("inner"), name)


def _follows(change: Callable[[Any], Any], what: str) -> None:
    """Change a layer of a model and let both loops decode."""
    model = tiny.tiny()
    handle = change(model)
    features = torch.randn(1, model.config.num_mel_bins, 100, generator=torch.Generator())
    loop = mmspec.custom_generate("none")
    try:
        want = model.generate(features, max_new_tokens=8)
        found = model.generate(features, max_new_tokens=8, custom_generate=loop)
    finally:
        if handle is not None:
            handle.remove()
    expect(torch.equal(want, found), f"{what} was passed over")
    expect(bool(loop.report.notes), f"{what}: the report is silent")


def a_layer_of_the_users_own_runs() -> None:
    def change(model: Any) -> None:
        layers = model.model.decoder.layers
        layers[0] = Turned(layers[0]).eval()

    _follows(change, "a layer of the user's own")


def a_forward_on_a_layer_runs() -> None:
    def change(model: Any) -> None:
        layer = model.model.decoder.layers[0]
        own = layer.forward
        layer.forward = lambda *args, **kwargs: -own(*args, **kwargs)

    _follows(change, "a forward put on a layer")


def a_hook_on_an_attention_runs() -> None:
    def change(model: Any) -> Any:
        attention = model.model.decoder.layers[0].self_attn
        return attention.register_forward_hook(lambda module, args, made: (-made[0], *made[1:]))

    _follows(change, "a hook on an attention")


def a_hook_on_all_modules_runs() -> None:
    def turn(module: Any, args: Any, made: Any) -> Any:
        return -made if type(module).__name__ == "WhisperDecoderLayer" else None

    _follows(lambda model: torch_module.register_module_forward_hook(turn), "a hook on all")


def a_changed_weight_is_packed_again() -> None:
    layer, x = nn.Linear(64, 64), torch.randn(2, 64)
    kept = packed.PackedLinears([layer]).pack()
    layer.weight.data[5, 7] += 1
    want = nn.functional.linear(x, layer.weight, layer.bias)
    with torch.no_grad(), kept:
        expect(torch.allclose(layer(x), want, atol=1e-5), "a packed weight is stale")


def a_changed_weight_is_packed_again_where_it_is_in_use() -> None:
    layer, x = nn.Linear(64, 64), torch.randn(2, 64)
    with torch.no_grad(), packed.PackedLinears([layer]):
        layer.weight.data[5, 7] += 1
        want = nn.functional.linear(x, layer.weight, layer.bias)
        with packed.PackedLinears([layer]):
            expect(torch.allclose(layer(x), want, atol=1e-5), "the stale pack was shared")


def rows_in_another_order_are_other_weights() -> None:
    weight = torch.arange(6.0).view(3, 2)
    expect(
        content.digest(weight) != content.digest(weight.flip(0)), "the order isn't in the digest"
    )


CHECKS: list[Check] = [
    a_layer_of_the_users_own_runs,
    a_forward_on_a_layer_runs,
    a_hook_on_an_attention_runs,
    a_hook_on_all_modules_runs,
    a_changed_weight_is_packed_again,
    a_changed_weight_is_packed_again_where_it_is_in_use,
    rows_in_another_order_are_other_weights,
]


def any_class_is_taken_for_plain(patch: Patch) -> None:
    real = plain.oddity
    patch.setattr(plain, "oddity", lambda module, kind, stand_in=None: real(module, type(module)))


def instance_attributes_arent_looked_at(patch: Patch) -> None:
    patch.setattr(plain, "callable", lambda value: False, raising=False)


def hooks_arent_looked_at(patch: Patch) -> None:
    patch.setattr(plain, "HOOKS", ())


def hooks_on_all_modules_arent_looked_at(patch: Patch) -> None:
    patch.setattr(plain, "GLOBAL_HOOKS", ())


def weights_are_judged_by_their_version(patch: Patch) -> None:
    patch.setattr(packed.Pack, "holds", lambda self: not self.is_stale())


def whoever_came_first_keeps_standing_in(patch: Patch) -> None:
    def open_(self: packed.PackedLinears) -> packed.PackedLinears:
        self._opened = [layer for layer in self._layers if packed._packable(layer)]
        for layer in self._opened:
            if packed._users.get(layer, 0) == 0:
                vars(layer)["forward"] = self._pack_of(layer).forward
            packed._users[layer] = packed._users.get(layer, 0) + 1
        return self

    patch.setattr(packed.PackedLinears, "open", open_)


def weights_are_added_up(patch: Patch) -> None:
    patch.setattr(content, "digest", lambda *weights: sum(float(one.sum()) for one in weights))


MUTANTS: list[Mutant] = [
    (any_class_is_taken_for_plain, a_layer_of_the_users_own_runs, "passed over"),
    (instance_attributes_arent_looked_at, a_forward_on_a_layer_runs, "passed over"),
    (hooks_arent_looked_at, a_hook_on_an_attention_runs, "passed over"),
    (hooks_on_all_modules_arent_looked_at, a_hook_on_all_modules_runs, "passed over"),
    (weights_are_judged_by_their_version, a_changed_weight_is_packed_again, "stale"),
    (
        whoever_came_first_keeps_standing_in,
        a_changed_weight_is_packed_again_where_it_is_in_use,
        "shared",
    ),
    (weights_are_added_up, rows_in_another_order_are_other_weights, "order"),
]

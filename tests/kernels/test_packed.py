"""Packed layers give the same values, and the module is as before when they are closed."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from mmspec.kernels import PackedLinears
from mmspec.kernels import packed as kernel
from mmspec.kernels.packed import packing_pays

pytestmark = pytest.mark.skipif(
    not packing_pays(torch.device("cpu"), torch.float32), reason="this torch can't pack"
)


def layer_of(inputs: int = 24, outputs: int = 17, bias: bool = True) -> nn.Linear:
    return nn.Linear(inputs, outputs, bias=bias)


@torch.no_grad()
def out(layer: nn.Module, x: Tensor) -> Tensor:
    return layer(x)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(1, 24), (2, 24), (48, 24), (1, 5, 24), (24,), (0, 24)])
def test_the_values_are_the_same_up_to_float32(shape: tuple[int, ...], bias: bool) -> None:
    layer, x = layer_of(bias=bias), torch.randn(shape)
    plain = out(layer, x)
    with PackedLinears([layer]):
        assert "forward" in vars(layer)
        packed = out(layer, x)
    assert packed.shape == plain.shape
    torch.testing.assert_close(packed, plain, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(out(layer, x), plain, rtol=0, atol=0)


@pytest.mark.parametrize("stride", ["transposed", "sliced"])
def test_inputs_and_weights_that_arent_contiguous(stride: str) -> None:
    layer = layer_of(24, 24)
    x = torch.randn(24, 24).T if stride == "transposed" else torch.randn(3, 48)[:, ::2]
    layer.weight = nn.Parameter(torch.randn(24, 24).T)
    with PackedLinears([layer]):
        torch.testing.assert_close(
            out(layer, x), nn.functional.linear(x, layer.weight, layer.bias).detach()
        )


def test_closing_leaves_nothing_behind() -> None:
    model = nn.Sequential(layer_of(), nn.ReLU(), layer_of(17, 24))
    x = torch.randn(3, 24)
    before, state = out(model, x), copy.deepcopy(model.state_dict())
    pointers = [parameter.data_ptr() for parameter in model.parameters()]
    names = [set(vars(module)) for module in model.modules()]
    packed = PackedLinears(model.modules())
    for _ in range(2):  # opening and closing twice is harmless
        packed.open()
        packed.open()
        packed.close()
        packed.close()
    assert [set(vars(module)) for module in model.modules()] == names
    assert pointers == [parameter.data_ptr() for parameter in model.parameters()]
    torch.testing.assert_close(out(model, x), before, rtol=0, atol=0)
    assert list(model.state_dict()) == list(state)
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        torch.testing.assert_close(out(twin, x), before, rtol=0, atol=0)
    assert not kernel._users


def test_the_state_dict_is_the_same_while_open() -> None:
    layer = layer_of()
    with PackedLinears([layer]):
        buffer = io.BytesIO()
        torch.save(layer.state_dict(), buffer)
        buffer.seek(0)
        torch.testing.assert_close(torch.load(buffer)["weight"], layer.weight.detach())


def test_the_layers_are_given_back_when_the_body_raises() -> None:
    layer = layer_of()
    with pytest.raises(ZeroDivisionError, match="division"), PackedLinears([layer]):
        _ = 1 / 0
    assert "forward" not in vars(layer)


def test_users_of_one_layer_share_it_and_the_last_one_gives_it_back() -> None:
    layer, x = layer_of(), torch.randn(2, 24)
    outer, inner = PackedLinears([layer]), PackedLinears([layer])
    outer.open()
    forward = layer.forward
    inner.open()
    assert layer.forward is forward, "packed once"
    outer.close()
    assert layer.forward is forward
    late = PackedLinears([layer]).open()
    inner.close()
    torch.testing.assert_close(out(layer, x), nn.functional.linear(x, layer.weight, layer.bias))
    late.close()
    assert "forward" not in vars(layer)


def changed_in_place(layer: nn.Linear) -> None:
    with torch.no_grad():
        layer.weight.mul_(2)


def changed_in_inference_mode(layer: nn.Linear) -> None:
    with torch.inference_mode():
        layer.weight.mul_(2)


def replaced(layer: nn.Linear) -> None:
    layer.weight = nn.Parameter(torch.randn_like(layer.weight))


def replaced_data(layer: nn.Linear) -> None:
    layer.weight.data = torch.randn_like(layer.weight)


def loaded(layer: nn.Linear) -> None:
    layer.load_state_dict({name: p * 3 for name, p in layer.state_dict().items()})


def assigned(layer: nn.Linear) -> None:
    layer.load_state_dict({name: p * 3 for name, p in layer.state_dict().items()}, assign=True)


def bias_in_place(layer: nn.Linear) -> None:
    with torch.no_grad():
        layer.bias.add_(1)


def bias_replaced(layer: nn.Linear) -> None:
    layer.bias = nn.Parameter(torch.randn_like(layer.bias))


def bias_replaced_data(layer: nn.Linear) -> None:
    layer.bias.data = torch.randn_like(layer.bias)


def bias_removed(layer: nn.Linear) -> None:
    layer.bias = None


@pytest.mark.parametrize(
    "change",
    [
        changed_in_place,
        changed_in_inference_mode,
        replaced,
        replaced_data,
        loaded,
        assigned,
        bias_in_place,
        bias_replaced,
        bias_replaced_data,
        bias_removed,
    ],
)
@torch.no_grad()
def test_weights_that_change_while_open_are_respected(change) -> None:
    layer, x = layer_of(), torch.randn(2, 24)
    with PackedLinears([layer]):
        before = layer(x)
        change(layer)
        after = layer(x)
        torch.testing.assert_close(after, nn.functional.linear(x, layer.weight, layer.bias))
        assert not torch.allclose(before, after)
    torch.testing.assert_close(layer(x), after, rtol=1e-5, atol=1e-5)


def by_data(weight: nn.Parameter) -> None:
    weight.data[3, 5] += 0.5


def by_shared_memory(weight: nn.Parameter) -> None:
    weight.detach().numpy()[3, 5] *= 2


def by_fused_optimiser(weight: nn.Parameter) -> None:
    weight.grad = torch.ones_like(weight)
    optimiser = torch.optim.AdamW([weight], lr=0.1, fused=True)
    optimiser.step()


def by_swapping_rows(weight: nn.Parameter) -> None:
    weight.data[[3, 4]] = weight.data[[4, 3]]


@pytest.mark.parametrize("held_open", [False, True])
@pytest.mark.parametrize(
    "change", [by_data, by_shared_memory, by_fused_optimiser, by_swapping_rows]
)
def test_a_change_that_torch_counts_nowhere_is_seen_at_the_next_opening(
    change: Callable[[nn.Parameter], None], held_open: bool
) -> None:
    layer, x = layer_of(256, 256), torch.randn(2, 256)
    kept = PackedLinears([layer]).pack()
    other = PackedLinears([layer])
    if held_open:
        other.open()
    version = layer.weight._version
    change(layer.weight)
    if change is not by_fused_optimiser:
        assert layer.weight._version == version
    want = nn.functional.linear(x, layer.weight, layer.bias).detach()
    for packs in (kept.again(), kept, PackedLinears([layer])):
        with packs:
            torch.testing.assert_close(out(layer, x), want, rtol=1e-5, atol=1e-5)
    other.close()
    assert "forward" not in vars(layer)


def test_a_weight_at_the_address_of_the_old_one_is_still_another_weight() -> None:
    """An allocator gives freed memory away again; the fingerprint must not be fooled."""
    layer, x = layer_of(256, 256), torch.randn(2, 256)
    with PackedLinears([layer]):
        for _ in range(8):
            layer.weight = None  # freed, if nobody else holds it
            layer.weight = nn.Parameter(torch.randn(256, 256))
            torch.testing.assert_close(
                out(layer, x),
                nn.functional.linear(x, layer.weight, layer.bias).detach(),
                rtol=1e-4,
                atol=1e-4,
            )


def test_gradients_go_the_layers_own_way() -> None:
    layer, x = layer_of(), torch.randn(2, 24, requires_grad=True)
    with PackedLinears([layer]):
        layer(x).sum().backward()
        assert layer.weight.grad is not None
        assert x.grad is not None
        torch.testing.assert_close(x.grad, layer.weight.detach().sum(0).expand(2, 24))


def test_other_inputs_go_the_layers_own_way() -> None:
    layer = layer_of()
    with PackedLinears([layer]), pytest.raises(RuntimeError, match="dtype"):
        out(layer, torch.randn(2, 24, dtype=torch.float64))
    with PackedLinears([layer]):
        layer.double()
        assert out(layer, torch.randn(2, 24, dtype=torch.float64)).dtype == torch.float64
    assert "forward" not in vars(layer)


def test_layers_that_cant_be_packed_are_left_alone() -> None:
    hooked, watched, wrapped = layer_of(), layer_of(), layer_of()
    hooked.register_forward_hook(lambda module, args, output: output + 1)
    watched.register_forward_pre_hook(lambda module, args: None)
    wrapped.forward = lambda x: x  # type: ignore[method-assign]

    class Special(nn.Linear):
        pass

    others = [
        hooked,
        watched,
        layer_of().double(),
        layer_of().to(torch.bfloat16),
        nn.Linear(4, 4, device="meta"),
        Special(4, 4),
        nn.LayerNorm(4),
        nn.Embedding(3, 4),
    ]
    with PackedLinears([*others, wrapped]):
        for layer in others:
            assert "forward" not in vars(layer)
        assert wrapped(7) == 7
    assert "forward" in vars(wrapped), "somebody else's is still there"


def test_the_same_layer_named_twice() -> None:
    layer = layer_of()
    with PackedLinears([layer, layer]):
        assert "forward" in vars(layer)
    assert "forward" not in vars(layer)


@pytest.mark.parametrize("device", ["cuda", "meta"])
def test_other_devices_dont_pack(device: str) -> None:
    assert not packing_pays(torch.device(device), torch.float32)
    assert not packing_pays(torch.device("cpu"), torch.float16)

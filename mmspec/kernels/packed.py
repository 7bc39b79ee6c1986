"""Packed linear layers: on a CPU, make a block of a few rows cost little more than one row.

The default float32 kernel repacks a weight matrix at every call, so that two to eight rows cost
up to twice as much as one. oneDNN can keep the matrix in the layout that small blocks want. It is
done while a decoder is open and undone when the last one closes; the module's parameters are
never touched, so saving, moving or training the model afterwards works as before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import TracebackType
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

# The layout is chosen for a number of rows; speculative blocks are a handful of rows, and of the
# hints tried (1, 6, 16) this one was the fastest from 1 to 48 rows: benchmarks/packed_linears.py.
ROWS_HINT = 6

_users: WeakKeyDictionary[nn.Linear, int] = WeakKeyDictionary()


def packing_pays(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether this build of torch can pack: float32 on a CPU, with oneDNN."""
    return device.type == "cpu" and dtype == torch.float32 and torch.backends.mkldnn.is_available()


class PackedLinears:
    """Run some linear layers in packed layout, for as long as this is open.

    Args:
        layers: the layers that see small blocks. Those that are no plain float32 CPU
            `nn.Linear`, or carry hooks, are left alone.

    Example:
        >>> layer = nn.Linear(4, 3)
        >>> x = torch.ones(2, 4)
        >>> with torch.no_grad(), PackedLinears([layer]):
        ...     packed = layer(x)
        >>> bool(torch.allclose(packed, layer(x))), "forward" in vars(layer)
        (True, False)
    """

    def __init__(self, layers: Iterable[nn.Module]) -> None:
        self._layers = [layer for layer in layers if isinstance(layer, nn.Linear)]
        self._layers = [layer for layer in self._layers if _packable(layer)]
        self._open = False

    def open(self) -> PackedLinears:
        """Pack; a layer that another decoder has packed already is shared."""
        if not self._open:
            for layer in self._layers:
                if _users.get(layer, 0) == 0:
                    vars(layer)["forward"] = _packed_forward(layer)
                _users[layer] = _users.get(layer, 0) + 1
            self._open = True
        return self

    def close(self) -> None:
        """Give back the layers as they were, unless another decoder still uses them."""
        if self._open:
            for layer in self._layers:
                _users[layer] -= 1
                if _users[layer] == 0:
                    del _users[layer]
                    del vars(layer)["forward"]  # the class's own is back
            self._open = False

    def __enter__(self) -> PackedLinears:
        return self.open()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _packable(layer: nn.Linear) -> bool:
    return (
        type(layer) is nn.Linear
        and packing_pays(layer.weight.device, layer.weight.dtype)
        and (_users.get(layer, 0) > 0 or "forward" not in vars(layer))
        and not layer._forward_hooks
        and not layer._forward_pre_hooks
    )


def _packed_forward(layer: nn.Linear) -> Callable[[Tensor], Tensor]:
    weight = layer.weight.detach()
    packed = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), ROWS_HINT)
    linear = torch.ops.mkldnn._linear_pointwise
    version = _fingerprint(layer.weight)[1]

    def forward(x: Tensor) -> Tensor:
        # Gradients, another dtype, or weights that have changed meanwhile: the layer's own way.
        # `weight` is kept, so that no other weight can turn up at its address.
        changed = _fingerprint(layer.weight) != (weight.data_ptr(), version)
        if changed or torch.is_grad_enabled() or x.dtype != torch.float32:
            return nn.functional.linear(x, layer.weight, layer.bias)
        return linear(x, packed, layer.bias, "none", [], "")

    return forward


def _fingerprint(weight: Tensor) -> tuple[int, int]:
    """Changes whenever the weight is replaced or written to (inference tensors can't be)."""
    return weight.data_ptr(), 0 if weight.is_inference() else weight._version

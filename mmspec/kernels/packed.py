"""Packed linear layers: on a CPU, make a block of a few rows cost little more than one row.

The default float32 kernel repacks a weight matrix at every call, so that two to eight rows cost
up to twice as much as one. oneDNN can keep the matrix in the layout that it wants; on processors
that the default kernel doesn't know well it is faster for many rows too. The packed copy is made
once; it stands in for the layer while a decoder is open or an encoder runs, and the layer is as
before when the last of them closes. The module's own parameters are never touched.

A weight can change without a trace: a fused optimiser, `.data`, and whoever shares its memory bump
no version. So whoever opens packed layers has their weights read again, and compared with what was
packed by a digest of their bytes (benchmarks/packed_weights.py: what that costs).
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from types import TracebackType
from weakref import WeakKeyDictionary, WeakValueDictionary

import torch
from torch import Tensor, nn

from mmspec.kernels.content import digest
from mmspec.kernels.plain import oddity

# The layout is chosen for a number of rows; speculative blocks are a handful of rows, and of the
# hints tried (1, 6, 16) this one was the fastest from 1 to 48 rows: benchmarks/packed_linears.py.
ROWS_HINT = 6

SMALLEST = 2**19
"""Weights below which a layer isn't worth packing for a few rows: a call of a packed layer costs
some 40 µs more, whatever its size."""

_lock = threading.Lock()  # windows are encoded side by side, with the same layers
_users: WeakKeyDictionary[nn.Linear, int] = WeakKeyDictionary()
_packs: WeakValueDictionary[int, Pack] = WeakValueDictionary()
"""The pack of each layer by `id(layer)`, alive as long as a `PackedLinears` holds it."""


def packing_pays(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether this build of torch can pack: float32 on a CPU, with oneDNN."""
    return device.type == "cpu" and dtype == torch.float32 and torch.backends.mkldnn.is_available()


def worth_packing(modules: Iterable[nn.Module]) -> list[nn.Module]:
    """The linear layers among `modules` that a few rows run through faster where packed.

    Example:
        >>> worth_packing([nn.Linear(4, 3), nn.Linear(1024, 512, bias=False), nn.ReLU()])
        [Linear(in_features=1024, out_features=512, bias=False)]
    """
    layers = (module for module in modules if isinstance(module, nn.Linear))
    return [layer for layer in layers if layer.weight.numel() >= SMALLEST]


class Pack:
    """A layer's packed weight, and the forward that uses it."""

    def __init__(self, layer: nn.Linear, rows: int) -> None:
        self.layer = layer
        # Kept, so that no other weight can turn up at its address.
        self._weight = layer.weight.detach()
        self._version = _version(layer.weight)
        self._digest = digest(self._weight)
        self._packed = torch.ops.mkldnn._reorder_linear_weight(self._weight.contiguous(), rows)

    def is_stale(self) -> bool:
        """Whether the layer's weight was replaced, or written to in a way that torch counts."""
        weight = self.layer.weight
        replaced = weight.data_ptr() != self._weight.data_ptr()
        return replaced or _version(weight) != self._version

    def holds(self) -> bool:
        """Whether what was packed is the layer's weight, byte for byte; reads all of it."""
        return not self.is_stale() and digest(self.layer.weight) == self._digest

    def forward(self, x: Tensor) -> Tensor:
        """The layer's output, packed unless gradients, another dtype or a new weight forbid it."""
        layer = self.layer
        if self.is_stale() or torch.is_grad_enabled() or x.dtype != torch.float32:
            return nn.functional.linear(x, layer.weight, layer.bias)
        return torch.ops.mkldnn._linear_pointwise(x, self._packed, layer.bias, "none", [], "")


class PackedLinears:
    """Run some linear layers in packed layout while this is open. Opening again costs nothing.

    Args:
        layers: the layers that see small blocks. Those that are no plain float32 CPU
            `nn.Linear`, or carry hooks, are left alone.
        rows: how many rows the layers will see at a time; the layout is chosen for it.

    Example:
        >>> layer = nn.Linear(4, 3)
        >>> x = torch.ones(2, 4)
        >>> with torch.no_grad(), PackedLinears([layer]):
        ...     packed = layer(x)
        >>> bool(torch.allclose(packed, layer(x))), "forward" in vars(layer)
        (True, False)
    """

    def __init__(self, layers: Iterable[nn.Module], rows: int = ROWS_HINT) -> None:
        self._layers = [layer for layer in layers if isinstance(layer, nn.Linear)]
        self._rows = rows
        self._packs: list[Pack] = []
        self._opened: list[nn.Linear] = []

    def pack(self) -> PackedLinears:
        """Pack ahead, and keep the packs as long as this object lives."""
        with _lock:
            self._packs = [self._pack_of(layer) for layer in self._layers if _packable(layer)]
        return self

    def again(self) -> PackedLinears:
        """Another one over the same layers and packs, to be opened and closed by itself."""
        return PackedLinears(self._layers, self._rows)

    def open(self) -> PackedLinears:
        """Pack what isn't packed, or changed since, and let the packs stand in for their layers.

        A layer that another decoder has packed already is shared.
        """
        with _lock:
            if not self._opened:
                self._opened = [layer for layer in self._layers if _packable(layer)]
                self._packs = [self._pack_of(layer) for layer in self._opened]
                for pack in self._packs:
                    standing_in = vars(pack.layer).get("forward")
                    if standing_in is None or standing_in.__self__ is not pack:
                        vars(pack.layer)["forward"] = pack.forward
                    _users[pack.layer] = _users.get(pack.layer, 0) + 1
        return self

    def close(self) -> None:
        """Give back the layers as they were, unless another decoder still uses them."""
        with _lock:
            for layer in self._opened:
                _users[layer] -= 1
                if _users[layer] == 0:
                    del _users[layer]
                    del vars(layer)["forward"]  # the class's own is back
            self._opened = []

    def _pack_of(self, layer: nn.Linear) -> Pack:
        pack = _packs.get(id(layer))
        if pack is None or pack.layer is not layer or not pack.holds():
            pack = _packs[id(layer)] = Pack(layer, self._rows)
        return pack

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
    return oddity(layer, nn.Linear, stand_in=Pack) is None and packing_pays(
        layer.weight.device, layer.weight.dtype
    )


def _version(weight: Tensor) -> int:
    """Changes whenever the weight is written to (inference tensors can't be)."""
    return 0 if weight.is_inference() else weight._version

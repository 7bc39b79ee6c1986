"""Whether two outputs of `generate` say the same, and where not."""

from __future__ import annotations

import numbers
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from transformers import Cache


def differences(want: Any, got: Any, tolerance: float, where: str = "") -> list[str]:
    """What differs, in words; nothing where all is the same.

    Args:
        want: an output, or a part of one.
        got: the other.
        tolerance: of numbers that are no ids, absolute and a tenth of it relative.
        where: the part's name.
    """
    if isinstance(want, Tensor):
        return _of_tensors(want, got, tolerance, where)
    if isinstance(want, Cache):
        return _of_caches(want, got, tolerance, where)
    if isinstance(want, Mapping):
        if not isinstance(got, Mapping):
            return [f"{where}: a {type(want).__name__}, but a {type(got).__name__}"]
        names = [name for name in {**want, **got} if name in want or got[name] is not None]
        return [
            found
            for name in names
            for found in differences(want.get(name), got.get(name), tolerance, f"{where}.{name}")
        ]
    if isinstance(want, list | tuple):
        if not isinstance(got, list | tuple) or len(want) != len(got):
            count = len(got) if isinstance(got, list | tuple) else type(got).__name__
            return [f"{where}: {len(want)} of them, but {count}"]
        pairs = enumerate(zip(want, got, strict=True))
        return [
            found
            for at, (one, other) in pairs
            for found in differences(one, other, tolerance, f"{where}[{at}]")
        ]
    if isinstance(want, numbers.Real) and isinstance(got, numbers.Real):
        close = abs(float(want) - float(got)) <= tolerance
        return [] if close else [f"{where}: {want}, but {got}"]
    return [] if type(want) is type(got) and want == got else [f"{where}: {want!r}, but {got!r}"]


def _of_tensors(want: Tensor, got: Any, tolerance: float, where: str) -> list[str]:
    if not isinstance(got, Tensor):
        return [f"{where}: a tensor, but {type(got).__name__}"]
    if want.shape != got.shape:
        return [
            f"{where}: shape {[*want.shape]}, but {[*got.shape]}: {_few(want)}, but {_few(got)}"
        ]
    if want.dtype != got.dtype:
        return [f"{where}: {want.dtype}, but {got.dtype}"]
    if not want.is_floating_point():
        return [] if torch.equal(want, got) else [f"{where}: {_few(want)}, but {_few(got)}"]
    close = torch.allclose(want, got, rtol=tolerance / 10, atol=tolerance, equal_nan=True)
    return [] if close else [f"{where}: off by {float((want - got).abs().nan_to_num().max()):.2g}"]


def _few(ids: Tensor) -> str:
    return str(ids.tolist()) if ids.numel() < 80 else f"{ids.flatten()[:20].tolist()}..."


def _of_caches(want: Any, got: Any, tolerance: float, where: str) -> list[str]:
    if not isinstance(got, Cache):
        return [f"{where}: a cache, but {type(got).__name__}"]
    lengths = int(want.get_seq_length()), int(got.get_seq_length())
    return [] if lengths[0] == lengths[1] else [f"{where}: of {lengths[0]}, but {lengths[1]}"]


def first_difference(want: Any, got: Any) -> tuple[int, int] | None:
    """(row, position) where ids part; None where they don't, or are no ids."""
    if not (isinstance(want, Tensor) and isinstance(got, Tensor)):
        return None
    if want.dim() != 2 or got.dim() != 2 or len(want) != len(got) or want.is_floating_point():
        return None
    width = min(want.shape[1], got.shape[1])
    parts = (want[:, :width] != got[:, :width]).nonzero()
    return (int(parts[0][0]), int(parts[0][1])) if len(parts) else None

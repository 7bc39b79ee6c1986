"""A grid of codes, checked once: every cell is a code of its codebook, or the place is named."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np

from mmspec.errors import InputError


def checked_codes(grid: Any, sizes: Sequence[int] | None = None, first: int = 0) -> np.ndarray:
    """The codes of a grid as an array. Nothing is clipped, nothing is filled in.

    Args:
        grid: codes, frames × codebooks: nested sequences, an array or a tensor.
        sizes: how many codes each codebook has; None where nobody knows.
        first: the number of its first frame, for messages.

    Returns:
        int64 `[frames, codebooks]`.

    Raises:
        InputError: a cell that holds no code (a mark, a gap, no integer) or frames of another
            width; names frame and codebook.

    Example:
        >>> checked_codes([(0, 3), (1, 2)], sizes=(4, 4)).shape
        (2, 2)
        >>> checked_codes([(0, 3), (1, 4)], sizes=(4, 4))
        Traceback (most recent call last):
        ...
        mmspec.errors.InputError: frame 1, codebook 1: 4 is no code: they go from 0 to 3
    """
    rows = _rows(grid)
    width = _width(rows) if sizes is None else len(sizes)
    for frame, row in enumerate(rows, first):
        if len(row) != width:
            raise InputError(f"frame {frame} has {len(row)} codes, expected {width}")
    if not len(rows):
        return np.empty((0, width), np.int64)
    codes = np.asarray(rows)
    if codes.dtype.kind not in "iu":
        codes = np.array(
            [
                [_integer(code, frame, codebook) for codebook, code in enumerate(row)]
                for frame, row in enumerate(rows, first)
            ],
            dtype=object,
        )
    most = np.iinfo(np.int32).max  # in files, codes have 32 bits
    sizes = None if sizes is None else [min(size, most) for size in sizes]
    limit = most if sizes is None else np.asarray(sizes)
    wrong = np.argwhere((codes < 0) | (codes >= limit))
    if len(wrong):
        frame, codebook = (int(place) for place in wrong[0])
        _refuse(int(codes[frame, codebook]), first + frame, codebook, sizes)
    return codes.astype(np.int64)


def _rows(grid: Any) -> Sequence[Any] | np.ndarray:
    rows = grid.detach().cpu().numpy() if hasattr(grid, "detach") else grid
    if isinstance(rows, np.ndarray):
        if rows.ndim != 2:
            shape = "x".join(map(str, rows.shape)) or "a single number"
            raise InputError(f"codes of shape {shape}, expected frames × codebooks")
        return rows
    try:
        rows = list(rows)
    except TypeError:
        raise InputError(f"{type(grid).__name__} is no grid of codes") from None
    for frame, row in enumerate(rows):
        if not isinstance(row, Sequence | np.ndarray) or isinstance(row, str | bytes):
            raise InputError(f"frame {frame} is {row!r}, expected a code for each codebook")
    return rows


def _width(rows: Sequence[Any] | np.ndarray) -> int:
    """Of the first row; of no rows at all, what an array's shape says."""
    if isinstance(rows, np.ndarray):
        return int(rows.shape[1])
    return len(rows[0]) if rows else 0


def _integer(code: Any, frame: int, codebook: int) -> int:
    try:
        return operator.index(code)
    except TypeError:
        raise InputError(f"frame {frame}, codebook {codebook}: {code!r} is no integer") from None


def _refuse(code: int, frame: int, codebook: int, sizes: Sequence[int] | None) -> NoReturn:
    known = "they count from 0" if sizes is None else f"they go from 0 to {sizes[codebook] - 1}"
    raise InputError(f"frame {frame}, codebook {codebook}: {code} is no code: {known}")

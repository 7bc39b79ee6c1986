"""The committed prefix: the one truth about what has been decided and where we are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

import torch
from torch import Tensor

U = TypeVar("U")
"""What one step decides: a token's id, or a frame of them."""

Frame = tuple[int, ...]
"""The ids that one step decides, one per codebook."""


ROOM = 2048
"""Positions behind a prompt that a buffer has room for at once; it doubles where more come."""


class Prefix(Generic[U]):
    """What was committed in one request, on the host and on the device, written by one method.

    The device buffer has room for drafted tokens behind the committed ones, so that a processor
    can be shown every drafted prefix as a view (nothing is concatenated per round).

    Args:
        ids: the prompt.
        capacity: positions that the request can ever hold.
        device: where processors look at the prefix.
    """

    rows: int = 1
    """Ids at a position."""

    def __init__(self, ids: Sequence[U], capacity: int, device: torch.device) -> None:
        self._ids: list[U] = []
        room = max(min(capacity, len(ids) + ROOM), len(ids)) + 1
        self._buffer = torch.zeros((self.rows, room), dtype=torch.long, device=device)
        self.extend(ids)
        self.prompt_length = len(self._ids)

    def __len__(self) -> int:
        return len(self._ids)

    @property
    def ids(self) -> Sequence[U]:
        """Everything committed, the prompt included (don't write to it)."""
        return self._ids

    @property
    def emitted(self) -> list[U]:
        """What was decided so far: what is committed behind the prompt."""
        return self._ids[self.prompt_length :]

    def extend(self, ids: Sequence[U]) -> None:
        """Commit more."""
        self._write(ids)
        self._ids.extend(ids)

    def show_draft(self, ids: Sequence[U]) -> None:
        """Put what is drafted behind what is committed, in the device buffer only."""
        self._write(ids)

    def tensor(self, length: int | None = None) -> Tensor:
        """The first `length` positions as `[rows, length]`, a view; drafted ones where it reaches
        so far."""
        return self._buffer[:, : len(self._ids) if length is None else length]

    def _write(self, ids: Sequence[U]) -> None:
        if ids:
            start = len(self._ids)
            new = torch.tensor(list(ids), dtype=torch.long).view(len(ids), self.rows).t()
            if (lacking := start + len(ids) - self._buffer.shape[1]) > 0:
                more = max(lacking, self._buffer.shape[1])
                self._buffer = torch.nn.functional.pad(self._buffer, (0, more))
            self._buffer[:, start : start + len(ids)] = new.to(self._buffer.device)


class FramePrefix(Prefix[Frame]):
    """A prefix of frames; the tensor has a row per codebook.

    Args:
        frames: the prompt.
        capacity: steps that the request can ever hold.
        device: where processors look at the prefix.
        codebooks: ids in a frame.

    Example:
        >>> prefix = FramePrefix([(8, 8)], capacity=4, device=torch.device("cpu"), codebooks=2)
        >>> prefix.extend([(1, 2)])
        >>> prefix.tensor().tolist()
        [[8, 1], [8, 2]]
    """

    def __init__(
        self, frames: Sequence[Frame], capacity: int, device: torch.device, codebooks: int
    ) -> None:
        self.rows = codebooks
        super().__init__(frames, capacity, device)

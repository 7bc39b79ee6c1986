"""The committed prefix: the one truth about what has been decided and where we are."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


class Prefix:
    """Committed unit ids of one request, on the host and on the device, written by one method.

    The device buffer has room for drafted units behind the committed ones, so that a processor
    can be shown every drafted prefix as a view (nothing is concatenated per round).

    Args:
        ids: the prompt.
        capacity: positions that the request can ever hold.
        device: where processors look at the prefix.
    """

    def __init__(self, ids: Sequence[int], capacity: int, device: torch.device) -> None:
        self._ids: list[int] = []
        self._buffer = torch.zeros((1, max(capacity, len(ids)) + 1), dtype=torch.long)
        self._buffer = self._buffer.to(device)
        self.extend(ids)
        self.prompt_length = len(self._ids)

    def __len__(self) -> int:
        return len(self._ids)

    @property
    def ids(self) -> Sequence[int]:
        """Every committed id, the prompt included (don't write to it)."""
        return self._ids

    @property
    def emitted(self) -> list[int]:
        """What was decided so far: the committed ids behind the prompt."""
        return self._ids[self.prompt_length :]

    def extend(self, ids: Sequence[int]) -> None:
        """Commit more units."""
        self._write(ids)
        self._ids.extend(ids)

    def show_draft(self, ids: Sequence[int]) -> None:
        """Put drafted units behind the committed ones, in the device buffer only."""
        self._write(ids)

    def tensor(self, length: int | None = None) -> Tensor:
        """The first `length` ids as `[1, length]`, a view; drafted ones where it reaches so far."""
        return self._buffer[:, : len(self._ids) if length is None else length]

    def _write(self, ids: Sequence[int]) -> None:
        if ids:
            start = len(self._ids)
            new = torch.tensor([list(ids)], dtype=torch.long, device=self._buffer.device)
            self._buffer[:, start : start + len(ids)] = new

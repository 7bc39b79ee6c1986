"""Heads that guess a frame's codes from the backbone's state, and what fits them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from mmspec.errors import InputError
from mmspec.prefix import Frame
from mmspec.state import DecoderState


class CodeHeads:
    """A head per codebook, on the backbone's state and the code before: linear, so next to free.

    Attributes:
        weight: `[K-1, D, V]`, on the state.
        table: `[K-1, V, V]`, what the code before adds.
    """

    def __init__(self, weight: Tensor, table: Tensor) -> None:
        self.weight, self.table = weight, table

    def __call__(self, hidden: Tensor, codes: Frame, previous: Frame | None) -> Frame:
        """The highest code of each head that isn't decided yet, behind the one guessed before."""
        known = len(codes) - 1
        scores = torch.matmul(hidden.to(self.weight.dtype), self.weight[known:])
        line = [codes[-1]]
        for own, table in zip(scores, self.table[known:], strict=True):
            line.append(int((own + table[line[-1]]).argmax()))
        return tuple(line[1:])


class Readable(Protocol):
    """A target that has read its prompt and nothing behind it.

    Attributes:
        state: its memory.
        first_hidden: its final state behind the prompt, `[D]`.
        hidden: `[keep, D]`, behind the frames that it scored last.
    """

    state: DecoderState
    first_hidden: Tensor
    hidden: Tensor

    def score(self, ids: Sequence[Any], keep: int) -> Tensor:
        """Append frames."""
        ...


def states_at(target: Readable, frames: Sequence[Frame]) -> Tensor:
    """The states `[n, D]` that n frames stand behind, if they follow the prompt: one pass.

    The target is as before afterwards.
    """
    if len(frames) < 2:
        return target.first_hidden[None][: len(frames)]
    start = target.state.length
    target.score(frames[:-1], keep=len(frames) - 1)
    target.state.rollback(start)
    return torch.cat([target.first_hidden[None], target.hidden])


def fit_heads(
    hidden: Tensor, frames: Sequence[Frame], vocab_size: int, ridge: float = 1.0
) -> CodeHeads:
    """Heads that have seen what a model says: least squares onto its codes, in closed form.

    Args:
        hidden: the backbone's state at each of n frames, `[n, D]`.
        frames: what was said there, K codes each.
        vocab_size: V.
        ridge: how much large weights are held against a fit.

    Raises:
        InputError: as many states as frames are needed, and one at least.

    Source:
        Ridge regression (Hoerl and Kennard 1970) onto one-hot codes.
    """
    if not 0 < len(hidden) == len(frames):
        raise InputError(f"{len(hidden)} states for {len(frames)} frames: expected one for each")
    codes = one_hot(torch.tensor(list(frames), device=hidden.device), vocab_size).double()
    found = []
    for before, said in itertools.pairwise(codes.unbind(1)):
        seen = torch.cat([hidden.double(), before], dim=1)
        held = ridge * torch.eye(seen.shape[1], dtype=torch.float64, device=hidden.device)
        found.append(torch.linalg.solve(seen.T @ seen + held, seen.T @ said))
    weight, table = torch.stack(found).float().split([hidden.shape[1], vocab_size], dim=1)
    return CodeHeads(weight, table)

"""Groups of codes that sound alike: what approximate acceptance tells apart, and what it doesn't.

A group has a code in its middle and holds all codes whose embeddings point almost the same way.
Every code is the middle of one group, so groups overlap: a code belongs to as many groups as it
has company, itself included, and gives each of them an equal part of its chance.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from mmspec.errors import OptionError
from mmspec.factorizations import Codebook

_ROWS = 1024  # of similarities at once: those of 10,000 codes would take 800 MB


@dataclass(frozen=True, slots=True, eq=False)
class Groups:
    """Which ids of one place are alike. A relation that goes both ways, so that the groups of a
    code have the same list as the codes of its own group.

    Attributes:
        size: Ids V.
        middles: Int64 `[M]`, ascending: the middle of the group of each membership.
        codes: Int64 `[M]`, ascending for each middle: the code of each membership.
        parts: Float64 `[V]`: the part of its chance that a code gives each of its groups.

    Raises:
        OptionError: A code isn't in its own group, or a membership goes one way only.

    Example:
        >>> alike = Groups.of_pairs(4, [(1, 2)])
        >>> alike.of(1).tolist(), alike.of(3).tolist()
        ([1, 2], [3])
        >>> alike.masses(torch.tensor([0.5, 0.3, 0.1, 0.1], dtype=torch.float64)).tolist()
        [0.5, 0.2, 0.2, 0.1]
    """

    size: int
    middles: Tensor
    codes: Tensor
    parts: Tensor = field(init=False)

    def __post_init__(self) -> None:
        there, back = (self._keys(*pair) for pair in self._both_ways())
        own = torch.arange(self.size) * (self.size + 1)
        if not (torch.equal(there, back.sort().values) and bool(torch.isin(own, there).all())):
            raise OptionError("groups: each code must be in its own, and likeness go both ways")
        shared = torch.bincount(self.middles, minlength=self.size)
        object.__setattr__(self, "parts", shared.double().reciprocal())

    @classmethod
    def of_pairs(cls, size: int, pairs: Sequence[tuple[int, int]] | Tensor) -> Groups:
        """Groups in which just these pairs of different codes are alike.

        Raises:
            OptionError: A code that isn't there.
        """
        found = torch.as_tensor(pairs, dtype=torch.int64).reshape(-1, 2)
        if found.numel() and not 0 <= int(found.min()) <= int(found.max()) < size:
            raise OptionError(f"groups of {size} codes: found {found.tolist()[:4]}")
        own = torch.arange(size)
        there = torch.cat([own, found[:, 0], found[:, 1]])
        back = torch.cat([own, found[:, 1], found[:, 0]])
        keys = torch.unique(there * size + back)
        return cls(size, keys // max(size, 1), keys % max(size, 1))

    @classmethod
    def singletons(cls, size: int) -> Groups:
        """Every code by itself: acceptance by them is exact."""
        return cls.of_pairs(size, [])

    def of(self, code: int) -> Tensor:
        """The middles of the groups that a code belongs to; the codes of its own group."""
        start, end = torch.searchsorted(self.middles, torch.tensor([code, code + 1])).tolist()
        return self.codes[start:end]

    def masses(self, distribution: Tensor) -> Tensor:
        """What the groups have of a distribution `[V]`, float64 `[V]`, with the same sum."""
        return self._gathered(self.parts * distribution)

    def averages(self, values: Tensor) -> Tensor:
        """The mean `[V]`, for each code, of values `[V]` of the groups that it belongs to."""
        return self.parts * self._gathered(values)

    def over(self, size: int) -> Groups:
        """The same groups among so many ids; those that come or go are by themselves.

        Raises:
            OptionError: A code that goes has company.
        """
        if size == self.size:
            return self
        alike = self.middles < self.codes
        pairs = torch.stack([self.middles[alike], self.codes[alike]], dim=1)
        if pairs.numel() and int(pairs.max()) >= size:
            raise OptionError(
                f"groups over {self.size} codes don't fit a target that knows {size}: build them "
                "from the embeddings of this target"
            )
        return Groups.of_pairs(size, pairs)

    def _gathered(self, values: Tensor) -> Tensor:
        return torch.zeros_like(values).index_add_(0, self.middles, values[self.codes])

    def _both_ways(self) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
        return (self.middles, self.codes), (self.codes, self.middles)

    def _keys(self, first: Tensor, second: Tensor) -> Tensor:
        return first * self.size + second


def similar(embeddings: Tensor, threshold: float, codebooks: Sequence[Codebook]) -> Groups:
    """Groups of the codes whose embeddings have a cosine above a threshold.

    Codes of different codebooks are never alike, and marks are by themselves, whatever their
    embeddings: neither may stand for the other.

    Args:
        embeddings: The target's own, floating point `[V, D]`; row i belongs to id i.
        threshold: Cosine, -1 to 1. At 1 every code is by itself.
        codebooks: Those whose ids are in this place: one for each place of a frame, several where
            one sequence holds codes of them all.

    Returns:
        The groups.

    Raises:
        OptionError: The threshold is no cosine; or the embeddings are no table of numbers with a
            row for every id.

    Source:
        "Principled Coarse-Grained Acceptance for Speculative Decoding in Speech" (2025, arXiv
        2511.13732).

    Example:
        >>> table = torch.tensor([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [1.0, 0.0]])
        >>> similar(table, 0.9, [Codebook(4, codes=4, end=3)]).of(0).tolist()
        [0, 1]
    """
    if not -1 <= threshold <= 1:
        raise OptionError(f"threshold of similar codes: found {threshold}, expected -1 to 1")
    if embeddings.ndim != 2 or not embeddings.is_floating_point():
        raise OptionError(
            f"embeddings of codes: found {embeddings.dtype} {list(embeddings.shape)}, expected "
            "floating point [V, D]"
        )
    table = embeddings.detach().to("cpu", torch.float64)
    if not bool(table.isfinite().all()):
        raise OptionError("embeddings of codes: not all of them are numbers")
    marks = {mark for codebook in codebooks for mark in codebook.marks.values()}
    pairs = [
        found
        for codebook in codebooks
        for found in _alike(table, threshold, [i for i in codebook.ids if i not in marks])
    ]
    return Groups.of_pairs(len(table), torch.cat(pairs) if pairs else [])


def _alike(table: Tensor, threshold: float, ids: Sequence[int]) -> Iterator[Tensor]:
    """Pairs `[n, 2]` of these ids whose rows have a cosine above the threshold."""
    if ids[-1] >= len(table):
        raise OptionError(f"embeddings of codes: {len(table)} rows, but codes up to {ids[-1]}")
    known = torch.tensor(ids)
    directions = torch.nn.functional.normalize(table[known])
    for start in range(0, len(known), _ROWS):
        cosines = directions[start : start + _ROWS] @ directions.T
        # A cosine of 1 may come out a little larger.
        one, other = (cosines.clamp(max=1.0) > threshold).nonzero(as_tuple=True)
        first = one + start < other
        yield torch.stack([known[one[first] + start], known[other[first]]], dim=1)


@dataclass(frozen=True, slots=True, eq=False)
class Approximate:
    """Leave to acceptance by groups of similar codes: another distribution than the target's.

    Attributes:
        groups: of each codebook of a frame, in order; one where a step decides one token.
        budget: the distance from the target's distribution, in total variation, that an output may
            be away at most: what doesn't fit in any more is judged exactly. None: no limit.

    Raises:
        OptionError: the budget is no distance, or there are no groups.
    """

    groups: tuple[Groups, ...]
    budget: float | None = None

    def __post_init__(self) -> None:
        if not self.groups:
            raise OptionError("approximate acceptance: no groups were given")
        if self.budget is not None and not 0 <= self.budget < math.inf:
            raise OptionError(f"budget of distance: found {self.budget}, expected 0 or more")

    def behind(self, spent: float) -> Approximate:
        """The same where this much of the budget is spent."""
        return self if self.budget is None else replace(self, budget=max(self.budget - spent, 0.0))

"""transformers' own loop, drawing by keyed noise instead of its stream of random numbers.

Its distribution stays the library's: only where a draw would be made from it, the noise of the
position decides. So seeded codes can be compared with the library's own, token by token.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import GenerationMixin

from mmspec.acceptance import gumbel


@contextmanager
def drawing(seeds: Iterator[int]) -> Iterator[None]:
    """While this is open, each run of the library's loop draws by the next of some seeds."""
    loop, draw = GenerationMixin._sample, torch.multinomial
    running: list[tuple[int, Iterator[int]]] = []

    @functools.wraps(loop)
    def sample(self: Any, input_ids: Tensor, *args: Any, **kwargs: Any) -> Any:
        positions = iter(range(input_ids.shape[1], 1 << 30))
        running.append((next(seeds), positions))
        try:
            return loop(self, input_ids, *args, **kwargs)
        finally:
            running.pop()

    def multinomial(law: Tensor, num_samples: int, **more: Any) -> Tensor:
        if not running:
            return draw(law, num_samples, **more)
        seed, positions = running[-1]
        noise = gumbel(seed, torch.tensor([next(positions)]), law.shape[-1])
        return (law.double().log() + noise).argmax(-1, keepdim=True)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(GenerationMixin, "_sample", sample)
        patch.setattr(torch, "multinomial", multinomial)
        yield

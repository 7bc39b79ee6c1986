"""What one step decides, as far as a session is built for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch

from mmspec.engine.choosing import AcceptanceSampler, Sampling
from mmspec.engine.processing import Processors
from mmspec.prefix import Prefix


class StepKind(Protocol):
    """Makes the parts of a session that know what a token is."""

    def prefix(self, prompt: Sequence[Any], capacity: int, device: torch.device) -> Prefix:
        """A prompt, with room for what follows it."""
        ...

    def sampler(self, sampling: Sampling, device: torch.device) -> Any:
        """The acceptance rule of a request."""
        ...

    def processors(self, processors: Any) -> Processors:
        """Its logits processors over blocks."""
        ...


class Single:
    """A step decides one id."""

    def prefix(self, prompt: Sequence[int], capacity: int, device: torch.device) -> Prefix[int]:
        """A prompt, with room for what follows it."""
        return Prefix(prompt, capacity, device)

    def sampler(self, sampling: Sampling, device: torch.device) -> AcceptanceSampler:
        """The acceptance rule over ids."""
        return AcceptanceSampler(sampling, device)

    def processors(self, processors: Any) -> Processors:
        """Logits processors over blocks of ids."""
        return Processors(processors)


SINGLE = Single()

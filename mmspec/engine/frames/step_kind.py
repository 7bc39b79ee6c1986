"""What a session is given where one step decides a frame."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from mmspec.engine.choosing import Sampling
from mmspec.engine.frames.choosing import Chain, FrameSampler
from mmspec.engine.frames.layout import Layout
from mmspec.engine.frames.processing import FrameProcessors
from mmspec.prefix import Frame, FramePrefix


@dataclass(frozen=True, eq=False)
class Frames:
    """Tokens are frames of K codes.

    Attributes:
        codebooks: K.
        layout: what is forced, and where an output ends.
        chain: what scores the codebooks behind the first, where they depend on it; None where the
            codes of a frame are independent given the backbone.
        said: ids that a head says, where rows have more; None: as many as rows have.
    """

    codebooks: int
    layout: Layout
    chain: Chain | None = None
    said: int | None = None

    def prefix(self, prompt: Sequence[Frame], capacity: int, device: torch.device) -> FramePrefix:
        """A prompt, with room for what follows it."""
        return FramePrefix(prompt, capacity, device, self.codebooks)

    def sampler(self, sampling: Sampling, device: torch.device) -> FrameSampler:
        """The acceptance rule over frames."""
        return FrameSampler(sampling, device, self.layout, self.codebooks, self.chain)

    def processors(self, processors: Any) -> FrameProcessors:
        """Logits processors over blocks of frames."""
        return FrameProcessors(processors, self.codebooks, self.said)

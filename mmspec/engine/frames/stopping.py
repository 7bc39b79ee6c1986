"""Where an output of frames ends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import StoppingCriteriaList
from transformers.generation.stopping_criteria import EosTokenCriteria

from mmspec.engine.frames.layout import Layout
from mmspec.engine.stopping import ScoresSoFar, Stops
from mmspec.errors import OptionError
from mmspec.prefix import Prefix


class FrameStops(Stops):
    """Cuts a block of frames where ordinary decoding would have ended.

    Args:
        layout: says which frame is the last.
        max_length: frames, the prompt's included, that the output never exceeds.
        criteria: transformers' prepared criteria; of the ids' tensor `[K, frames]` each. End marks
            are the layout's business.
    """

    def __init__(
        self, layout: Layout, max_length: int, criteria: StoppingCriteriaList | None = None
    ) -> None:
        asked = Stops.from_transformers(criteria or StoppingCriteriaList(), (), max_length)
        super().__init__((), asked.max_length, asked.others)
        self._layout = layout
        self._pads = any(type(one) is EosTokenCriteria for one in criteria or ())
        self._ended: Tensor | None = None

    def _ended_by_others(self, ids: Tensor, scores: ScoresSoFar) -> bool:
        """Whether criteria have ended every codebook: as under `generate`, an ended one stays so.

        Raises:
            OptionError: some have ended, and `generate` would fill them up while the rest goes on.
        """
        answers = [torch.as_tensor(c(ids, scores), device=ids.device) for c in self.others]
        for answer in answers:
            ended = answer.bool().expand(len(ids))
            self._ended = ended if self._ended is None else self._ended | ended
        if self._ended is None:
            return False
        if self._pads and bool(self._ended.any() & ~self._ended.all()):
            raise OptionError(
                "stopping_criteria: one has ended some codebooks and not the others; end all of "
                "them at once"
            )
        return bool(self._ended.all())

    def _ends(self, prefix: Prefix, tokens: Sequence[Any]) -> bool:
        return self._layout.ends(prefix.ids, tokens)

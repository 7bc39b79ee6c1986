"""Where an output of frames ends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from transformers import StoppingCriteriaList

from mmspec.engine.frames.layout import Layout
from mmspec.engine.stopping import Stops
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

    def _ends(self, prefix: Prefix, units: Sequence[Any]) -> bool:
        return self._layout.ends(prefix.ids, units)

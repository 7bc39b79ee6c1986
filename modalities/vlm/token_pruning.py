"""Drafting with a part of the image: most visual positions are left out of the drafter's prompt.

A drafter guesses well without most of what it sees, and its prompt is what a long image or a video
makes expensive. Which positions are kept follows Ji et al. 2025, arXiv 2508.16201: those that the
target attends to, and an even grid over the others. They keep their own positions in space.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from mmspec.errors import OptionError
from mmspec.modalities.base.draft import ModelDraft
from mmspec.modalities.base.prefix_decoder import PrefixTarget
from mmspec.modalities.base.preparation import Prepared
from mmspec.modalities.base.request import Request
from mmspec.modalities.vlm.text_only import check_in_prompt


@dataclass
class PrunedDraft(ModelDraft):
    """Another model on the same image, of which its decoder reads a part.

    Its towers see the whole image; what gets shorter is its prompt, and what it attends to in
    every step. The target is asked once what it looked at, which takes a pass of one token.

    Args:
        keep: share of the visual positions that are kept, or (an integer) how many.

    Raises:
        OptionError: not a share or a number of positions.
        ModelError: the drafter's image doesn't stand in its prompt.
    """

    name: str = "thinned"
    keep: float | int = 0.25

    def __post_init__(self) -> None:
        check_in_prompt(self.drafter, "be thinned")
        if isinstance(self.keep, bool) or not 0 < self.keep < math.inf:
            raise OptionError(f"keep={self.keep!r}: expected a share up to 1.0 or a number")
        if isinstance(self.keep, float) and self.keep > 1:
            raise OptionError(f"keep={self.keep!r}: a share is at most 1.0, a number has no point")
        super().__post_init__()

    def _read_prompt(
        self, request: Request, prepared: Prepared, opened: Any
    ) -> tuple[Sequence[int], Tensor]:
        prompt = prepared.prompt
        visual = visual_positions(prompt, self.drafter.family.reserved(self.drafter.model))
        count = how_many(self.keep, len(visual))
        if count == len(visual):
            return prompt, opened.read_prompt()
        seen = kept(visual, count, self._attention(request, len(visual)))
        left_out = set(visual).difference(seen)
        places = [place for place in range(len(prompt)) if place not in left_out]
        row = opened.read_prompt(torch.tensor(places, device=opened.device))
        return [prompt[place] for place in places], row

    def _attention(self, request: Request, count: int) -> Tensor | None:
        """The target's attention to each of the drafter's visual positions, where it can tell."""
        target = request.target
        if not self.target.family.in_prompt:
            return None
        if not isinstance(target, PrefixTarget) or not target.takes_trees:
            return None
        visual = visual_positions(request.prompt, self.target.family.reserved(self.target.model))
        if not visual:
            return None
        weights = target.prompt_attention().cpu()[visual]
        # Another model may cut the same image into more positions, or fewer.
        return weights[spread(count, len(visual))]


def visual_positions(prompt: Sequence[int], placeholders: frozenset[int]) -> list[int]:
    """Where in a prompt an image or a sound stands."""
    return [place for place, token in enumerate(prompt) if token in placeholders]


def how_many(keep: float | int, count: int) -> int:
    """Positions to keep of `count`: a share of them, or a number.

    Example:
        >>> how_many(0.25, 10), how_many(4, 10), how_many(40, 10)
        (3, 4, 10)
    """
    return min(keep if isinstance(keep, int) else math.ceil(keep * count), count)


def spread(count: int, over: int) -> list[int]:
    """`count` indices at even distances among `over`.

    Example:
        >>> spread(2, 8), spread(4, 2)
        ([2, 6], [0, 0, 1, 1])
    """
    return [(2 * index + 1) * over // (2 * count) for index in range(count)]


def kept(visual: Sequence[int], count: int, attention: Tensor | None) -> list[int]:
    """Which visual positions stay: half of them by attention, half evenly over the others.

    Args:
        visual: all of them.
        count: how many stay.
        attention: to each of them; None: all stay by distance.

    Example:
        >>> kept([3, 4, 5, 6], 2, torch.tensor([0.1, 0.2, 0.9, 0.3])), kept([3, 4, 5, 6], 2, None)
        ([4, 5], [4, 6])
    """
    best: set[int] = set()
    if attention is not None:
        best = {visual[index] for index in attention.topk((count + 1) // 2).indices.tolist()}
    others = [place for place in visual if place not in best]
    even = (others[index] for index in spread(count - len(best), len(others)))
    return sorted(best.union(even))

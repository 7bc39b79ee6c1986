"""Letting a decoder read only some places of a prompt, each at its own position.

The model's own code makes embeddings and masks for the whole prompt; what is left out is taken
away where they enter the decoder.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from mmspec.errors import ModelError


@contextmanager
def reading_only(decoder: Any, places: Tensor | None) -> Iterator[None]:
    """While this is open the decoder reads of a prompt `[1, P]` the given places only.

    Args:
        decoder: what the model hands its embeddings to.
        places: rising indices `[n]`; None: all of them.

    Raises:
        ModelError: the model hands its decoder something else.
    """
    if places is None:
        yield
        return

    def prune(module: Any, given: tuple[Any, ...], named: dict[str, Any]) -> Any:
        if given or named.get("inputs_embeds") is None:
            raise ModelError(
                f"{type(module).__name__} isn't handed the prompt's embeddings: its visual "
                "positions can't be thinned"
            )
        return given, _pruned(named, places)

    hook = decoder.register_forward_pre_hook(prune, with_kwargs=True)
    try:
        yield
    finally:
        hook.remove()


def _pruned(named: dict[str, Any], places: Tensor) -> dict[str, Any]:
    """What a decoder is given, without the other places."""
    positions = named.get("position_ids")
    pruned = {
        **named,
        "inputs_embeds": named["inputs_embeds"][:, places],
        "position_ids": places[None] if positions is None else positions[..., places],
        "attention_mask": _mask(named.get("attention_mask"), places),
    }
    # Features of several depths of the tower, added to the visual places in the first layers.
    visual, deep = named.get("visual_pos_masks"), named.get("deepstack_visual_embeds")
    if visual is not None and deep is not None:
        kept = torch.zeros_like(visual)
        kept[:, places] = True
        pruned["visual_pos_masks"] = visual[:, places]
        pruned["deepstack_visual_embeds"] = [level[kept[visual]] for level in deep]
    return pruned


def _mask(mask: Any, places: Tensor) -> Any:
    """A mask by position `[1, P]`, by pair `[1, 1, P, P]`, by kind of layer, or none."""
    if isinstance(mask, dict):
        return {kind: _mask(one, places) for kind, one in mask.items()}
    if not isinstance(mask, Tensor):
        return mask
    return mask[..., places] if mask.dim() == 2 else mask[..., places, :][..., places]

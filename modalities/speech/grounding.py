"""How likely the steps of an output are, read again with its text or without."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from mmspec.acceptance.frames import FREE
from mmspec.errors import StateError
from mmspec.modalities.speech.contract import CodesRequest, CodesResult, PreparedTarget

if TYPE_CHECKING:
    from mmspec.modalities.speech.family import FrameFamily

BLOCK = 256
"""Frames that are read at a time."""


def frame_log_probs(
    family: FrameFamily, asked: CodesRequest, said: CodesResult, *, text: bool
) -> list[float]:
    """The log-probability of each frame behind those before it, of all its decided codes together.

    The distribution is the model's own: unguided, unprocessed.

    Raises:
        OptionError: the family can't drop its text.
    """
    options = {**asked.options}
    if options.get("guidance_scale") is not None:
        options["guidance_scale"] = 1.0
    prepared = family.prepare(asked.pair.checkpoint.model, asked.inputs, **options)
    target = family.open(prepared if text else family.without_text(prepared), packed=False)
    try:
        return _read(target, said)
    finally:
        target.close()


@torch.no_grad()
def _read(target: PreparedTarget, said: CodesResult) -> list[float]:
    if said.layout is None:
        raise StateError("an output without a layout has no frames to be read again")
    frames = list(said.sequence[said.prompt_length :])
    forced = said.layout.forced(said.sequence[: said.prompt_length], frames)[:-1]
    row, found = target.read_prompt(), []
    for start in range(0, len(frames), BLOCK):
        block = frames[start : start + BLOCK]
        scored = target.score(block, keep=len(block))
        rows = torch.cat([row, scored[:-1]])
        if target.chain is not None:
            rows = torch.cat([rows[:, :1], target.chain.teach(block)], dim=1)
        found += _log_probs(rows, block, forced[start : start + BLOCK])
        row = scored[-1:]
    return found


def _log_probs(rows: Tensor, frames: list[tuple[int, ...]], forced: list[tuple[int, ...]]) -> list:
    """Sums over the free codes of each frame; rows `[n, K, V]`."""
    codes = torch.tensor(frames, device=rows.device)
    free = torch.tensor(forced, device=rows.device) == FREE
    chances = rows.double().log_softmax(-1).gather(-1, codes[..., None]).squeeze(-1)
    return chances.where(free, 0.0).sum(-1).tolist()

"""What codes transformers' own `generate` comes to: those that it hands to the codec."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from mmspec.factorizations.codes import Grid


def codes_heard(model: Any, inputs: Mapping[str, Any], channels: int, **options: Any) -> Grid:
    """The codes of `model.generate(**inputs, **options)`, frames × codebooks.

    Args:
        model: a model whose codec is its `audio_encoder`.
        inputs: one row.
        channels: how many times it decodes: once for each channel. Their codebooks lie side by
            side in the grid: all first ones, all second ones.
        options: of `generate`.
    """
    listener = _Listener(model.audio_encoder, channels)
    twin = copy.copy(model)
    twin._modules = {**model._modules, "audio_encoder": listener}
    with contextlib.suppress(_Heard):
        twin.generate(**inputs, **options)
    heard = torch.stack([codes[0, 0] for codes in listener.heard], dim=1).flatten(0, 1)
    return tuple(tuple(frame) for frame in heard.t().tolist())


class _Heard(Exception):
    """All codes have come: no sound is to be made of them."""


class _Listener(nn.Module):
    """Stands in for a codec and keeps the codes that it is to decode."""

    def __init__(self, codec: Any, channels: int) -> None:
        super().__init__()
        self._codec, self._channels = codec, channels
        self.config: Any = codec.config
        self.heard: list[Tensor] = []

    def encode(self, *args: Any, **kwargs: Any) -> Any:
        """As the codec does: codes of a prompt."""
        return self._codec.encode(*args, **kwargs)

    def decode(self, audio_codes: Tensor, audio_scales: Any = None) -> Any:
        """Codes `[1, B, codebooks, frames]` of one channel."""
        self.heard.append(audio_codes)
        if len(self.heard) == self._channels:
            raise _Heard
        return self._codec.decode(audio_codes[..., :1], audio_scales=audio_scales)

"""A decoder that attends across to encoder states: the image never stands in its prompt.

The library encodes while it prepares a request; from then on blocks go through the decoder alone.
What each layer makes of the encoder states is computed with the prompt, once, and never again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import torch
from torch import Tensor
from transformers.utils import ModelOutput

from mmspec.errors import InputError
from mmspec.kernels import PackedLinears
from mmspec.modalities.base.decoder import DecoderTarget, block_layers, first_layers, layer_list
from mmspec.modalities.base.family import Family
from mmspec.modalities.base.preparation import Prepared
from mmspec.modalities.base.prepared_target import PreparedTarget
from mmspec.state import DecoderState


class CrossAttentionTarget(DecoderTarget):
    """A decoder with cross-attention, opened on a prompt.

    Attributes:
        prompt: what `read_prompt` reads.
    """

    prompt: Sequence[int] = ()

    @torch.no_grad()
    def read_prompt(self) -> Tensor:
        """Read the prompt and freeze it; the distribution behind it `[1, V]`."""
        row = self.score(self.prompt, 1)
        self.state.freeze()
        return row

    def early_exit(self, layers: int) -> Self:
        """The first `layers` layers under the same head, over this target's own memory.

        Raises:
            ModelError: the decoder has no more layers than that.
        """
        return self._over(first_layers(self._decoder, layers), self.state.lend(layers))


class CrossAttentionFamily(Family):
    """A family of models whose decoder attends across to what an encoder made of the image."""

    placeholders: tuple[str, ...] = ()
    in_prompt = False
    endless = False
    most_images = 1

    def encoder_states(self, prepared: Prepared) -> Tensor:
        """What the decoder attends to, `[1, S, D]`."""
        return prepared.inputs["encoder_outputs"][0]

    def constants(self, prepared: Prepared) -> dict[str, Any]:
        """What else every call of the decoder takes; here the encoder's mask."""
        return {"encoder_attention_mask": prepared.inputs.get("attention_mask")}

    def visual_tokens(self, prepared: Prepared) -> int:
        """Positions of what is attended to; where a text was read beside the image, with it."""
        return self.encoder_states(prepared).shape[1]

    def rows(self, model: Any, inputs: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The inputs of each row of a batch, as its own call of `generate` takes them.

        Padding stays: not every encoder or decoder leaves it out where a mask says so.
        """
        return rows_of(inputs)

    def target_class(self, model: Any) -> Any:
        """What runs blocks: a kind of `CrossAttentionTarget`."""
        return CrossAttentionTarget

    def open(self, prepared: Prepared, *, packed: bool) -> PreparedTarget:
        """The decoder, nothing read yet. Close it when done."""
        model = prepared.model
        decoder, head = self.decoder(model), self.head(model)
        _, layers = layer_list(decoder)
        target = self.target_class(model)(
            decoder,
            head,
            self.encoder_states(prepared),
            DecoderState(len(layers), self.room(prepared), cross_attention=True),
            PackedLinears(block_layers(decoder, head)).open() if packed else None,
            vocab_size=self.vocab_size(model),
            constants=self.constants(prepared),
        )
        target.prompt = prepared.prompt
        return target


def rows_of(inputs: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A batch whose inputs all have an axis of rows in front, row by row.

    The tensors are copies: not every `generate` leaves its inputs alone.

    Raises:
        InputError: not as many rows of one as of another, or what can't be taken apart.
    """
    tensors = {name: value for name, value in inputs.items() if isinstance(value, Tensor)}
    others = {name: value for name, value in inputs.items() if name not in tensors}
    counts = {len(value): name for name, value in tensors.items()}
    if len(counts) > 1:
        (most, one), (fewest, other) = max(counts.items()), min(counts.items())
        raise InputError(
            f"{one} has {most} rows, {other} has {fewest}: let the model's processor make both "
            "together"
        )
    count = max(next(iter(counts), 1), _encoded_rows(others))
    if count > 1:
        _check_plain(others, count)
    return [
        {**{name: value[row : row + 1].clone() for name, value in tensors.items()}, **others}
        for row in range(count)
    ]


def _encoded_rows(inputs: Mapping[str, Any]) -> int:
    """Rows of images that were encoded already; 1 where none were."""
    encoded = inputs.get("encoder_outputs")
    return len(encoded[0]) if isinstance(encoded, tuple | ModelOutput) else 1


def _check_plain(inputs: Mapping[str, Any], count: int) -> None:
    for name, value in inputs.items():
        if value is not None and not isinstance(value, bool | int | float | str):
            raise InputError(
                f"{name}: can't tell which part belongs to which of {count} rows; pass them one "
                "by one"
            )

"""A decoder whose conditioning is a prefix: image or sound stand among the prompt's positions.

The prompt is read once, by the whole model. From then on blocks go through the decoder alone: no
tower runs again, nothing is inserted where an id that stands for an image comes up, and what the
prefix left in memory is never written again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Self

import torch
from torch import Tensor, nn

from mmspec.compat import cache_argument
from mmspec.kernels import PackedLinears
from mmspec.modalities.base.decoder import BlockTarget, first_layers, tree_shape
from mmspec.modalities.base.position_subset import reading_only
from mmspec.modalities.base.preparation import Prepared
from mmspec.state import DecoderState


class PrefixTarget(BlockTarget):
    """A decoder behind a prompt that holds its conditioning.

    Args:
        prepared: the request, one row.
        decoder: what a block runs through.
        head: vocabulary projection.
        state: its key/value state.
        packed: packed layers that serve this decoder, closed with it.
    """

    def __init__(
        self,
        prepared: Prepared,
        decoder: Any,
        head: Any,
        state: DecoderState,
        packed: PackedLinears | None = None,
    ) -> None:
        super().__init__(decoder, head, state, head.weight.device, packed)
        self._prepared = prepared
        self._behind: Tensor | None = None

    @property
    def takes_trees(self) -> bool:
        """Whether the attention kernel takes a mask of ours."""
        config = self._decoder.config
        windowed = getattr(config, "sliding_window", None) is not None
        return config._attn_implementation in ("sdpa", "eager") and not windowed

    @torch.no_grad()
    def read_prompt(self, places: Tensor | None = None) -> Tensor:
        """Let the whole model read the prompt and freeze it; the distribution behind it `[1, V]`.

        Args:
            places: for a drafter that leaves some of them out: those that its decoder reads.
        """
        prepared = self._prepared
        length = prepared.input_ids.shape[1] if places is None else len(places)
        with self.state.block(length), reading_only(self._decoder, places):
            outputs, positions = prefill(prepared, self.state)
        self.state.freeze()
        self.forwards += 1
        self._behind = positions[..., -1:] + 1 - length
        return outputs.logits[:, -1].float()

    def _hidden(self, block: Tensor, parents: Sequence[int] | None) -> Tensor:
        """The decoder's last hidden states `[1, n, D]` for a block of ids `[1, n]`."""
        start, size = self.state.length, block.shape[1]
        mask = None
        if parents is None:
            positions = torch.arange(start, start + size, device=self.device)
        else:
            positions, sees = tree_shape(parents, start, self.device)
            mask = self._mask(positions, sees)
        return self._decoder(
            input_ids=block,
            position_ids=positions if self._behind is None else positions + self._behind,
            attention_mask=mask,
            use_cache=True,
            **self._told(size),
            **cache_argument(type(self._decoder), self.state.cache),
        ).last_hidden_state

    def _told(self, size: int) -> Mapping[str, Any]:
        """What else the decoder takes with a block of `size` tokens."""
        return {}

    def _mask(self, positions: Tensor, sees: Tensor) -> Any:
        """What the decoder takes as a mask: positions `[n]`, what each sees `[n, length + n]`."""
        return self._additive(sees)

    def _additive(self, sees: Tensor) -> Tensor:
        hidden_from = torch.zeros(sees.shape, dtype=self._head.weight.dtype, device=self.device)
        return hidden_from.masked_fill(~sees, -torch.inf)[None, None]

    @torch.no_grad()
    def prompt_attention(self) -> Tensor:
        """What the prompt's last position attended to `[P]`: the mean of all heads and layers.

        That token is read once more, behind what is there and seeing what it saw, with attention
        that shows its weights. Afterwards state and model are as before.
        """
        held, last = self.state.length, self.state.frozen - 1
        place = torch.tensor([last], device=self.device)
        sees = torch.arange(held + 1, device=self.device)[None] < last
        sees[:, held] = True
        config = self._decoder.config
        kernel = config._attn_implementation
        config._attn_implementation = "eager"
        try:
            with self.state.block(1):
                weights = self._decoder(
                    input_ids=self._prepared.input_ids[:, last:],
                    position_ids=place if self._behind is None else place + self._behind,
                    attention_mask=self._mask(place, sees),
                    use_cache=True,
                    output_attentions=True,
                    **cache_argument(type(self._decoder), self.state.cache),
                ).attentions
        finally:
            config._attn_implementation = kernel
            self.state.rollback(held)
        self.forwards += 1
        mean = torch.stack([layer[0, :, 0].float().mean(0) for layer in weights]).mean(0)
        return torch.cat([mean[:last], mean[held:]])

    def early_exit(self, layers: int) -> Self:
        """The first `layers` layers under the same head, over this target's own memory.

        Raises:
            ModelError: the decoder has no more layers than that.
        """
        decoder, state = first_layers(self._decoder, layers), self.state.lend(layers)
        shallow = type(self)(self._prepared, decoder, self._head, state)
        shallow._behind = self._behind
        return shallow


class WindowedTarget(PrefixTarget):
    """The same where some layers see no further back than a window, each kind with its own mask."""

    @property
    def takes_trees(self) -> bool:
        """Whether the attention kernel takes a mask of ours."""
        return self._decoder.config._attn_implementation in ("sdpa", "eager")

    def _mask(self, positions: Tensor, sees: Tensor) -> Any:
        window = self._decoder.config.sliding_window
        # A tree's tokens stand side by side at one place, so their keys' places are looked up.
        places = torch.cat([torch.arange(self.state.length, device=self.device), positions])
        near = places[None] > positions[:, None] - window
        return {
            "full_attention": self._additive(sees),
            "sliding_attention": self._additive(sees & near),
        }


def prefill(prepared: Prepared, state: DecoderState) -> tuple[Any, Tensor]:
    """The whole model's pass over a prompt, its keys and values written into `state`.

    Returns:
        (the model's output, positions `[..., P]` with an axis for every kind that it counts).
    """
    model = prepared.model
    cache = cache_argument(type(model), state.cache)
    inputs = model.prepare_inputs_for_generation(
        prepared.input_ids, is_first_iteration=True, **prepared.inputs, **cache
    )
    with _within_vocabulary(model.get_input_embeddings()):
        return model(**inputs, return_dict=True), inputs["position_ids"]


@contextmanager
def _within_vocabulary(embeddings: nn.Module) -> Iterator[None]:
    """Look up no id that a table of embeddings hasn't, while this is open.

    What stands for an image may be such an id: a drafter can have a smaller vocabulary than the
    prompt's, and not every model replaces the id itself.
    """
    last = embeddings.weight.shape[0] - 1  # type: ignore[index]
    hook = embeddings.register_forward_pre_hook(lambda _, ids: (ids[0].clamp(max=last),))
    try:
        yield
    finally:
        hook.remove()

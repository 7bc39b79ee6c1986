"""What an adapter of a family answers. Families override what differs; most override little."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from PIL import Image
from torch import Tensor, nn

from mmspec.kernels import PackedLinears
from mmspec.modalities.base.batch import Medium, joined, split
from mmspec.modalities.base.decoder import block_layers, end_tokens
from mmspec.modalities.base.prefix_decoder import PrefixTarget
from mmspec.modalities.base.preparation import Prepared
from mmspec.modalities.base.prepared_target import PreparedTarget
from mmspec.modalities.base.prompting import INSTRUCTIONS, chat
from mmspec.state import DecoderState

SIDE_BRANCHES = 32
"""Positions beyond the output's longest possible end, for branches of a tree that lose."""


class Family:
    """A family of models whose decoder reads its conditioning as a prefix.

    Attributes:
        model_types: transformers' names for it.
        model_class: the transformers class that loads it.
        placeholders: names of the config entries that say which ids stand for an image or sound.
        media_inputs: the inputs that hold images or sounds.
        encoder_names: where its encoders are, as dotted paths from the model.
        hears: it listens; else it looks.
        in_prompt: an image takes positions of the prompt, one for each part of it.
        endless: its positions go on past what it was trained for (rotary ones), as with `generate`.
        instructions: what it is told by task; None: nothing, it does what it was trained for.
        takes_text: it can be told something else.
        most_images: in one prompt; None: any number.
    """

    model_types: tuple[str, ...]
    model_class: str
    placeholders: tuple[str, ...] = ("image_token_id", "video_token_id")
    media_inputs: tuple[str, ...] = ("pixel_values",)
    encoder_names: tuple[str, ...] = ("model.vision_tower",)
    hears: bool = False
    in_prompt: bool = True
    endless: bool = True
    instructions: Mapping[str, str | None] = INSTRUCTIONS
    takes_text: bool = True
    most_images: int | None = None

    def inputs(
        self, processor: Any, images: list[Image.Image], text: str | None
    ) -> Mapping[str, Any]:
        """What its processor makes of images and an instruction."""
        return chat(processor, images, text)

    def class_for(self, config: Any) -> str:
        """Name of the transformers class that loads a checkpoint with this configuration."""
        return self.model_class

    def decoder(self, model: Any) -> Any:
        """The module that a block of tokens runs through: embeddings, layers, final norm."""
        return model.get_decoder()

    def layers(self, model: Any) -> int:
        """How many of its layers remember keys and values."""
        return len(self.decoder(model).layers)

    def head(self, model: Any) -> nn.Module:
        """The vocabulary projection behind it."""
        return model.get_output_embeddings()

    def vocab_size(self, model: Any) -> int:
        """Width of the rows that it makes."""
        return self.head(model).weight.shape[0]  # type: ignore[index,return-value]

    def ends(self, model: Any) -> frozenset[int]:
        """Tokens that end an output, unless a request says otherwise."""
        return end_tokens(model.generation_config)

    def reserved(self, model: Any) -> frozenset[int]:
        """Ids that stand for what isn't text: they are never drafted."""
        found = (getattr(model.config, name, None) for name in self.placeholders)
        return frozenset(token for token in found if isinstance(token, int))

    def encoders(self, model: Any) -> list[nn.Module]:
        """The modules whose runs are encoder runs."""
        return [model.get_submodule(path) for path in self.encoder_names]

    def context(self, model: Any) -> int:
        """Positions that the decoder was made for, the prompt included."""
        return text_config(model).max_position_embeddings

    def visual_tokens(self, prepared: Prepared) -> int:
        """Positions that stand for images or sounds."""
        reserved = self.reserved(prepared.model)
        return sum(token in reserved for token in prepared.prompt)

    def rows(self, model: Any, inputs: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The inputs of each row of a batch, as its own call of `generate` takes them: unpadded.

        Raises:
            InputError: images and the positions that stand for them don't match.
        """
        return split(self, model, inputs)

    def media(self, model: Any, inputs: Mapping[str, Any]) -> list[Medium]:
        """What was given beside the text, in the prompts' order."""
        given = {name: inputs[name] for name in self.media_inputs if inputs.get(name) is not None}
        if not given:
            return []
        stands = getattr(model.config, self.placeholders[0])
        return [
            Medium(stands, places, {name: value[one : one + 1] for name, value in given.items()})
            for one, places in enumerate(self.places(model, inputs))
        ]

    def places(self, model: Any, inputs: Mapping[str, Any]) -> list[int]:
        """How many positions of a prompt each of the media takes; here one for every patch."""
        images = inputs["pixel_values"]
        return [patches(model, images)] * len(images)

    def packed(self, media: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
        """One row's media as its processor would pack them."""
        return joined(media)

    def open(self, prepared: Prepared, *, packed: bool) -> PreparedTarget:
        """The decoder, nothing read yet. Close it when done."""
        model = prepared.model
        decoder, head = self.decoder(model), self.head(model)
        state = DecoderState(self.layers(model), self.room(prepared), cross_attention=False)
        packs = PackedLinears(block_layers(decoder, head)).open() if packed else None
        return self.target_class(model)(prepared, decoder, head, state, packs)

    def target_class(self, model: Any) -> Callable[..., PreparedTarget]:
        """What runs blocks behind a prompt."""
        return PrefixTarget

    def limit(self, prepared: Prepared) -> int:
        """Positions at which a request is over, whatever it says."""
        context = self.context(prepared.model)
        longest = prepared.config.max_length or context
        return longest if self.endless else min(longest, context)

    def room(self, prepared: Prepared) -> int:
        """Positions that a request can need: its longest output, and side branches."""
        longest = max(self.limit(prepared), prepared.input_ids.shape[1]) + SIDE_BRANCHES
        return longest if self.endless else min(longest, self.context(prepared.model))


def text_config(model: Any) -> Any:
    """The decoder's part of a configuration."""
    return model.config.get_text_config(decoder=True)


def patches(model: Any, images: Tensor) -> int:
    """Patches that a tower cuts each of some images `[..., height, width]` into."""
    size = model.config.vision_config.patch_size
    high, wide = (size, size) if isinstance(size, int) else size
    return (images.shape[-2] // high) * (images.shape[-1] // wide)

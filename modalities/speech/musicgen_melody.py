"""MusicGen Melody: MusicGen's rows behind a prefix of conditioning, a melody and then a text.

The library makes the prefix: chroma of the melody, or of none, and the text's encoder states, all
at the decoder's width. Under guidance, the unconditional half's melody is none and its text zero.
The decoder reads the prefix once, in front of the first row, and never attends across.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from torch import Tensor

from mmspec.compat import cache_argument
from mmspec.errors import ModelError
from mmspec.modalities.base.preparation import Prepared
from mmspec.modalities.base.weights import same_weights
from mmspec.modalities.speech.delay_pattern import RowsTarget
from mmspec.modalities.speech.musicgen import Musicgen


class MelodyTarget(RowsTarget):
    """A decoder of delayed rows behind a prefix."""

    crosses = False

    def _read(self, block: Tensor) -> Tensor:
        """The decoder's last hidden states `[B, n, D]`, those of a prefix that it reads in front.

        Args:
            block: ids `[B K, n]`.
        """
        return self._decoder(
            input_ids=block,
            encoder_hidden_states=self._states if self.state.length < 0 else None,
            use_cache=True,
            **cache_argument(type(self._decoder), self.state.cache),
        )[0]


class MusicgenMelody(Musicgen):
    """MusicGen Melody, mono and stereo."""

    title = "MusicGen Melody"
    loads = "MusicgenMelodyForConditionalGeneration"
    drafters: ClassVar[Mapping[str, str]] = {
        "musicgen_melody": loads,
        "musicgen_melody_decoder": "MusicgenMelodyForCausalLM",
    }
    target_class = MelodyTarget
    encoded = ("input_ids", "attention_mask", "input_features")

    def shares_encoder(self, model: Any, drafter: Any) -> bool:
        """Whether a whole drafting model would make the same prefix as the target."""
        names = ("text_encoder", "enc_to_dec_proj", "audio_enc_to_dec_proj")
        pairs = [(getattr(model, name, None), getattr(drafter, name, None)) for name in names]
        if model.config.chroma_length != drafter.config.chroma_length:
            return False
        return all(
            own is other or (own is not None and other is not None and same_weights(own, other))
            for own, other in pairs
        )

    def without_text(self, prepared: Prepared) -> Prepared:
        """The same request with the melody and nothing behind it, as guidance drops a text."""
        prefix = prepared.inputs["encoder_hidden_states"].clone()
        prefix[:, prepared.model.config.chroma_length :] = 0
        return replace(prepared, inputs={**prepared.inputs, "encoder_hidden_states": prefix})

    def _conditioning(self, model: Any, prepared: Prepared) -> tuple[Tensor, Tensor | None]:
        """The prefix `[B, S, D]`; all of it counts, padding of a text is zero."""
        return prepared.inputs["encoder_hidden_states"], None

    def _lent(self, prepared: Prepared, drafter: Any) -> tuple[Tensor, Tensor | None]:
        """The target's prefix for a decoder of the same width."""
        states, mask = self._conditioning(prepared.model, prepared)
        if states.shape[-1] != drafter.config.hidden_size:
            raise ModelError(
                f"the drafter reads a prefix {drafter.config.hidden_size} wide, the target's is "
                f"{states.shape[-1]} wide"
            )
        return states, mask


FAMILY = MusicgenMelody()

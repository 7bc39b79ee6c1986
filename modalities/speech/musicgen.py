"""MusicGen: delayed codebooks behind a decoder that attends across to a text's encoder states.

transformers knows every row's marks before anything is decided: `max_length` says how many rows
there are, and its delay pattern which cells of them hold marks, or codes of a prompt that codebooks
are late with. No end mark exists: the number of rows ends an output.

Legend: K codebooks (of all channels), B batch rows (2 under guidance, else 1), D width, S positions
of conditioning.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor
from transformers import MaxLengthCriteria, MaxTimeCriteria, SuppressTokensLogitsProcessor

from mmspec.engine.frames import FRAME_FORMS, Layout
from mmspec.engine.processing import IGNORES_PREFIX
from mmspec.errors import InputError, ModelError, OptionError
from mmspec.factorizations import Codebook, DelayedFrames
from mmspec.factorizations.codes import Grid
from mmspec.modalities.base.decoder import check_inference_mode
from mmspec.modalities.base.preparation import Prepared
from mmspec.modalities.base.weights import same_weights
from mmspec.modalities.speech.codec import open_codec
from mmspec.modalities.speech.contract import PreparedTarget
from mmspec.modalities.speech.delay_pattern import Rows, RowsTarget, Unforced, whole_rows
from mmspec.modalities.speech.family import FrameFamily, check_words
from mmspec.modalities.speech.listening import codes_heard
from mmspec.modalities.speech.preparation import prepare
from mmspec.prefix import Frame

if TYPE_CHECKING:
    from mmspec.modalities.speech.checkpoint import SpeechCheckpoint

TEXT_ONLY: frozenset[type] = IGNORES_PREFIX | {
    *FRAME_FORMS,
    SuppressTokensLogitsProcessor,
    MaxLengthCriteria,
    MaxTimeCriteria,
}
"""Processors and criteria that look at no id of the output."""


class Musicgen(FrameFamily):
    """MusicGen, mono and stereo.

    Attributes:
        target_class: what runs blocks of rows.
        encoded: the inputs that a whole model encodes.
    """

    title = "MusicGen"
    loads = "MusicgenForConditionalGeneration"
    drafters: ClassVar[Mapping[str, str]] = {
        "musicgen": loads,
        "musicgen_decoder": "MusicgenForCausalLM",
    }
    target_class: type[RowsTarget] = RowsTarget
    encoded: tuple[str, ...] = ("input_ids", "attention_mask")

    def descriptor(self, model: Any) -> DelayedFrames:
        """How its codes are ordered: codebook k is late by k.

        Stereo models have left and right of each codebook side by side, equally late.

        Args:
            model: a whole model, or the language model of the codes alone.

        Raises:
            ModelError: its marks are no marks, or its codec reads other codes; names both sides.
        """
        steps = order(model)
        if language_model(model) is not model:
            open_codec(model.audio_encoder, signals=self.signals(model)).check(steps)
        return steps

    def open(self, prepared: Prepared, *, packed: bool) -> RowsTarget:
        """The decoder of a request, nothing read yet. Close it when done.

        Raises:
            InputError: several requests at once, or guidance without a text.
            OptionError: an option of `generate` that these rows don't allow.
        """
        model, rows = prepared.model, rows_of(prepared)
        states, mask = self._conditioning(model, prepared)
        if states.shape[0] != 1 + rows.guided:
            raise InputError(
                f"conditioning of {states.shape[0]} rows, expected {1 + rows.guided}: without a "
                "text there is nothing to guide towards, set guidance_scale=1.0"
            )
        return self.target_class(model.decoder, rows, states, mask, packed=packed)

    def open_drafter(
        self,
        prepared: Prepared,
        drafter: Any,
        *,
        inputs: Mapping[str, Any] | None = None,
        guided: bool | None = None,
        packed: bool = False,
        shares: bool | None = None,
    ) -> RowsTarget:
        """A smaller model on the same request, its prompt still to be read.

        Args:
            prepared: what the target was opened on.
            drafter: a language model of codes, which is given the target's own encoder states; or
                a whole model, which is as well if its encoder is the same one.
            inputs: what a whole model encodes where its encoder is another.
            guided: whether it drafts under guidance; None: as the target is decoded.
            packed: whether its layers run packed.
            shares: whether its encoder is the target's, where the caller knows: to find out, all
                of its weights are compared.

        Raises:
            ModelError: it writes other rows than the target, or can't read the target's states.
            InputError: it has to encode by itself and isn't given what.
        """
        check_inference_mode(drafter, "drafter")
        self.check_drafter(prepared.model, drafter)
        rows = rows_of(prepared)
        rows = replace(rows, guided=rows.guided and guided is not False)
        if drafter is language_model(drafter):
            states, mask = self._lent(prepared, drafter)
        elif self.shares_encoder(prepared.model, drafter) if shares is None else shares:
            states, mask = self._conditioning(drafter, prepared)
        else:
            states, mask = self._conditioning(drafter, self._encoded(prepared, drafter, inputs))
        count = 1 + rows.guided
        mask = None if mask is None else mask[:count]
        return self.target_class(language_model(drafter), rows, states[:count], mask, packed=packed)

    def check_drafter(self, model: Any, drafter: Any) -> None:
        """Raise where a smaller model decides other rows than the target.

        Raises:
            ModelError: names both sides.
        """
        own, others = order(model), order(drafter)
        if own != others:
            raise ModelError(f"the target writes {_in_words(own)}, the drafter {_in_words(others)}")

    def shares_encoder(self, model: Any, drafter: Any) -> bool:
        """Whether a whole drafting model's encoder makes the same states as the target's."""
        return same_weights(model.text_encoder, drafter.text_encoder)

    def decoder(self, model: Any) -> Any:
        """Embeddings, layers, final norm."""
        return language_model(model).model.decoder

    def encoders(self, model: Any) -> list[Any]:
        """What reads the text."""
        return [model.text_encoder] if language_model(model) is not model else []

    def forcing(self, prepared: Prepared, opened: PreparedTarget) -> Layout:
        """Nothing, where somebody looks at ids: `generate` shows what was drawn in place of marks.

        It masks what its decoder reads, as `RowsTarget` does, and the output when it is whole.
        """
        if all(type(one) in TEXT_ONLY for one in (*prepared.processors, *prepared.criteria)):
            return opened.layout
        return Unforced(opened.codebooks)

    def grid(self, steps: Any, frames: Sequence[Frame]) -> tuple[Grid, bool]:
        """(the codes of all whole frames, False: no mark ends an output).

        What a criterion has cut off in the middle has rows of frames that the late codebooks have
        not come to.
        """
        if len(frames) <= max(steps.delays):
            return (), False
        return steps.to_grid(whole_rows(steps, frames)), False

    def library_codes(self, model: Any, inputs: Mapping[str, Any], **options: Any) -> Grid:
        """The codes that transformers' own `generate` hands to the codec, frames × codebooks."""
        return codes_heard(model, inputs, self.signals(model), **options)

    def text_inputs(self, checkpoint: SpeechCheckpoint, text: str) -> dict[str, Any]:
        """The text's ids.

        Raises:
            InputError: the text is empty, too long, or has characters that it doesn't know.
        """
        check_words(text)
        tokenizer = getattr(checkpoint.processor, "tokenizer", checkpoint.processor)
        made = tokenizer([text], return_tensors="pt")
        count, most = made["input_ids"].shape[1], tokenizer.model_max_length
        if count > most:
            raise InputError(f"the text has {count} tokens, its encoder was made for {most}")
        _check_known(tokenizer, text, made["input_ids"])
        return {name: made[name].to(checkpoint.device) for name in ("input_ids", "attention_mask")}

    def library_ids(self, frames: Sequence[Frame]) -> Tensor:
        """A row of ids per codebook."""
        return torch.tensor(frames).t()

    def without_text(self, prepared: Prepared) -> Prepared:
        """The same request with nothing to attend to, as guidance drops a text."""
        states = torch.zeros_like(prepared.inputs["encoder_outputs"][0])
        none = {"encoder_outputs": (states,), "attention_mask": states.new_zeros(states.shape[:2])}
        return replace(prepared, inputs={**prepared.inputs, **none})

    def signals(self, model: Any) -> int:
        """Its channels."""
        return language_model(model).config.audio_channels

    def code_embeddings(self, model: Any) -> list[Tensor]:
        """A table `[ids, D]` of each codebook."""
        return [table.weight for table in self.decoder(model).embed_tokens]

    def codec(self, checkpoint: SpeechCheckpoint) -> Any:
        """The model's own."""
        return checkpoint.model.audio_encoder

    @torch.no_grad()
    def _conditioning(self, model: Any, prepared: Prepared) -> tuple[Tensor, Tensor | None]:
        """Encoder states `[B, S, D]` as a whole model's decoder takes them, and their mask."""
        states, mask = prepared.inputs["encoder_outputs"][0], prepared.inputs.get("attention_mask")
        return _masked(_projected(model, states), mask), mask

    @torch.no_grad()
    def _lent(self, prepared: Prepared, drafter: Any) -> tuple[Tensor, Tensor | None]:
        """The target's states for a decoder of their width: as encoded, or as the target's own
        decoder takes them."""
        states, mask = prepared.inputs["encoder_outputs"][0], prepared.inputs.get("attention_mask")
        projected = _projected(prepared.model, states)
        width = drafter.config.hidden_size
        fitting = (found for found in (states, projected) if found.shape[-1] == width)
        lent = next(fitting, None)
        if lent is None:
            raise ModelError(
                f"the drafter reads states {width} wide, the target's text is encoded "
                f"{states.shape[-1]} wide and read {projected.shape[-1]} wide"
            )
        return _masked(lent, mask), mask

    def _encoded(
        self, prepared: Prepared, drafter: Any, inputs: Mapping[str, Any] | None
    ) -> Prepared:
        """A whole drafting model's own preparation of the same request."""
        given = {name: value for name, value in (inputs or {}).items() if name in self.encoded}
        if not given:
            raise InputError(
                f"the drafter ({type(drafter).__name__}) has an encoder of its own and was given "
                f"nothing to encode: pass it {self.encoded[0]}"
            )
        scale, length = prepared.inputs.get("guidance_scale"), prepared.config.max_length
        return prepare(
            drafter, given, max_length=length, max_new_tokens=None, guidance_scale=scale or 1.0
        )


def language_model(model: Any) -> Any:
    """The language model of the codes: a part of a whole model, or the given one itself."""
    return getattr(model, "decoder", model)


def order(model: Any) -> DelayedFrames:
    """How a language model's codes are ordered, as its configuration says.

    Raises:
        ModelError: a mark is the id of a code, or start and padding differ.
    """
    config, settings = language_model(model).config, model.generation_config
    start = settings.decoder_start_token_id
    start = settings.bos_token_id if start is None else start
    codes, channels = config.vocab_size, config.audio_channels
    for mark, token in (("start", start), ("pad", settings.pad_token_id)):
        if token != codes:
            raise ModelError(
                f"the generation config's {mark} mark is {token}, but the model writes {codes} "
                f"codes, so its marks are {codes}"
            )
    if config.num_codebooks % channels:
        raise ModelError(f"{config.num_codebooks} codebooks aren't those of {channels} channels")
    book = Codebook(codes + 1, codes, start=codes, pad=codes)
    delays = (k // channels for k in range(config.num_codebooks))
    return DelayedFrames((book,) * config.num_codebooks, tuple(delays))


def rows_of(prepared: Prepared) -> Rows:
    """What is known of a request's rows.

    Raises:
        InputError: several requests at once.
        OptionError: an option of `generate` that these rows don't allow.
    """
    steps, inputs, config = order(prepared.model), prepared.inputs, prepared.config
    count, rest = divmod(prepared.input_ids.shape[0], len(steps.codebooks))
    if (count, rest) != (1, 0):
        raise InputError(f"{count} requests at once: they are decoded one by one here")
    if inputs.get("decoder_attention_mask") is not None:
        raise OptionError("decoder_attention_mask: no row of codes is padding, leave it out")
    if config.eos_token_id is not None:
        raise OptionError(
            f"eos_token_id={config.eos_token_id}: these codebooks have no end mark, the number of "
            "rows ends an output: set eos_token_id=None"
        )
    least = 2 * max(steps.delays) + 1
    if config.max_length < least:
        raise OptionError(
            f"{config.max_length} rows are too few: below {least}, transformers delays no "
            f"codebook: set max_new_tokens to at least {least - 1}"
        )
    scale = inputs.get("guidance_scale")
    return Rows(
        steps,
        inputs["decoder_delay_pattern_mask"],
        prepared.input_ids.shape[1],
        guided=scale is not None and scale > 1,
    )


def _projected(model: Any, states: Tensor) -> Tensor:
    """A text encoder's states at the width of a whole model's decoder."""
    decoder = model.decoder.config
    if model.text_encoder.config.hidden_size == decoder.hidden_size:
        return states
    if getattr(decoder, "cross_attention_hidden_size", None) is not None:
        return states
    return model.enc_to_dec_proj(states)


def _masked(states: Tensor, mask: Tensor | None) -> Tensor:
    return states if mask is None else states * mask[..., None]


def _check_known(tokenizer: Any, text: str, ids: Tensor) -> None:
    """Raise where a text has a character that stands for nothing."""
    unknown = tokenizer.unk_token_id
    if unknown is None or unknown not in ids:
        return
    for char in text:
        if unknown in tokenizer(char, add_special_tokens=False)["input_ids"]:
            raise InputError(f"the text has the character {char!r}, which the model doesn't know")


def _in_words(steps: DelayedFrames) -> str:
    book = steps.codebooks[0]
    return f"{len(steps.codebooks)} codebooks of {book.codes} codes, {steps.delays} rows late"


FAMILY = Musicgen()

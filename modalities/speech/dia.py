"""Dia: an encoder reads the text's bytes, a decoder that attends across to it says delayed codes.

Conditional and unconditional rows of guidance are two rows of one decoder state. Its processor of
ends counts down as it is called; what it forces is a function of the rows so far, and `DiaLayout`
is that function.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor
from transformers import LogitsProcessor
from transformers.generation import logits_process as hf
from transformers.generation.stopping_criteria import EosTokenCriteria

from mmspec.engine.frames import DelayedLayout, over_codebooks, register_frame_form
from mmspec.engine.frames.processing import FrameForm
from mmspec.errors import InputError, ModelError, OptionError
from mmspec.factorizations import Codebook, DelayedFrames
from mmspec.factorizations.codes import Grid
from mmspec.kernels import PackedLinears
from mmspec.modalities.base.decoder import DecoderTarget, block_layers, layer_list
from mmspec.modalities.base.preparation import Prepared
from mmspec.modalities.speech.contract import PreparedTarget
from mmspec.modalities.speech.delay_pattern import whole_rows
from mmspec.modalities.speech.family import FrameFamily, check_words
from mmspec.modalities.speech.scoring import FrameScoring
from mmspec.prefix import Frame
from mmspec.state import DecoderState

if TYPE_CHECKING:
    from mmspec.modalities.speech.checkpoint import SpeechCheckpoint


class DiaLayout(DelayedLayout):
    """Delayed rows behind a prompt's codes, whose late codebooks reach into the rows that follow.

    Args:
        steps: the descriptor.
        given: rows of the delayed prompt; padding where nothing is given.
        rows: rows of the longest output.

    Example:
        >>> book = Codebook(7, codes=4, start=6, end=4, pad=5)
        >>> steps = DelayedFrames((book, book), delays=(0, 1))
        >>> layout = DiaLayout(steps, given=[(6, 6), (5, 6)], rows=9)
        >>> layout.forced([(6, 6)], [(3, 0), (4, 2), (0, 0)])
        [(-1, 6), (-1, -1), (5, 4), (5, 5)]
    """

    def __init__(self, steps: DelayedFrames, given: Sequence[Frame], rows: int) -> None:
        super().__init__(steps, longest=rows)
        self._given = given

    def _mark(self, k: int, row: int, end: int | None) -> int:
        if row < len(self._given) and self._given[row][k] != self._steps.codebooks[k].pad:
            return self._given[row][k]
        return super()._mark(k, row, end)


@register_frame_form(hf.DiaClassifierFreeGuidanceLogitsProcessor)
def _guidance(processor: Any, codebooks: int) -> FrameForm:
    def form(rows: Tensor) -> Tensor:
        if rows.shape[1] == codebooks:
            return rows  # a drafter's, without its unconditional half
        halves = torch.cat([half.flatten(0, 1) for half in rows.split(codebooks, dim=1)])
        nothing = rows.new_empty(len(halves) // 2, 0, dtype=torch.long)  # only counted by it
        return processor(nothing, halves).view(len(rows), codebooks, -1)

    return form


@register_frame_form(hf.DiaEOSChannelFilterLogitsProcessor)
def _filter(processor: Any, codebooks: int) -> FrameForm:
    return over_codebooks(processor)  # it takes its rows by groups of codebooks: a frame each


@register_frame_form(hf.DiaEOSDelayPatternLogitsProcessor)
def _ends(processor: LogitsProcessor, codebooks: int) -> FrameForm:
    return lambda rows: rows  # every cell that it forces is forced by `DiaLayout`


class DiaTarget(FrameScoring, DecoderTarget):
    """Dia's decoder, opened on a prompt of rows."""

    def read_prompt(self) -> Tensor:
        """Read the prompt and freeze it; the distribution behind it `[1, R, V]`."""
        row = self.score(self.prompt, 1)
        self.state.freeze()
        return row


class Dia(FrameFamily):
    """Dia: bytes of text in, DAC's codes out."""

    title = "Dia"
    loads = "DiaForConditionalGeneration"
    drafters: ClassVar = {"dia": "DiaForConditionalGeneration"}

    def descriptor(self, model: Any) -> DelayedFrames:
        """How its codes are ordered.

        Raises:
            ModelError: its configuration contradicts itself; names both sides.
        """
        config = model.config.decoder_config
        delays, channels = tuple(model.config.delay_pattern), config.num_channels
        if len(delays) != channels:
            raise ModelError(
                f"delay_pattern has {len(delays)} delays {list(delays)}, decoder_config has "
                f"{channels} channels: each channel needs a delay"
            )
        if 0 in delays[1:]:
            raise ModelError(
                f"delay_pattern {list(delays)}: a row's codes are drawn independently, so only "
                "channels later than the first can end where the first one has"
            )
        rows = model.logits_dense.weight.shape[0]
        if rows != channels * config.vocab_size:
            raise ModelError(
                f"the head has {rows} rows, but {channels} channels of {config.vocab_size} ids "
                f"need {channels * config.vocab_size}"
            )
        end, pad, start = config.eos_token_id, config.pad_token_id, config.bos_token_id
        if not isinstance(end, int) or pad is None or start is None or min(pad, start) <= end:
            raise ModelError(
                f"ids below eos_token_id are codes, so pad and bos must be above it: eos {end}, "
                f"pad {pad}, bos {start}"
            )
        try:
            book = Codebook(config.vocab_size, end, start=start, end=end, pad=pad)
            return DelayedFrames((book,) * channels, delays)
        except ValueError as error:
            raise ModelError(f"not Dia's order of codes: {error}") from error

    def open(self, prepared: Prepared, *, packed: bool) -> DiaTarget:
        """The decoder, nothing read yet. Close it when done.

        Raises:
            InputError: several requests at once, no text or too much of it, or a prompt whose
                codebooks are not as late as the model's are.
            OptionError: the output may not be long enough for one frame, or ends as no output of
                this model does.
        """
        model = prepared.model
        steps, rows = self.descriptor(model), prepared.config.max_length
        prompt, _ = _prompt(steps, prepared)
        _check_text(prepared)
        _check_ends(steps, prepared)
        least = len(prompt) + 1 + max(steps.delays)
        if rows < least:
            raise OptionError(
                f"{rows - len(prompt)} new rows (max_new_tokens) are not enough: the latest "
                f"codebook is {max(steps.delays)} rows late, so {least - len(prompt)} are needed"
            )
        states, mask = prepared.inputs["encoder_outputs"][0], prepared.inputs.get("attention_mask")
        return self._opened(model, prepared, states, mask, packed)

    def open_drafter(
        self,
        prepared: Prepared,
        drafter: Any,
        *,
        inputs: Mapping[str, Any] | None = None,
        guided: bool | None = None,
        packed: bool = False,
    ) -> PreparedTarget:
        """A smaller Dia on the same prompt, nothing read yet. Close it when done.

        Args:
            prepared: what the target was opened on.
            drafter: a Dia, which reads the text with its own encoder.
            inputs: the text's ids, as the target's `generate` took them.
            guided: whether it drafts under guidance; None: as the target is decoded.
            packed: whether its layers run packed.

        Raises:
            ModelError: there are no ids of the text that it could read.
        """
        text = None if inputs is None else inputs.get("input_ids")
        if text is None:
            raise ModelError("a drafting Dia reads the text itself: input_ids are missing")
        text, mask = text.to(drafter.device), (inputs or {}).get("attention_mask")
        mask = None if mask is None else mask.to(drafter.device)
        if len(prepared.inputs["encoder_outputs"][0]) > 1 if guided is None else guided:
            text = torch.cat([text, torch.zeros_like(text)])
            mask = None if mask is None else mask.repeat(2, 1)
        with torch.no_grad():
            states = drafter.model.encoder(input_ids=text, attention_mask=mask)[0]
        return self._opened(drafter, prepared, states, mask, packed)

    def _opened(
        self, model: Any, prepared: Prepared, states: Tensor, mask: Tensor | None, packed: bool
    ) -> DiaTarget:
        steps, rows = self.descriptor(model), prepared.config.max_length
        decoder, head = self.decoder(model), model.logits_dense
        target = DiaTarget(
            decoder,
            head,
            states,
            DecoderState(len(layer_list(decoder)[1]), rows, cross_attention=True),
            PackedLinears(block_layers(decoder, head)).open() if packed else None,
            vocab_size=steps.codebooks[0].vocab_size,
            constants={"encoder_attention_mask": mask},
        )
        target.side_by_side, target.codebooks = len(states), len(steps.codebooks)
        target.prompt, given = _prompt(steps, prepared)
        target.layout, target.max_rows = DiaLayout(steps, given, rows), rows
        return target

    def decoder(self, model: Any) -> Any:
        """The one of codes."""
        return model.model.decoder

    def grid(self, steps: Any, frames: Sequence[Frame]) -> tuple[Grid, bool]:
        """(the codes of all whole frames, whether it ended by its end mark).

        What a criterion has cut off in the middle has rows of frames that the late codebooks have
        not come to.
        """
        if len(frames) <= max(steps.delays):
            return (), False
        ended = steps.has_ended(frames)
        return steps.to_grid(frames if ended else whole_rows(steps, frames)), ended

    def new_tokens(self, steps: Any, frames: int) -> int:
        """Rows of so many frames, and of the end mark behind them."""
        return steps.steps(frames) + 1

    def encoders(self, model: Any) -> list[Any]:
        """What reads the text."""
        return [model.model.encoder]

    def text_inputs(self, checkpoint: SpeechCheckpoint, text: str) -> dict[str, Any]:
        """Its bytes, and the rows that the decoder starts from.

        Raises:
            InputError: the text is empty or too long, or has a byte that stands for a mark.
        """
        check_words(text)
        marks = sorted({ord(char) for char in text} & {0, 1, 2})
        if marks:
            raise InputError(
                f"the text has the control character {marks[0]:#04x}, which stands for a mark in "
                "Dia's bytes: leave it out"
            )
        config = checkpoint.model.config
        made = checkpoint.processor(
            text=[text],
            padding="longest",
            max_length=None,
            return_tensors="pt",
            delay_pattern=list(config.delay_pattern),
            eos_token_id=config.decoder_config.eos_token_id,
            pad_token_id=config.decoder_config.pad_token_id,
            bos_token_id=config.decoder_config.bos_token_id,
        )
        _check_length(checkpoint.model, made["input_ids"].shape[1])
        return {name: value.to(checkpoint.device) for name, value in made.items()}

    def library_ids(self, frames: Sequence[Frame]) -> Tensor:
        """A row of ids per codebook."""
        return torch.tensor(frames).t()

    @torch.no_grad()
    def without_text(self, prepared: Prepared) -> Prepared:
        """The same request with padding for every byte, as guidance drops a text."""
        states, mask = prepared.inputs["encoder_outputs"][0], prepared.inputs.get("attention_mask")
        nothing = torch.zeros(states.shape[:2], dtype=torch.long, device=states.device)
        encoded = prepared.model.model.encoder(input_ids=nothing, attention_mask=mask)
        return replace(prepared, inputs={**prepared.inputs, "encoder_outputs": encoded})

    def code_embeddings(self, model: Any) -> Sequence[Tensor]:
        """A table `[ids, D]` of each codebook."""
        table = self.decoder(model).embeddings.embed.weight
        return table.split(model.config.decoder_config.vocab_size)

    def codec(self, checkpoint: SpeechCheckpoint) -> Any:
        """Its processor's."""
        return getattr(checkpoint.processor, "audio_tokenizer", None)


def _prompt(steps: DelayedFrames, prepared: Prepared) -> tuple[list[Frame], list[Frame]]:
    """The rows that the decoder reads first, and the whole delayed prompt that they begin."""
    ids, mask = prepared.input_ids, prepared.inputs["decoder_attention_mask"]
    if len(ids) != len(steps.codebooks):
        raise InputError(
            f"{len(ids) // len(steps.codebooks)} requests at once: Dia is decoded one by one here"
        )
    if not bool(mask.all()):
        raise InputError("decoder_attention_mask leaves rows out: pass the audio prompt unpadded")
    given = [tuple(row) for row in prepared.inputs["decoder_delay_mask"][0].tolist()]
    try:
        grid = steps.to_grid(given)
    except InputError as error:
        raise InputError(
            f"decoder_input_ids aren't delayed by {list(steps.delays)} ({error}): let the model's "
            "processor make them, from text or from text and audio"
        ) from error
    prompt = [tuple(row) for row in ids.t().tolist()]
    if len(prompt) != len(grid) + 1:
        raise InputError(f"decoder_input_ids begin with {len(prompt)} rows, not {len(grid) + 1}")
    return prompt, given


def _check_text(prepared: Prepared) -> None:
    _check_length(prepared.model, prepared.inputs["encoder_outputs"][0].shape[1])


def _check_length(model: Any, length: int) -> None:
    context = model.config.encoder_config.max_position_embeddings
    if not 0 < length <= context:
        raise InputError(f"the text has {length} bytes, this model reads 1 to {context}")


def _check_ends(steps: DelayedFrames, prepared: Prepared) -> None:
    """Padding stands behind each codebook's end only where `generate` looks for that very end."""
    ends = [c.eos_token_id.tolist() for c in prepared.criteria if type(c) is EosTokenCriteria]
    expected = sorted(steps.stop_tokens)
    if [sorted(ids) for ids in ends] != [expected]:
        raise OptionError(
            f"eos_token_id: {ends[0] if ends else None} ends no output of this model: it is "
            f"{expected[0]}"
        )
    pad = prepared.config._pad_token_tensor
    if pad is None or int(pad) != steps.codebooks[0].pad:
        raise OptionError(
            f"pad_token_id: {pad} is not this model's padding: it is {steps.codebooks[0].pad}"
        )


FAMILY = Dia()

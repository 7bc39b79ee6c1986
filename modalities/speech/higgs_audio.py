"""Higgs-Audio v2: a language model whose text goes on as delayed rows of codes.

Behind the text and the mark that opens audio, every position is a row of codes. An end may begin in
any codebook, and the frame that ends the output is whole; but frames before it hold the mark that
began it. The library's processor turns that mark into the last code of its codebook; here a frame
that holds a mark is no frame of sound.

The row of start marks is the same in every output. It is read with the prompt, so that nothing is
asked of the target that isn't open; text, and a voice's rows among it, are conditioning in front.

Legend: T positions of the prompt, K codebooks, V ids of each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor
from transformers.generation.stopping_criteria import EosTokenCriteria, MaxLengthCriteria

from mmspec.compat import cache_argument
from mmspec.errors import InputError, ModelError, OptionError
from mmspec.factorizations import Codebook, DelayedFrames
from mmspec.factorizations.codes import Grid
from mmspec.kernels import PackedLinears
from mmspec.modalities.base.decoder import block_layers
from mmspec.modalities.base.preparation import Prepared
from mmspec.modalities.speech.contract import PreparedTarget
from mmspec.modalities.speech.family import FrameFamily, check_words
from mmspec.modalities.speech.higgs_rows import BesideText, HiggsLayout, Marks
from mmspec.modalities.speech.repetition_aware import RepetitionAwareDistribution
from mmspec.modalities.speech.scoring import FrameScoring
from mmspec.modalities.speech.state import BehindConditioning
from mmspec.prefix import Frame

if TYPE_CHECKING:
    from mmspec.modalities.speech.checkpoint import SpeechCheckpoint


class HiggsTarget(FrameScoring):
    """Higgs-Audio's decoder, opened on a prompt.

    Args:
        prepared: the request.
        steps: the descriptor.
        packed: whether its layers run packed.
    """

    def __init__(self, prepared: Prepared, steps: DelayedFrames, packed: bool) -> None:
        decoder, head = prepared.model.model, prepared.model.audio_lm_head
        text, book = prepared.input_ids.shape[1], steps.codebooks[0]
        self.max_rows = prepared.config.max_length - text
        super().__init__(
            decoder,
            head,
            BehindConditioning(
                len(decoder.layers), self.max_rows, before=text, cross_attention=False
            ),
            head.weight.device,
            PackedLinears(block_layers(decoder, head)).open() if packed else None,
            book.vocab_size,
        )
        start, end = _marks_of(steps)
        self.codebooks = len(steps.codebooks)
        self.prompt = ((start,) * self.codebooks,)
        self.layout = self.marks = HiggsLayout(self.codebooks, start, end)
        self._prepared = prepared

    @torch.no_grad()
    def read_prompt(self) -> Tensor:
        """Read and freeze text, voice and start marks; the distribution behind them `[1, K, V]`."""
        start, inputs = self.state.length, self._inputs()
        with self.state.block(len(self.prompt) - start):
            scores = self._scores(self._read(**inputs), start, 1)
        self.state.freeze()
        self.forwards += 1
        return scores

    def _inputs(self) -> dict[str, Tensor]:
        """The prompt, and the row of start marks behind it, as the decoder takes both in one go."""
        ids, given = self._prepared.input_ids, self._prepared.inputs
        beside = ids.new_tensor([[self._prepared.model.config.audio_token_id]])
        rows = ids.new_tensor([self.prompt])
        voice = given.get("audio_input_ids")
        if voice is not None:
            mask = given.get("audio_input_ids_mask")
            voice = voice if mask is None else voice[mask.bool()][None]
            rows = torch.cat([voice, rows], dim=1)
        return {"input_ids": torch.cat([ids, beside], dim=1), "audio_input_ids": rows}

    def _hidden(self, block: Tensor, parents: Sequence[int] | None) -> Tensor:
        """The decoder's last hidden states `[1, n, D]` for a block of rows `[1, n, K]`."""
        return self._read(audio_input_ids=block)

    def _read(self, **inputs: Tensor) -> Tensor:
        cache = cache_argument(type(self._decoder), self.state.cache)
        return self._decoder(**inputs, use_cache=True, **cache).last_hidden_state


class HiggsAudio(FrameFamily):
    """Higgs-Audio v2."""

    title = "Higgs-Audio v2"
    loads = "HiggsAudioV2ForConditionalGeneration"
    drafters: ClassVar = {"higgs_audio_v2": "HiggsAudioV2ForConditionalGeneration"}

    def descriptor(self, model: Any) -> DelayedFrames:
        """How its codes are ordered: codebook k is k rows late.

        Raises:
            ModelError: its configuration contradicts itself; names both sides.
        """
        config = model.config
        start, end = config.audio_stream_bos_id, config.audio_stream_eos_id
        codes, size = min(start, end), config.codebook_size
        if start == end or max(start, end) >= size:
            raise ModelError(
                f"audio_stream_bos_id {start} and audio_stream_eos_id {end} must be two of the "
                f"codebook_size {size} ids that a head says"
            )
        rows = model.audio_lm_head.weight.shape[0]
        if rows != config.num_codebooks * size:
            raise ModelError(
                f"the head has {rows} rows, but {config.num_codebooks} codebooks of {size} ids "
                f"need {config.num_codebooks * size}"
            )
        book = Codebook(size, codes, start=start, end=end, pad=end)
        delays = tuple(range(config.num_codebooks))
        return DelayedFrames((book,) * config.num_codebooks, delays)

    def open(self, prepared: Prepared, *, packed: bool) -> HiggsTarget:
        """The decoder, nothing read yet. Close it when done.

        Raises:
            InputError: several requests at once, a padded prompt, one beyond the context, or one
                that doesn't end by opening audio.
            OptionError: the output may not be long enough for one frame, ends as no output of this
                model does, or would be random although it isn't sampled.
        """
        steps = self.descriptor(prepared.model)
        _check_prompt(prepared, len(steps.codebooks))
        _check_ends(prepared)
        room, least = (
            prepared.config.max_length - prepared.input_ids.shape[1],
            self.new_tokens(steps, 1),
        )
        if room < least:
            raise OptionError(
                f"{room} new rows (max_new_tokens) hold no whole frame: the latest codebook is "
                f"{max(steps.delays)} rows late, so {least} are needed"
            )
        _redraw(prepared, steps)
        target = HiggsTarget(prepared, steps, packed)
        shown = (EosTokenCriteria, MaxLengthCriteria, BesideText)
        prepared.criteria[:] = [
            one if isinstance(one, shown) else BesideText(one, prepared, target.marks)
            for one in prepared.criteria
        ]
        return target

    def open_drafter(
        self,
        prepared: Prepared,
        drafter: Any,
        *,
        inputs: Mapping[str, Any] | None = None,
        guided: bool | None = None,
        packed: bool = False,
    ) -> PreparedTarget:
        """A smaller model behind the same prompt, nothing read yet. Close it when done.

        Args:
            prepared: what the target was opened on.
            drafter: a Higgs-Audio.
            inputs: not needed: it reads the target's prompt.
            guided: likewise: there is no guidance.
            packed: whether its layers run packed.

        Raises:
            ModelError: the prompt has ids that it doesn't know.
        """
        largest, known = int(prepared.input_ids.max()), drafter.config.vocab_size
        if largest >= known:
            raise ModelError(f"the prompt has id {largest}, the drafter knows {known} ids")
        return HiggsTarget(replace(prepared, model=drafter), self.descriptor(drafter), packed)

    def check_drafter(self, model: Any, drafter: Any) -> None:
        """Raise where a smaller model decides other frames, or has other ids beside them.

        Raises:
            ModelError: names both sides.
        """
        super().check_drafter(model, drafter)
        for name in ("audio_token_id", "audio_delay_token_id"):
            own, others = getattr(model.config, name), getattr(drafter.config, name)
            if own != others:
                raise ModelError(f"{name}: the target has {own}, the drafter {others}")

    def decoder(self, model: Any) -> Any:
        """The language model, which reads text as well."""
        return model.model

    def grid(self, steps: Any, frames: Sequence[Frame]) -> tuple[Grid, bool]:
        """(the codes of all frames without a mark, whether the output ended by its end mark)."""
        _, end = _marks_of(steps)
        count = len(steps.codebooks)
        whole = range(max(0, len(frames) - count))
        found = (tuple(frames[t + 1 + k][k] for k in range(count)) for t in whole)
        spoken = tuple(frame for frame in found if _is_spoken(steps, frame))
        return steps.to_grid(steps.from_grid(spoken)), frames[-1] == (end,) * count

    def new_tokens(self, steps: Any, frames: int) -> int:
        """Rows of so many frames; the one of start marks is a step of the library's."""
        return steps.steps(frames) + 1

    def without_text(self, prepared: Prepared) -> Prepared:
        """The same request with every word padding; what tells text from audio stays."""
        config, ids = prepared.model.config, prepared.input_ids
        first_mark = min(
            config.pad_token_id,
            config.eos_token_id,
            config.audio_token_id,
            config.audio_bos_token_id,
            config.audio_delay_token_id,
        )
        return replace(prepared, input_ids=ids.masked_fill(ids < first_mark, config.pad_token_id))

    def code_embeddings(self, model: Any) -> Sequence[Tensor]:
        """A table `[ids, D]` of each codebook."""
        table = model.model.embed_audio_tokens.embed_audio_tokens.weight
        return table.split(model.config.codebook_size)

    def text_inputs(self, checkpoint: SpeechCheckpoint, text: str) -> dict[str, Any]:
        """A conversation in which the text is to be said.

        Raises:
            InputError: the text is empty.
        """
        check_words(text)
        said = (
            ("system", "Generate audio following instruction."),
            ("scene", "Audio is recorded from a quiet room."),
            ("user", text),
        )
        made = checkpoint.processor.apply_chat_template(
            [{"role": role, "content": [{"type": "text", "text": words}]} for role, words in said],
            add_generation_prompt=True,
            tokenize=True,
            return_dict=True,
            return_tensors="pt",
        )
        return {name: value.to(checkpoint.device) for name, value in made.items()}

    def codec(self, checkpoint: SpeechCheckpoint) -> Any:
        """None: its processor has one of a kind that `open_codec` doesn't know."""
        return None


def _marks_of(steps: DelayedFrames) -> tuple[int, int]:
    """(start, end)."""
    book = steps.codebooks[0]
    if book.start is None or book.end is None:
        raise ModelError("Higgs-Audio's codebooks have a start and an end mark")
    return book.start, book.end


def _is_spoken(steps: DelayedFrames, frame: Frame) -> bool:
    return all(token in book.ids for token, book in zip(frame, steps.codebooks, strict=True))


def _check_prompt(prepared: Prepared, codebooks: int) -> None:
    config, ids = prepared.model.config, prepared.input_ids
    if len(ids) != 1:
        raise InputError(f"{len(ids)} requests at once: Higgs-Audio is decoded one by one here")
    if prepared.is_padded:
        raise InputError("attention_mask leaves positions out: pass the prompt unpadded")
    context = config.max_position_embeddings
    if ids.shape[1] > context:
        raise InputError(f"the prompt has {ids.shape[1]} positions, this model reads {context}")
    opening, delay = config.audio_bos_token_id, config.audio_delay_token_id
    near = ids[0, -codebooks:].tolist()
    if len(near) < codebooks or near[-1] != opening or opening in near[:-1]:
        raise InputError(
            f"the prompt ends with {near}: its last id must open audio ({opening}), behind "
            f"{codebooks - 1} others that don't"
        )
    if delay in near:
        raise InputError(
            f"the prompt ends with {near}: {delay} stands beside a recording's last rows, and this "
            "close to the end it would end the output before it begins"
        )


def _check_ends(prepared: Prepared) -> None:
    """The text id beside a complete row must end the output, and those beside others must not."""
    config = prepared.model.config
    ends = [c.eos_token_id.tolist() for c in prepared.criteria if type(c) is EosTokenCriteria]
    ends = [token for tokens in ends for token in tokens]
    others = {config.audio_token_id, config.audio_delay_token_id}
    if config.eos_token_id not in ends or others & set(ends):
        raise OptionError(
            f"eos_token_id: {ends or None} doesn't end an output of this model: it is "
            f"{config.eos_token_id}"
        )


def _redraw(prepared: Prepared, steps: DelayedFrames) -> None:
    """Let codes that repeat themselves be drawn again, where the request asks for it."""
    config, processors = prepared.config, prepared.processors
    window, repeats = (
        getattr(config, name, None) for name in ("ras_win_len", "ras_win_max_num_repeat")
    )
    if (
        window is None
        or repeats is None
        or any(type(one) is RepetitionAwareDistribution for one in processors)
    ):
        return
    if not config.do_sample:
        raise OptionError(
            "ras_win_len: a code that repeats itself would be drawn at random, although "
            "do_sample=False: set do_sample=True or ras_win_len=None"
        )
    if window < 1 or repeats < 1:
        raise OptionError(
            f"ras_win_len {window} and ras_win_max_num_repeat {repeats} must both be at least 1"
        )
    voice = prepared.inputs.get("audio_input_ids")
    processors[:] = [
        RepetitionAwareDistribution(
            [one for one in processors if type(one) is not Marks],
            [] if voice is None else voice[0].tolist(),
            window=window,
            repeats=repeats,
            marks=_marks_of(steps),
        )
    ]


FAMILY = HiggsAudio()

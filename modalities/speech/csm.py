"""CSM: a backbone that reads text and frames in one line, and a depth decoder inside each frame.

The prompt is text, with recorded speech among it where a voice is given; positions of it are no
frames. A step of the backbone reads all codes of a frame at once and decides the next frame's first
code; the depth decoder decides the others.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from mmspec.errors import InputError, ModelError, OptionError
from mmspec.factorizations import Codebook, DepthFrames
from mmspec.factorizations.codes import Grid
from mmspec.modalities.base.preparation import Prepared
from mmspec.modalities.speech.checkpoint import SpeechCheckpoint
from mmspec.modalities.speech.contract import PreparedTarget
from mmspec.modalities.speech.csm_request import CsmPrepared, prepare
from mmspec.modalities.speech.csm_target import CsmTarget
from mmspec.modalities.speech.depth_drafting import DepthDraft
from mmspec.modalities.speech.depth_guesses import Guess, repeat_previous
from mmspec.modalities.speech.family import FrameFamily, check_words
from mmspec.prefix import Frame

SPEAKER = re.compile(r"\[\d+\]")


class CsmFamily(FrameFamily):
    """CSM.

    Args:
        guess: how a frame may go on behind its first code; None: nothing is guessed.
    """

    draft_kind = DepthDraft
    title: ClassVar[str] = "CSM"
    loads: ClassVar[str] = "CsmForConditionalGeneration"
    drafters: ClassVar[Mapping[str, str]] = {"csm": "CsmForConditionalGeneration"}

    def __init__(self, guess: Guess | None = repeat_previous) -> None:
        self._guess = guess

    def descriptor(self, model: Any) -> DepthFrames:
        """What one step decides.

        Raises:
            ModelError: backbone, depth decoder and codec disagree; names both sides.
        """
        check(model)
        config = model.config
        codebook = Codebook(
            config.vocab_size,
            codes=config.codec_config.codebook_size,
            end=config.codebook_eos_token_id,
            pad=config.codebook_pad_token_id,
        )
        count = config.num_codebooks
        return DepthFrames((codebook,) * count, stops=tuple(range(count - 1)))

    def prepare(self, model: Any, inputs: Mapping[str, Any], **options: Any) -> CsmPrepared:
        """What `model.generate(**inputs, **options)` would decode: see `csm_request.prepare`."""
        return prepare(model, inputs, **options)

    def open(self, prepared: Prepared, *, packed: bool) -> PreparedTarget:
        """A target on what `prepare` made; its prompt is still to be read."""
        return self._opened(_own(prepared), packed)

    def open_drafter(
        self,
        prepared: Prepared,
        drafter: Any,
        *,
        inputs: Mapping[str, Any] | None = None,
        guided: bool | None = None,
        packed: bool = False,
    ) -> PreparedTarget:
        """A smaller CSM on the same request, its prompt still to be read.

        Its codes are drawn as the target's are: by the processors of both of its decoders.

        Args:
            prepared: what the target was opened on.
            drafter: transformers' model.
            inputs: the text's ids, and recordings for a codec of its own.
            guided: CSM knows no guidance.
            packed: whether its layers run packed.

        Raises:
            InputError: it isn't given what to read.
        """
        if inputs is None:
            raise InputError("a drafting CSM reads the text by itself: it needs the inputs")
        asked = _own(prepared)
        own = prepare(drafter, inputs, max_new_tokens=asked.max_rows - len(asked.prompt))
        return self._opened(replace(own, config=asked.config, depth=asked.depth), packed)

    def _opened(self, prepared: CsmPrepared, packed: bool) -> PreparedTarget:
        steps = self.descriptor(prepared.model)
        return CsmTarget(prepared, steps, guess=self._guess, packed=packed)

    def in_words(self, steps: DepthFrames) -> str:
        """Its codebooks, codes and end."""
        return _in_words(steps)

    def decoder(self, model: Any) -> Any:
        """The backbone."""
        return model.backbone_model

    def step_size(self, model: Any) -> int:
        """Weights that a frame goes through: the backbone's once, the depth decoder's per code."""
        inside = sum(weight.numel() for weight in model.depth_decoder.model.layers.parameters())
        backbone = sum(weight.numel() for weight in model.backbone_model.layers.parameters())
        return backbone + (model.config.num_codebooks - 1) * inside

    def grid(self, steps: DepthFrames, frames: Sequence[Frame]) -> tuple[Grid, bool]:
        """(the codes of all frames, whether its last frame ended it)."""
        return steps.to_grid(frames), len(frames) > 0 and steps.stopping(frames[-1])

    def encoders(self, model: Any) -> list[Any]:
        """The codec, which hears the recordings of a prompt."""
        return [model.codec_model]

    def codec(self, checkpoint: SpeechCheckpoint) -> Any:
        """The model's own."""
        return checkpoint.model.codec_model

    def text_inputs(self, checkpoint: SpeechCheckpoint, text: str) -> dict[str, Any]:
        """The text's ids, of speaker 0 unless it begins with another's number, as `[1]`.

        Raises:
            InputError: the text is empty, or has a mark that stands for a recording.
        """
        check_words(text)
        said = text if SPEAKER.match(text) else f"[0]{text}"
        try:
            made = checkpoint.processor(said, add_special_tokens=True, return_tensors="pt")
        except ValueError as error:
            raise InputError(f"the text can't be read: {error}") from None
        return {name: value.to(checkpoint.device) for name, value in made.items()}

    def library_ids(self, frames: Sequence[Frame]) -> Tensor:
        """One row of frames."""
        return torch.tensor(frames)[None]

    def without_text(self, prepared: Prepared) -> Prepared:
        """The same with nothing of the text but the marks around it; recordings stay.

        Raises:
            OptionError: the prompt is no text.
        """
        if prepared.input_ids.ndim != 2 or "inputs_embeds" in prepared.inputs:
            raise OptionError("CSM: the prompt is no text that could be dropped")
        config, ids = prepared.model.config, prepared.input_ids[0]
        marks = torch.tensor([config.audio_token_id, config.audio_eos_token_id], device=ids.device)
        kept = torch.isin(ids, marks)
        kept[[0, -1]] = True
        left = {
            name: value[:, kept] if name == "attention_mask" and value is not None else value
            for name, value in prepared.inputs.items()
            if name != "position_ids"
        }
        return replace(prepared, input_ids=ids[kept][None], inputs=left)

    def code_embeddings(self, model: Any) -> Sequence[Tensor]:
        """The tables that the backbone reads a frame by."""
        table = model.backbone_model.embed_tokens.embed_audio_tokens.weight
        return list(table.unflatten(0, (model.config.num_codebooks, -1)).detach())


def check(model: Any) -> None:
    """Raise where backbone, depth decoder and codec disagree.

    Raises:
        ModelError: names both sides.
    """
    config = model.config
    depth, codec = config.depth_decoder_config, config.codec_config
    end = config.codebook_eos_token_id
    if config.num_codebooks < 2:
        raise ModelError("a CSM of one codebook has no end: its frames stop by all but the last")
    if not isinstance(end, int):
        raise ModelError(f"codebook_eos_token_id is {end!r}: expected one id, for all codebooks")
    for name in ("num_codebooks", "vocab_size"):
        ours, theirs = getattr(config, name), getattr(depth, name)
        if ours != theirs:
            raise ModelError(f"the backbone has {name} {ours}, its depth decoder {theirs}")
    if config.hidden_size != depth.backbone_hidden_size:
        raise ModelError(
            f"the backbone is {config.hidden_size} wide, its depth decoder reads states of "
            f"{depth.backbone_hidden_size}"
        )
    if codec.num_quantizers < config.num_codebooks:
        raise ModelError(
            f"the model says {config.num_codebooks} codebooks, its codec hears "
            f"{codec.num_quantizers}"
        )
    if codec.codebook_size > config.vocab_size:
        raise ModelError(
            f"the codec has {codec.codebook_size} codes in a codebook, the model "
            f"{config.vocab_size} ids"
        )


def split(inputs: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The inputs of each row of a batch, as `prepare` takes them; padding of a text stays.

    A row without recordings loses what pads it to the others': the library takes no empty ones.

    Raises:
        InputError: not as many rows of one as of another.
    """
    given = {name: value for name, value in inputs.items() if value is not None}
    counts = {name: len(value) for name, value in given.items()}
    if len(set(counts.values())) > 1:
        raise InputError(f"inputs of unequal rows: {counts}")
    rows = [
        {name: value[row : row + 1] for name, value in given.items()}
        for row in range(max(counts.values(), default=0))
    ]
    for row in rows:
        ends = row.get("input_values_cutoffs")
        if ends is not None and bool((ends < 0).all()):
            del row["input_values"], row["input_values_cutoffs"]
    return rows


def grids(model: Any, sequences: Tensor) -> list[Grid]:
    """The codes, frames × codebooks, of each row of what CSM's `generate` returns.

    The library lets a row that has ended say on until the last one has; here it ends at its end.

    Args:
        model: a CSM.
        sequences: ids `[rows, frames, K]`.

    Raises:
        InputError: an id that is no code.
    """
    steps = FAMILY.descriptor(model)
    found = []
    for row in sequences.tolist():
        ends = [count for count, frame in enumerate(row, 1) if steps.stopping(frame)]
        found.append(steps.to_grid(row[: ends[0]] if ends else row))
    return found


def _in_words(steps: DepthFrames) -> str:
    book = steps.codebooks[0]
    return (
        f"{len(steps.codebooks)} codebooks of {book.codes} codes and {book.vocab_size} ids, "
        f"end mark {book.end}, padding {book.pad}"
    )


def _own(prepared: Prepared) -> CsmPrepared:
    if not isinstance(prepared, CsmPrepared):
        raise OptionError(
            "a CSM is prepared by its family's own `prepare`: its depth decoder has settings too"
        )
    return prepared


FAMILY = CsmFamily()

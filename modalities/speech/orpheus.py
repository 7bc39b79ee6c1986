"""The Orpheus layout: a plain causal language model that writes speech in seven slots per frame.

Text and codes share one vocabulary. Between the marks that begin and end speech, slot i of a frame
holds ids of its own, from `base + codes · i`; the slots are SNAC's levels of 1, 2 and 4 codes. The
library's `generate` masks nothing, so a model may leave this order. Its ids are what they are, and
equal the library's; what isn't a frame never becomes codes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from mmspec.engine import Steps
from mmspec.errors import InputError, ModelError, OptionError
from mmspec.factorizations import TimeMajorFrames
from mmspec.factorizations.codes import Grid
from mmspec.modalities.base.checkpoint import Checkpoint
from mmspec.modalities.speech.chain import (
    ChainFamily,
    ChainModel,
    check_text,
    counted,
    drawing,
    log_probs,
    prepared_chain,
    tokens,
)
from mmspec.modalities.speech.contract import CodesRequest, CodesResult
from mmspec.modalities.speech.family import check_words
from mmspec.modalities.speech.seven_slots import Slots, SpecialTokens

if TYPE_CHECKING:
    from mmspec.modalities.speech.checkpoint import SpeechCheckpoint

LEVELS = (1, 3, 7)
"""Where each of SNAC's levels ends among a frame's columns."""


class Orpheus(ChainFamily):
    """A causal language model that writes speech in this layout. Its processor is its tokenizer.

    Args:
        marks: of its vocabulary.
        resync: leave out what the model writes out of place; else such an output is refused.
    """

    title = "Orpheus"
    loads = "AutoModelForCausalLM"
    drafters: ClassVar[Mapping[str, str]] = {"llama": "AutoModelForCausalLM"}

    def __init__(self, marks: SpecialTokens | None = None, *, resync: bool = False) -> None:
        self.marks = SpecialTokens() if marks is None else marks
        self.resync = resync

    def descriptor(self, model: Any) -> TimeMajorFrames:
        """Seven slots per frame.

        Raises:
            ModelError: the model's vocabulary doesn't hold the codes and marks.
        """
        size, marks = model.get_input_embeddings().weight.shape[0], self.marks
        try:
            return TimeMajorFrames.seven_slots(size, marks.base, marks.end, marks.codes)
        except ValueError:
            raise ModelError(
                f"the model has {size} ids, the layout's codes go up to {marks.ids[-1]} and its "
                f"end mark is {marks.end}"
            ) from None

    def chains(self, model: Any, packed: bool) -> dict[str, Checkpoint]:
        """The model itself."""
        marks = frozenset({*self.marks.before, *self.marks.behind})
        family = ChainModel(frozenset({self.marks.end}), marks)
        return {"speech": Checkpoint.of(model, packed=packed, family=family)}

    def load_processor(self, source: str, **options: Any) -> Any:
        """Its tokenizer."""
        from transformers import AutoTokenizer

        return AutoTokenizer.from_pretrained(source, **options)

    def text_inputs(self, checkpoint: SpeechCheckpoint, text: str) -> dict[str, Any]:
        """The text's ids between the marks; a voice is named in the text ("tara: Hello").

        Raises:
            InputError: the text is empty, too long, or has characters that it doesn't know.
        """
        check_words(text)
        tokenizer = checkpoint.processor
        words = tokenizer(text)["input_ids"]
        if tokenizer.unk_token_id is not None and tokenizer.unk_token_id in words:
            raise InputError("the text has characters that the tokenizer doesn't know")
        ids = torch.tensor([[*self.marks.before, *words, *self.marks.behind]])
        ids = ids.to(checkpoint.device)
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}

    def new_tokens(self, steps: Any, frames: int) -> int:
        """The frames, and the marks around them."""
        return steps.steps(frames) + 3

    def slots(self, steps: TimeMajorFrames) -> Slots:
        """Follows a sequence."""
        return Slots(steps, self.marks.start, resync=self.resync)

    def say(self, asked: CodesRequest) -> Steps[CodesResult]:
        """One chain, which ends at the end of speech unless the options say otherwise."""
        checkpoint, stats = asked.pair.checkpoint, asked.stats
        model, steps = checkpoint.model, checkpoint.steps
        known = model.get_input_embeddings().weight.shape[0]
        check_text(asked.inputs.get("input_ids"), known, model.config.max_position_embeddings)
        options = {"eos_token_id": self.marks.end, **asked.options}
        with stats.clock("prefill"):
            prepared = prepared_chain(model, asked.inputs, **options)
        before, slots, prompt = len(stats.tally.trace), self.slots(steps), prepared.prompt
        if asked.streamer is not None:
            asked.streamer.put(prepared.input_ids.cpu())
        emitted = yield from tokens(
            asked,
            "speech",
            prepared,
            inputs=lambda drafter: asked.drafter_inputs or asked.inputs,
            streamer=asked.streamer,
        )
        slots.follow(prompt)
        given = len(slots.frames)
        slots.follow(emitted)
        rounds = stats.tally.trace[before:]
        stats.codes.append(counted(rounds, 7, lambda index: slots.column(len(prompt) + index)))
        sampling = drawing(asked, bool(prepared.config.do_sample))
        return CodesResult(
            tuple(slots.frames),
            slots.ended,
            [*prompt, *emitted],
            len(prompt),
            sampling,
            first_step=_first_step(slots.columns[len(prompt) :], steps.steps(given)),
        )

    def log_probs(self, asked: CodesRequest, said: CodesResult, *, text: bool) -> list[float]:
        """Of all tokens behind the prompt; the text is what stands between its marks.

        Raises:
            OptionError: the prompt has no such marks, so nobody knows what its text is.
        """
        model, marks = asked.pair.checkpoint.model, self.marks
        prompt, emitted = list(said.sequence[: said.prompt_length]), list(said.sequence)
        if not text:
            begin, end = _text_in(prompt, marks)
            del prompt[begin:end]
        inputs = {"input_ids": torch.tensor([prompt], device=model.device)}
        inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
        prepared = prepared_chain(model, inputs, max_new_tokens=len(emitted) + 1)
        chain = self.chains(model, packed=False)["speech"]
        return log_probs(chain, prepared, emitted[said.prompt_length :])


def _text_in(prompt: Sequence[int], marks: SpecialTokens) -> tuple[int, int]:
    """Where the last text begins and ends."""
    try:
        end = len(prompt) - 1 - prompt[::-1].index(marks.behind[0])
        return end - prompt[:end][::-1].index(marks.before[-1]), end
    except ValueError:
        raise OptionError(
            f"the prompt has no text between {marks.before[-1]} and {marks.behind[0]}: it can't "
            "be dropped"
        ) from None


def levels(grid: Grid) -> tuple[list[int], ...]:
    """SNAC's levels of a grid: 1, 2 and 4 codes per frame, in time order.

    Example:
        >>> levels([(1, 2, 3, 4, 5, 6, 7), (8, 9, 10, 11, 12, 13, 14)])[1]
        [2, 3, 9, 10]
    """
    begins = (0, *LEVELS)
    return tuple(
        [code for frame in grid for code in frame[begin:end]]
        for begin, end in zip(begins, LEVELS, strict=False)
    )


@torch.no_grad()
def sound(codec: Any, grid: Sequence[Sequence[int]]) -> Tensor:
    """The waveform of a grid, float `[samples]`.

    Args:
        codec: SNAC's model, or whatever decodes a list of levels `[1, n]`.
        grid: codes, frames × 7.
    """
    if not grid:
        return torch.zeros(0)
    rows = tuple(tuple(frame) for frame in grid)
    return codec.decode([torch.tensor([level]) for level in levels(rows)])[0, 0]


def _first_step(columns: Sequence[int | None], given: int) -> int | None:
    """The step, as the descriptor counts them, that the first token behind a prompt would be.

    Marks that the model says before its codes are no steps, so it may lie before the first one.

    Args:
        columns: of each token behind the prompt; None where it is no code.
        given: codes in the prompt.

    Returns:
        None where something stands between the codes: then no such count holds.

    Example:
        >>> _first_step([None, None, 0, 1, 3, None], given=0), _first_step([0, None, 1], given=7)
        (-2, None)
    """
    codes = [index for index, column in enumerate(columns) if column is not None]
    lead = codes[0] if codes else 0
    return given - lead if codes == [*range(lead, lead + len(codes))] else None


FAMILY = Orpheus()

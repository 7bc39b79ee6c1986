"""The Orpheus layout: a plain causal language model that writes speech in seven slots per frame.

Text and codes share one vocabulary. Between the marks that begin and end speech, slot i of a frame
holds ids of its own, from `base + codes · i`; the slots are SNAC's levels of 1, 2 and 4 codes. The
library's `generate` masks nothing, so a model may leave this order. Its ids are what they are, and
equal the library's; what isn't a frame never becomes codes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor
from transformers import LogitsProcessor

from mmspec.engine import Steps
from mmspec.engine.processing import MEMORYLESS
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

if TYPE_CHECKING:
    from mmspec.modalities.speech.checkpoint import SpeechCheckpoint

LEVELS = (1, 3, 7)
"""Where each of SNAC's levels ends among a frame's columns."""


@dataclass(frozen=True, slots=True)
class SpecialTokens:
    """What the ids of such a model mean; the defaults are the published checkpoint's.

    Attributes:
        base: id of code 0 in slot 0.
        codes: codes per slot.
        start: begins speech.
        end: ends it.
        before: stand before a text.
        behind: stand behind a text; the model goes on with its own marks, then speech.
    """

    base: int = 128_266
    codes: int = 4096
    start: int = 128_257
    end: int = 128_258
    before: tuple[int, ...] = (128_259,)
    behind: tuple[int, ...] = (128_009, 128_260)

    @property
    def ids(self) -> range:
        """All ids that are codes."""
        return range(self.base, self.base + 7 * self.codes)


class Slots:
    """Follows a sequence token by token: which of them are speech, and whole frames of it.

    Args:
        steps: the descriptor.
        start: the mark that begins speech.
        resync: leave out what is out of place, and go on at the next token of slot 0; else it is
            refused.

    Attributes:
        frames: codes of the whole frames so far, by column.
        columns: of each token, the column that it is in; None where it is in no frame.
        inside: whether speech has begun and not ended.
        ended: whether it has ended by its mark.

    Example:
        >>> steps = TimeMajorFrames.seven_slots(vocab_size=20, base=6, end=5, codes=2)
        >>> slots = Slots(steps, start=4)
        >>> slots.follow([1, 4, 6, 8, 11, 12, 15, 16, 18, 5])
        >>> slots.frames, slots.ended
        ([(0, 0, 1, 1, 0, 0, 0)], True)
    """

    def __init__(self, steps: TimeMajorFrames, start: int, *, resync: bool = False) -> None:
        self._steps, self._start, self._resync = steps, start, resync
        self._slot = 0
        self._partial: list[int] = []
        self.frames: list[tuple[int, ...]] = []
        self.columns: list[int | None] = []
        self.inside = self.ended = False

    def follow(self, sequence: Iterable[int]) -> None:
        """The next tokens.

        Raises:
            InputError: a token that is out of place inside speech, unless those are left out.
        """
        for token in sequence:
            self._push(token)

    def _push(self, token: int) -> None:
        self.columns.append(None)
        if not self.inside:
            if token == self._start:  # what was said before it was another utterance
                self.inside, self.ended, self.frames = True, False, []
        elif token in self._steps.stop_tokens:
            self._check_whole()
            self._drop()
            self.inside, self.ended = False, True
        else:
            self._place(token)

    def _place(self, token: int) -> None:
        column = self._steps.slots[self._slot]
        if token not in self._steps.codebooks[column].ids and self._resync:
            self._drop()
            column = self._steps.slots[0]
            if token not in self._steps.codebooks[column].ids:
                return
        where = f"frame {len(self.frames)}, codebook {column}: "
        self._partial.append(self._steps.codebooks[column].code_of(token, where))
        self.columns[-1] = column
        self._slot += 1
        if self._slot == len(self._steps.slots):
            codes = dict(zip(self._steps.slots, self._partial, strict=True))
            self.frames.append(tuple(codes[k] for k in range(len(codes))))
            self._partial, self._slot = [], 0

    def _check_whole(self) -> None:
        if self._slot and not self._resync:
            raise InputError(
                f"speech ends inside frame {len(self.frames)}, after {self._slot} of "
                f"{len(self._steps.slots)} codes"
            )

    def _drop(self) -> None:
        """The frame that was begun is none."""
        for place in range(self._slot):
            self.columns[-2 - place] = None
        self._partial, self._slot = [], 0

    def column(self, index: int) -> int | None:
        """The column of a token; behind the last one, of what comes if all goes on as it should."""
        if index < len(self.columns):
            return self.columns[index]
        ahead = self._slot + index - len(self.columns)
        return self._steps.slots[ahead % len(self._steps.slots)] if self.inside else None


class SlotMask(LogitsProcessor):
    """Between the marks only codes of the slot that is due, and an end only where a frame is whole.

    Nobody's default: pass it to `generate`, here or the library's, in `logits_processor`.

    Args:
        marks: of the vocabulary.
    """

    def __init__(self, marks: SpecialTokens) -> None:
        self._marks = marks

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Scores `[rows, V]` with what may not stand there at -inf."""
        allowed = torch.zeros_like(scores, dtype=torch.bool)
        for row, ids in enumerate(input_ids.tolist()):
            self._allow(ids, allowed[row])
        return scores.masked_fill(~allowed, -torch.inf)

    def _allow(self, ids: list[int], allowed: Tensor) -> None:
        marks = self._marks
        last = next((i for i in reversed(range(len(ids))) if ids[i] in (marks.start, marks.end)), 0)
        if ids[last] != marks.start:
            allowed[:] = True
            allowed[list(marks.ids)] = False
            allowed[marks.end] = False
            return
        slot = (len(ids) - 1 - last) % 7
        first = marks.base + slot * marks.codes
        allowed[first : first + marks.codes] = True
        allowed[marks.end] = slot == 0


MEMORYLESS.add(SlotMask)


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

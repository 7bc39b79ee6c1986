"""Drafts from the sound: what a CTC model hears in a window, for Whisper to look over.

Either a head on the encoder's own states, which were made anyway, or a CTC model of the library
that has heard the recording itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mmspec.errors import ModelError, OptionError
from mmspec.factorizations import WhisperSteps
from mmspec.modalities.base.speculative_decoder import Draft
from mmspec.modalities.whisper import ctc_head
from mmspec.modalities.whisper.checkpoint import Whisper, join_spaces
from mmspec.modalities.whisper.ctc_model import CtcModel, load_ctc_model
from mmspec.modalities.whisper.draft import Window
from mmspec.prefix import Prefix
from mmspec.proposals import (
    Alphabet,
    CtcDrafter,
    Drafter,
    ForwardVariables,
    Outlook,
    Pick,
    Proposal,
)

SURE_BLANK = 0.999
"""A frame whose blank is likelier says nothing."""

HEAD_FILE = "head.safetensors"

STATE_S = 0.02
"""Seconds that an encoder state stands for."""


class CtcHeadDraft(Draft):
    """A trained head on the target's encoder.

    Args:
        target: the checkpoint to be drafted for.
        path: the head's file.

    Raises:
        ModelError: no head, or one for another encoder.
    """

    name = "ctc"

    def __init__(self, target: Whisper, path: Path) -> None:
        self._head, config = ctc_head.load(path)
        encoder = target.model.get_encoder()
        if ctc_head.encoder_digest(encoder) != config["encoder"]:
            raise ModelError(f"{path}: the head was trained for another encoder than this model's")
        self._head = self._head.to(target.device)
        self._target, self.layer = target, int(config["middle"])
        self._alphabet = Alphabet(["", *config["characters"]])
        self._words = WordTokens(target)

    def open(self, window: Window) -> Drafter | None:
        """A drafter on this window's states; the head is run when it is first asked."""
        if why := _not_for(window, self._target.steps):
            return SilentDrafter(self.name, why)
        return CtcDrafter(
            lambda: heard_in(window, self._log_probs),
            self._alphabet,
            WindowSpelling(self._words, self._target.steps, window.prompt),
            name=self.name,
        )

    @torch.no_grad()
    def _log_probs(self, window: Window) -> Tensor:
        """`[T, S]` of the states that are the recording's."""
        if window.middle_states is None:
            raise ModelError("the encoder's middle layer wasn't kept")
        last = window.encoder_states
        spoken = last.shape[1]
        if window.spoken_s is not None:
            spoken = min(spoken, max(1, -int(-window.spoken_s // STATE_S)))
        even = min(spoken + spoken % 2, last.shape[1])
        states = torch.cat((window.middle_states, last), -1)[:, :even].float()
        if even % 2:
            states = torch.nn.functional.pad(states, (0, 0, 0, 1))
        lengths = torch.tensor([spoken], device=states.device)
        return self._head(states, lengths)[0, :spoken].log_softmax(-1)


class CtcModelDraft(Draft):
    """A CTC model of the library, run once over the recording.

    Args:
        target: the checkpoint to be drafted for.
        model: the drafting model.
    """

    name = "ctc"

    def __init__(self, target: Whisper, model: CtcModel) -> None:
        self._target, self._model = target, model
        self._words = WordTokens(target)

    def open(self, window: Window) -> Drafter | None:
        """A drafter on what the model heard of this window."""
        if why := _not_for(window, self._target.steps):
            return SilentDrafter(self.name, why)
        return CtcDrafter(
            lambda: heard_in(window, self._log_probs, self._model.blank),
            self._model.alphabet,
            WindowSpelling(self._words, self._target.steps, window.prompt),
            blank=self._model.blank,
            name=self.name,
            conditioning="own",
        )

    def _log_probs(self, window: Window) -> Tensor:
        if window.features is None:
            raise ModelError("only the target's features were given, and no audio to listen to")
        hears: Any = self._model  # it makes log-probabilities where a Whisper makes features
        heard = window.features(hears)[0].T
        if window.spoken_s is not None:
            heard = heard[: max(1, round(window.spoken_s * self._model.frames_per_second))]
        return heard


def heard_in(
    window: Window, log_probs: Callable[[Window], Tensor], blank: int = 0
) -> ForwardVariables:
    """What is heard in a window, nothing said yet; a further try doesn't listen again."""
    if window.drafter_states is None:
        with window.clock("prefill"):
            window.drafter_states = log_probs(window).cpu()
    return ForwardVariables(window.drafter_states.double().numpy(), blank, sure=SURE_BLANK)


def _not_for(window: Window, steps: WhisperSteps) -> str | None:
    """Why sound is no draft for this window, None where it is."""
    if dict(steps.tasks).get("translate") in window.prompt:
        return "draft ctc: off, sound is no draft for a text in another language"
    return None


class SilentDrafter(Drafter):
    """Proposes nothing, and says why."""

    def __init__(self, name: str, why: str) -> None:
        self.name, self._why = name, why

    def outlook(self, prefix: Prefix) -> Outlook:
        """Nothing."""
        return Outlook("off", 0.0, 0.0, 0)

    def propose(self, prefix: Prefix, limit: int, pick: Pick) -> Proposal:
        """Nothing."""
        return Proposal()

    @property
    def note(self) -> str | None:
        """Why."""
        return self._why


class WordTokens:
    """The target's tokenizer, word by word; what was asked before is remembered.

    Args:
        target: the checkpoint.

    Raises:
        ModelError: it comes without a processor.
    """

    def __init__(self, target: Whisper) -> None:
        if target.processor is None:
            raise ModelError("draft ctc needs the target's processor: it writes text in its tokens")
        self._tokenizer = target.processor.tokenizer
        self._vocabulary = self._tokenizer.get_vocab()
        self._first_special = min(*target.steps.stop_tokens, target.steps.start)
        self._texts: dict[int, str] = {}
        self._tokens: dict[str, list[int]] = {}

    def text(self, token: int) -> str:
        """What a token adds to the text; "" for a special one or a part of a character."""
        if token >= self._first_special:
            return ""
        if token not in self._texts:
            said = self._tokenizer.decode([token], clean_up_tokenization_spaces=False)
            self._texts[token] = said.replace("\N{REPLACEMENT CHARACTER}", "")
        return self._texts[token]

    def tokens(self, text: str) -> list[int]:
        """A text's tokens."""
        return [token for word in re.findall(r" ?[^ ]+| ", text) for token in self._word(word)]

    def _word(self, word: str) -> list[int]:
        if word not in self._tokens:
            pieces = join_spaces(self._tokenizer.tokenize(word), self._vocabulary)
            self._tokens[word] = self._tokenizer.convert_tokens_to_ids(pieces)
        return self._tokens[word]


class WindowSpelling:
    """How a window's text is written, times included where they are wanted.

    Args:
        words: the target's tokenizer.
        steps: its descriptor.
        prompt: the window's.
    """

    def __init__(self, words: WordTokens, steps: WhisperSteps, prompt: Sequence[int]) -> None:
        self._steps, self._end = steps, sorted(steps.stop_tokens)[:1]
        start = len(prompt) - list(reversed(prompt)).index(steps.start)
        named = steps.no_timestamps
        self._timed = named is not None and named not in prompt[start:]
        self.text, self.tokens = words.text, words.tokens

    def due(self, emitted: Sequence[int]) -> list[int]:
        """The window's first time; behind the time that ends a segment, the next one's start."""
        if not self._timed:
            return []
        if not emitted:
            return [self._steps.timestamp_begin]
        return list(emitted[-1:]) if self._closed(emitted) else []

    def end(self, emitted: Sequence[int]) -> list[int]:
        """The end; with times, only behind one: when the speech ended isn't known so well."""
        return self._end if not self._timed or self._closed(emitted) else []

    def _closed(self, emitted: Sequence[int]) -> bool:
        if len(emitted) < 2:
            return False
        before, last = map(self._steps.is_timestamp, emitted[-2:])
        return last and not before


def encoder_layer(draft: Draft) -> int | None:
    """After how many of the encoder's layers a drafter listens, None: nowhere."""
    return draft.layer if isinstance(draft, CtcHeadDraft) else None


def ctc_draft(target: Whisper, argument: str) -> Draft:
    """The drafter that `ctc:ARGUMENT` names: a head's file or directory, or a CTC model.

    Raises:
        OptionError: nothing is named.
        ModelError: there is neither.
    """
    if not argument:
        raise OptionError("draft 'ctc': expected ctc:HEAD (its file or directory) or ctc:MODEL")
    path = Path(argument)
    if path.is_dir() and (path / HEAD_FILE).exists():
        path /= HEAD_FILE
    if path.is_file():
        return CtcHeadDraft(target, path)
    return CtcModelDraft(target, load_ctc_model(argument, str(target.device)))

"""What the decoder reads before a window: previous text, language, task, and whether times are
wanted; put together as transformers' `generate` does it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

from torch import Tensor

from mmspec.clock import Clock
from mmspec.engine import Steps
from mmspec.errors import OptionError
from mmspec.factorizations import Segment
from mmspec.modalities.base.decoder import DecoderTarget
from mmspec.modalities.whisper.checkpoint import Whisper, forced_pairs
from mmspec.modalities.whisper.request import TranscriptionRequest
from mmspec.target import Pass

CONDITION_TYPES = ("first-segment", "all-segments")


class Prompting:
    """The prompts of one recording's windows.

    Args:
        whisper: the target.
        config: prepared generation config.
        request: what is wanted. Its prompt stands before the recording's own text once there is
            some ("first-segment": it soon falls out), or always ("all-segments").
        timestamps: whether times are wanted.
    """

    def __init__(
        self,
        whisper: Whisper,
        config: Any,
        request: TranscriptionRequest,
        timestamps: bool,
    ) -> None:
        self._whisper, self._config, self._timestamps = whisper, config, timestamps
        task, language = self._task, self._named = request.task, request.language
        self._given: tuple[int, ...] = ()
        if request.prompt is not None:
            self._given = whisper.previous_tokens(request.prompt)
        self._type = request.prompt_condition_type or CONDITION_TYPES[0]
        if self._type not in CONDITION_TYPES:
            raise OptionError(
                f"prompt_condition_type {self._type!r}: expected {' or '.join(CONDITION_TYPES)}"
            )
        speaks_one = getattr(config, "is_multilingual", None) is False
        if (speaks_one or not whisper.steps.languages) and (task or language):
            raise OptionError("language and task: this model is English-only and takes neither")
        self._detected: int | None = None
        self._language: int | None = None

    @property
    def language(self) -> str | None:
        """Code of the language that was named or detected."""
        return None if self._language is None else self._whisper.language_code(self._language)

    def opening(self, target: DecoderTarget, clock: Clock) -> Steps[tuple[int, ...]]:
        """The marks behind the previous text; the target reads the first to detect a language.

        Raises:
            OptionError: a language or task that the model doesn't know.
        """
        steps = self._whisper.steps
        named = self._named or getattr(self._config, "language", None)
        task = self._task or getattr(self._config, "task", None)
        task = task if steps.tasks else None
        use_forced = task is None and named is None
        if use_forced:
            self._check_forced()
        language: int | None = None
        if named is not None and steps.languages:
            language = self._whisper.language_id(named)
            task = task or ("transcribe" if steps.tasks else None)
        elif steps.languages and not (use_forced and steps.forced[:1] not in ((), (None,))):
            if self._detected is None:
                self._detected = yield from self._detect(target, clock)
            language = self._detected
        self._language = language
        try:
            return steps.prompt(
                language=language, task=task, timestamps=self._timestamps, use_forced=use_forced
            )
        except ValueError as error:
            raise OptionError(str(error)) from None

    def _check_forced(self) -> None:
        """Raise where positions are left out between those that a config forces."""
        pairs = forced_pairs(self._whisper.model, self._config)
        run = self._whisper.steps.forced
        if run and len(pairs) > len(run):
            raise OptionError(
                f"forced_decoder_ids: position {pairs[len(run)][0]} comes where {len(run) + 1} is "
                "expected; give a language and a task instead"
            )

    def _detect(self, target: DecoderTarget, clock: Clock) -> Steps[int]:
        """The likeliest language, from the row behind the start mark (no second encoder run)."""
        rows: Tensor = yield Pass(target, [self._whisper.steps.start], 1, None, clock, "prefill")
        tokens = [token for _, token in self._whisper.steps.languages]
        return tokens[int(rows[0, tokens].argmax())]

    def previous(self, segments: Sequence[Segment], conditioned: bool) -> tuple[int, ...]:
        """The text before a window, its mark first.

        Args:
            segments: what was heard so far.
            conditioned: whether that is shown.
        """
        always = self._type == CONDITION_TYPES[1]
        given, before = self._given, list[Sequence[int]]()
        if given and not always:
            marked = given[0] == self._whisper.steps.previous_text
            before = [given[1:] if marked else given]
        if not (conditioned and (before or segments)):
            return given
        opening = given if given and always else self._mark()
        backwards = itertools.chain((part.ids for part in reversed(segments)), before)
        prompt = (*opening, *_latest(self._whisper, backwards))
        pad = self._config.pad_token_id
        if pad in prompt:  # transformers would hide it from the decoder
            raise OptionError(f"condition_on_prev_tokens: a prompt would hold the padding id {pad}")
        return prompt

    def _mark(self) -> tuple[int, ...]:
        """What opens a previous text; old checkpoints name it in their suppressed ids only."""
        named = self._whisper.steps.previous_text
        suppressed = list(self._config.suppress_tokens or [])
        if named is None and len(suppressed) >= 2:
            named = int(suppressed[-2])
        return () if named is None else (named,)

    def for_drafter(
        self, other: Whisper, previous: Sequence[int], same_vocabulary: bool
    ) -> tuple[int, ...]:
        """The same job as another checkpoint's prompt.

        Args:
            other: the drafting checkpoint.
            previous: the target's previous text.
            same_vocabulary: whether its ids mean the same to the drafter.
        """
        steps = other.steps
        task = self._task or getattr(self._config, "task", None) or "transcribe"
        if previous and not same_vocabulary:
            text = "" if other.processor is None else self._whisper.text(tuple(previous)).strip()
            previous = other.previous_tokens(text) if text else ()
        room = _room(steps.context)
        return steps.prompt(
            language=dict(steps.languages).get(f"<|{self.language}|>"),
            task=task if task in dict(steps.tasks) else None,
            timestamps=self._timestamps and steps.no_timestamps is not None,
            previous=(*previous[:1], *previous[1:][-room:]),
        )


def _room(context: int) -> int:
    """How much previous text a decoder is shown: half of its positions, as in the reference."""
    return context // 2 - 1


def _latest(whisper: Whisper, backwards: Iterable[Sequence[int]]) -> list[int]:
    """The end of what was said, given from its last part on; looks back no further than that."""
    room, latest = _room(whisper.steps.context), list[int]()
    for ids in backwards:
        # A segment that ended with a pair of times keeps one: the other opens what follows.
        pair = len(ids) > 2 and whisper.steps.is_timestamp(ids[-2])
        latest = [*(ids[:-1] if pair else ids), *latest]
        if len(latest) >= room:
            break
    return latest[-room:]

"""Whisper decoder steps: a prompt that says what to do, then text and timestamp tokens.

The decoder reads `[<|startofprev|> previous text] <|startoftranscript|> [language] [task]
[<|notimestamps|>]` and goes on one token at a time. With timestamps, `<|t|>` tokens open and
close the spoken segments of one encoder window (Radford et al. 2022, section 2.3).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mmspec.factorizations.base import check_tokens

TIMESTAMP_STEP_S = 0.02
"""Seconds between neighbouring timestamp tokens."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of speech within the audio and the tokens that say it, times included."""

    start_s: float
    end_s: float
    ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class WhisperSteps:
    """One checkpoint's vocabulary layout and rules.

    Attributes:
        vocab_size: 51,865 (multilingual), 51,864 (English only), 51,866 (large-v3), or a small
            model's own.
        context: decoder positions, the prompt included.
        start: `<|startoftranscript|>`.
        stop_tokens: `<|endoftext|>`.
        languages: (`"<|en|>"`, id) pairs; empty for English-only checkpoints.
        tasks: ("transcribe" | "translate", id) pairs; empty for English-only checkpoints.
        no_timestamps: `<|notimestamps|>`, None where the checkpoint doesn't name it.
        previous_text: `<|startofprev|>`, None where the checkpoint doesn't name it.
        forced: prompt tokens behind `start` that an older checkpoint's config forces when
            neither language nor task is given; None stands for the detected language.

    Example:
        >>> steps = WhisperSteps(
        ...     vocab_size=60, context=16, start=50, stop_tokens=frozenset({49}),
        ...     languages=(("<|en|>", 51),), tasks=(("transcribe", 52),), no_timestamps=54)
        >>> steps.prompt(language=51, task="transcribe", timestamps=False)
        (50, 51, 52, 54)
        >>> steps.prompt(language=51, task="transcribe", timestamps=True)
        (50, 51, 52)
    """

    vocab_size: int
    context: int
    start: int
    stop_tokens: frozenset[int]
    languages: tuple[tuple[str, int], ...] = ()
    tasks: tuple[tuple[str, int], ...] = ()
    no_timestamps: int | None = None
    previous_text: int | None = None
    forced: tuple[int | None, ...] = ()

    def __post_init__(self) -> None:
        named = [self.start, *self.stop_tokens, *dict(self.languages).values()]
        named += [*dict(self.tasks).values(), *(u for u in self.forced if u is not None)]
        named += [u for u in (self.no_timestamps, self.previous_text) if u is not None]
        check_tokens("WhisperSteps", named, self.vocab_size)
        if self.context < 2:
            raise ValueError(f"context must hold a prompt and a token, got {self.context}")

    @property
    def timestamp_begin(self) -> int:
        """Id of `<|0.00|>`; beyond the vocabulary where there are no timestamps."""
        return self.vocab_size if self.no_timestamps is None else self.no_timestamps + 1

    @property
    def reserved(self) -> frozenset[int]:
        """Prompt marks: a transcript never holds them."""
        marks = {self.start, *dict(self.languages).values(), *dict(self.tasks).values()}
        marks |= {token for token in (self.no_timestamps, self.previous_text) if token is not None}
        return frozenset(marks - self.stop_tokens)

    def prompt(
        self,
        *,
        language: int | None,
        task: str | None,
        timestamps: bool,
        previous: Sequence[int] = (),
        use_forced: bool = False,
    ) -> tuple[int, ...]:
        """The decoder's prompt.

        Args:
            language: id of the language token; None for English-only checkpoints.
            task: "transcribe" or "translate"; None leaves it out.
            timestamps: whether timestamp tokens are to be predicted.
            use_forced: start from the `forced` tokens (nobody said language or task).
            previous: tokens of a preceding text, `<|startofprev|>` included.

        Raises:
            ValueError: a task that the checkpoint doesn't have.
        """
        body: list[int | None] = [self.start]
        if use_forced:
            body += self.forced
        if language is not None:
            body[1:2] = [language]
        known = dict(self.tasks)
        if task is not None:
            if task not in known:
                raise ValueError(f"unknown task {task!r}: this model knows {sorted(known)}")
            body = [token for token in body if token not in known.values()]
            body.append(known[task])
        ids = [token for token in body if token is not None]
        if timestamps and ids[-1] == self.no_timestamps:
            ids.pop()
        elif not timestamps and self.no_timestamps is not None and ids[-1] != self.no_timestamps:
            ids.append(self.no_timestamps)
        return (*previous, *ids)

    def is_timestamp(self, token: int) -> bool:
        """Whether a token is a time, not text."""
        return token >= self.timestamp_begin

    def seconds(self, token: int) -> float:
        """The time that a timestamp token means, within its window."""
        return (token - self.timestamp_begin) * TIMESTAMP_STEP_S

    def split(
        self, ids: Sequence[int], window_start_s: float, window_s: float
    ) -> tuple[list[Segment], float]:
        """Cut one window's tokens into segments, as the reference implementation does.

        Two timestamps in a row end a segment. If the tokens end with such a pair, speech goes on
        behind it: what comes after is decoded again from there.

        Args:
            ids: the window's tokens, without prompt and end.
            window_start_s: where the window starts in the audio.
            window_s: how much audio the window holds.

        Returns:
            (segments, seconds of this window that are done with).

        Example:
            >>> steps = WhisperSteps(vocab_size=200, context=16, start=1,
            ...                      stop_tokens=frozenset({0}), no_timestamps=99)
            >>> steps.split([100, 7, 8, 150], 0.0, 30.0)
            ([Segment(start_s=0.0, end_s=1.0, ids=(100, 7, 8, 150))], 30.0)
            >>> steps.split([100, 7, 150, 150], 0.0, 30.0)[1]
            1.0
        """
        times = [self.is_timestamp(token) for token in ids]
        cuts = [i for i in range(1, len(ids)) if times[i - 1] and times[i]]
        if not cuts:
            last = next((token for token in reversed(ids) if self.is_timestamp(token)), None)
            spoken_s = window_s
            if last is not None and last != self.timestamp_begin:
                spoken_s = self.seconds(last)
            return [Segment(window_start_s, window_start_s + spoken_s, tuple(ids))], window_s
        ends_once = times[-2:] == [False, True]
        if ends_once:
            cuts.append(len(ids))
        else:
            cuts[-1] += 1  # the pair's second half belongs to the last complete segment
        segments, begin = [], 0
        for number, cut in enumerate(cuts, 1):
            piece = tuple(ids[begin:cut])
            last_pair = number == len(cuts) and not ends_once
            start, end = piece[0], piece[-2 if last_pair else -1]
            segments.append(
                Segment(
                    window_start_s + self.seconds(start), window_start_s + self.seconds(end), piece
                )
            )
            begin = cut
        return segments, window_s if ends_once else self.seconds(ids[begin - 2])

    def to_grid(self, sequence: Sequence[int]) -> tuple[int, ...]:
        """The ids themselves: parity is over every token, times included."""
        return tuple(sequence)

    def from_grid(self, grid: Sequence[int]) -> tuple[int, ...]:
        """The ids themselves."""
        return tuple(grid)

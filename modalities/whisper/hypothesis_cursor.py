"""A hypothesis of a whole recording, and the place in it where a window begins."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import SequenceMatcher

from mmspec.errors import InputError
from mmspec.factorizations import WhisperSteps
from mmspec.modalities.whisper.checkpoint import Whisper

NEAR, FAR = 64, 4096
"""How far beyond a window's own length its text is looked for, first and if it isn't found."""

NEAR_RUN, FAR_RUN = 3, 8
"""Tokens in a row that must agree to count as found."""


class HypothesisCursor:
    """What the caller expects to hear, handed out window by window.

    A window's transcript tells how much of the hypothesis is used up: up to the last run of tokens
    that both have. Times in a hypothesis of ids count as tokens; a text has none.

    Args:
        tokens: the hypothesis in the target's vocabulary.
        steps: the target's descriptor.
    """

    def __init__(self, tokens: Sequence[int], steps: WhisperSteps) -> None:
        self._tokens, self._steps, self._at = list(tokens), steps, 0
        self._timed = any(map(steps.is_timestamp, self._tokens))

    @classmethod
    def of(cls, hypothesis: str | Sequence[int] | None, whisper: Whisper) -> HypothesisCursor:
        """From a text, or from ids.

        Raises:
            InputError: an id outside the vocabulary.
        """
        if hypothesis is None or isinstance(hypothesis, str):
            text = (hypothesis or "").strip()
            return cls(whisper.tokens(text, timestamps=False) if text else [], whisper.steps)
        ids = [int(token) for token in hypothesis]
        wrong = [token for token in ids if not 0 <= token < whisper.steps.vocab_size]
        if wrong:
            raise InputError(
                f"hypothesis: id {wrong[0]} is outside the vocabulary of {whisper.steps.vocab_size}"
            )
        return cls(ids, whisper.steps)

    def ahead(self, timestamps: bool) -> list[int] | None:
        """The hypothesis for the next window; no longer than a window's output can be."""
        tokens = self._tokens[self._at : self._at + self._steps.context]
        if not tokens:
            return None
        opens = timestamps and not self._steps.is_timestamp(tokens[0])
        return [self._steps.timestamp_begin] * opens + tokens

    def consume(self, kept: Sequence[int]) -> None:
        """A window is over, and these ids of it were kept."""
        if not self._tokens:
            return
        said = [u for u in kept if self._timed or not self._steps.is_timestamp(u)]
        rest = self._tokens[self._at : self._at + len(said) + FAR]
        same = common_beginning(rest, said)
        rest, said = rest[same:], said[same:]
        near = rest[: len(said) + NEAR]
        used = 0
        if said:
            used = used_up(near, said, NEAR_RUN) or used_up(rest, said, FAR_RUN)
        self._at += same + used


def common_beginning(one: Sequence[int], other: Sequence[int]) -> int:
    """How many tokens both begin with."""
    count = 0
    for mine, yours in zip(one, other, strict=False):
        if mine != yours:
            break
        count += 1
    return count


def used_up(ahead: Sequence[int], said: Sequence[int], run: int) -> int:
    """Where in `ahead` the last run of at least `run` tokens ends that `said` has as well; else 0.

    Example:
        >>> used_up([1, 2, 3, 4, 5, 6, 7, 8], [9, 2, 3, 4, 9, 5, 6], 2)
        6
    """
    blocks = SequenceMatcher(None, ahead, said, autojunk=False).get_matching_blocks()
    return max((block.a + block.size for block in blocks if block.size >= run), default=0)

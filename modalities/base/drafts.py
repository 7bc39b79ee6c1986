"""Kinds of drafter that every modality opens alike, and what a drafting model's tokens mean."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, Protocol

from mmspec.errors import ModelError, OptionError
from mmspec.proposals import (
    BRANCHES,
    Drafter,
    HypothesisDrafter,
    SameVocabulary,
    Vocabulary,
    VocabularyBridge,
)


class Worded(Protocol):
    """A checkpoint that knows where words begin."""

    def word_beginnings(self, tokens: Sequence[int]) -> list[bool] | None:
        """Whether each token begins a word, None where nobody can tell."""
        ...


class Expecting(Protocol):
    """What is being decoded, and what is expected of it in target tokens."""

    @property
    def hypothesis(self) -> Sequence[int] | None: ...  # noqa: D102


class HypothesisDraft:
    """A text that the caller has already; without one there is nothing to draft.

    Args:
        target: the checkpoint to be drafted for.
        branches: continuations proposed side by side after a mismatch.
    """

    name = "hypothesis"

    def __init__(self, target: Worded, branches: int = BRANCHES) -> None:
        self._target, self._branches = target, branches

    def open(self, opening: Expecting) -> Drafter | None:
        """A drafter on the caller's hypothesis.

        Raises:
            OptionError: it is no row of ids.
        """
        given = opening.hypothesis
        try:  # a tensor or an array, as `generate` returns it, is a row of ids too
            tokens = [] if given is None else [operator.index(token) for token in given]
        except TypeError:
            shape = getattr(given, "shape", None)
            found = type(given).__name__ + ("" if shape is None else f" {list(shape)}")
            raise OptionError(f"hypothesis: found {found}, expected one row of ids") from None
        if not tokens:
            return None
        return HypothesisDrafter(tokens, self._target.word_beginnings(tokens), self._branches)


def vocabulary_between_tokenizers(target: Any, drafter: Any, want: int, have: int) -> Vocabulary:
    """How the tokens of a drafting model relate to the target's, by their tokenizers.

    Args:
        target: the target's tokenizer.
        drafter: the drafting model's.
        want: width of the target's rows.
        have: of the drafting model's.

    Raises:
        ModelError: they have nothing in common.
    """
    strings, others = target.get_vocab(), drafter.get_vocab()
    if strings == others:
        return SameVocabulary(want, have)
    bridge = VocabularyBridge(strings, others, want, have)
    if bridge.shared < 2:
        raise ModelError("the drafter's tokenizer shares no tokens with the target's")
    return bridge

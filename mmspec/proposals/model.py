"""A drafting model: another decoder with its own state and its own conditioning."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from mmspec.errors import DraftError
from mmspec.prefix import Prefix
from mmspec.proposals.base import Drafter, Outlook, Pick, Proposal, fit_vocabulary
from mmspec.target import Target


class Vocabulary(Protocol):
    """How a drafting model's tokens relate to the target's."""

    def to_draft(self, token: int) -> Sequence[int]:
        """A target token in the drafting model's tokens (none where it has no counterpart)."""
        ...

    def to_target(self, row: Tensor) -> Tensor:
        """A row of the drafting model's logits over the target's vocabulary."""
        ...


@dataclass(frozen=True, slots=True)
class SameVocabulary:
    """Target and drafting model share their token ids; only the padding may differ.

    Attributes:
        vocab_size: width of the target's rows.
        draft_size: the drafting model's, None where it is no smaller.
    """

    vocab_size: int
    draft_size: int | None = None

    def to_draft(self, token: int) -> Sequence[int]:
        """The same id; none for the target's padding, which the drafting model can't read."""
        return (token,) if self.draft_size is None or token < self.draft_size else ()

    def to_target(self, row: Tensor) -> Tensor:
        """Cropped or padded to the target's width."""
        return fit_vocabulary(row, self.vocab_size)


@dataclass
class ModelDrafter(Drafter):
    """Drafts with a model, one token at a time.

    The model sees its own prompt, then the committed tokens in its own vocabulary. What it has not
    seen yet is fed in one block at the next proposal; what turned out wrong is rolled back.

    Args:
        model: the drafting model, conditioned on the same input and opened for this request.
        prompt: its own prompt (another vocabulary has another one).
        vocabulary: how its tokens relate to the target's.
        stop_tokens: target tokens after which drafting on is pointless.
        sure: keep drafting only while the token just drawn had at least this probability. The
            token that was drawn is kept: to stop *and* discard it would bias the output.
        first_row: its logits `[1, V]` behind a prompt that it has read whole; None where the
            prompt's last token can be read again.
    """

    model: Target
    prompt: Sequence[int]
    vocabulary: Vocabulary
    stop_tokens: Collection[int] = ()
    sure: float = 0.0
    name: str = "model"
    cost_prior: float = 0.5
    conditioning: str = "own"
    first_row: Tensor | None = None
    _ends: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        # _ends[k]: length of the model's sequence once k target tokens behind the prompt are in it.
        self._ends = [len(self.prompt)]
        self._sequence = list(self.prompt)
        self._is_full = False

    @property
    def note(self) -> str | None:
        """That its own context was too short for the output, if it was."""
        if not self._is_full:
            return None
        return f"drafter {self.name} stopped at its own limit of {self.model.capacity} positions"

    def outlook(self, prefix: Prefix) -> Outlook:
        """As many tokens as its context still holds."""
        return Outlook("model", first=0.7, rest=0.8, available=self._room(prefix))

    def propose(self, prefix: Prefix, limit: int, pick: Pick) -> Proposal:
        """Catch up with the committed prefix, then draft up to `limit` tokens.

        Raises:
            DraftError: the model has broken down.
        """
        self._translate(prefix)
        if len(self._sequence) > self.model.capacity:
            self._is_full = True
            return Proposal()
        row = self._next_row()
        tokens: list[int] = []
        distributions: list[Tensor] = []
        while True:
            token, distribution = pick(row, len(tokens))
            if math.isnan(float(row[token])):  # NaN wins every argmax
                raise DraftError("the drafting model's logits are NaN")
            tokens.append(token)
            distributions += [] if distribution is None else [distribution]
            if len(tokens) >= limit or token in self.stop_tokens or self._unsure(row, token):
                break
            step = list(self.vocabulary.to_draft(token))
            if not step or self.model.state.length + len(step) > self.model.capacity:
                break
            self._sequence += step
            self._ends.append(len(self._sequence))
            row = self._score(step)
        return Proposal(tuple(tokens), torch.stack(distributions) if distributions else None)

    def commit(self, prefix: Prefix, agreed: int) -> None:
        """Forget what was drafted beyond the agreement."""
        known = min(agreed - prefix.prompt_length, len(self._ends) - 1)
        del self._ends[known + 1 :]
        del self._sequence[self._ends[known] :]
        self.model.state.commit(min(self.model.state.length, self._ends[known]))

    @property
    def forwards(self) -> int:
        """Forward passes of the drafting model."""
        return self.model.forwards

    def close(self) -> None:
        """Release the drafting model's state."""
        self.model.close()

    def _translate(self, prefix: Prefix) -> None:
        """Bring the model's sequence up to the committed prefix."""
        for token in prefix.ids[prefix.prompt_length + len(self._ends) - 1 :]:
            self._sequence += self.vocabulary.to_draft(token)
            self._ends.append(len(self._sequence))

    def _next_row(self) -> Tensor:
        """The distribution behind the sequence. At least one token is fed, else there is no row."""
        state = self.model.state
        if self.first_row is not None and len(self._sequence) == len(self.prompt):
            return self.vocabulary.to_target(self.first_row[-1])
        if state.length == len(self._sequence):
            state.rollback(state.length - 1)
        return self._score(self._sequence[state.length :])

    def _room(self, prefix: Prefix) -> int:
        # A token may become several of the model's, so this is an upper bound; propose() checks.
        emitted = len(prefix) - prefix.prompt_length
        room = max(0, self.model.capacity - len(self.prompt) - emitted)
        self._is_full |= room == 0
        return room

    def _score(self, ids: Sequence[int]) -> Tensor:
        return self.vocabulary.to_target(self.model.score(ids, keep=1)[-1])

    def _unsure(self, row: Tensor, token: int) -> bool:
        return self.sure > 0 and float(row.softmax(-1)[token]) < self.sure

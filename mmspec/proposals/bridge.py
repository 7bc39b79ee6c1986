"""A bridge between two vocabularies, by token string."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor


class VocabularyBridge:
    """Lets a model with another tokenizer draft for the target.

    A token of one vocabulary is the token of the other with the same string. A target token without
    such a twin is spelled in the draft model's smallest pieces; the draft model's tokens without a
    twin can't be drafted.

    Args:
        target_strings: the target's vocabulary, string to id.
        draft_strings: the drafting model's.
        target_size: width of the target's rows.
        draft_size: width of the drafting model's rows.

    Example:
        >>> bridge = VocabularyBridge({"a": 0, "ab": 1}, {"b": 0, "a": 1}, 3, 2)
        >>> bridge.to_draft(0), bridge.to_draft(1), bridge.shared
        ((1,), (1, 0), 1)
        >>> bridge.to_target(torch.tensor([5.0, 7.0])).tolist()
        [7.0, -inf, -inf]
    """

    def __init__(
        self,
        target_strings: Mapping[str, int],
        draft_strings: Mapping[str, int],
        target_size: int,
        draft_size: int,
    ) -> None:
        self._target_size = target_size
        # Tokenizers may know more than their model has rows for: it couldn't read that.
        draft_strings = {string: u for string, u in draft_strings.items() if u < draft_size}
        self._draft_strings = draft_strings
        self._string_of = {token: string for string, token in target_strings.items()}
        twins = [
            (draft_strings[string], token)
            for string, token in target_strings.items()
            if token < target_size and string in draft_strings
        ]
        self.shared = len(twins)
        self._from = torch.tensor([draft for draft, _ in twins], dtype=torch.long)
        self._to = torch.tensor([token for _, token in twins], dtype=torch.long)
        self._spelled: dict[int, tuple[int, ...]] = {}

    def to_draft(self, token: int) -> Sequence[int]:
        """A target token in the drafting model's tokens; empty where it can't be spelled."""
        if token not in self._spelled:
            self._spelled[token] = self._spell(self._string_of.get(token, ""))
        return self._spelled[token]

    def to_target(self, row: Tensor) -> Tensor:
        """The drafting model's logits `[V']` over the target's vocabulary; `-inf` without twin."""
        if self._from.device != row.device:
            self._from, self._to = self._from.to(row.device), self._to.to(row.device)
        laid_out = row.new_full((self._target_size,), -torch.inf)
        laid_out[self._to] = row[self._from]
        return laid_out

    def _spell(self, string: str) -> tuple[int, ...]:
        if string in self._draft_strings:
            return (self._draft_strings[string],)
        if string.startswith("<|"):  # a mark of the target's own, meaningless to the other
            return ()
        pieces: list[int] = []
        while string:  # longest piece first: close to what the other tokenizer would do
            size = next(
                (n for n in range(len(string), 0, -1) if string[:n] in self._draft_strings), 0
            )
            if not size:
                return ()
            pieces.append(self._draft_strings[string[:size]])
            string = string[size:]
        return tuple(pieces)

"""Drafting from an overlap: what was said before of the stretch that is decoded again.

Where in that text the output begins is known roughly only. So until two committed tokens in a row
are found in it, the whole of it is searched; from there on it is a hypothesis like any other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from mmspec.prefix import Prefix
from mmspec.proposals.base import Drafter, Outlook, Pick, Proposal
from mmspec.proposals.hypothesis import HypothesisDrafter


class OverlapDrafter(Drafter):
    """Proposes what a neighbour said, from the place on where the output has come to.

    Args:
        tokens: the neighbour's, in the target's vocabulary; no stop token at their end.
        begins: whether each token begins a word, as `HypothesisDrafter` takes it.

    Example:
        >>> import torch
        >>> drafter = OverlapDrafter([5, 6, 7, 8, 9])
        >>> prefix = Prefix([1], capacity=16, device=torch.device("cpu"))
        >>> prefix.extend([7, 8])  # it begins further on than was thought
        >>> drafter.commit(prefix, agreed=1)
        >>> drafter.propose(prefix, 4, pick=None).ids
        (9,)
    """

    name = "overlap"

    def __init__(self, tokens: Sequence[int], begins: Sequence[bool] | None = None) -> None:
        self._tokens = list(tokens)
        self._begins = [True] * len(self._tokens) if begins is None else list(begins)
        self._text = HypothesisDrafter(self._tokens, self._begins)
        self._found = False

    def outlook(self, prefix: Prefix) -> Outlook:
        """That of the text, once the place is known."""
        outlook = self._text.outlook(prefix)
        return outlook if prefix.emitted else replace(outlook, context="head", first=0.5)

    def propose(self, prefix: Prefix, limit: int, pick: Pick) -> Proposal:
        """The text from the place on; before it is known, from its beginning."""
        return self._text.propose(prefix, limit, pick)

    def propose_tree(self, prefix: Prefix, limit: int, branches: int) -> Proposal:
        """The text from wherever it may go on after a mismatch."""
        return self._text.propose_tree(prefix, limit, branches)

    def commit(self, prefix: Prefix, agreed: int) -> None:
        """Follow what was committed, or look for the place."""
        if not self._found and (place := self._place(prefix.emitted)) is not None:
            self._found = len(prefix.emitted) > 1
            said = prefix.emitted
            self._text = HypothesisDrafter(
                [*said, *self._tokens[place:]], [True] * len(said) + self._begins[place:]
            )
        self._text.commit(prefix, agreed)

    def _place(self, emitted: Sequence[int]) -> int | None:
        """Where the text goes on behind what the output ends with, by the longest match.

        A first token is a match, a later one only together with the one before it.
        """
        lengths = [_same_end(self._tokens[:end], emitted) for end in range(len(self._tokens) + 1)]
        longest = max(lengths)
        return lengths.index(longest) if longest >= min(2, len(emitted)) > 0 else None


def _same_end(one: Sequence[int], other: Sequence[int]) -> int:
    """How many tokens at their ends are the same."""
    pairs = zip(reversed(one), reversed(other), strict=False)
    return next((count for count, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))

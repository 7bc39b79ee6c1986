"""Hypothesis drafting: the caller already has a text that is nearly right.

An earlier pass, another recogniser's transcript, a reading of the same page. While it agrees with
the target it is the perfect draft. After a mismatch it has to be lined up again with what was
committed: a word was one too many, missing, or another one. Which of these it was isn't known yet,
so the likeliest continuations are proposed side by side, as a tree, and the target takes its pick.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from mmspec.prefix import Prefix
from mmspec.proposals.base import Drafter, Outlook, Pick, Proposal, deterministic

SETTLED = 2
"""Committed tokens in a row that must match before the alignment counts as found again."""

SEARCH = 24
"""How far ahead of a mismatch, in hypothesis tokens, the continuation is looked for."""

PATIENCE = 16
"""Committed tokens without a settled alignment after which the best guess is taken for good."""


FOUND = (0.4, 0.65, 0.75)
"""How often the continuation is among the best one, two, three guesses (planted word errors)."""

BRANCHES = len(FOUND)
"""Continuations proposed side by side after a mismatch, at most."""


class HypothesisDrafter(Drafter):
    """Proposes a given continuation, realigned after each mismatch.

    Args:
        tokens: the hypothesis in the target's vocabulary; ends with the stop token where the
            hypothesis is complete.
        begins: whether each token begins a word: a different word is likelier than a different
            half of one. Without it any token may.
        branches: continuations side by side after a mismatch, at most `BRANCHES`; 1 follows the
            best guess only.

    Example:
        >>> import torch
        >>> drafter = HypothesisDrafter([5, 6, 7, 8, 9])
        >>> prefix = Prefix([1], capacity=16, device=torch.device("cpu"))
        >>> drafter.propose(prefix, 2, pick=None).ids
        (5, 6)
        >>> prefix.extend([5, 6, 42])  # 42 where the hypothesis has 7: taken for a substitution
        >>> drafter.commit(prefix, agreed=3)
        >>> drafter.propose(prefix, 4, pick=None).ids
        (8, 9)
    """

    name = "hypothesis"

    def __init__(
        self,
        tokens: Sequence[int],
        begins: Sequence[bool] | None = None,
        branches: int = BRANCHES,
    ) -> None:
        self._tokens = list(tokens)
        self._begins = list(begins) if begins is not None else [True] * len(self._tokens)
        self._branches = min(branches, BRANCHES)
        self._seen: int | None = None
        self._at = 0  # hypothesis index up to which the alignment is settled
        self._tail: list[int] = []  # tokens committed since then
        self._next = [0]  # where the hypothesis may go on, the best guess first

    def outlook(self, prefix: Prefix) -> Outlook:
        """Nearly sure while aligned; after a mismatch the first token decides."""
        available = len(self._tokens) - min(self._next)
        if self._tail:
            first, *beside = FOUND[: len(self._next)]
            return Outlook("realigning", first, 0.95, available, beside=tuple(beside))
        return Outlook("aligned", 0.9, 0.95, available)

    def propose(self, prefix: Prefix, limit: int, pick: Pick) -> Proposal:
        """The hypothesis from where it goes on most likely."""
        return self.propose_tree(prefix, limit, 1)

    def propose_tree(self, prefix: Prefix, limit: int, branches: int) -> Proposal:
        """The hypothesis from wherever it may go on."""
        if self._seen is None:
            self._seen = len(prefix)
        return tree_of([self._tokens[start : start + limit] for start in self._next[:branches]])

    def commit(self, prefix: Prefix, agreed: int) -> None:
        """Follow what was committed through the hypothesis."""
        if self._seen is None:
            self._seen = prefix.prompt_length
        for token in prefix.ids[self._seen :]:
            self._follow(token)
        self._seen = len(prefix)
        if self._tail:
            self._realign()
        else:
            self._next = [self._at]

    def _follow(self, token: int) -> None:
        settled = not self._tail
        if settled and self._at < len(self._tokens) and self._tokens[self._at] == token:
            self._at += 1
        else:
            self._tail.append(token)

    def _realign(self) -> None:
        end = self._at + len(self._tail) + SEARCH
        places = alignments(
            self._tokens[self._at : end], self._tail, self._begins[self._at : end], self._branches
        )
        self._next = [self._at + used for used, _ in places]
        if places[0][1] >= SETTLED or len(self._tail) >= PATIENCE:
            self._at = self._next[0]
            self._next, self._tail = [self._at], []


def tree_of(branches: Sequence[Sequence[int]]) -> Proposal:
    """Continuations as one proposal; where they begin alike, the beginning is proposed once.

    Example:
        >>> tree_of([[7, 8], [7, 9]])
        Proposal(ids=(7, 8, 9), draft_probs=None, parents=(-1, 0, 0))
    """
    if len(branches) == 1:
        return deterministic(list(branches[0]))
    ids: list[int] = []
    parents: list[int] = []
    children: dict[tuple[int, int], int] = {}
    for branch in branches:
        at = -1
        for token in branch:
            if (at, token) not in children:
                children[at, token] = len(ids)
                ids.append(int(token))
                parents.append(at)
            at = children[at, token]
    return Proposal(tuple(ids), parents=tuple(parents))


def alignments(
    ahead: Sequence[int], committed: Sequence[int], begins: Sequence[bool], most: int
) -> list[tuple[int, int]]:
    """Where in `ahead` to go on, given that `committed` was decided from its start on.

    Edit distance between `committed` and every prefix of `ahead`, where skipping a word costs the
    same however many tokens it has. The cheapest prefixes win; a run of matches at a prefix's end
    counts for it, going on inside a word counts against it where no match led there, and between
    equals it is the one with as many words (a substitution is the commonest error).

    Args:
        ahead: tokens of the hypothesis that may correspond.
        committed: tokens that were decided instead.
        begins: whether each token of `ahead` begins a word.
        most: how many places are wanted.

    Returns:
        (tokens of `ahead` used up, length of the run of matches that ends there), the best first;
        at least one, at most `most`.

    Example:
        >>> alignments([7, 8, 9], [42], [True] * 3, 2)  # another token, or one that was missing
        [(1, 0), (0, 0)]
        >>> alignments([7, 8, 9], [8], [True] * 3, 1)  # 7 was one too many
        [(2, 1)]
        >>> alignments([7, 8, 9], [42], [True, False, True], 1)  # another word: 7 and 8 are one
        [(2, 0)]
    """
    costs, runs = _edit_costs(ahead, committed, begins)
    words = [0, *itertools.accumulate(map(int, begins))]

    def badness(used: int) -> tuple[float, int]:
        inside = used < len(ahead) and not begins[used] and not runs[used]
        return costs[used] - 0.5 * runs[used] + inside, abs(words[used] - len(committed))

    best = sorted(range(len(costs)), key=badness)[:most]
    return [(used, runs[used]) for used in best]


def _edit_costs(
    ahead: Sequence[int], committed: Sequence[int], begins: Sequence[bool]
) -> tuple[list[float], list[int]]:
    """Per prefix of `ahead`: edit distance to `committed`, and the run of matches at its end."""
    costs = [0.0, *itertools.accumulate(map(float, begins))]
    runs = [0] * len(costs)
    for done, token in enumerate(committed, 1):
        new_costs, new_runs = [float(done)], [0]
        for used, candidate in enumerate(ahead, 1):
            same = candidate == token
            diagonal = costs[used - 1] + (not same)
            skipped = new_costs[-1] + begins[used - 1]
            cost = min(diagonal, costs[used] + 1, skipped)
            new_costs.append(cost)
            new_runs.append(runs[used - 1] + 1 if same and cost == diagonal else 0)
        costs, runs = new_costs, new_runs
    return costs, runs

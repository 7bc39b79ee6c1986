"""What a drafter is, what it proposes, and how it draws a token the way the target would."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from mmspec.errors import DraftError
from mmspec.prefix import Prefix

Pick = Callable[[Tensor, int], tuple[int, Tensor | None]]
"""Draw a drafted token from logits `[V]` at draft offset i: (token, its distribution `[V]` or
None).

Processors and randomness are the request's own, so a drafter draws like the target would. The
distribution is None where the token is a function of the logits (greedy, keyed noise): one-hot.
"""


@dataclass(frozen=True, slots=True, eq=False)
class Proposal:
    """Drafted tokens: one continuation, or a tree of several that share their beginnings.

    Attributes:
        ids: the tokens; in a chain the first to be decided first, in a tree parents before
            children.
        draft_probs: `[len(ids), V]`, the distributions that the tokens were really drawn from, or
            None for a deterministic proposal.
        parents: index of each token's parent, -1 for the committed prefix; None for a chain.

    Example:
        >>> tree = Proposal((7, 8, 9), parents=(-1, 0, -1))  # 7 8, or 9
        >>> tree.depth, tree.depths
        (2, (1, 2, 1))
    """

    ids: tuple[int, ...] = ()
    draft_probs: Tensor | None = None
    parents: tuple[int, ...] | None = None

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def depths(self) -> tuple[int, ...]:
        """How many tokens lead to each token, itself included."""
        if self.parents is None:
            return tuple(range(1, len(self.ids) + 1))
        depths: list[int] = []
        for parent in self.parents:
            depths.append(1 if parent < 0 else depths[parent] + 1)
        return tuple(depths)

    @property
    def depth(self) -> int:
        """Drafted tokens in a row, at most."""
        return len(self.ids) if self.parents is None else max(self.depths, default=0)

    def crop(self, length: int) -> Proposal:
        """The first `length` tokens. Lawful only where `length` doesn't depend on later tokens."""
        if length >= len(self.ids):
            return self
        probs = None if self.draft_probs is None else self.draft_probs[:length]
        parents = None if self.parents is None else self.parents[:length]
        return Proposal(self.ids[:length], probs, parents)

    def until(self, stop_tokens: Collection[int]) -> Proposal:
        """Without what would follow a stop token: it can't be emitted, so it isn't paid for."""
        if self.parents is None:
            for length, token in enumerate(self.ids, 1):
                if token in stop_tokens:
                    return self.crop(length)
            return self
        kept: dict[int, int] = {-1: -1}
        for index, parent in enumerate(self.parents):
            if parent in kept and (parent < 0 or self.ids[parent] not in stop_tokens):
                kept[index] = len(kept) - 1
        nodes = [index for index in kept if index >= 0]
        return Proposal(
            tuple(self.ids[index] for index in nodes),
            parents=tuple(kept[self.parents[index]] for index in nodes),
        )

    @property
    def roots(self) -> list[int]:
        """Indices of the tokens that may come first: one per branch."""
        if self.parents is None:
            return [0][: len(self.ids)]
        return [index for index, parent in enumerate(self.parents) if parent < 0]

    def goes_on_behind(self, path: Sequence[int]) -> bool:
        """Whether anything was drafted to follow the tokens at these indices."""
        if self.parents is None:
            return len(path) < len(self.ids)
        return (path[-1] if path else -1) in self.parents

    def follow(self, tokens: Sequence[int]) -> tuple[int, ...]:
        """Indices of the drafted tokens that these are, as far as they were drafted.

        Example:
            >>> Proposal((7, 8, 9), parents=(-1, 0, -1)).follow([7, 8, 3])
            (0, 1)
        """
        parents = self.parents or range(-1, len(self.ids) - 1)
        path: list[int] = []
        for token in tokens:
            at = path[-1] if path else -1
            drafted = (i for i in range(at + 1, len(self.ids)) if parents[i] == at)
            index = next((i for i in drafted if self.ids[i] == token), None)
            if index is None:
                break
            path.append(index)
        return tuple(path)

    def runs(self) -> Iterator[tuple[list[int], list[int]]]:
        """The tree as chains: (tokens that lead to the chain and are in it, indices in the chain).

        Every token is in one chain; the first is the trunk.
        """
        if self.parents is None:
            yield list(self.ids), list(range(len(self.ids)))
            return
        first_child: dict[int, int] = {}
        for index, parent in enumerate(self.parents):
            first_child.setdefault(parent, index)
        for index, parent in enumerate(self.parents):
            if first_child[parent] == index and parent >= 0:
                continue  # its parent's chain goes on with it
            chain = [index]
            while chain[-1] in first_child:
                chain.append(first_child[chain[-1]])
            yield [*self._leading_to(parent), *(self.ids[node] for node in chain)], chain

    def _leading_to(self, index: int) -> list[int]:
        tokens: list[int] = []
        while index >= 0 and self.parents is not None:
            tokens.append(self.ids[index])
            index = self.parents[index]
        return tokens[::-1]

    def check(self, limit: int, vocab_size: int, branches: int = 1) -> Proposal:
        """Return itself if it is a proposal that can be verified.

        Args:
            limit: tokens in a row that were asked for.
            vocab_size: of the target.
            branches: how many rows of so many tokens the drafter announced.

        Raises:
            DraftError: too long, ids outside the vocabulary, distributions that are none, or no
                tree.
        """
        if self.parents is not None:
            self._check_tree()
        if len(self.ids) > limit * branches or self.depth > limit:
            raise DraftError(
                f"proposed {len(self.ids)} tokens where at most {limit} were asked for"
            )
        for token in self.ids:
            if not (isinstance(token, int) and 0 <= token < vocab_size):
                raise DraftError(f"proposed token {token!r}, outside 0..{vocab_size - 1}")
        if self.draft_probs is not None and self.ids:
            check_distributions(self.draft_probs, (len(self.ids), vocab_size))
        return self

    def _check_tree(self) -> None:
        if self.draft_probs is not None:
            raise DraftError("a tree has no draft_probs: only deterministic tokens can branch")
        parents = self.parents or ()
        if len(parents) != len(self.ids) or any(
            not -1 <= parent < index for index, parent in enumerate(parents)
        ):
            raise DraftError(f"parents {parents} are no tree over {len(self.ids)} tokens")


def check_distributions(draft_probs: Tensor, shape: tuple[int, ...]) -> None:
    """Raise where these are no probability distributions of this shape, over the last dimension.

    Raises:
        DraftError: says what they are.
    """
    if tuple(draft_probs.shape) != shape:
        raise DraftError(f"draft_probs have shape {tuple(draft_probs.shape)}, expected {shape}")
    if draft_probs.dtype not in (torch.float32, torch.float64):
        raise DraftError(f"draft_probs are {draft_probs.dtype}, expected float32 or float64")
    sums = draft_probs.sum(-1)
    sound = (sums - 1).abs().max() < 1e-3 and draft_probs.min() >= 0
    if not bool(sound):  # NaN compares false, so it lands here too
        raise DraftError("draft_probs are no probability distributions (NaN, negative, or sum ≠ 1)")


@dataclass(frozen=True, slots=True)
class Outlook:
    """What a drafter expects of its next proposal, before it makes it.

    Attributes:
        context: a label under which the policy keeps acceptance apart ("aligned", "match 3").
        first: prior probability that the first token is accepted.
        rest: prior probability that a later token is, given that those before it were.
        later: the same for each of the later tokens, where it is known so well; behind them `rest`.
        available: how many tokens it could propose at most (0: nothing to propose).
        opening_s: seconds that it needs before it can propose at all (its own encoder run).
        beside: the same as `first` with one more continuation proposed side by side, two more,
            and so on; empty where there is only one.
        corrected: whether these are no priors any more: what was seen so far is in them.
    """

    context: str
    first: float
    rest: float
    available: int
    opening_s: float = 0.0
    beside: tuple[float, ...] = ()
    later: tuple[float, ...] = ()
    corrected: bool = False

    @property
    def branches(self) -> int:
        """Continuations that it could propose side by side."""
        return 1 + len(self.beside)


class Drafter(ABC):
    """Proposes tokens. It may be wrong, slow or broken: the output never depends on it."""

    name: str = "drafter"
    cost_prior: float = 0.0
    """Cost of one drafted token in ordinary target steps, before anything was measured."""
    conditioning: str = "none"
    """What it knows of the input: "shared", "own", "none" ("text-only" in a report)."""

    @abstractmethod
    def outlook(self, prefix: Prefix) -> Outlook:
        """What could be proposed now, and how likely it is to be kept."""

    @abstractmethod
    def propose(self, prefix: Prefix, limit: int, pick: Pick) -> Proposal:
        """Propose up to `limit` (≥ 1) tokens to follow `prefix`."""

    def propose_tree(self, prefix: Prefix, limit: int, branches: int) -> Proposal:
        """Propose up to `branches` (> 1) continuations of up to `limit` tokens each.

        Only asked of a drafter whose outlook has that many.
        """
        raise DraftError(f"{self.name} announced {branches} branches and proposes no trees")

    def commit(self, prefix: Prefix, agreed: int) -> None:
        """The round is over: `prefix` is committed, and drafted tokens agree with it up to
        `agreed`.

        Args:
            prefix: the committed prefix, longer than before unless the round failed.
            agreed: absolute length up to which what this drafter has seen is still right.
        """
        return  # nothing to do for a drafter without state

    def without_failed(self) -> Drafter | None:
        """What is left to draft with after it has failed: nothing, unless it is several."""
        return None

    @property
    def parts(self) -> Sequence[Drafter]:
        """The drafters that propose in its name or their own: itself, unless it is several."""
        return (self,)

    @property
    def note(self) -> str | None:
        """What a report has to say of how it went; None: nothing."""
        return None

    @property
    def forwards(self) -> int:
        """Forward passes that this drafter cost so far (0 where it is no model)."""
        return 0

    @property
    def depth_forwards(self) -> int:
        """Passes down the codebooks of its frames (0 where they are no chain of its own)."""
        return 0

    def close(self) -> None:
        """Release what the drafter holds for this request."""
        return


def deterministic(tokens: list[int]) -> Proposal:
    """A proposal whose tokens are a function of the prefix."""
    return Proposal(tuple(int(token) for token in tokens))


def fit_vocabulary(row: Tensor, vocab_size: int) -> Tensor:
    """Crop or pad a drafter's logits `[V']` to the target's width; padding can't be drawn.

    Checkpoints of one family pad their embedding to different sizes though they share a tokenizer.

    Example:
        >>> fit_vocabulary(torch.zeros(3), 2).tolist(), fit_vocabulary(torch.zeros(1), 2).tolist()
        ([0.0, 0.0], [0.0, -inf])
    """
    missing = vocab_size - row.shape[-1]
    if missing <= 0:
        return row[..., :vocab_size]
    return torch.nn.functional.pad(row, (0, missing), value=-torch.inf)

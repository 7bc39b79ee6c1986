"""The exact distribution of what a rule emits, measured from outside the rule.

A rule is a deterministic function of its uniform numbers, so its distribution is the volume of the
cells on which it decides the same. The cells are found by bisecting the production code itself
(each coin has one threshold, the closing draw has V - 1 edges); no formula of the rule is used.
Volumes are then weighted with the probability of every proposal, and the emitted tokens are
continued with the target up to a fixed length.

Padding of ragged proposals is always poisoned, in one of two ways, because neither shows every
reader: `NAN` spreads through sums and refuses lookups but fails comparisons, which looks like a
rejection; `TEMPTING` padding is accepted by whoever reads it.
"""

import itertools
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from mmspec.acceptance import Decision

Context = tuple[int, ...]
Model = dict[Context, np.ndarray]
Law = dict[Context, float]
Rule = Callable[..., Decision]

LIMIT = 1e-12
_BISECTIONS = 54
_JUST_BELOW_ONE = 1 - 2.0**-53


@dataclass(frozen=True)
class Poison:
    score: float
    draft_prob: float
    coin: float
    token: int


NAN = Poison(score=np.nan, draft_prob=np.nan, coin=np.nan, token=-1)
TEMPTING = Poison(score=0.0, draft_prob=0.0, coin=0.0, token=0)


@dataclass(frozen=True)
class Proposal:
    ids: Context
    weight: float


@dataclass(frozen=True)
class Setup:
    """One speculative step on toy models.

    `scored` and `claimed` are what the rule is told about target and drafter; they differ from the
    truth only where a test plants a fault. `draft=None` makes the proposals deterministic.
    """

    target: Model
    draft: Model | None
    proposals: Sequence[Proposal]
    scored: Model | None = None
    claimed: Model | None = None
    poison: Poison = NAN
    width: int = 0

    @property
    def vocab_size(self) -> int:
        return len(self.target[()])

    @property
    def padded_width(self) -> int:
        return max(self.width, *(len(proposal.ids) for proposal in self.proposals))


def random_model(
    rng: np.random.Generator,
    vocab_size: int,
    depth: int,
    concentration: float = 0.7,
    forbidden: float = 0.0,
) -> Model:
    """A context-dependent law for every context up to `depth`; some tokens may be forbidden."""
    model = {}
    for length in range(depth + 1):
        for context in itertools.product(range(vocab_size), repeat=length):
            law = rng.dirichlet(np.full(vocab_size, concentration))
            zeroed = rng.random(vocab_size) < forbidden
            zeroed[rng.integers(vocab_size)] = False
            law = np.where(zeroed, 0.0, law)
            model[context] = law / law.sum()
    return model


def tempered(model: Model, temperature: float) -> Model:
    sharpened = {context: law ** (1 / temperature) for context, law in model.items()}
    return {context: law / law.sum() for context, law in sharpened.items()}


def sampled_proposals(draft: Model, length: int) -> list[Proposal]:
    """Every proposal of one length, with the probability that the drafter samples it."""
    vocab_size = len(draft[()])
    everything = (
        Proposal(ids, sequence_probability(draft, ids))
        for ids in itertools.product(range(vocab_size), repeat=length)
    )
    return [proposal for proposal in everything if proposal.weight > 0]


def mixed(parts: Sequence[Sequence[Proposal]]) -> list[Proposal]:
    """Picks one of several ways to propose at random, before anything is drafted."""
    return [Proposal(p.ids, p.weight / len(parts)) for part in parts for p in part]


def sequence_probability(model: Model, ids: Context) -> float:
    return float(np.prod([model[ids[:i]][token] for i, token in enumerate(ids)]))


def ordinary_law(target: Model, start: Context, length: int) -> Law:
    """The target's own distribution of the first `length` tokens, given `start`."""
    law = {start: 1.0}
    for _ in range(length - len(start)):
        law = {
            (*ids, token): weight * chance
            for ids, weight in law.items()
            for token, chance in enumerate(target[ids])
        }
    return law


def total_variation(one: Law, other: Law) -> float:
    return 0.5 * sum(abs(one.get(ids, 0.0) - other.get(ids, 0.0)) for ids in one | other)


@dataclass(frozen=True)
class Measured:
    emitted: Law
    mean_accepted: float


def measure(rule: Rule, setup: Setup) -> Measured:
    """The exact distribution of accepted tokens plus closing token under a rule."""
    lengths = np.array([len(proposal.ids) for proposal in setup.proposals])
    thresholds = _coin_thresholds(rule, setup, lengths)
    proposal_idx, coins, weights = _coin_cells(setup, lengths, thresholds)
    edges = _draw_edges(rule, setup, proposal_idx, coins)
    emitted: Law = defaultdict(float)
    mean_accepted = 0.0
    for cell in range(setup.vocab_size):
        low, high = edges[:, cell], edges[:, cell + 1]
        decision = _decide(rule, setup, proposal_idx, coins, (low + high) / 2)
        accepted, next_ids = decision.accepted.numpy(), decision.next_ids.numpy()
        cell_weights = weights * np.maximum(high - low, 0.0)
        mean_accepted += float((cell_weights * accepted).sum())
        for row, weight in enumerate(cell_weights):
            kept = setup.proposals[proposal_idx[row]].ids[: accepted[row]]
            emitted[(*kept, int(next_ids[row]))] += float(weight)
    return Measured(dict(emitted), mean_accepted)


def distance_to_target(rule: Rule, setup: Setup) -> float:
    """Total variation between what the rule leads to and ordinary decoding."""
    length = setup.padded_width + 1
    reached: Law = defaultdict(float)
    for ids, weight in measure(rule, setup).emitted.items():
        if weight > 0:
            for full, chance in ordinary_law(setup.target, ids, length).items():
                reached[full] += weight * chance
    return total_variation(reached, ordinary_law(setup.target, (), length))


def assert_exact(rule: Rule, setup: Setup) -> None:
    """The check of this folder: raises where a rule's distribution is not the target's."""
    distance = distance_to_target(rule, setup)
    if not distance < LIMIT:
        raise AssertionError(f"TV {distance:.3g} between the emitted and the target's distribution")


def _decide(
    rule: Rule, setup: Setup, proposal_idx: np.ndarray, coins: np.ndarray, closing: np.ndarray
) -> Decision:
    """Runs the rule on many rows at once: row `r` is proposal `proposal_idx[r]` with its coins."""
    logits, ids, lengths, draft_probs = _scored_block(setup)
    idx = torch.from_numpy(proposal_idx)
    return rule(
        logits[idx],
        ids[idx],
        lengths[idx],
        None if draft_probs is None else draft_probs[idx],
        torch.from_numpy(np.concatenate([coins, closing[:, None]], 1)),
    )


def _scored_block(
    setup: Setup,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor | None]:
    count, width, vocab_size = len(setup.proposals), setup.padded_width, setup.vocab_size
    logits = torch.full((count, width + 1, vocab_size), setup.poison.score, dtype=torch.float64)
    draft_probs = torch.full((count, width, vocab_size), setup.poison.draft_prob).double()
    draft_ids = torch.full((count, width), setup.poison.token)
    scored = setup.target if setup.scored is None else setup.scored
    claimed = setup.draft if setup.claimed is None else setup.claimed
    for row, proposal in enumerate(setup.proposals):
        length = len(proposal.ids)
        draft_ids[row, :length] = torch.tensor(proposal.ids, dtype=torch.int64)
        for offset in range(length + 1):
            logits[row, offset] = torch.from_numpy(scored[proposal.ids[:offset]]).log()
            if claimed is not None and offset < length:
                draft_probs[row, offset] = torch.from_numpy(claimed[proposal.ids[:offset]])
    lengths = torch.tensor([len(proposal.ids) for proposal in setup.proposals])
    return logits, draft_ids, lengths, None if claimed is None else draft_probs


def _coin_thresholds(rule: Rule, setup: Setup, lengths: np.ndarray) -> np.ndarray:
    """Where each coin turns from success to failure, `[proposals, width]`.

    Coin i is seen alone when the coins before it succeed as far as they can and those after it
    fail as far as they can; success then shows as more than i accepted tokens.
    """
    width = setup.padded_width
    proposal_idx, offset = np.nonzero(np.arange(width) < lengths[:, None])
    coins = np.where(np.arange(width) < offset[:, None], 0.0, _JUST_BELOW_ONE)
    coins[np.arange(width) >= lengths[proposal_idx][:, None]] = setup.poison.coin
    rows, closing = np.arange(len(offset)), np.full(len(offset), 0.5)
    low, high = np.zeros(len(offset)), np.ones(len(offset))
    for _ in range(_BISECTIONS if len(offset) else 0):
        middle = (low + high) / 2
        coins[rows, offset] = middle
        accepted = _decide(rule, setup, proposal_idx, coins, closing).accepted.numpy()
        low = np.where(accepted > offset, middle, low)
        high = np.where(accepted > offset, high, middle)
    thresholds = np.full((len(lengths), width), np.nan)
    thresholds[proposal_idx, offset] = high
    return thresholds


def _coin_cells(
    setup: Setup, lengths: np.ndarray, thresholds: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Every combination of failed and successful coins: its proposal, middle and weight."""
    width = setup.padded_width
    outcomes = np.array(list(itertools.product((True, False), repeat=width)), bool)
    outcomes = outcomes.reshape(2**width, width)
    padding = np.arange(width) >= lengths[:, None]
    # One combination per choice on the live coins: the padded ones are fixed to failure.
    fits = ~(outcomes[None] & padding[:, None]).any(-1)
    proposal_idx, outcome_idx = np.nonzero(fits)
    succeeded, below = outcomes[outcome_idx], thresholds[proposal_idx]
    coins = np.where(succeeded, below / 2, (1 + below) / 2)
    coins[padding[proposal_idx]] = setup.poison.coin
    chances = np.where(padding[proposal_idx], 1.0, np.where(succeeded, below, 1 - below))
    weights = np.array([p.weight for p in setup.proposals])[proposal_idx] * chances.prod(1)
    return proposal_idx, coins, weights


def _draw_edges(
    rule: Rule, setup: Setup, proposal_idx: np.ndarray, coins: np.ndarray
) -> np.ndarray:
    """Where the closing draw moves to a token of at least 0, 1, ..., V, `[rows, V+1]`."""
    rows, vocab_size = len(proposal_idx), setup.vocab_size
    inner = vocab_size - 1
    tiled_idx, tiled_coins = np.repeat(proposal_idx, inner), np.repeat(coins, inner, axis=0)
    at_least = np.tile(np.arange(1, vocab_size), rows)
    low, high = np.zeros(rows * inner), np.ones(rows * inner)
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        drawn = _decide(rule, setup, tiled_idx, tiled_coins, middle).next_ids.numpy()
        high = np.where(drawn >= at_least, middle, high)
        low = np.where(drawn >= at_least, low, middle)
    edges = np.zeros((rows, vocab_size + 1))
    edges[:, 1:-1], edges[:, -1] = high.reshape(rows, inner), 1.0
    return edges

"""Toy targets and the slow, obvious decoding that everything is compared with.

A toy's rows are a deterministic function of the whole prefix that its state really holds: it
writes the ids that it is fed into the state's memory and reads them back through the cache. A
wrong position, a rollback too far or too short, a token fed twice or skipped, a stray read: each
changes the rows.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from transformers import LogitsProcessorList, StoppingCriteriaList

from mmspec import acceptance
from mmspec.clock import Clock
from mmspec.engine import (
    AcceptanceSampler,
    BlockCosts,
    FixedPolicy,
    Policy,
    Processors,
    Sampling,
    Scores,
    Session,
    Stops,
)
from mmspec.prefix import Prefix
from mmspec.proposals import (
    Drafter,
    HypothesisDrafter,
    ModelDrafter,
    NgramDrafter,
    Outlook,
    Pick,
    Proposal,
    SameVocabulary,
    SwitchDrafter,
)
from mmspec.proposals.hypothesis import tree_of
from mmspec.report.trace import Round
from mmspec.state import DecoderState
from mmspec.target import Pass
from tests.proposals.scripted import ScriptedDrafter

V = 13
"""Tokens in the usual toy vocabulary."""

PROMPT = (1, 2, 3, 4, 5, 6, 1, 2, 3)
"""Ends like it begins: an n-gram drafter has a hit at once."""

CPU = torch.device("cpu")

Law = Callable[[Sequence[int]], Tensor]


@functools.lru_cache(maxsize=1 << 17)
def _row(seed: int, prefix: tuple[int, ...], vocab_size: int, copying: float) -> Tensor:
    generator = torch.Generator().manual_seed(hash((seed, *prefix)) & ((1 << 63) - 1))
    row = torch.randn(vocab_size, generator=generator, dtype=torch.float64) * 2
    if copying and len(prefix) >= 6 and 0 <= prefix[-6] < vocab_size:
        row[prefix[-6]] += copying
    return row.float()


def toy_law(seed: int = 0, vocab_size: int = V, copying: float = 3.0) -> Law:
    """Logits `[V]` behind a prefix. Tokens like the one six back are likelier, for n-grams."""
    return lambda prefix: _row(seed, tuple(prefix), vocab_size, copying)


class ToyTarget:
    """The `Target` protocol over a distribution.

    Attributes:
        blocks: every block that was fed.
        fault: called with the ids of each block before the state moves; may raise.
    """

    def __init__(self, law: Law, *, vocab_size: int = V, capacity: int = 96) -> None:
        self.state = DecoderState(1, capacity, cross_attention=False)
        self.vocab_size, self.capacity, self.device = vocab_size, capacity, CPU
        self.forwards = 0
        self.takes_trees = True
        self.blocks: list[tuple[int, ...]] = []
        self.fault: Callable[[Sequence[int]], None] = lambda ids: None
        self.closed = 0
        self._law = law

    def score(self, ids: Sequence[int], keep: int, parents: Sequence[int] | None = None) -> Tensor:
        written = torch.tensor(list(ids), dtype=torch.float64).view(1, 1, -1, 1)
        length = self.state.length
        parents = range(-1, len(ids) - 1) if parents is None else parents
        with self.state.block(len(ids)):
            held, _ = self.state.cache.update(written, written.clone(), 0)
            self.fault(ids)
            tokens = tuple(int(token) for token in held[0, 0, :, 0].tolist())
            before: list[tuple[int, ...]] = []
            for index, parent in enumerate(parents):
                leading = tokens[:length] if parent < 0 else before[parent]
                before.append((*leading, tokens[length + index]))
            rows = [self._law(prefix) for prefix in before[len(ids) - keep :]]
        self.forwards += 1
        self.blocks.append(tuple(ids))
        return torch.stack(rows).clone() if rows else torch.empty(0, self.vocab_size)

    def score_batched(self, passes: Sequence[Pass]) -> list[Tensor]:
        return [one.target.score(one.ids, one.keep, one.parents) for one in passes]

    @property
    def held(self) -> tuple[int, ...]:
        """The ids that the state describes."""
        keys = self.state.cache.layers[0].keys
        length = self.state.length
        return () if keys is None else tuple(int(u) for u in keys[0, 0, :length, 0].tolist())

    def close(self) -> None:
        self.closed += 1
        self.state.close()


@dataclass
class Ordinary:
    """What ordinary decoding gives."""

    ids: list[int] = field(default_factory=list)
    processed: list[Tensor] = field(default_factory=list)
    raw: list[Tensor] = field(default_factory=list)
    reason: str = "length"


def ordinary(
    law: Law,
    prompt: Sequence[int] = PROMPT,
    *,
    max_length: int = 40,
    processors: Sequence[Any] = (),
    stop_tokens: Sequence[int] = (),
    criteria: Sequence[Any] = (),
    seed: int | None = None,
    collects: bool = False,
) -> Ordinary:
    """One token at a time, processors and criteria called as transformers' `_sample` does."""
    out, ids = Ordinary(), list(prompt)
    listed, asked = LogitsProcessorList(processors), StoppingCriteriaList(criteria)
    while len(ids) < max_length:
        raw = law(ids)[None].clone()
        row = listed(torch.tensor([ids]), raw.clone())
        out.raw.append(raw)
        out.processed.append(row)
        noise = 0.0 if seed is None else acceptance.gumbel(seed, torch.tensor([len(ids)]), V)
        token = int((row + noise).argmax())
        ids.append(token)
        out.ids.append(token)
        scores = tuple(out.processed) if collects else None
        stops = bool(asked(torch.tensor([ids]), scores).all())
        if token in stop_tokens or stops:
            out.reason = "stop" if token in stop_tokens else "criterion"
            break
    return out


def perfect(law: Law, prompt: Sequence[int] = PROMPT, **options: Any) -> ModelDrafter:
    """A drafter with the target's own distribution: under the same processors all is accepted."""
    return ModelDrafter(ToyTarget(law), list(prompt), SameVocabulary(V), **options)


def garbage(seed: int = 5) -> ScriptedDrafter:
    """Proposes noise that depends on the prefix."""

    def script(ids: Sequence[int], limit: int) -> list[int]:
        return [hash((seed, offset, *ids)) % V for offset in range(limit)]

    return ScriptedDrafter(script)


def spoilt(tokens: Sequence[int]) -> list[int]:
    """A hypothesis with a substitution, a missing and an additional token."""
    tokens = list(tokens)
    if len(tokens) > 3:
        tokens[2] = (tokens[2] + 1) % V
    if len(tokens) > 9:
        del tokens[8]
    if len(tokens) > 15:
        tokens.insert(13, 0)
    return tokens


class TreeDrafter(Drafter):
    """Proposes trees: what the law says, spoilt somewhere, among branches that are mostly noise."""

    name = "tree"

    def __init__(self, law: Law, branches: int = 3) -> None:
        self._law, self._branches = law, branches

    def outlook(self, prefix: Prefix) -> Outlook:
        return Outlook("tree", 0.5, 0.8, 1000, beside=(0.7, 0.8)[: self._branches - 1])

    def propose(self, prefix: Prefix, limit: int, pick: Pick) -> Proposal:
        return self.propose_tree(prefix, limit, 1)

    def propose_tree(self, prefix: Prefix, limit: int, branches: int) -> Proposal:
        chance = random.Random(hash(tuple(prefix.ids)))
        chains = [self._chain(prefix, limit, chance) for _ in range(branches)]
        return tree_of(chains)

    def _chain(self, prefix: Prefix, limit: int, chance: random.Random) -> list[int]:
        """Right up to a random place, from there on anything."""
        tokens = list(prefix.ids)
        right = chance.choice((0, 1, 2, limit))
        for offset in range(chance.randrange(1, limit + 1)):
            row = self._law(tokens)
            tokens.append(int(row.argmax()) if offset < right else chance.randrange(len(row)))
        return tokens[len(prefix) :]


def switch(law: Law, prompt: Sequence[int] = PROMPT) -> SwitchDrafter:
    """Between drafters that deserve and lose the turn: two models, a tree, a lookup."""
    noisy = perfect(toy_law(991), prompt, name="noisy", cost_prior=0.1)
    copy = perfect(law, prompt, name="copy", cost_prior=0.3)
    return SwitchDrafter([noisy, TreeDrafter(law), NgramDrafter(longest=3, shortest=1), copy])


DRAFTERS = ("perfect", "noisy", "ngram", "hypothesis", "tree", "switch", "garbage", "none")


def drafter_for(kind: str, law: Law, prompt: Sequence[int] = PROMPT) -> Drafter | None:
    """One of `DRAFTERS` for a target with this distribution."""
    if kind == "perfect":
        return perfect(law, prompt)
    if kind == "noisy":
        return perfect(toy_law(991), prompt)
    if kind == "ngram":
        return NgramDrafter(longest=3, shortest=1)
    if kind == "hypothesis":
        return HypothesisDrafter(spoilt(ordinary(law, prompt).ids))
    if kind == "tree":
        return TreeDrafter(law)
    if kind == "switch":
        return switch(law, prompt)
    return garbage() if kind == "garbage" else None


@dataclass
class Run:
    """A session and its target, decoded or not."""

    session: Session
    target: ToyTarget
    scores: Scores | None
    ids: list[int] = field(default_factory=list)

    @property
    def tally(self) -> Any:
        return self.session.tally


def open_session(
    law: Law,
    drafter: Drafter | None = None,
    gamma: int | Policy = 4,
    *,
    prompt: Sequence[int] = PROMPT,
    max_length: int = 40,
    processors: Sequence[Any] = (),
    stop_tokens: Sequence[int] = (),
    criteria: Sequence[Any] = (),
    sampling: Sampling | None = None,
    streamer: Any = None,
    collects: bool = False,
    costs: BlockCosts | None = None,
) -> Run:
    """A session over a toy that has read the prompt."""
    target = ToyTarget(law, vocab_size=len(law(prompt)))
    first_row = target.score(prompt, keep=1)
    scores = Scores([], []) if collects else None
    session = Session(
        target,
        Prefix(prompt, max_length, CPU),
        first_row,
        drafter=drafter,
        policy=FixedPolicy(gamma) if isinstance(gamma, int) else gamma,
        sampler=AcceptanceSampler(sampling or Sampling(), CPU),
        processors=Processors(LogitsProcessorList(processors)),
        stops=Stops.from_transformers(StoppingCriteriaList(criteria), stop_tokens, max_length),
        clock=Clock(CPU),
        costs=costs,
        streamer=streamer,
        scores=scores,
    )
    return Run(session, target, scores)


def decode(law: Law, drafter: Drafter | None = None, gamma: int | Policy = 4, **given: Any) -> Run:
    """Decode to the end."""
    run = open_session(law, drafter, gamma, **given)
    run.ids = run.session.run()
    return run


def a_round(
    drafter: str = "d",
    *,
    proposed: int,
    accepted: int,
    emitted: int,
    context: str = "any",
    draft_s: float = 0.0,
    verify_s: float = 0.01,
) -> Round:
    """A chain's round by its counts."""
    return Round(
        drafter=drafter,
        context=context,
        proposal=(1,) * proposed,
        path=tuple(range(accepted)),
        emitted=(1,) * emitted,
        rejected=accepted < min(proposed, emitted),
        depth=proposed,
        branches=min(1, proposed),
        branch=0 if accepted else None,
        block=proposed + 1,
        draft_s=draft_s,
        verify_s=verify_s,
    )

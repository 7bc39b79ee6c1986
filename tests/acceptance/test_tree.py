"""The tree rule emits the target's law exactly, whatever the tree; slow references beside it."""

from __future__ import annotations

import itertools
import random
from collections import defaultdict
from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch

from mmspec.acceptance import gumbel, own_choices, walk
from tests.acceptance.reference import draw, softmax

LIMIT = 1e-12
LENGTH = 3
"""Tokens that every output is continued to with the target."""

Tree = tuple[tuple[int, ...], tuple[int, ...]]
Context = tuple[int, ...]
Law = dict[Context, float]
Walk = Callable[[Sequence[int], Sequence[int], Sequence[int]], tuple[tuple[int, ...], int]]

TREES: dict[str, Tree] = {
    "nothing": ((), ()),
    "chain": ((0, 1), (-1, 0)),
    "fork": ((0, 1), (-1, -1)),
    "all siblings": ((2, 0, 1), (-1, -1, -1)),
    "the same twice": ((1, 1), (-1, -1)),
    "unbalanced": ((0, 1, 2, 0), (-1, 0, -1, 2)),
    "fork below": ((1, 0, 2), (-1, 0, 0)),
}


def model(seed: int, tokens: int = 3) -> Callable[[Context], np.ndarray]:
    """A distribution per context, one token impossible now and then."""

    def law(context: Context) -> np.ndarray:
        chance = np.random.default_rng([seed, len(context), *context])
        weights = chance.dirichlet(np.ones(tokens))
        if chance.random() < 0.2:
            weights[chance.integers(tokens)] = 0.0
        return weights / weights.sum()

    return law


def contexts(tree: Tree) -> list[Context]:
    """The prefix of every row: the empty one, then that behind each drafted token."""
    ids, parents = tree
    found: list[Context] = []
    for token, parent in zip(ids, parents, strict=True):
        found.append((*(() if parent < 0 else found[parent]), token))
    return [(), *found]


def continued(law: Callable[[Context], np.ndarray], begun: Context, mass: float, out: Law) -> None:
    """Add what the target makes of a beginning, up to `LENGTH` tokens."""
    if len(begun) >= LENGTH:
        out[begun[:LENGTH]] += mass
        return
    for token, chance in enumerate(law(begun)):
        if chance > 0:
            continued(law, (*begun, token), mass * chance, out)


def emitted(law: Callable[[Context], np.ndarray], tree: Tree, rule: Walk) -> Law:
    """The distribution of the output, over every way in which the rows' own choices can fall."""
    rows = [law(context) for context in contexts(tree)]
    out: Law = defaultdict(float)
    for choices in itertools.product(*(np.flatnonzero(row).tolist() for row in rows)):
        mass = float(np.prod([row[token] for row, token in zip(rows, choices, strict=True)]))
        path, token = rule(choices, *tree)
        continued(law, (*(tree[0][node] for node in path), token), mass, out)
    return out


def distance(one: Law, other: Law) -> float:
    return sum(abs(one.get(key, 0) - other.get(key, 0)) for key in {*one, *other}) / 2


@pytest.mark.parametrize("name", TREES)
@pytest.mark.parametrize("seed", range(6))
def test_what_is_emitted_has_the_targets_law(name: str, seed: int) -> None:
    law = model(seed)
    want: Law = defaultdict(float)
    continued(law, (), 1.0, want)
    assert distance(emitted(law, TREES[name], walk), want) < LIMIT


def first_sibling_always(
    choices: Sequence[int], ids: Sequence[int], parents: Sequence[int]
) -> tuple[tuple[int, ...], int]:
    """A fault: a token is kept because its sibling was right."""
    kept: list[int] = []
    at = -1
    for node, parent in enumerate(parents):
        siblings = [other for other, its in enumerate(parents) if its == at]
        if parent == at and any(ids[other] == choices[at + 1] for other in siblings):
            kept.append(node)
            at = node
    return tuple(kept), choices[at + 1]


def choice_of_the_prefix(
    choices: Sequence[int], ids: Sequence[int], parents: Sequence[int]
) -> tuple[tuple[int, ...], int]:
    """A fault: the closing token is drawn from the wrong row."""
    path, _ = walk(choices, ids, parents)
    return path, choices[0]


@pytest.mark.parametrize("fault", [first_sibling_always, choice_of_the_prefix])
def test_a_wrong_walk_is_seen(fault: Walk) -> None:
    law = model(1)
    want: Law = defaultdict(float)
    continued(law, (), 1.0, want)
    assert max(distance(emitted(law, tree, fault), want) for tree in TREES.values()) > 0.05


def recursive_rejection(law: Callable[[Context], np.ndarray], tree: Tree) -> dict[Context, float]:
    """How likely each drafted path is kept: SpecInfer's rule with one-hot drafts."""
    ids, parents = tree
    where = contexts(tree)
    kept: dict[Context, float] = defaultdict(float)

    def visit(node: int, mass: float) -> None:
        row, left, seen = law(where[node + 1]), 1.0, set()
        for child, parent in enumerate(parents):
            if parent != node or left <= 0 or ids[child] in seen:
                continue
            seen.add(ids[child])
            chance = row[ids[child]] / left  # of the renormalised rest
            visit(child, mass * chance)
            mass, left = mass * (1 - chance), left - row[ids[child]]
        kept[where[node + 1]] += mass

    visit(-1, 1.0)
    return kept


@pytest.mark.parametrize("name", TREES)
def test_paths_are_kept_as_often_as_by_recursive_rejection(name: str) -> None:
    law, tree = model(3), TREES[name]
    rows = [law(context) for context in contexts(tree)]
    ours: dict[Context, float] = defaultdict(float)
    for choices in itertools.product(range(3), repeat=len(rows)):
        mass = float(np.prod([row[token] for row, token in zip(rows, choices, strict=True)]))
        path, _ = walk(choices, *tree)
        ours[tuple(tree[0][node] for node in path)] += mass
    theirs = recursive_rejection(law, tree)
    for path in {*ours, *theirs}:
        assert ours[path] == pytest.approx(theirs[path], abs=1e-12)


def test_a_chain_is_walked_like_a_tree_of_one_branch() -> None:
    chance = random.Random(0)
    for _ in range(200):
        size = chance.randrange(6)
        ids = [chance.randrange(2) for _ in range(size)]
        choices = [chance.randrange(2) for _ in range(size + 1)]
        right = next((i for i in range(size) if ids[i] != choices[i]), size)
        assert walk(choices, ids, range(-1, size - 1)) == (tuple(range(right)), choices[right])


def test_choices_are_drawn_from_the_rows_they_belong_to() -> None:
    chance = random.Random(1)
    generator = torch.Generator().manual_seed(1)
    scores = torch.randn(40, 7, dtype=torch.float64, generator=generator)
    uniforms = torch.tensor([chance.random() for _ in range(40)], dtype=torch.float64)
    drawn = own_choices(scores, uniforms=uniforms).tolist()
    slow = [
        draw(softmax(row), uniform)
        for row, uniform in zip(scores.tolist(), uniforms.tolist(), strict=True)
    ]
    assert drawn == slow
    assert own_choices(scores).tolist() == scores.argmax(-1).tolist()
    noise = gumbel(4, torch.arange(40), 7)
    assert own_choices(scores, noise=noise).tolist() == (scores + noise).argmax(-1).tolist()


def test_noise_and_coins_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="noise"):
        own_choices(torch.zeros(2, 3), noise=torch.zeros(1, 3))
    with pytest.raises(ValueError, match="uniforms"):
        own_choices(torch.zeros(2, 3), uniforms=torch.zeros(3, dtype=torch.float64))

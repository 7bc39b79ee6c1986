"""Acceptance rules: which drafted tokens stay, and which token the target adds.

A rule looks at one proposal per row, scored by the target, and returns a `Decision`. Rules are
pure functions of tensors: all randomness is passed in, no state is kept, nothing waits for the
device. Every rule here is exact: what it emits has the distribution that ordinary decoding has. The
one approximate rule, `mmspec.acceptance.frames.grouped`, has to be asked for with groups of codes.

Glossary:
    target: The model whose output must be reproduced. Row `i` of `target_logits` is its
        processed scores (temperature, suppression as `-inf`, ...) for drafted token `i`; row
        `length` scores the token after the proposal.
    target_probs: The softmax of a row of `target_logits`.
    draft_probs: The distribution that the drafted token was really sampled from, after the
        drafter's own temperature and suppression. `None` marks a deterministic proposal (an n-gram
        table, a greedy drafter): every row is then one-hot at the drafted token.
    length: How many tokens of a row were really drafted. What lies past it is padding, which may
        hold anything and never matters.
    accepted: The drafted tokens that are kept, always a prefix of the proposal.
    recovered: The target's own token in place of the first one that was not kept.
    bonus: The target's own token after a proposal that was kept whole.
    coin: A uniform number that decides whether a drafted token may stay.

Shapes, used throughout: `R` rows (the batch), `N` the longest proposal in the batch (may be 0),
`V` tokens in the vocabulary.

Steps that decide several codes at once have rules of their own, in `mmspec.acceptance.frames`.

A row of scores needs at least one finite entry and neither `nan` nor `+inf`: a distribution that
forbids everything has no token to emit, and looking for one would make every rule wait for the
device. Who waits for a decision anyway (`mmspec.engine.AcceptanceSampler`) can look as well.
"""

from mmspec.acceptance import frames
from mmspec.acceptance.block import block
from mmspec.acceptance.decision import Decision
from mmspec.acceptance.greedy import greedy
from mmspec.acceptance.keyed import keyed
from mmspec.acceptance.noise import derive_seed, gumbel, uniforms
from mmspec.acceptance.selection import default_rule
from mmspec.acceptance.token import token
from mmspec.acceptance.tree import own_choices, walk

__all__ = [
    "Decision",
    "block",
    "default_rule",
    "derive_seed",
    "frames",
    "greedy",
    "gumbel",
    "keyed",
    "own_choices",
    "token",
    "uniforms",
    "walk",
]

"""The rules once more, slow and obvious: one row at a time, plain lists, loops over tokens.

These are the definitions that the tests hold the tensor rules against. Rows are lists of floats
without padding: a proposal of length n comes with n + 1 rows of target scores, n rows of draft
probabilities and n + 1 uniform numbers. Each rule returns `(accepted, next_id)`.
"""

import math
from collections.abc import Sequence

Row = Sequence[float]


def softmax(scores: Row) -> list[float]:
    """Turns scores into probabilities; `-inf` becomes 0.

    Example:
        >>> softmax([0.0, -math.inf, 0.0])
        [0.5, 0.0, 0.5]
    """
    highest = max(scores)
    weights = [math.exp(score - highest) for score in scores]
    total = math.fsum(weights)
    return [weight / total for weight in weights]


def highest(scores: Row) -> int:
    """Finds the first token with the highest score."""
    best = 0
    for token, score in enumerate(scores):
        if score > scores[best]:
            best = token
    return best


def draw(weights: Row, uniform: float) -> int:
    """Walks up the running sum of the weights until it passes `uniform` times their total.

    Example:
        >>> draw([1.0, 0.0, 3.0], 0.25)
        2
    """
    goal = uniform * math.fsum(weights)
    running = 0.0
    last_possible = 0
    for token, weight in enumerate(weights):
        if weight > 0:
            running += weight
            last_possible = token
            if running > goal:
                break
    return last_possible


def residual(target_probs: Row, draft_probs: Row, scale: float = 1.0) -> list[float]:
    """Takes the draft law off the scaled target law; the target law itself if nothing is left."""
    left = [
        max(scale * allowed - drafted, 0.0)
        for allowed, drafted in zip(target_probs, draft_probs, strict=True)
    ]
    return left if sum(left) > 0 else list(target_probs)


def one_hot(token: int, vocab_size: int) -> list[float]:
    """The distribution of a deterministic proposal."""
    return [1.0 if candidate == token else 0.0 for candidate in range(vocab_size)]


def greedy(target_logits: Sequence[Row], draft_ids: Sequence[int]) -> tuple[int, int]:
    """Keeps drafted tokens while the target would have chosen them."""
    for offset, token in enumerate(draft_ids):
        choice = highest(target_logits[offset])
        if choice != token:
            return offset, choice
    return len(draft_ids), highest(target_logits[len(draft_ids)])


def keyed(
    target_logits: Sequence[Row], draft_ids: Sequence[int], noise: Sequence[Row]
) -> tuple[int, int]:
    """Keeps drafted tokens while the target with noise would have chosen them."""
    noisy = [
        [score + extra for score, extra in zip(scores, extras, strict=True)]
        for scores, extras in zip(target_logits, noise, strict=True)
    ]
    return greedy(noisy, draft_ids)


def token(
    target_logits: Sequence[Row],
    draft_ids: Sequence[int],
    draft_probs: Sequence[Row] | None,
    uniforms: Row,
) -> tuple[int, int]:
    """Flips one coin per drafted token and stops at the first that fails."""
    target_probs = [softmax(scores) for scores in target_logits]
    laws = _draft_laws(draft_ids, draft_probs, len(target_probs[0]))
    for offset, token in enumerate(draft_ids):
        allowed, drafted = target_probs[offset][token], laws[offset][token]
        if not uniforms[offset] * drafted < allowed:
            return offset, draw(residual(target_probs[offset], laws[offset]), uniforms[-1])
    return len(draft_ids), draw(target_probs[-1], uniforms[-1])


def block(
    target_logits: Sequence[Row],
    draft_ids: Sequence[int],
    draft_probs: Sequence[Row] | None,
    uniforms: Row,
) -> tuple[int, int]:
    """Flips every coin and goes back to the last that succeeds."""
    target_probs = [softmax(scores) for scores in target_logits]
    laws = _draft_laws(draft_ids, draft_probs, len(target_probs[0]))
    length = len(draft_ids)
    joint = 1.0
    accepted, accepted_joint = 0, 1.0
    for offset, token in enumerate(draft_ids):
        allowed, drafted = target_probs[offset][token], laws[offset][token]
        if drafted > 0:
            joint = min(1.0, joint * allowed / drafted)
        else:
            joint = 1.0 if joint * allowed > 0 else 0.0
        count = offset + 1
        if count == length:
            threshold = joint
        else:
            recoverable = sum(
                max(joint * a - d, 0.0)
                for a, d in zip(target_probs[count], laws[count], strict=True)
            )
            rest = recoverable + 1 - joint
            threshold = recoverable / rest if joint < 1 else 1.0
        if uniforms[offset] < threshold:
            accepted, accepted_joint = count, joint
    if accepted == length:
        return accepted, draw(target_probs[length], uniforms[-1])
    left = residual(target_probs[accepted], laws[accepted], accepted_joint)
    return accepted, draw(left, uniforms[-1])


def gumbel(seed: int, position: int, token: int) -> float:
    """One noise value by Python integers of any size, reduced to 64 bits where the mixer does."""
    golden, modulus = 0x9E3779B97F4A7C15, 2**64

    def mix(state: int) -> int:
        state %= modulus
        state = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9 % modulus
        state = (state ^ (state >> 27)) * 0x94D049BB133111EB % modulus
        return state ^ (state >> 31)

    seed_key = mix(seed + golden)
    position_key = mix(seed_key + position * golden)
    bits = mix(position_key + (token + 1) * golden)
    uniform = ((bits >> 12) + 0.5) / 2**52
    return -math.log(-math.log(uniform))


def _draft_laws(
    draft_ids: Sequence[int], draft_probs: Sequence[Row] | None, vocab_size: int
) -> Sequence[Row]:
    if draft_probs is None:
        return [one_hot(token, vocab_size) for token in draft_ids]
    return draft_probs

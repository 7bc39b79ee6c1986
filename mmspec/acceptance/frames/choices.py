"""The rules in which the target's own codes are fixed before a draft is looked at."""

import torch
from torch import Tensor

from mmspec.acceptance.frames.proposal import FREE, FrameDecision, FrameProposal, Reading
from mmspec.acceptance.noise import derive_seed, gumbel


def greedy(proposal: FrameProposal) -> FrameDecision:
    """Keeps drafted frames while every decided code is the target's highest-scored one.

    Equal scores go to the lowest code. In a chain, each code is chosen behind the target's own
    codes before it.

    Args:
        proposal: The scored frames; draft distributions aren't looked at.

    Returns:
        The decision; its next frame is the one that ordinary greedy decoding has there.

    Example:
        >>> from mmspec.acceptance.frames import FREE
        >>> scores = torch.tensor([[[0.0, 2.0], [3.0, 0.0]], [[1.0, 0.0], [0.0, 1.0]]])
        >>> given = FrameProposal(scores, torch.tensor([[1, 0]]), torch.full((2, 2), FREE))
        >>> greedy(given)
        FrameDecision(accepted=1, next_frame=(0, 1), accepted_codes=2)
    """
    return _follow(proposal)


def keyed(proposal: FrameProposal, noise: Tensor) -> FrameDecision:
    """Keeps drafted frames while every decided code is the target's own noisy choice.

    With noise that belongs to frame positions and codebooks (`code_noise`), the codes depend on
    seed and target alone: the same for every drafter, every N and no drafter.

    Args:
        proposal: The scored frames; draft distributions aren't looked at.
        noise: Gumbel noise of the scored frames, float32 or float64 `[N+1, K, V]`, finite.

    Returns:
        The decision.

    Raises:
        ValueError: The noise does not fit the scores.

    Source:
        Daliri, Musco and Suresh 2024, "Coupling without Communication and Drafter-Invariant
        Speculative Decoding".
    """
    if noise.shape != proposal.target_logits.shape or not noise.is_floating_point():
        raise ValueError(
            f"noise is {noise.dtype} {list(noise.shape)}; expected floating point "
            f"{list(proposal.target_logits.shape)}, as target_logits"
        )
    return _follow(proposal, noise)


def code_noise(seed: int, frame_positions: Tensor, codebooks: int, vocab_size: int) -> Tensor:
    """Standard Gumbel noise for every code, a function of (seed, frame position, codebook).

    Args:
        seed: Any 64-bit integer, signed or not.
        frame_positions: Absolute positions of the frames, int64, any shape `[...]`.
        codebooks: Codebooks K, at least 1. More of them leave the noise of the first ones as it is.
        vocab_size: Codes V.

    Returns:
        Float64 `[..., K, V]`, finite.

    Raises:
        ValueError: See `mmspec.acceptance.gumbel`; or no codebook.

    Example:
        >>> here = code_noise(7, torch.tensor([20, 21]), codebooks=3, vocab_size=5)
        >>> there = code_noise(7, torch.tensor(21), codebooks=2, vocab_size=5)
        >>> torch.equal(here[1, :2], there)
        True
    """
    if codebooks < 1:
        raise ValueError(f"codebooks is {codebooks}; expected at least 1")
    per_book = [
        gumbel(derive_seed(seed, codebook), frame_positions, vocab_size)
        for codebook in range(codebooks)
    ]
    return torch.stack(per_book, dim=-2)


def _follow(proposal: FrameProposal, noise: Tensor | None = None) -> FrameDecision:
    """Keeps drafted frames while the target's highest scores, noise added, agree."""
    scores, forced = proposal.target_logits, proposal.forced
    heard = scores if noise is None else scores + noise
    own = heard.max(dim=-1).indices.where(forced == FREE, forced)
    agrees = own[:-1] == proposal.draft_codes.where(forced[:-1] == FREE, own[:-1])
    kept = agrees.all(dim=-1).cumprod(dim=0)
    choices, agreed, accepted = own.tolist(), agrees.tolist(), int(kept.sum())
    known = proposal.codebooks
    if proposal.target_rest is not None:  # scored behind the draft: good up to where they differ
        known = (agreed[accepted].index(False) if accepted < proposal.frames else 0) + 1

    def choose(scores: Tensor, codebook: int) -> int:
        if noise is not None:
            scores = scores + noise[accepted, codebook]
        return int(scores.max(dim=-1).indices)

    reading = Reading(proposal)
    begun = tuple(choices[accepted][:known])
    return reading.decision(accepted, reading.completed(accepted, begun, choose))

"""A scored proposal of frames and the decision about it, as values."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

Frame = tuple[int, ...]
Rest = Callable[[int, Frame], Tensor]
Choose = Callable[[Tensor, int], int]

FREE = -1
"""In `FrameProposal.forced`: this cell is decided by a distribution."""


@dataclass(frozen=True, slots=True, eq=False)
class FrameProposal:
    """N drafted frames of one request, scored by the target.

    Attributes:
        target_logits: Processed scores, floating point `[N+1, K, V]`: frame `n` given the drafted
            frames before it; frame `N` is the one behind the proposal. In a chain, codebook `k` is
            also given the drafted codes `0..k-1` of its frame; frame `N` has none, so only its
            codebook 0 is read.
        draft_codes: Drafted codes, int64 `[N, K]`.
        forced: Int64 `[N+1, K]`: the code of each forced cell, `FREE` in all others.
        draft_probs: The distributions that the codes were really sampled from, float32 or float64
            `[N, K, V]`, or None for a deterministic proposal.
        target_rest: `target_rest(frame_idx, codes)` gives the target's processed scores `[V]` of
            codebook `len(codes)` in frame `frame_idx`, behind the drafted frames before it and
            these codes of its own. None: the codes are independent.
        draft_rest: The same of the drafter, as probabilities `[V]`, if its codes are a chain. Only
            `by_frame` and `block` ask for it. None: independent.

    Raises:
        ValueError: Shapes, types or devices do not fit together.

    Example:
        >>> given = FrameProposal(
        ...     target_logits=torch.zeros(3, 4, 1024),
        ...     draft_codes=torch.zeros(2, 4, dtype=torch.int64),
        ...     forced=torch.full((3, 4), FREE),
        ... )
        >>> given.frames, given.codebooks
        (2, 4)
    """

    target_logits: Tensor
    draft_codes: Tensor
    forced: Tensor
    draft_probs: Tensor | None = None
    target_rest: Rest | None = None
    draft_rest: Rest | None = None

    def __post_init__(self) -> None:
        scores = self.target_logits
        if scores.ndim != 3 or not scores.is_floating_point() or 0 in scores.shape:
            raise ValueError(
                f"target_logits is {scores.dtype} {list(scores.shape)}; expected floating point "
                "[N+1, K, V] with at least one frame, codebook and code"
            )
        frames, codebooks, codes = scores.shape[0] - 1, scores.shape[1], scores.shape[2]
        integers, distributions = (torch.int64,), (torch.float32, torch.float64)
        self._check("draft_codes", self.draft_codes, (frames, codebooks), integers)
        self._check("forced", self.forced, (frames + 1, codebooks), integers)
        if self.draft_probs is not None:
            self._check("draft_probs", self.draft_probs, (frames, codebooks, codes), distributions)

    def _check(
        self, name: str, given: Tensor, shape: tuple[int, ...], dtypes: tuple[torch.dtype, ...]
    ) -> None:
        if tuple(given.shape) != shape or given.dtype not in dtypes:
            kinds = " or ".join(map(str, dtypes))
            raise ValueError(
                f"{name} is {given.dtype} {list(given.shape)}; expected {kinds} {list(shape)} to "
                f"fit target_logits of shape {list(self.target_logits.shape)} ([N+1, K, V])"
            )
        if given.device != self.target_logits.device:
            raise ValueError(
                f"{name} is on {given.device}, target_logits on {self.target_logits.device}; "
                "expected one device"
            )

    @property
    def frames(self) -> int:
        """The number of drafted frames N."""
        return self.draft_codes.shape[0]

    @property
    def codebooks(self) -> int:
        """The number of codebooks K."""
        return self.forced.shape[1]


@dataclass(frozen=True, slots=True)
class FrameDecision:
    """How many drafted frames are kept, and the one frame that the target adds.

    Attributes:
        accepted: Drafted frames kept, `0..N`.
        next_frame: K codes, forced ones in place: recovered where `accepted < N`, else the bonus.
        accepted_codes: Codes of the kept frames that a distribution decided; forced cells don't
            count.
    """

    accepted: int
    next_frame: Frame
    accepted_codes: int


class Reading:
    """A proposal in plain numbers, with forced cells filled in, for the length of one rule.

    Attributes:
        given: The proposal.
        forced: Per frame `0..N` and codebook, the forced code or None.
        drafted: Per drafted frame, its codes; forced cells hold what they are forced to.
    """

    def __init__(self, given: FrameProposal) -> None:
        self.given = given
        fixed = given.forced[:-1]
        self.drafted: list[Frame] = [
            tuple(codes) for codes in torch.where(fixed == FREE, given.draft_codes, fixed).tolist()
        ]
        self.forced: list[list[int | None]] = [
            [None if code == FREE else code for code in frame] for frame in given.forced.tolist()
        ]

    def decided(self, frame_idx: int) -> list[int]:
        """The codebooks of a frame that distributions decide."""
        return [codebook for codebook, code in enumerate(self.forced[frame_idx]) if code is None]

    def target_scores(self, frame_idx: int, codes: Frame) -> Tensor:
        """The target's scores `[V]` of the code that follows `codes` in a frame."""
        rest = self.given.target_rest
        if rest is None or self._is_drafted(frame_idx, codes):
            return self.given.target_logits[frame_idx, len(codes)]
        return rest(frame_idx, codes)

    def draft_distribution(self, frame_idx: int, codes: Frame) -> Tensor:
        """The draft distribution `[V]`, float64, of the code behind `codes` in a drafted frame."""
        rest, probs = self.given.draft_rest, self.given.draft_probs
        if probs is None:
            distribution = torch.zeros_like(self.given.target_logits[0, 0], dtype=torch.float64)
            distribution[self.drafted[frame_idx][len(codes)]] = 1.0
            return distribution
        if rest is None or self._is_drafted(frame_idx, codes):
            return probs[frame_idx, len(codes)].double()
        return rest(frame_idx, codes).double()

    def completed(self, frame_idx: int, begun: Frame, choose: Choose) -> Frame:
        """Finishes a frame with the target's own codes.

        Args:
            frame_idx: Which frame, `0..N`.
            begun: Its first codes.
            choose: Picks a code, given the target's scores `[V]` and the codebook.

        Returns:
            K codes.
        """
        codes = begun
        for codebook in range(len(begun), self.given.codebooks):
            code = self.forced[frame_idx][codebook]
            if code is None:
                code = choose(self.target_scores(frame_idx, codes), codebook)
            codes = (*codes, code)
        return codes

    def decision(self, accepted: int, next_frame: Frame) -> FrameDecision:
        """The decision, with the codes that count in it."""
        counted = sum(len(self.decided(frame_idx)) for frame_idx in range(accepted))
        return FrameDecision(accepted, next_frame, counted)

    def _is_drafted(self, frame_idx: int, codes: Frame) -> bool:
        if not codes:
            return True  # nothing to differ in
        return frame_idx < len(self.drafted) and codes == self.drafted[frame_idx][: len(codes)]

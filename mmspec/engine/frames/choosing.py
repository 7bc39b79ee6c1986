"""How a frame is chosen: the acceptance rule over frames and the randomness behind it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol, cast

import torch
from torch import Tensor

from mmspec.acceptance import frames as rules
from mmspec.acceptance.frames import FREE, Coins, FrameDecision, FrameProposal
from mmspec.engine.choosing import Sampling
from mmspec.engine.frames.layout import Layout
from mmspec.engine.frames.undefined_scores import UndefinedScores
from mmspec.engine.lossy import LossyLedger
from mmspec.engine.processing import Processors
from mmspec.prefix import Frame, FramePrefix
from mmspec.proposals.base import Proposal
from mmspec.proposals.frames.drafted import DraftedFrames

SAMPLING_RULES = {"block": rules.block, "frame": rules.by_frame, "token": rules.by_code}


class Chain(Protocol):
    """Codebooks behind the first of a frame, each given those before it (a depth decoder).

    It knows the hidden states behind which the scored frames stand, and gives processed scores.

    Attributes:
        passes: of the depth decoder so far.
    """

    passes: int

    def teach(self, frames: Sequence[Frame]) -> Tensor:
        """Scores `[n, K-1, V]` of codebooks 1 to K-1 of n drafted frames, given those frames.

        One pass for all of them.
        """
        ...

    def rest(self, frame_idx: int, codes: Frame) -> Tensor:
        """Scores `[V]` of the code behind other codes in frame `frame_idx`, 0 to n."""
        ...


class FrameSampler:
    """Applies a request's rule to verified frames, and lets drafters draw the same way.

    Args:
        sampling: how codes are drawn.
        device: where rows are.
        layout: what is forced.
        codebooks: K.
        chain: what scores the codebooks behind the first, where they depend on it.
    """

    def __init__(
        self,
        sampling: Sampling,
        device: torch.device,
        layout: Layout,
        codebooks: int,
        chain: Chain | None = None,
    ) -> None:
        self._sampling, self.device = sampling, device
        self._layout, self._codebooks, self._chain = layout, codebooks, chain
        # Fresh noise still follows torch.manual_seed, as transformers' sampling does.
        self._generator = torch.Generator()
        self._generator.manual_seed(int(torch.randint(1 << 62, ())) if sampling.sample else 0)
        self.lossy = LossyLedger(sampling.approximate, codebooks)

    def rule(self, proposal: Proposal) -> str:
        """The name of the rule that this proposal is judged by."""
        if not self._sampling.sample:
            return "greedy"
        if self.lossy.allowance > 0:
            return "grouped"
        if self._sampling.rule != "auto":
            return self._sampling.rule
        if self._sampling.seed is not None:
            return "keyed"
        # One-hot drafts are kept as often by the plainest rule.
        return "token" if proposal.draft_probs is None else "block"

    def decide(
        self, rows: Tensor, proposal: Proposal, prefix: FramePrefix
    ) -> tuple[tuple[int, ...], Frame]:
        """Judge a proposal.

        Args:
            rows: processed distributions `[n + 1, K, V]` of the n drafted frames and the one after
                them; of a chain only the first codebook's, `[n + 1, 1, V]`.
            proposal: the drafted frames, or none.
            prefix: what was committed before them.

        Returns:
            (indices of the accepted frames, the recovered or bonus frame).

        Raises:
            ModelError: a code would have to be drawn from scores that are no distribution.
        """
        scored = self._scored(rows, proposal, prefix)
        if not self._sampling.sample:  # nothing is drawn: the library takes the first or NaN, too
            return _said(self._judged(scored, proposal, prefix))
        undefined = UndefinedScores(scored)
        decision = self._judged(undefined.judged, proposal, prefix)
        undefined.check(decision, len(prefix))
        return _said(decision)

    def _judged(
        self, scored: FrameProposal, proposal: Proposal, prefix: FramePrefix
    ) -> FrameDecision:
        self.lossy.begin(len(prefix) - prefix.prompt_length)
        rule = self.rule(proposal)
        if rule == "grouped":
            return self.lossy.judge(scored)
        if rule == "greedy":
            decision = rules.greedy(scored)
        elif rule == "keyed":
            decision = rules.keyed(scored, self._noise(len(prefix), scored))
        else:
            decision = SAMPLING_RULES[rule](scored, Coins(self._generator))
        self.lossy.judged_exactly(decision.accepted + 1)
        return decision

    def laid_out(self, proposal: Proposal, prefix: FramePrefix) -> Proposal:
        """The proposal with the marks that its frames are forced to, whatever stood there.

        The target reads drafted frames as they are: behind another mark no distribution is the
        output's.
        """
        frames: tuple[Any, ...] = proposal.ids
        marks = self._layout.forced(prefix.ids, frames)
        cells = [
            zip(frame, forced, strict=True) for frame, forced in zip(frames, marks, strict=False)
        ]
        filled: Any = tuple(tuple(c if m == FREE else m for c, m in pairs) for pairs in cells)
        return proposal if filled == frames else replace(proposal, ids=filled)

    def _scored(self, rows: Tensor, proposal: Proposal, prefix: FramePrefix) -> FrameProposal:
        shape, frames = (len(proposal), self._codebooks), cast(Sequence[Frame], proposal.ids)
        codes = torch.tensor(frames, dtype=torch.int64, device=rows.device).view(shape)
        forced = self._layout.forced(prefix.ids, frames)
        chain = self._chain
        if chain is not None:
            taught = rows.new_full((len(rows), self._codebooks - 1, rows.shape[-1]), torch.nan)
            if len(proposal):
                taught[:-1] = chain.teach(frames)
            rows = torch.cat([rows, taught], dim=1)
        probs = proposal.draft_probs
        return FrameProposal(
            rows,
            codes,
            torch.tensor(forced, dtype=torch.int64, device=rows.device),
            None if probs is None else probs.to(rows.device),
            None if chain is None else chain.rest,
            proposal.draft_rest if isinstance(proposal, DraftedFrames) else None,
        )

    def picker(self, processors: Processors, prefix: FramePrefix) -> FramePick:
        """How a drafter draws one frame after the other behind a prefix: as the target would."""
        return FramePick(self, processors, prefix)

    def draw(self, scores: Tensor, position: int, codebook: int) -> tuple[int, Tensor | None]:
        """Draw a code from processed scores `[V]`: (code, its distribution, None where one-hot)."""
        if not self._sampling.sample:
            return int(scores.argmax()), None
        if self._sampling.seed is not None:
            noise = rules.code_noise(
                self._sampling.seed, torch.tensor([position]), codebook + 1, scores.shape[-1]
            )
            return int((scores + noise[0, codebook].to(scores.device)).argmax()), None
        distribution = scores.double().softmax(-1)
        return int(
            torch.multinomial(distribution.cpu(), 1, generator=self._generator)
        ), distribution

    def draw_frame(
        self, rows: Tensor, prefix: FramePrefix, drafted: Sequence[Frame]
    ) -> tuple[Frame, Tensor | None]:
        """Draw independent codes from `[K, V]`, forced ones in place, with their distributions."""
        position = len(prefix) + len(drafted)
        distributions = None
        if not self._sampling.sample:
            codes = rows.argmax(-1)
        elif self._sampling.seed is not None:
            codes = (rows + self._noise_at(position, 1, rows)[0]).argmax(-1)
        else:
            distributions = rows.double().softmax(-1)
            drawn = torch.multinomial(distributions.cpu(), 1, generator=self._generator)
            codes = drawn.squeeze(-1)
        forced = self._layout.forced(prefix.ids, drafted)[-1]
        pairs = zip(forced, codes.tolist(), strict=True)
        return tuple(code if mark == FREE else mark for mark, code in pairs), distributions

    def _noise(self, start: int, scored: FrameProposal) -> Tensor:
        logits = scored.target_logits
        return self._noise_at(start, len(logits), logits)

    def _noise_at(self, start: int, count: int, like: Tensor) -> Tensor:
        """Noise `[count, K, V]` of the steps from an absolute position on."""
        seed = self._sampling.seed or 0
        positions = torch.arange(start, start + count, device=like.device)
        return rules.code_noise(seed, positions, self._codebooks, like.shape[-1])


def _said(decision: FrameDecision) -> tuple[tuple[int, ...], Frame]:
    return tuple(range(decision.accepted)), decision.next_frame


class FramePick:
    """Draws a drafted frame from rows `[R, V]` at draft offset i: (frame, its distributions `[K,
    V]`).

    Where codes are a chain, the drafter draws the first with `first` and the others with `code`,
    and says with `done` what the frame has become.
    """

    def __init__(self, sampler: FrameSampler, processors: Processors, prefix: FramePrefix) -> None:
        self._sampler, self._processors, self._prefix = sampler, processors, prefix
        self._drafted: list[Frame] = []

    def __call__(self, rows: Tensor, offset: int) -> tuple[Frame, Tensor | None]:
        """Draw a frame of independent codes."""
        processed = self._processed(rows)
        frame, distributions = self._sampler.draw_frame(processed, self._prefix, self._drafted)
        self._drafted.append(frame)
        return frame, distributions

    def first(self, rows: Tensor) -> tuple[int, Tensor | None]:
        """Draw codebook 0 of the next frame from the backbone's raw rows `[1, V]`."""
        return self.code(self._processed(rows)[0], 0)

    def code(self, scores: Tensor, codebook: int) -> tuple[int, Tensor | None]:
        """Draw a code of the next frame from processed scores `[V]`."""
        position = len(self._prefix) + len(self._drafted)
        return self._sampler.draw(scores, position, codebook)

    def done(self, frame: Frame) -> None:
        """The next frame is this one."""
        self._drafted.append(frame)

    def _processed(self, rows: Tensor) -> Tensor:
        self._prefix.show_draft(self._drafted)
        return self._processors.single(rows.to(self._sampler.device), self._prefix, self._drafted)

"""How a token is chosen: the acceptance rule of a request and the randomness behind it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from numbers import Integral

import torch
from torch import Tensor

from mmspec import acceptance
from mmspec.acceptance.frames import FREE, FrameProposal
from mmspec.acceptance.groups import Approximate
from mmspec.engine.lossy import LossyLedger
from mmspec.engine.processing import Processors
from mmspec.errors import ModelError, OptionError
from mmspec.prefix import Prefix
from mmspec.proposals.base import Pick, Proposal

RULES = ("auto", "greedy", "keyed", "block", "frame", "token")


@dataclass(frozen=True, slots=True)
class Sampling:
    """How tokens are drawn.

    Attributes:
        sample: draw from the distribution (temperature and the like are processors); else take its
            mode.
        seed: key of the noise: the same ids for every drafter, and for none. None: fresh noise.
        rule: "auto", or one of the acceptance rules by name; "frame" is for frames of codes only,
            and "token" means code by code there.
        approximate: leave to judge by groups of similar codes; None: exactly.
    """

    sample: bool = False
    seed: int | None = None
    rule: str = "auto"
    approximate: Approximate | None = None

    def __post_init__(self) -> None:
        if self.rule not in RULES:
            raise OptionError(f"unknown acceptance rule {self.rule!r}: expected one of {RULES}")
        if (self.rule == "greedy" and self.sample) or (
            self.rule in ("keyed", "block", "frame", "token") and not self.sample
        ):
            raise OptionError(f"rule {self.rule!r} doesn't go with sampling {self.sample}")
        if self.rule == "keyed" and self.seed is None:
            raise OptionError("rule 'keyed' needs a seed")
        if self.rule in ("block", "frame", "token") and self.seed is not None:
            raise OptionError(
                f"rule {self.rule!r} doesn't go with a seed: what it keeps depends on the drafter, "
                "and a seed promises the same ids for every one of them; leave one of the two out"
            )
        seed = self.seed
        if seed is not None and not (isinstance(seed, Integral) and -(2**63) <= seed < 2**64):
            raise OptionError(f"seed: found {self.seed!r}, expected an integer in -2**63..2**64-1")
        if self.approximate is not None:
            self._check_approximate()

    def _check_approximate(self) -> None:
        why = None
        if not self.sample:
            why = "greedy decoding has no distribution to stay near to: sample, or decode exactly"
        elif self.seed is not None:
            why = "a seed promises the same codes for every drafter: leave it out"
        elif self.rule != "auto":
            why = f"it is a rule of its own: leave out rule {self.rule!r}"
        if why is not None:
            raise OptionError(f"approximate acceptance doesn't go with this request: {why}")

    @property
    def parity(self) -> str:
        """The level of exactness that a run with this sampling is held to."""
        if not self.sample:
            return "L0"
        if self.approximate is not None:
            return "L3"
        return "L2" if self.seed is None else "L1"

    def of_part(self, row: int, go: int = 0) -> Sampling:
        """The same for one row of a batch, in one go at it: equal positions get other noise.

        The first row in the first go keeps the seed itself.
        """
        if self.seed is None or row == go == 0:
            return self
        return replace(self, seed=acceptance.derive_seed(self.seed, row + (go << 32)))


class AcceptanceSampler:
    """Applies a request's rule to verified rows, and lets drafters draw the same way."""

    def __init__(self, sampling: Sampling, device: torch.device) -> None:
        if sampling.rule == "frame":
            raise OptionError(
                "rule 'frame' judges frames of codes, here one token is decided at once"
            )
        self._sampling, self._device = sampling, device
        # Fresh noise still follows torch.manual_seed, as transformers' sampling does.
        self._generator = torch.Generator(device)
        self._generator.manual_seed(int(torch.randint(1 << 62, ())) if sampling.sample else 0)
        self.lossy = LossyLedger(sampling.approximate, codebooks=1)

    def rule(self, proposal: Proposal) -> str:
        """The name of the rule that this proposal is judged by."""
        if self.lossy.allowance > 0:
            return "grouped"
        if self._sampling.rule != "auto":
            return self._sampling.rule
        return acceptance.default_rule(
            temperature_is_zero=not self._sampling.sample,
            seeded=self._sampling.seed is not None,
            has_draft_probs=proposal.draft_probs is not None,
        )

    def laid_out(self, proposal: Proposal, prefix: Prefix[int]) -> Proposal:
        """The proposal as the target is to read it: as it is, no token is forced."""
        return proposal

    def decide(
        self, rows: Tensor, proposal: Proposal, prefix: Prefix[int]
    ) -> tuple[tuple[int, ...], int]:
        """Judge a proposal.

        Args:
            rows: processed distributions `[n + 1, V]` of the n drafted tokens and the one after
                them; in a tree, row 0 behind the prefix and row `i + 1` behind token i.
            proposal: the drafted tokens.
            prefix: what was committed before them.

        Returns:
            (indices of the accepted tokens, the recovered or bonus token). One host
            synchronisation.

        Raises:
            ModelError: a token would have to be drawn from a row that is no distribution.
        """
        start = len(prefix)
        self.lossy.begin(start - prefix.prompt_length)
        if proposal.parents is not None:
            own = self._own_choices(rows, proposal, start)
            choices, drawn = torch.stack((own, self._defined(rows))).tolist()
            path, token = acceptance.walk(choices, proposal.ids, proposal.parents)
            for depth, row in enumerate([0, *(index + 1 for index in path)]):
                check_drawn(drawn[row], start + depth)
        elif self.rule(proposal) == "grouped":
            return self._decide_by_groups(rows, proposal)
        else:
            accepted, token = self._decide_chain(rows, proposal, start)
            path = tuple(range(accepted))
        self.lossy.judged_exactly(len(path) + 1)
        return path, token

    def _decide_by_groups(self, rows: Tensor, proposal: Proposal) -> tuple[tuple[int, ...], int]:
        """Tokens as frames of one code."""
        ids, probs = torch.tensor(proposal.ids, dtype=torch.long), proposal.draft_probs
        decision = self.lossy.judge(
            FrameProposal(
                rows[:, None],
                ids.view(len(proposal), 1).to(rows.device),
                torch.full((len(rows), 1), FREE, device=rows.device),
                None if probs is None else probs[:, None].to(rows.device),
            )
        )
        return tuple(range(decision.accepted)), decision.next_frame[0]

    def _own_choices(self, rows: Tensor, proposal: Proposal, start: int) -> Tensor:
        if not self._sampling.sample:
            return acceptance.own_choices(rows)
        if self.rule(proposal) == "keyed":
            depths = torch.tensor([0, *proposal.depths], device=rows.device)
            return acceptance.own_choices(rows, noise=self._noise_at(rows, start + depths))
        coins = torch.rand(
            len(rows), dtype=torch.float64, device=rows.device, generator=self._generator
        )
        return acceptance.own_choices(rows, uniforms=coins)

    def _decide_chain(self, rows: Tensor, proposal: Proposal, start: int) -> tuple[int, int]:
        count, device = len(proposal), rows.device
        ids = torch.tensor([proposal.ids], dtype=torch.long, device=device).view(1, count)
        lengths = torch.tensor([count], device=device)
        rule, distributions = self.rule(proposal), rows.unsqueeze(0)
        if rule == "greedy":
            decision = acceptance.greedy(distributions, ids, lengths)
        elif rule == "keyed":
            decision = acceptance.keyed(
                distributions, ids, lengths, self._noise(rows, start).unsqueeze(0)
            )
        else:
            probs = proposal.draft_probs
            judge = acceptance.block if rule == "block" else acceptance.token
            coins = torch.rand(
                (1, count + 1), dtype=torch.float64, device=device, generator=self._generator
            )
            probs = None if probs is None else probs[None].to(device)
            decision = judge(distributions, ids, lengths, probs, coins)
        defined = self._defined(rows).cumprod(0)[decision.accepted]
        parts = torch.stack((decision.accepted, decision.next_ids, defined))
        accepted, token, drawn = parts.flatten().tolist()
        check_drawn(drawn, start + accepted)
        return accepted, token

    def _defined(self, rows: Tensor) -> Tensor:
        """Whether something can be drawn from each row, int64 `[n]`; greedy decoding draws nothing.

        A row without a finite highest score is no distribution: everything is forbidden, or a score
        is NaN.
        """
        if not self._sampling.sample:
            return torch.ones(len(rows), dtype=torch.long, device=rows.device)
        return rows.amax(-1).isfinite().long()

    def pick(
        self, row: Tensor, prefix: Prefix[int], drafted: Sequence[int]
    ) -> tuple[int, Tensor | None]:
        """Draw a token behind drafted ones: (token, its distribution, None where one-hot)."""
        if not self._sampling.sample:
            return int(row.argmax()), None
        if self._sampling.seed is not None:
            position = len(prefix) + len(drafted)
            return int((row + self._noise(row[None], position)[0]).argmax()), None
        distribution = row.double().softmax(-1)
        return int(torch.multinomial(distribution, 1, generator=self._generator)), distribution

    def picker(self, processors: Processors, prefix: Prefix[int]) -> Pick:
        """How a drafter draws one token after the other behind a prefix: as the target would."""
        drafted: list[int] = []

        def pick(row: Tensor, offset: int) -> tuple[int, Tensor | None]:
            prefix.show_draft(drafted)
            row = row.to(self._device)  # a drafter may live on another one
            token, distribution = self.pick(
                processors.single(row, prefix, drafted), prefix, drafted
            )
            drafted.append(token)
            return token, distribution

        return pick

    def _noise(self, rows: Tensor, start: int) -> Tensor:
        return self._noise_at(rows, torch.arange(start, start + len(rows), device=rows.device))

    def _noise_at(self, rows: Tensor, positions: Tensor) -> Tensor:
        if self._sampling.seed is None:
            raise OptionError("keyed noise without a seed")
        return acceptance.gumbel(self._sampling.seed, positions, rows.shape[-1], rows.device)


def check_drawn(drawn: bool | int, position: int) -> None:
    """Raise where a token was drawn from no distribution, as transformers' sampling does.

    Raises:
        ModelError: says where.
    """
    if not drawn:
        raise ModelError(
            f"there is nothing to draw from at position {position}: expected a score that is a "
            "finite number, found all of them -inf, or NaN (do logits processors forbid every "
            "token? does the model overflow in its dtype?)"
        )

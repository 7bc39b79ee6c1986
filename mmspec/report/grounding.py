"""Which tokens of an output rest on the conditioning, and which the language alone predicts.

Every token is scored twice behind the same prefix: with the true conditioning, and with the
conditioning ablated (replaced by one that says nothing; the adapter knows what that is). A token
that loses more than a threshold of its log-probability is grounded, the others are syntactic.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from mmspec.errors import OptionError
from mmspec.report.trace import Origin

Class = Literal["grounded", "syntactic"]
CLASSES: tuple[Class, ...] = ("grounded", "syntactic")

DEFAULT_THRESHOLD = 1.0
"""Nats: without the conditioning the token is less than 1/e times as probable."""


@dataclass(frozen=True, slots=True)
class Grounding:
    """How much each token of an output owes to the conditioning.

    Attributes:
        threshold: nats above which a drop makes a token grounded.
        drops: per token, its log-probability with the true conditioning minus the one with the
            conditioning ablated, in nats.

    Example:
        >>> Grounding(1.0, (4.2, 0.1)).classes
        ('grounded', 'syntactic')
    """

    threshold: float
    drops: tuple[float, ...]

    @property
    def classes(self) -> tuple[Class, ...]:
        """The class of each token."""
        return tuple("grounded" if drop > self.threshold else "syntactic" for drop in self.drops)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {"threshold": self.threshold, "drops": list(self.drops)}


@dataclass(frozen=True, slots=True)
class ClassShare:
    """How the tokens of one class were obtained.

    Attributes:
        tokens: how many there are: accepted + recovered + bonus.
        accepted: kept from a proposal.
        recovered: the target's own in place of a drafted one.
        bonus: the target's own where nothing had been drafted.
        mean_drop: of their log-probabilities, in nats; 0 where there are no tokens.
    """

    tokens: int
    accepted: int
    recovered: int
    bonus: int
    mean_drop: float

    @property
    def acceptance_rate(self) -> float | None:
        """Accepted over accepted and recovered; a bonus was never judged. None without either."""
        judged = self.accepted + self.recovered
        return self.accepted / judged if judged else None

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "tokens": self.tokens,
            "accepted": self.accepted,
            "recovered": self.recovered,
            "bonus": self.bonus,
            "acceptance_rate": self.acceptance_rate,
            "mean_drop": self.mean_drop,
        }


def log_prob_drops(true_rows: Tensor, ablated_rows: Tensor, ids: Sequence[int]) -> Tensor:
    """What each token loses of its log-probability when the conditioning is ablated.

    The rows are raw logits over the whole vocabulary: what processors change (suppression, a
    temperature, a grammar) follows from the prefix alone, is the same in both rows and says
    nothing of the conditioning, and a token that a rule forces would seem to owe it nothing.

    Args:
        true_rows: `[n, V]`, row i is the distribution of token i.
        ablated_rows: the same with the conditioning ablated.
        ids: the n tokens.

    Returns:
        Nats `[n]`, float32, on the CPU.

    Raises:
        ValueError: the rows don't fit the tokens or each other.

    Example:
        >>> certain, undecided = torch.tensor([[9.0, 9.0, -99.0]]), torch.zeros(1, 3)
        >>> round(log_prob_drops(certain, undecided, [0]).exp().item(), 4)
        1.5
    """
    if true_rows.shape != ablated_rows.shape or true_rows.dim() != 2 or len(true_rows) != len(ids):
        raise ValueError(
            f"expected two blocks of {len(ids)} rows over one vocabulary, found "
            f"{list(true_rows.shape)} and {list(ablated_rows.shape)}"
        )
    if not ids:
        return torch.zeros(0)
    return (_log_probs(true_rows, ids) - _log_probs(ablated_rows, ids)).cpu()


def _log_probs(rows: Tensor, ids: Sequence[int]) -> Tensor:
    """Log-probability of each token; one number a row, so that no second block is made."""
    tokens = torch.tensor(list(ids), device=rows.device)[:, None]
    rows = rows.float()
    return rows.gather(-1, tokens)[:, 0] - rows.logsumexp(-1)


def share_by_class(grounding: Grounding, origins: Sequence[Origin]) -> dict[str, ClassShare]:
    """How the tokens of each class were obtained; origins are aligned with the drops.

    Raises:
        ValueError: one origin per token is needed.
    """
    if len(origins) != len(grounding.drops):
        raise ValueError(f"found {len(origins)} origins for {len(grounding.drops)} tokens")
    tokens = list(zip(grounding.classes, grounding.drops, origins, strict=True))
    shares: dict[str, ClassShare] = {}
    for name in CLASSES:
        drops = [drop for of, drop, _ in tokens if of == name]
        kinds = [origin.kind for of, _, origin in tokens if of == name]
        shares[name] = ClassShare(
            len(kinds),
            kinds.count("accepted"),
            kinds.count("recovered"),
            kinds.count("bonus"),
            math.fsum(drops) / len(drops) if drops else 0.0,
        )
    return shares


def add_shares(reports: Sequence[Mapping[str, ClassShare]]) -> dict[str, ClassShare]:
    """The shares of several outputs together; mean drops are weighted by tokens."""
    total: dict[str, ClassShare] = {}
    for name in CLASSES:
        parts = [report[name] for report in reports if name in report]
        tokens = sum(part.tokens for part in parts)
        drop = math.fsum(part.tokens * part.mean_drop for part in parts)
        total[name] = ClassShare(
            tokens,
            sum(part.accepted for part in parts),
            sum(part.recovered for part in parts),
            sum(part.bonus for part in parts),
            drop / tokens if tokens else 0.0,
        )
    return total


def threshold_of(wanted: bool | float | None) -> float | None:
    """The threshold that a `grounding` argument names: True is the usual one; None: not asked.

    Raises:
        OptionError: not a number of nats.

    Example:
        >>> threshold_of(True), threshold_of(0.5), threshold_of(False)
        (1.0, 0.5, None)
    """
    if wanted is None or wanted is False:
        return None
    if wanted is True:
        return DEFAULT_THRESHOLD
    if not isinstance(wanted, int | float) or not 0 <= wanted < math.inf:
        raise OptionError(f"grounding: found {wanted!r}, expected True or a threshold of 0 or more")
    return float(wanted)

"""Several drafters for one output: who did well lately, for what it costs, has the turn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

from mmspec.errors import DraftError
from mmspec.prefix import Prefix
from mmspec.proposals.acceptance_rate import (
    EXPECTED_TOKENS,
    ROW_PRIOR,
    AcceptanceRate,
    emitted_tokens,
)
from mmspec.proposals.base import Drafter, Outlook, Pick, Proposal

FARTHEST = 24
"""Drafted tokens in a row that are looked at when promises are compared."""

PATIENCE = 16
"""Tokens that another had the turn for that raise hope by one token kept."""

TRIAL = 2
"""Tokens of a turn that is given out of hope: the first, and one behind it."""

DECLINED = -64
"""Where hope starts again when the policy wanted nothing drafted by whom the switch preferred."""


@dataclass(eq=False)
class _Member:
    """One of the drafters, and what it offers in this round.

    Attributes:
        outlook: its own, its context made unique by its name.
        broken: what it raised when it was told of a round; it is dropped in the next one.
    """

    drafter: Drafter
    outlook: Outlook | None = None
    broken: Exception | None = None


class SwitchDrafter(Drafter):
    """Gives the turn to the drafter whose proposal is expected to save most.

    A drafter's promise is the expected speed over ordinary decoding: its outlook, corrected by
    what was seen of it in this context, over `cost_prior` and the expected price of a block. Who is
    passed over gains hope: as if ever more of its tokens had been kept. So one that did badly is
    tried again, the later the worse it did, and never where it couldn't be the best even so.

    The choice depends on what was committed and accepted before, never on what is drafted now (a
    proposal that was picked for its content would bias sampled output) nor on chance or, without
    `step_s`, on time: the same request gives the same rounds as long as γ is the same.

    Reports name the drafter whose turn it was. One that fails is dropped, the others go on. What
    one of them never proposed is nothing to roll back: to it a round agrees up to its beginning.

    Args:
        drafters: at least one, each with a name of its own; between equals the earlier one.
        seen: what was learned of them; give the same to the next request and it is kept.
        step_s: seconds of an ordinary step, None where not known yet. A drafter that has to be
            opened first is given the turn before others where it repays that soon; without a step
            to compare with, only where no other promises any gain.

    Raises:
        DraftError: no drafter, or two of the same name.

    Example:
        >>> import torch
        >>> from mmspec.proposals import HypothesisDrafter, NgramDrafter
        >>> switch = SwitchDrafter([HypothesisDrafter([5, 6]), NgramDrafter()])
        >>> prefix = Prefix([1], capacity=16, device=torch.device("cpu"))
        >>> switch.outlook(prefix).context, switch.propose(prefix, 4, pick=None).ids
        ('hypothesis: aligned', (5, 6))
        >>> prefix.extend([5, 6, 7, 5, 6])
        >>> switch.commit(prefix, agreed=3)
        >>> switch.outlook(prefix).context, switch.propose(prefix, 1, pick=None).ids, switch.name
        ('ngram: match 2', (7,), 'ngram')
    """

    def __init__(
        self,
        drafters: Sequence[Drafter],
        seen: AcceptanceRate | None = None,
        step_s: Callable[[], float | None] = lambda: None,
    ) -> None:
        names = [drafter.name for drafter in drafters]
        if len(set(names)) < max(1, len(names)):
            raise DraftError(
                f"a switch between drafters called {names}: expected at least one, "
                "each with a name of its own"
            )
        self._drafters = list(drafters)
        self._members = [_Member(drafter) for drafter in drafters]
        self._turn = self._members[0]
        self._seen = AcceptanceRate() if seen is None else seen
        self._step_s = step_s
        self._on_trial = False
        self._drafted: tuple[int, Proposal] | None = None  # where the proposal began, and it

    @property
    def name(self) -> str:  # type: ignore[override]
        """That of the drafter whose turn it is."""
        return self._turn.drafter.name

    @property
    def cost_prior(self) -> float:  # type: ignore[override]
        """That of the drafter whose turn it is."""
        return self._turn.drafter.cost_prior

    @property
    def conditioning(self) -> str:  # type: ignore[override]
        """That of the drafter whose turn it is."""
        return self._turn.drafter.conditioning

    @property
    def parts(self) -> Sequence[Drafter]:
        """All of them."""
        return self._drafters

    @property
    def forwards(self) -> int:
        """Of all of them."""
        return sum(drafter.forwards for drafter in self._drafters)

    @property
    def depth_forwards(self) -> int:
        """Of all of them."""
        return sum(drafter.depth_forwards for drafter in self._drafters)

    def outlook(self, prefix: Prefix) -> Outlook:
        """That of the drafter whose turn it is now, corrected by what was seen of it."""
        self._drafted = None
        sober: list[float] = []
        hopeful: list[float] = []
        for member in self._members:
            self._turn = member  # whoever fails is named in the report, and dropped
            if member.broken is not None:
                raise member.broken
            outlook = member.drafter.outlook(prefix)
            member.outlook = replace(outlook, context=f"{self.name}: {outlook.context}")
            sober.append(self._promise(member.outlook, hope=0.0))
            hopeful.append(self._promise(member.outlook, hope=self._hope(member.outlook)))
        best, dared = sober.index(max(sober)), hopeful.index(max(hopeful))
        self._on_trial = dared != best
        self._turn = self._members[dared]
        outlook = self._offered(self._turn)
        if not self._on_trial:
            return self._seen.expect(outlook)
        outlook = self._seen.expect(outlook, self._hope(outlook))
        return replace(outlook, available=min(TRIAL, outlook.available))

    def propose(self, prefix: Prefix, limit: int, pick: Pick) -> Proposal:
        """What the one whose turn it is proposes."""
        return self._noted(prefix, self._turn.drafter.propose(prefix, limit, pick))

    def propose_tree(self, prefix: Prefix, limit: int, branches: int) -> Proposal:
        """What the one whose turn it is proposes."""
        return self._noted(prefix, self._turn.drafter.propose_tree(prefix, limit, branches))

    def commit(self, prefix: Prefix, agreed: int) -> None:
        """All follow; what became of the proposal is noted."""
        drafted, self._drafted = self._drafted, None
        before = agreed if drafted is None else drafted[0]
        if len(prefix) > before:
            self._learn(prefix.ids[before:], agreed - before, drafted and drafted[1])
        for member in self._members:
            proposed = drafted is not None and member is self._turn
            member.outlook = None
            try:
                member.drafter.commit(prefix, agreed if proposed else before)
            except Exception as error:  # the others have to hear of the round all the same
                member.broken = error

    def without_failed(self) -> Drafter | None:
        """The others, if there are any."""
        self._drafted = self._turn.outlook = None
        self._members = [member for member in self._members if member is not self._turn]
        return self if self._members else None

    def close(self) -> None:
        """All are closed, whatever one of them raises."""
        with ExitStack() as closing:
            for drafter in self._drafters:
                closing.callback(drafter.close)

    def _noted(self, prefix: Prefix, proposal: Proposal) -> Proposal:
        self._drafted = len(prefix), proposal
        return proposal

    def _offered(self, member: _Member) -> Outlook:
        if member.outlook is None:
            raise DraftError(f"{member.drafter.name} has the turn and was asked for no outlook")
        return member.outlook

    def _promise(self, outlook: Outlook, hope: float) -> float:
        """Expected speed over ordinary decoding at the best length; 0 with nothing to propose."""
        if outlook.available < 1:
            return 0.0
        expected = self._seen.expect(outlook, hope)
        lengths = range(1, min(outlook.available, FARTHEST) + 1)
        speed = max(
            emitted / (gamma * self.cost_prior + 1 + ROW_PRIOR * gamma * branches)
            for branches in range(1, expected.branches + 1)
            for gamma, emitted in zip(lengths, emitted_tokens(expected, branches), strict=False)
        )
        if outlook.opening_s > 0:
            speed = self._opened(speed, outlook.opening_s)
        declined = self._seen.passed[outlook.context] < 0
        return min(speed, 1.0) if declined else speed

    def _opened(self, speed: float, opening_s: float) -> float:
        """The speed over the tokens to be expected, if opening has to be paid for by them."""
        step_s = self._step_s()
        if step_s is None:
            return min(speed, 1.0)
        return 1 / (1 / speed + opening_s / (step_s * EXPECTED_TOKENS))

    def _hope(self, outlook: Outlook) -> float:
        if outlook.opening_s > 0:
            return 0.0  # nothing is opened out of mere hope
        return max(0, self._seen.passed[outlook.context]) / PATIENCE

    def _learn(self, tokens: Sequence[int], accepted: int, proposal: Proposal | None) -> None:
        """Note how the turn was used, and what those may hope who didn't have it."""
        passed = self._seen.passed
        for member in self._members:
            if member is not self._turn and member.outlook and member.outlook.available > 0:
                passed[member.outlook.context] += len(tokens)
        outlook = self._turn.outlook
        if outlook is None or outlook.available < 1:
            return
        if proposal is None:
            passed[outlook.context] = min(passed[outlook.context], 0) or DECLINED
            return
        passed[outlook.context] = 0
        path = proposal.follow(tokens[:accepted])
        rejected = proposal.goes_on_behind(path) and len(tokens) > accepted
        self._seen.observe(
            outlook.context,
            accepted=accepted,
            # A turn that was given away is one that failed.
            judged=accepted + rejected if proposal else 1,
            # Branches that weren't wanted found nothing either: it's turns that are compared.
            branches=max(len(proposal.roots), outlook.branches),
            branch=proposal.roots.index(path[0]) if path else None,
        )

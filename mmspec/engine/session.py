"""One request being decoded: propose, verify, commit, round after round.

The state holds every committed token but the last: that one is fed together with the next block,
so that a round costs one target forward. Only the first round has nothing to feed; the distribution
of its first token is the row that the prefill left behind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from transformers.generation.streamers import BaseStreamer

from mmspec.clock import Clock
from mmspec.engine.choosing import AcceptanceSampler
from mmspec.engine.costs import BlockCosts
from mmspec.engine.policy import Policy
from mmspec.engine.processing import Processors
from mmspec.engine.stopping import ScoresSoFar, Stops
from mmspec.engine.work import Steps, run_alone
from mmspec.errors import OptionError
from mmspec.prefix import Prefix
from mmspec.proposals.base import Drafter, Outlook, Pick, Proposal
from mmspec.report.report import RoundStats
from mmspec.report.trace import Round
from mmspec.target import Pass, Target

NOTHING = Outlook("none", 0.0, 0.0, 0)


@dataclass
class Scores:
    """Rows of the emitted tokens, where they were asked for (transformers' `output_scores`)."""

    processed: list[Tensor]
    raw: list[Tensor]


class Session:
    """A request: a target that has read the prompt, and everything that decides what follows.

    Args:
        target: opened, its state holding the whole prompt.
        prefix: the prompt, with room for what follows it.
        first_row: raw logits `[1, V]` behind the prompt; rows of frames are `[1, K, V]` here, or
            `[1, 2 K, V]` where they come in pairs for guidance.
        drafter: proposes, or None.
        policy: chooses γ.
        sampler: the acceptance rule and its randomness.
        processors: logits processors of the request.
        stops: where the output ends.
        clock: counts seconds by phase.
        costs: learns what the target's blocks cost; may be shared by many sessions.
        tally: counts rounds; goes on counting where a request takes several sessions.
        streamer: gets committed tokens, one by one.
        scores: collects rows where not None.

    A round that raises leaves the committed prefix and the target's state as they were, so the
    session can go on; a drafter that raises is dismissed and the session goes on by itself. Where a
    streamer raises, the round is done all the same.
    """

    def __init__(
        self,
        target: Target,
        prefix: Prefix,
        first_row: Tensor,
        *,
        drafter: Drafter | None,
        policy: Policy,
        sampler: AcceptanceSampler,
        processors: Processors,
        stops: Stops,
        clock: Clock,
        costs: BlockCosts | None = None,
        tally: RoundStats | None = None,
        streamer: BaseStreamer | None = None,
        scores: Scores | None = None,
    ) -> None:
        if target.state.length != len(prefix):
            raise OptionError(
                f"the target's state holds {target.state.length} positions, "
                f"the prompt {len(prefix)}"
            )
        self.prefix = prefix
        self.tally = RoundStats() if tally is None else tally
        self.tally.sessions += 1
        self.clock = clock
        self.costs = BlockCosts() if costs is None else costs
        self.finish_reason: str | None = None if stops.room(self.prefix) else "length"
        self._target, self._first_row = target, first_row
        self._drafter, self._policy, self._sampler = drafter, policy, sampler
        self._processors, self._stops = processors, stops
        self._draft_processors: Processors | None = None
        self._streamer, self._scores = streamer, scores
        if processors.refuses_blocks and drafter is not None:
            self._dismiss_drafter(f"decoded without speculation: {processors.refuses_blocks}")

    def __iter__(self) -> Iterator[int]:
        """Committed tokens as they come."""
        while self.finish_reason is None:
            yield from self.round()

    def run(self) -> list[int]:
        """Decode to the end; return what was emitted."""
        while self.finish_reason is None:
            self.round()
        if self._streamer is not None:
            self._streamer.end()
        return self.prefix.emitted

    def round(self) -> tuple[int, ...]:
        """One transaction: propose, verify, commit. Returns the tokens that it emitted.

        After the output's end there is nothing left to do, and nothing is emitted.
        """
        return run_alone(self.steps())

    @torch.no_grad()
    def steps(self) -> Steps[tuple[int, ...]]:
        """A round that leaves its forward pass to whoever runs it: alone, or with others."""
        if self.finish_reason is not None:
            return ()
        mark = self._target.state.mark()
        try:
            with self.clock("draft"):
                outlook, proposal = self._propose()
            draft_s, asked = self.clock.last, self._drafter
            ids, parents = self._block(proposal)
            scored, verify_s = None, 0.0
            if ids:
                keep = len(proposal) + self._has_pending
                scored = yield Pass(self._target, ids, keep, parents, self.clock, "verify")
                verify_s = self.clock.last
            with self.clock("verify"):
                raw, rows = self._rows(scored, proposal)
                proposal = proposal.crop(len(rows) - 1)
                path, token = self._sampler.decide(rows, proposal, self.prefix)
            verify_s += self.clock.last
            tokens = (*(proposal.ids[index] for index in path), token)
            behind = [0, *(index + 1 for index in path)]  # the rows that the tokens were drawn from
            kept, reason = self._stops.cut(
                self._showing(tokens), tokens, self._scores_with(rows, behind)
            )
        except BaseException:
            self._target.state.restore(mark)
            self._processors.commit(0)
            self._tell_drafter(len(self.prefix))  # what it has drafted never was
            raise
        with self.clock("reconcile"):
            # Who proposed is named also where it has been dismissed since.
            name = "none" if asked is None else asked.name
            done = self._done(name, outlook, proposal, path[:kept], tokens[:kept], len(ids))
            done = replace(done, draft_s=draft_s, verify_s=verify_s)
            agreed = len(self.prefix) + done.accepted
            self._commit(done, tree=proposal.parents is not None)
            self.finish_reason = reason
            self._keep_scores(raw, rows, behind[:kept])
            self._learn(done)
            try:  # what isn't the session's own comes last: whatever it raises, the round is whole
                self._tell_drafter(agreed)
            finally:
                self._stream(done.emitted)
        return done.emitted

    def _propose(self) -> tuple[Outlook, Proposal]:
        """What the drafter offers within the room that is left; nothing if it fails."""
        room = self._stops.room(self.prefix) - 1  # the recovered or bonus token takes a place
        drafter = self._drafter
        if drafter is None or room < 1:
            return NOTHING, Proposal()
        try:
            outlook = drafter.outlook(self.prefix)
            if self._processors.has_memory or not self._target.takes_trees:
                outlook = replace(outlook, beside=())  # a memory is undone along one branch only
            plan = self._policy.choose(outlook, drafter.cost_prior, room)
            if plan.depth < 1:
                return outlook, Proposal()
            if plan.branches == 1:
                proposal = drafter.propose(self.prefix, plan.depth, self._picker())
            else:
                proposal = drafter.propose_tree(self.prefix, plan.depth, plan.branches)
            proposal.check(plan.depth, self._target.vocab_size, plan.branches)
            proposal = self._sampler.laid_out(proposal, self.prefix)
            proposal = proposal.until(self._stops.stop_tokens)
            # Side branches take room in the state that no output will ever fill.
            return outlook, proposal.crop(self._target.capacity - len(self.prefix))
        except Exception as error:  # a drafter may fail in any way; the output goes on without it
            self._dismiss_drafter(_dismissed(error), drafter.without_failed())
            return NOTHING, Proposal()

    @property
    def _has_pending(self) -> bool:
        """Whether the last committed token still has to be fed (all but the first round)."""
        return self._target.state.length < len(self.prefix)

    def _block(self, proposal: Proposal) -> tuple[list[int], list[int] | None]:
        """What the target is fed: what is pending, then the draft; and its shape if it's a tree."""
        pending = list(self.prefix.ids[self._target.state.length :])
        if proposal.parents is None:
            return [*pending, *proposal.ids], None
        trunk = [index - 1 for index in range(len(pending))]
        parents = [*trunk, *(parent + len(pending) for parent in proposal.parents)]
        return [*pending, *proposal.ids], parents

    def _rows(self, scored: Tensor | None, proposal: Proposal) -> tuple[Tensor, Tensor]:
        """The distributions behind the prefix and behind every drafted token: (raw, processed)."""
        if scored is None:
            raw = self._first_row
        elif len(scored) == len(proposal):  # the first round: nothing was pending
            raw = torch.cat([self._first_row, scored])
        else:
            raw = scored
        keeps_raw = self._scores is not None or raw is self._first_row
        rows = self._processed(raw.clone() if keeps_raw else raw, proposal)
        if self._processors.refuses_blocks:
            self._dismiss_drafter(f"decoded without speculation: {self._processors.refuses_blocks}")
        return raw, rows

    def _processed(self, rows: Tensor, proposal: Proposal) -> Tensor:
        """Every row at its own drafted prefix; a tree chain by chain, each row once."""
        if proposal.parents is None:
            self.prefix.show_draft(proposal.ids)
            return self._processors(rows, self.prefix, proposal.ids)
        done = rows.clone()
        for number, (tokens, chain) in enumerate(proposal.runs()):
            behind = [0] * (number == 0) + [index + 1 for index in chain]
            self.prefix.show_draft(tokens)
            skipped = len(tokens) + 1 - len(behind)
            done[behind] = self._processors(rows[behind], self.prefix, tokens, skipped)
        return done

    def _done(
        self,
        drafter: str,
        outlook: Outlook,
        proposal: Proposal,
        path: tuple[int, ...],
        tokens: tuple[int, ...],
        block: int,
    ) -> Round:
        """What the round did. A token that a stop cut off was neither kept nor judged."""
        roots = proposal.roots
        return Round(
            drafter=drafter,
            context=outlook.context,
            proposal=proposal.ids,
            path=path,
            emitted=tokens,
            rejected=proposal.goes_on_behind(path) and len(tokens) > len(path),
            depth=proposal.depth,
            branches=len(roots),
            branch=roots.index(path[0]) if path else None,
            block=block,
            draft_s=0.0,
            verify_s=0.0,
        )

    def _commit(self, done: Round, *, tree: bool) -> None:
        """Make the emitted tokens part of the prefix, and nothing else part of any state."""
        state = self._target.state
        if tree:
            state.keep_path(state.length - len(done.proposal), done.path)
        self.prefix.extend(done.emitted)
        state.commit(min(state.length, len(self.prefix) - 1))
        self._processors.commit(len(done.emitted))

    def _learn(self, done: Round) -> None:
        self.tally.add(done)
        if done.block:
            self.costs.add(done.block, done.verify_s)
        self._policy.observe(done)

    def _tell_drafter(self, agreed: int) -> None:
        if self._drafter is not None:
            try:
                self._drafter.commit(self.prefix, agreed)
            except Exception as error:  # as in _propose
                self._dismiss_drafter(_dismissed(error), self._drafter.without_failed())

    def _showing(self, tokens: Sequence[int]) -> Prefix:
        self.prefix.show_draft(tokens)
        return self.prefix

    def _scores_with(self, rows: Tensor, behind: list[int]) -> Callable[[int], ScoresSoFar] | None:
        if self._scores is None:
            return None
        before = tuple(self._scores.processed)
        return lambda count: (*before, *rows[behind[:count]].split(1))

    def _picker(self) -> Pick:
        """How the drafter draws: the request's processors (a copy) and its randomness."""
        if self._draft_processors is None or self._processors.has_memory:
            self._draft_processors = self._processors.fork()
        return self._sampler.picker(self._draft_processors, self.prefix)

    def _keep_scores(self, raw: Tensor, rows: Tensor, behind: list[int]) -> None:
        if self._scores is not None:
            self._scores.raw += raw[behind].split(1)
            self._scores.processed += rows[behind].split(1)

    def _stream(self, emitted: Sequence[int]) -> None:
        if self._streamer is not None:
            for token in emitted:
                self._streamer.put(torch.tensor([token]))

    def _dismiss_drafter(self, why: str, left: Drafter | None = None) -> None:
        if self._drafter is not None:
            self.tally.faults.append(f"drafter {self._drafter.name} {' '.join(why.split())}")
        self._drafter = left


def _dismissed(error: Exception) -> str:
    return f"dismissed: {type(error).__name__}: {error}"

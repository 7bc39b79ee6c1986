"""Classic faults where one step decides a frame, planted in production code and caught.

Every check passes on the real code and raises `Caught` on the mutant that it is named for.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from transformers.generation.logits_process import ClassifierFreeGuidanceLogitsProcessor
from transformers.generation.streamers import BaseStreamer

from mmspec.engine import Sampling, Session
from mmspec.engine.frames import (
    FRAME_FORMS,
    DelayedLayout,
    FrameProcessors,
    FrameSampler,
)
from mmspec.engine.frames.undefined_scores import UndefinedScores
from mmspec.errors import ModelError
from mmspec.prefix import Frame, FramePrefix
from mmspec.proposals.frames import FrameModelDrafter, HeadsDrafter, LookupDrafter
from mmspec.report import by_codebook as codebooks
from tests.engine.test_frame_choosing import GAP, distance, law_of, law_of_rows, law_of_sessions
from tests.engine.test_frame_choosing import small as small_case
from tests.engine.test_frame_lawless import broken_at
from tests.frame_toys import (
    ORDERS,
    K,
    ToyChain,
    case,
    decode,
    garbage,
    model,
    open_session,
    ordinary,
    recalling,
)

from .catching import (
    Check,
    Mutant,
    Patch,
    expect,
)
from .catching import test_every_check_catches_something as test_every_check_catches_something
from .catching import test_the_mutant_is_caught as test_the_mutant_is_caught
from .catching import test_the_real_code_passes as test_the_real_code_passes

KINDS = ("copy", "wrong", "recalling", "garbage")

# The checks.


def greedy_frames_are_ordinary() -> None:
    for order, kind in itertools.product(ORDERS, KINDS):
        given = case(order)
        run = decode(given, kind, 4)
        expect(run.frames == ordinary(given).frames, "frames differ from ordinary decoding")


def seeded_frames_are_the_same_for_every_drafter() -> None:
    for order, kind in itertools.product(ORDERS, KINDS):
        given, seeded = case(order), Sampling(sample=True, seed=3)
        plain = ordinary(given, seed=3).frames
        run = decode(given, kind, 4, sampling=seeded, said=plain)
        expect(run.frames == plain, "seeded frames depend on the drafter")


def a_copy_is_accepted_and_fed_once() -> None:
    for order in ORDERS:
        run = decode(case(order), "copy", 4)
        expect(run.tally.accepted > run.tally.recovered == 0, "a copy of the target was rejected")
        fed = [frame for block in run.drafter.model.blocks for frame in block]
        committed = list(run.session.prefix.ids)
        expect(fed[: len(committed)] == committed[: len(fed)], "the drafter was fed other frames")


def a_drafter_follows_the_committed_frames() -> None:
    for order in ORDERS:
        run = open_session(case(order), "wrong", 4)
        while run.session.finish_reason is None:
            run.session.round()
            held, committed = run.drafter.model.held(), list(run.session.prefix.ids)
            expect(held == committed[: len(held)], "a drafter kept what was rejected")


def padding_counts_nowhere() -> None:
    for order, kind in itertools.product(("known rows", "end mark"), ("copy", "recalling")):
        given = case(order)
        trace: Any = decode(given, kind, 4).tally.trace
        share = codebooks.count_codes(trace, given.prompt, given.layout)
        frames, free = list(given.prompt), [0] * K
        for done in trace:
            for place, frame in enumerate(done.emitted):
                for k, mark in enumerate(given.slow.forced(frames)):
                    free[k] += mark < 0 and place < done.judged
                frames.append(frame)
        expect(list(share.judged) == free, "padding was counted as judged")
        at_most = all(kept <= seen for kept, seen in zip(share.agreed, free, strict=True))
        expect(at_most, "padding was counted as accepted")


def ends_are_where_the_order_has_them() -> None:
    for frames in range(5, 10):
        given = case("end mark", frames=frames)
        for kind in ("copy", "none"):
            run = decode(given, kind, 3)
            expect(run.frames == ordinary(given).frames, "it ended in another row")


def guided(kind: str) -> Any:
    given = case("known rows", guided=True)
    processors = [ClassifierFreeGuidanceLogitsProcessor(3.0)]
    plain = ordinary(given, processors=processors)
    run = decode(given, kind, 4, processors=processors, said=plain.frames)
    expect(run.frames == plain.frames, "what was verified isn't the guided distribution")
    return run


def the_guided_law_is_verified() -> None:
    for kind in ("copy", "recalling", "none"):
        guided(kind)


def a_guided_copy_is_accepted() -> None:
    tally = guided("copy").tally
    expect(tally.accepted == tally.proposed > 0, "a guided copy was rejected")


class Notes(BaseStreamer):
    """Compares what it is handed with what is committed by then."""

    def __init__(self) -> None:
        self.frames: list[Frame] = []
        self.prefix: FramePrefix | None = None

    def put(self, value: Tensor) -> None:
        self.frames.append(tuple(value[0].tolist()))
        emitted = [] if self.prefix is None else self.prefix.emitted
        expect(emitted[: len(self.frames)] == self.frames, "an uncommitted frame was handed on")

    def end(self) -> None:
        return


def only_committed_frames_are_handed_on() -> None:
    for order, kind in itertools.product(ORDERS, KINDS):
        given, notes = case(order), Notes()
        run = open_session(given, kind, 6, streamer=notes)
        prefix: Any = run.session.prefix
        notes.prefix = prefix
        run.session.run()
        expect(notes.frames == ordinary(given).frames, "other frames were handed on")


def a_session_over_a_chain_has_the_targets_law() -> None:
    given, drafting = small_case(True, GAP), law_of(True, GAP, likely=1)
    for rule in ("frame", "token"):
        law, _ = law_of_sessions(given, lambda: model(drafting, given.prompt), 1, rule)
        expect(distance(law, law_of_rows(given)) < 1e-12, "frames have another distribution")


def heads_are_right_where_they_know() -> None:
    tally = decode(case("known rows"), "heads", 3).tally
    expect(tally.accepted > tally.proposed / 3, "heads are about another frame")


def lookup_finds_the_latest_continuation() -> None:
    prefix = FramePrefix([(1, 1), (2, 2), (1, 1)], 9, torch.device("cpu"), 2)
    nobody: Any = None
    found = LookupDrafter().propose(prefix, 2, nobody).ids
    expect(found == (), "a run of one frame was trusted")
    prefix.extend([(2, 2)])
    found = LookupDrafter().propose(prefix, 2, nobody).ids
    expect(found == ((1, 1), (2, 2)), "the continuation is a frame off")


def nothing_is_drawn_from_no_law() -> None:
    for order, frame in itertools.product(("known rows", "depth"), (5, 9)):
        whole = case(order)
        given = broken_at(whole, 1, -torch.inf, frame)
        for drafts in (garbage(), recalling(ordinary(whole, seed=3).frames, whole.prompt)):
            opened = open_session(given, drafts, 4, sampling=Sampling(sample=True, seed=3))
            try:
                opened.session.run()
            except ModelError as error:
                expect(f"at position {frame}:" in str(error), "another frame is named")
            else:
                expect(False, "a code was drawn from scores that are no distribution")


CHECKS: list[Check] = [
    nothing_is_drawn_from_no_law,
    greedy_frames_are_ordinary,
    seeded_frames_are_the_same_for_every_drafter,
    a_copy_is_accepted_and_fed_once,
    a_drafter_follows_the_committed_frames,
    padding_counts_nowhere,
    ends_are_where_the_order_has_them,
    the_guided_law_is_verified,
    a_guided_copy_is_accepted,
    only_committed_frames_are_handed_on,
    a_session_over_a_chain_has_the_targets_law,
    heads_are_right_where_they_know,
    lookup_finds_the_latest_continuation,
]


# The mutants.


def padding_counted(patch: Patch) -> None:
    real = codebooks.count_codes

    class Everything:
        def forced(self, frames: Sequence[Frame], drafted: Sequence[Frame]) -> list[Frame]:
            return [(-1,) * K] * (len(drafted) + 1)

    patch.setattr(
        codebooks, "count_codes", lambda trace, prompt, _: real(trace, prompt, Everything())
    )


def padding_decided(patch: Patch) -> None:
    def mutant(
        self: DelayedLayout, frames: Sequence[Frame], drafted: Sequence[Frame]
    ) -> list[Frame]:
        return [(-1,) * K] * (len(drafted) + 1)

    patch.setattr(DelayedLayout, "forced", mutant)


def later_codes_kept_from_the_draft(patch: Patch) -> None:
    real = FrameSampler.decide

    def mutant(self: FrameSampler, rows: Tensor, proposal: Any, prefix: FramePrefix) -> Any:
        path, frame = real(self, rows, proposal, prefix)
        if len(path) == len(proposal):
            return path, frame
        drafted = proposal.ids[len(path)]
        differs = [own != other for own, other in zip(frame, drafted, strict=True)]
        wrong = differs.index(True) if True in differs else K
        return path, (*frame[: wrong + 1], *drafted[wrong + 1 :])

    patch.setattr(FrameSampler, "decide", mutant)


def forced_cells_as_drafted(patch: Patch) -> None:
    patch.setattr(FrameSampler, "laid_out", lambda self, proposal, prefix: proposal)


def rows_one_frame_late(patch: Patch) -> None:
    real = FrameSampler.decide

    def mutant(self: FrameSampler, rows: Tensor, proposal: Any, prefix: FramePrefix) -> Any:
        return real(self, rows.roll(1, 0), proposal, prefix)

    patch.setattr(FrameSampler, "decide", mutant)


def marks_one_row_late(patch: Patch) -> None:
    real = DelayedLayout._mark

    def mutant(self: DelayedLayout, k: int, row: int, end: int | None) -> int:
        return real(self, k, row - 1, end)

    patch.setattr(DelayedLayout, "_mark", mutant)


def noise_by_draft_offset(patch: Patch) -> None:
    real = FrameSampler._noise_at

    def mutant(self: FrameSampler, start: int, count: int, like: Tensor) -> Tensor:
        return real(self, 0, count, like)

    patch.setattr(FrameSampler, "_noise_at", mutant)


def chain_taught_one_frame_late(patch: Patch) -> None:
    real = FrameSampler._scored

    def mutant(self: Any, rows: Tensor, proposal: Any, prefix: FramePrefix) -> Any:
        chain = self._chain
        if chain is None:
            return real(self, rows, proposal, prefix)

        class Late(ToyChain):
            def __init__(self) -> None:
                return

            def teach(self, frames: Sequence[Frame]) -> Tensor:
                taught: Tensor = chain.teach(frames)
                return taught.roll(1, 0)

            def rest(self, frame_idx: int, codes: Frame) -> Tensor:
                row: Tensor = chain.rest(frame_idx, codes)
                return row

        self._chain = Late()
        try:
            return real(self, rows, proposal, prefix)
        finally:
            self._chain = chain

    patch.setattr(FrameSampler, "_scored", mutant)


def draft_state_not_rolled_back(patch: Patch) -> None:
    patch.setattr(FrameModelDrafter, "commit", lambda self, prefix, agreed: None)


def last_frame_drafted_behind_twice(patch: Patch) -> None:
    def mutant(self: FrameModelDrafter, prefix: FramePrefix) -> Tensor:
        return self.model.score([*prefix.ids[self.model.state.length :], prefix.ids[-1]], 1)[-1]  # type: ignore[list-item]

    patch.setattr(FrameModelDrafter, "_behind", mutant)


def end_in_any_codebook(patch: Patch) -> None:
    def mutant(self: DelayedLayout, frame: Frame) -> bool:
        return self._frames is None and not self._steps.stop_tokens.isdisjoint(frame)

    patch.setattr(DelayedLayout, "_is_end", mutant)


def end_before_the_late_codebooks(patch: Patch) -> None:
    def mutant(self: DelayedLayout, frames: Sequence[Frame], more: Sequence[Frame]) -> bool:
        return self._is_end(more[-1])

    patch.setattr(DelayedLayout, "ends", mutant)


def blocks_without_guidance(patch: Patch) -> None:
    """The target's rows lose their unconditional half, the drafter's don't."""
    real = FrameProcessors.__call__

    def mutant(self: FrameProcessors, rows: Tensor, *where: Any) -> Tensor:
        return real(self, rows[:, :K], *where)

    patch.setattr(FrameProcessors, "__call__", mutant)


def drafts_without_guidance(patch: Patch) -> None:
    real = FrameProcessors.single

    def mutant(self: FrameProcessors, row: Tensor, *where: Any) -> Tensor:
        return real(self, row[:K], *where)

    patch.setattr(FrameProcessors, "single", mutant)


def halves_exchanged(patch: Patch) -> None:
    real = FRAME_FORMS[ClassifierFreeGuidanceLogitsProcessor]

    def mutant(processor: Any, count: int) -> Any:
        form = real(processor, count)
        return lambda rows: form(rows.roll(count, 1))

    patch.setitem(FRAME_FORMS, ClassifierFreeGuidanceLogitsProcessor, mutant)


def proposals_handed_on(patch: Patch) -> None:
    real = Session._block

    def mutant(self: Session, proposal: Any) -> Any:
        self._stream(proposal.ids)
        return real(self, proposal)

    patch.setattr(Session, "_block", mutant)


def frames_handed_on_before_they_are_cut(patch: Patch) -> None:
    real, stream = Session._showing, Session._stream

    def showing(self: Session, tokens: Any) -> Any:
        stream(self, tokens)
        return real(self, tokens)

    patch.setattr(Session, "_showing", showing)
    patch.setattr(Session, "_stream", lambda self, emitted: None)


def laws_of_the_draft_not_asked_for(patch: Patch) -> None:
    """Frames that weren't drafted are weighed by the distributions behind those that were."""
    real = FrameSampler._scored

    def mutant(self: Any, rows: Tensor, proposal: Any, prefix: FramePrefix) -> Any:
        if len(proposal):
            proposal = replace(proposal, draft_rest=None)
        return real(self, rows, proposal, prefix)

    patch.setattr(FrameSampler, "_scored", mutant)


def heads_one_frame_late(patch: Patch) -> None:
    real = HeadsDrafter._place

    def mutant(self: HeadsDrafter, prefix: Any) -> int | None:
        place = real(self, prefix)
        return place - 1 if place else place

    patch.setattr(HeadsDrafter, "_place", mutant)


def lookup_one_frame_late(patch: Patch) -> None:
    real = LookupDrafter._find

    def mutant(self: LookupDrafter, prefix: Any) -> Any:
        size, place = real(self, prefix)
        return size, None if place is None else (place[0], place[1] + 1)

    patch.setattr(LookupDrafter, "_find", mutant)


def what_was_drawn_not_looked_at(patch: Patch) -> None:
    patch.setattr(UndefinedScores, "check", lambda self, decision, start: None)


def rows_behind_the_draft_not_looked_at(patch: Patch) -> None:
    check = UndefinedScores.check

    def taught_only(self: Any, decision: Any, start: int) -> None:
        self._asked.clear()
        check(self, decision, start)

    patch.setattr(UndefinedScores, "check", taught_only)


def named_by_its_place_in_the_round(patch: Patch) -> None:
    check = UndefinedScores.check
    patch.setattr(UndefinedScores, "check", lambda self, decision, start: check(self, decision, 0))


MUTANTS: list[Mutant] = [
    (what_was_drawn_not_looked_at, nothing_is_drawn_from_no_law, "drawn from scores"),
    (rows_behind_the_draft_not_looked_at, nothing_is_drawn_from_no_law, "drawn from scores"),
    (named_by_its_place_in_the_round, nothing_is_drawn_from_no_law, "another frame"),
    (padding_counted, padding_counts_nowhere, "counted as judged"),
    (padding_decided, greedy_frames_are_ordinary, "frames differ"),
    (forced_cells_as_drafted, greedy_frames_are_ordinary, "frames differ"),
    (later_codes_kept_from_the_draft, greedy_frames_are_ordinary, "frames differ"),
    (rows_one_frame_late, greedy_frames_are_ordinary, "frames differ"),
    (marks_one_row_late, greedy_frames_are_ordinary, "frames differ"),
    (chain_taught_one_frame_late, greedy_frames_are_ordinary, "frames differ"),
    (noise_by_draft_offset, seeded_frames_are_the_same_for_every_drafter, "depend on the drafter"),
    (last_frame_drafted_behind_twice, a_copy_is_accepted_and_fed_once, "rejected|fed other"),
    (draft_state_not_rolled_back, a_drafter_follows_the_committed_frames, "kept what was"),
    (end_in_any_codebook, ends_are_where_the_order_has_them, "in another row"),
    (end_before_the_late_codebooks, ends_are_where_the_order_has_them, "in another row"),
    (blocks_without_guidance, the_guided_law_is_verified, "isn't the guided distribution"),
    (halves_exchanged, the_guided_law_is_verified, "isn't the guided distribution"),
    (drafts_without_guidance, a_guided_copy_is_accepted, "copy was rejected"),
    (proposals_handed_on, only_committed_frames_are_handed_on, "uncommitted frame"),
    (frames_handed_on_before_they_are_cut, only_committed_frames_are_handed_on, "uncommitted"),
    (
        laws_of_the_draft_not_asked_for,
        a_session_over_a_chain_has_the_targets_law,
        "another distribution",
    ),
    (heads_one_frame_late, heads_are_right_where_they_know, "another frame"),
    (lookup_one_frame_late, lookup_finds_the_latest_continuation, "a frame off"),
]

"""Z: processors and criteria shared or misplaced, masks that look ahead, lookup beyond the end."""

from __future__ import annotations

import pytest
import torch
from transformers import LogitsProcessorList
from transformers.generation.logits_process import WhisperTimeStampLogitsProcessor

import mmspec
from mmspec.engine.processing import Processors
from mmspec.modalities.whisper.checkpoint import Whisper
from tests.modalities.drafting import FORCED_HIT, drafter_options, emitted, same_ids
from tests.modalities.test_whisper_parity import StopAfterCalls, StopAt
from tests.modalities.tiny import CONTEXT, START, features, shared, tiny

from .support import equal, plain_ids, with_three


@with_three
@pytest.mark.parametrize("seed", [1, 4, 5, 13])
def test_Z1_timestamps_with_a_whole_drafter_are_lossless(drafter: str, seed: int) -> None:
    for gamma in (1, 4, "adaptive"):
        equal(shared(seed), drafter, gamma, return_timestamps=True)


def test_Z1_no_processor_object_is_shared_with_a_drafter() -> None:
    config = shared().generation_config
    processor = WhisperTimeStampLogitsProcessor(config, begin_index=3)
    processors = Processors(LogitsProcessorList([processor]))
    fork = processors.fork()
    mine, theirs = processors._processors[0], fork._processors[0]
    assert mine is processor
    assert theirs is not processor
    theirs.set_begin_index(9)
    assert processor.begin_index == 3


def test_Z1_a_drafter_never_calls_the_requests_processor() -> None:
    class Watched(WhisperTimeStampLogitsProcessor):
        calls: list[int] = []  # noqa: RUF012 - by object, see below

        def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
            self.calls.append(id(self))
            return super().__call__(input_ids, scores)

    mine = Watched(shared().generation_config, begin_index=4)
    made = mmspec.generate(
        shared(), features(), shared(11), gamma=3, language="en", logits_processor=[mine]
    )
    want = shared().generate(
        features(),
        language="en",
        logits_processor=LogitsProcessorList(
            [WhisperTimeStampLogitsProcessor(shared().generation_config, begin_index=4)]
        ),
    )
    same_ids(made.sequences, want)
    own = sum(identity == id(mine) for identity in Watched.calls)
    rows = sum(report.rounds + report.proposed for report in made.reports)
    assert own <= rows
    assert len(Watched.calls) > own  # the drafter called a copy


@with_three
def test_Z1b_several_goes_come_to_an_end(drafter: str) -> None:
    model = shared(5)
    made = equal(model, drafter, 4, return_timestamps=True)
    assert len(made.reports) == 3


@with_three
@pytest.mark.parametrize("shown", [False, True])
def test_Z1b_a_long_recording_with_a_model_drafter_comes_to_an_end(
    drafter: str, shown: bool
) -> None:
    asked = {"return_timestamps": True, "condition_on_prev_tokens": shown}
    long = features(frames=330)
    chosen = drafter_options(drafter, shared(5), [])
    made = mmspec.generate(shared(5), long, gamma=4, **chosen, **asked)
    same_ids(made.sequences, shared(5).generate(long, **asked))
    assert len(made.reports) > 3


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_Z2_earlier_rows_do_not_move_with_the_last_unit(attention: str) -> None:
    """Also in the prefill, where the mask of the prompt meets the first block."""
    whisper = Whisper.of(tiny(1, attention=attention))
    states = whisper.encode(features())
    seen = []
    for last in (4, 90):
        target = whisper.open(states)
        seen.append(target.score([START, 51, 53, 56, 9, last], keep=6))
        target.close()
    torch.testing.assert_close(seen[0][:-1], seen[1][:-1], rtol=0, atol=1e-6)


@with_three
def test_Z3_no_block_passes_the_last_position(drafter: str) -> None:
    """Lookup with a hit at the very end of the context."""
    repeated = torch.tensor([54, *([5, 6, 7, 53, 56] * 4)])
    for gamma in (10, 40):
        made = equal(shared(), drafter, gamma, prompt_ids=repeated)
        assert made.report.tokens <= CONTEXT - len(repeated) - 4


@with_three
@pytest.mark.parametrize("position", range(1, 8))
def test_Z4_a_criterion_is_asked_at_every_unit_of_a_block(drafter: str, position: int) -> None:
    token = plain_ids()[position]
    made = equal(shared(), drafter, 6, stopping_criteria=[StopAt(token)])
    assert emitted(made.sequences)[-1] == token


@with_three
@pytest.mark.parametrize("calls", [1, 2, 5, 9])
def test_Z4_a_criterion_that_counts_its_calls(drafter: str, calls: int) -> None:
    from .support import said, speculated

    want = said(shared(), stopping_criteria=[StopAfterCalls(calls)])
    got = speculated(shared(), drafter, 6, stopping_criteria=[StopAfterCalls(calls)])
    same_ids(got.sequences, want)


def test_Z5_prompt_marks_are_never_drafted() -> None:
    """What follows in the prompt may be a mark: lookup stops before it."""
    from mmspec.modalities.whisper.draft import NgramDraft
    from mmspec.prefix import Prefix

    whisper = Whisper.of(shared())
    drafter = NgramDraft(whisper).open(None)  # type: ignore[arg-type]
    assert drafter is not None
    prefix = Prefix(
        [*FORCED_HIT.tolist(), START, 51, 53, 56], capacity=CONTEXT, device=torch.device("cpu")
    )
    proposal = drafter.propose(prefix, 8, None)  # type: ignore[arg-type]
    assert proposal.ids == (5, 6, 7)

"""Faults around processors that are shown other ids than a session's, planted and caught.

The check passes on the real code and raises `Caught` on the mutants.
"""

from __future__ import annotations

from typing import Any

from transformers import LogitsProcessorList

from mmspec.engine import processing
from tests.modalities.speech import bed_csm as bed
from tests.modalities.speech.csm_runs import Telling, run
from tests.modalities.speech.test_csm import spoilt_in
from tests.modalities.speech.test_csm_processors import FRAMES, MAKES, HoldsAModel, memories

from .catching import Check, Mutant, Patch, expect
from .catching import test_every_check_catches_something as test_every_check_catches_something
from .catching import test_the_mutant_is_caught as test_the_mutant_is_caught
from .catching import test_the_real_code_passes as test_the_real_code_passes


def memories_survive_rejections() -> None:
    model, theirs, ours = bed.shared(), MAKES["counting"](), MAKES["counting"]()
    expected = bed.library_rows(
        model, bed.text(), max_new_tokens=FRAMES, logits_processor=LogitsProcessorList(theirs)
    )[0]
    telling = Telling(expected, spoilt_in(1, 2))
    given = LogitsProcessorList(ours)
    got = run(model, bed.text(), telling, max_new_tokens=FRAMES, logits_processor=given)
    expect(got.frames == expected, "other frames")
    expect(memories(ours) == memories(theirs), "the caller's processors remember something else")


def a_fork_shares_models_only() -> None:
    inside = HoldsAModel(object())
    twin: Any = processing.Processors([processing.Wrapped(inside)]).fork()._processors[0]
    expect(twin.processor is not inside, "a drafter was handed the caller's processor")


def memory_of_the_wrapper(patch: Patch) -> None:
    patch.setattr(processing, "_inside", lambda processor: processor)


def only_the_wrapper_copied(patch: Patch) -> None:
    import copy

    patch.setattr(processing, "_processor_copy", copy.copy)


CHECKS: list[Check] = [memories_survive_rejections, a_fork_shares_models_only]

MUTANTS: list[Mutant] = [
    (memory_of_the_wrapper, memories_survive_rejections, "remember something else"),
    (only_the_wrapper_copied, a_fork_shares_models_only, "was handed"),
]

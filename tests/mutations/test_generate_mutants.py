"""Faults of the drop-in for `generate`, planted in production code and caught.

Every check passes on the real code and raises `Caught` on the mutant that it is named for.
"""

from __future__ import annotations

from typing import Any

from mmspec.proposals import EarlyExitDrafter, ModelDrafter
from mmspec.state import DecoderState
from tests.modalities import prefix_runs as prefix
from tests.modalities.test_own_memory import ending_with
from tests.modalities.tiny_prefix import MEDIA

from .catching import Check, Mutant, Patch, expect
from .catching import test_every_check_catches_something as test_every_check_catches_something
from .catching import test_the_mutant_is_caught as test_the_mutant_is_caught
from .catching import test_the_real_code_passes as test_the_real_code_passes

# The checks.


def an_image_may_end_the_prompt() -> None:
    prompt = ending_with(prefix.given("llava"), "medium")
    asked = {"eos_token_id": None, "bad_words_ids": [[MEDIA]]}
    truth = prefix.plain(prefix.model_of("llava"), prompt, **asked)
    try:
        made = prefix.speculated("llava", prompt, "early-exit:1", **asked)
    except AssertionError as faults:
        expect(False, f"a drafter has failed: {faults}")
    expect(prefix.emitted(made.sequences, prompt) == truth, "ids differ from ordinary decoding")


CHECKS: list[Check] = [an_image_may_end_the_prompt]


# The mutants.


def prompts_last_unit_read_again(patch: Patch) -> None:
    def mutant(self: EarlyExitDrafter, *args: Any) -> Any:
        self.model.state.follow_lender()
        return ModelDrafter.propose(self, *args)

    patch.setattr(EarlyExitDrafter, "propose", mutant)


def lent_memory_writable(patch: Patch) -> None:
    prompts_last_unit_read_again(patch)
    patch.setattr(DecoderState, "_check_not_lent", lambda self, start: None)


MUTANTS: list[Mutant] = [
    (prompts_last_unit_read_again, an_image_may_end_the_prompt, "failed.*memory is lent"),
    (lent_memory_writable, an_image_may_end_the_prompt, "ids differ"),
]

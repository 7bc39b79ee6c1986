"""Faults of the drop-in for `generate`, planted in production code and caught.

Every check passes on the real code and raises `Caught` on the mutant that it is named for.
"""

from __future__ import annotations

from typing import Any

import mmspec
from mmspec import generation
from mmspec.generation import CustomGenerate
from mmspec.modalities.whisper_certainty import Certainty
from mmspec.proposals import EarlyExitDrafter, ModelDrafter
from mmspec.state import DecoderState
from tests.modalities import prefix_runs as prefix
from tests.modalities.test_own_memory import ending_with
from tests.modalities.test_returned_cache import KEPT, a_turn_later
from tests.modalities.test_streamers import REQUESTS, Notes, asked, expected
from tests.modalities.test_whisper_lacking import generated, transcribed
from tests.modalities.tiny import tiny
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


def a_second_turn_sees_the_image() -> None:
    model, prompt = prefix.model_of("llava"), prefix.given("llava")
    asked = {**KEPT, "max_new_tokens": 9, "eos_token_id": None}
    want = model.generate(**prompt, **asked)
    got = model.generate(**prompt, **asked, custom_generate=mmspec.custom_generate("ngram"))
    expect(got.cache is not None, "no cache was returned")
    later = [a_turn_later(model, first, eos_token_id=None).tolist() for first in (want, got)]
    expect(later[0] == later[1], "a second turn was told something else")


def a_streamer_is_told_everything_once() -> None:
    request = REQUESTS["llava"]
    want = expected(request)
    for theirs, mine in ((Notes(), None), (None, Notes()), 2 * (Notes(),)):
        loop = mmspec.custom_generate("ngram", streamer=mine)
        asked(request, streamer=theirs, custom_generate=loop)
        for notes in {theirs, mine} - {None}:
            expect(notes.calls == want, "a streamer was told something else")


def what_looks_like_padding_goes() -> None:
    said = generated(tiny(3), language="en", max_new_tokens=8)[0].tolist()
    model = tiny(3, says={"pad_token_id": said[-1]})
    want = generated(model, language="en", max_new_tokens=8)[0].tolist()
    made = transcribed(model, language="en", max_new_tokens=8)
    expect(list(made.ids) == want, "a pad was kept")


CHECKS: list[Check] = [
    what_looks_like_padding_goes,
    an_image_may_end_the_prompt,
    a_second_turn_sees_the_image,
    a_streamer_is_told_everything_once,
]


# The mutants.


def prompts_last_unit_read_again(patch: Patch) -> None:
    def mutant(self: EarlyExitDrafter, *args: Any) -> Any:
        self.model.state.follow_lender()
        return ModelDrafter.propose(self, *args)

    patch.setattr(EarlyExitDrafter, "propose", mutant)


def lent_memory_writable(patch: Patch) -> None:
    prompts_last_unit_read_again(patch)
    patch.setattr(DecoderState, "_check_not_lent", lambda self, start: None)


def cache_dropped(patch: Patch) -> None:
    patch.setattr(generation, "kept_cache", lambda *_: None)


def cache_left_empty(patch: Patch) -> None:
    patch.setattr(DecoderState, "copy_to", lambda self, cache: None)


def streamer_of_generate_forgotten(patch: Patch) -> None:
    patch.setattr(generation, "streamer_of_generate", lambda: None)


def prompt_left_to_generate(patch: Patch) -> None:
    def mutant(self: CustomGenerate, given: Any, input_ids: Any) -> Any:
        return given if given is not None else self._streamer

    patch.setattr(CustomGenerate, "_streaming", mutant)


def padding_kept(patch: Patch) -> None:
    patch.setattr(Certainty, "close", lambda self: None)


MUTANTS: list[Mutant] = [
    (padding_kept, what_looks_like_padding_goes, "a pad was kept"),
    (prompts_last_unit_read_again, an_image_may_end_the_prompt, "failed.*memory is lent"),
    (lent_memory_writable, an_image_may_end_the_prompt, "ids differ"),
    (cache_dropped, a_second_turn_sees_the_image, "no cache"),
    (streamer_of_generate_forgotten, a_streamer_is_told_everything_once, "something else"),
    (prompt_left_to_generate, a_streamer_is_told_everything_once, "something else"),
    (cache_left_empty, a_second_turn_sees_the_image, "something else"),
]

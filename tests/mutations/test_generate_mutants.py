"""Faults of the drop-in for `generate`, planted in production code and caught.

Every check passes on the real code and raises `Caught` on the mutant that it is named for.
"""

from __future__ import annotations

from typing import Any

import torch

import mmspec
from mmspec import generation
from mmspec.generation import CustomGenerate
from mmspec.modalities.whisper.request import TranscriptionRequest
from mmspec.modalities.whisper.stable_tokens import StableTokens
from mmspec.proposals import EarlyExitDrafter, ModelDrafter
from mmspec.state import DecoderState, layers
from tests.modalities import prefix_runs as prefix
from tests.modalities.test_own_memory import ending_with
from tests.modalities.test_returned_cache import KEPT, a_turn_later
from tests.modalities.test_streamers import REQUESTS, Notes, asked, expected
from tests.modalities.test_whisper_lacking import generated, transcribed
from tests.modalities.test_whisper_parity import Counting
from tests.modalities.tiny import shared, speech, tiny, tiny_processor
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


def memory_holds_what_it_held() -> None:
    state = DecoderState(1, 10**9, cross_attention=False)
    written = torch.arange(3 * 2100.0).view(1, 1, -1, 3)
    for block in written.split(700, dim=2):
        with state.block(700):
            keys, _ = state.cache.update(block, block, 0)
    expect(torch.equal(keys, written), "what was written is lost")
    expect(state.growing(0).keys.shape[2] < 10_000, "room for more than anybody asks for")


def chunks_and_requests_learn_nothing_of_each_other() -> None:
    given = Counting()
    asked = {"language": "en", "logits_processor": [given], "sampling_rate": 16_000}
    with mmspec.load(shared(), "ngram", processor=tiny_processor()) as whole:
        whole.transcribe(speech(7, 1.4), **asked, chunk_s=0.6, overlap_s=0.2, batch=2)
        expect(not given.counts, "a chunk has taught the caller's processor")
        dict(whole.outcomes([{"audio": speech(), **asked}] * 2, 2))
        expect(not given.counts, "a request has taught the caller's processor")


CHECKS: list[Check] = [
    chunks_and_requests_learn_nothing_of_each_other,
    memory_holds_what_it_held,
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
    patch.setattr(StableTokens, "close", lambda self: None)


def memory_left_behind(patch: Patch) -> None:
    patch.setattr(layers, "ROOM", 100)
    patch.setattr(
        layers, "_widened", lambda old, room: old.new_zeros(*old.shape[:2], room, old.shape[3])
    )


def room_for_a_billion(patch: Patch) -> None:
    patch.setattr(layers, "ROOM", 1_000_000)


def requests_share_processors(patch: Patch) -> None:
    patch.setattr(TranscriptionRequest, "apart", property(lambda self: self))


MUTANTS: list[Mutant] = [
    (requests_share_processors, chunks_and_requests_learn_nothing_of_each_other, "a chunk"),
    (memory_left_behind, memory_holds_what_it_held, "is lost"),
    (room_for_a_billion, memory_holds_what_it_held, "more than anybody"),
    (padding_kept, what_looks_like_padding_goes, "a pad was kept"),
    (prompts_last_unit_read_again, an_image_may_end_the_prompt, "failed.*memory is lent"),
    (lent_memory_writable, an_image_may_end_the_prompt, "ids differ"),
    (cache_dropped, a_second_turn_sees_the_image, "no cache"),
    (streamer_of_generate_forgotten, a_streamer_is_told_everything_once, "something else"),
    (prompt_left_to_generate, a_streamer_is_told_everything_once, "something else"),
    (cache_left_empty, a_second_turn_sees_the_image, "something else"),
]

"""CSM: frames equal transformers' own `generate`, whatever drafts them and whatever is guessed."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import LogitsProcessor, LogitsProcessorList

from mmspec.acceptance.frames import code_noise
from mmspec.errors import InputError, ModelError, OptionError, StateError
from mmspec.factorizations import DepthFrames
from mmspec.modalities.base.speculative_decoder import Draft
from mmspec.modalities.speech.checkpoint import SpeechCheckpoint
from mmspec.modalities.speech.csm import FAMILY, check, grids, split
from mmspec.modalities.speech.csm_request import prepare
from mmspec.modalities.speech.depth_guesses import Guess, repeat_previous
from mmspec.modalities.speech.draft import model_draft
from mmspec.prefix import Frame
from mmspec.proposals import Drafter
from mmspec.proposals.frames import HeadsDrafter, LookupDrafter, RepeatDrafter

from . import bed_csm as bed
from .csm_runs import FRAMES, Drafting, Telling, opened, run
from .delayed_runs import GAMMAS

BOOKS, VOCAB = bed.BOOKS, bed.VOCAB

PROMPTS: dict[str, Callable[[], dict[str, Tensor]]] = {
    "text": bed.text,
    "a word": lambda: bed.text(1, 4),
    "long text": lambda: bed.text(70, 2),
    "a voice": bed.voiced,
    "a conversation": lambda: bed.voiced((3, 5), 1),
}


@functools.cache
def said(model: Any, prompt: str = "text", frames: int = FRAMES) -> tuple[Frame, ...]:
    """What transformers says, once."""
    rows = bed.library_rows(model, PROMPTS[prompt](), max_new_tokens=frames)[0]
    return tuple(tuple(frame) for frame in rows)


def spoilt_in(codebook: int, every: int = 3) -> Callable[[int, Frame], Frame]:
    """Every third frame has a wrong code."""

    def spoil(row: int, frame: Frame) -> Frame:
        wrong = row % every == every - 1
        return tuple((code + (wrong and k == codebook)) % bed.CODES for k, code in enumerate(frame))

    return spoil


class Simple:
    """A drafter that knows nothing of the model."""

    def __init__(self, make: Callable[[], Drafter]) -> None:
        self.name, self._make = "simple", make

    def open(self, opening: Any) -> Drafter:
        return self._make()


def drafts(name: str, model: Any, prompt: str) -> Draft | None:
    given = PROMPTS[prompt]()
    if name == "nobody":
        return None
    if name == "repeats":
        return Simple(RepeatDrafter)
    if name == "lookup":
        return Simple(lambda: LookupDrafter([]))
    if name in ("copy", "another"):
        seed, layers = (0, 2) if name == "copy" else (1, 1)
        return Drafting(bed.tiny(seed, layers), given)
    frames = said(model, prompt)
    if name == "told":
        return Telling(frames)
    return Telling(frames, spoilt_in(int(name[-1])))


@contextmanager
def drawing(seed: int, places: Iterator[tuple[int, int]]) -> Iterator[None]:
    """While this is open, each draw of the library's is made by the noise of the next place."""

    def multinomial(law: Tensor, num_samples: int, **more: Any) -> Tensor:
        frame, codebook = next(places)
        noise = code_noise(seed, torch.tensor([frame]), codebook + 1, law.shape[-1])
        return (law.double().log() + noise[:, codebook]).argmax(-1, keepdim=True)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "multinomial", multinomial)
        yield


SAMPLED: dict[str, tuple[dict[str, Any], range]] = {
    "both": (
        {"do_sample": True, "temperature": 0.8, "top_k": 9, "depth_decoder_do_sample": True}
        | {"depth_decoder_temperature": 1.3, "depth_decoder_top_p": 0.9},
        range(BOOKS),
    ),
    "backbone": ({"do_sample": True, "temperature": 1.2}, range(1)),
    "depth": ({"do_sample": False, "depth_decoder_do_sample": True}, range(1, BOOKS)),
}
"""Options, and the codebooks that they have sampled."""


def sampled(name: str, seed: int) -> list[Frame]:
    """What the library says if its draws are made by the noise of a seed."""
    options, books = SAMPLED[name]
    places = iter([(frame, k) for frame in range(FRAMES) for k in books])
    with drawing(seed, places):
        rows = bed.library_rows(bed.shared(), bed.text(), max_new_tokens=FRAMES, **options)
    return rows[0]


DRAFTERS = ("nobody", "told", "wrong in 0", "wrong in 1", "wrong in 3", "copy", "another")


@pytest.mark.parametrize("prompt", PROMPTS)
def test_the_library_says_what_a_decoder_without_memory_says(prompt: str) -> None:
    slow = bed.slowly(bed.shared(), PROMPTS[prompt](), FRAMES)
    assert tuple(slow) == said(bed.shared(), prompt)


@pytest.mark.parametrize("drafter", DRAFTERS)
@pytest.mark.parametrize("prompt", PROMPTS)
def test_greedy_frames_are_the_librarys(prompt: str, drafter: str) -> None:
    model = bed.shared()
    draft = drafts(drafter, model, prompt)
    got = run(model, PROMPTS[prompt](), draft, guess=repeat_previous)
    assert tuple(got.frames) == said(model, prompt)
    assert got.finished == "length"


@pytest.mark.parametrize("drafter", ["told", "wrong in 2", "another", "repeats", "lookup"])
@pytest.mark.parametrize("gamma", GAMMAS)
def test_greedy_frames_at_every_gamma(gamma: int, drafter: str) -> None:
    model = bed.shared()
    got = run(model, bed.text(), drafts(drafter, model, "text"), gamma)
    assert tuple(got.frames) == said(model)


@pytest.mark.parametrize("books", [2, 3, 7])
@pytest.mark.parametrize("frames", [1, 2, 7])
def test_other_numbers_of_codebooks_and_frames(books: int, frames: int) -> None:
    model, given = bed.shared(books=books), bed.text()
    expected = bed.library_rows(model, given, max_new_tokens=frames)[0]
    for draft in (None, Telling(expected), Telling(expected, spoilt_in(books - 1, every=2))):
        assert run(model, given, draft, max_new_tokens=frames).frames == expected


SILENT, AUDIBLE = (0, 2.5, 10), (1, 3.0, 18)
"""(seed, eagerness, frames) of a model that ends with zeros alone, and with one last code heard."""

ending = functools.cache(bed.ending)


@pytest.mark.parametrize("case", [SILENT, AUDIBLE])
@pytest.mark.parametrize("gamma", GAMMAS)
def test_an_output_ends_by_its_frame_of_end_marks(case: tuple[int, float, int], gamma: int) -> None:
    seed, eager, length = case
    model, given = ending(seed, eager), bed.text()
    expected = bed.library_rows(model, given, max_new_tokens=40)[0]
    assert len(expected) == length
    goes_on = [*expected, *[(3,) * BOOKS] * 5]  # drafted beyond the end
    for draft in (None, Telling(goes_on), Telling(goes_on, spoilt_in(1))):
        got = run(model, given, draft, gamma, max_new_tokens=40)
        assert got.frames == expected
        assert got.finished == "stop"
        assert sum(accepted for _, accepted in got.kept) <= length


def test_nothing_is_heard_of_a_silent_end_and_all_of_an_audible_one() -> None:
    for (seed, eager, length), heard in ((SILENT, SILENT[2] - 1), (AUDIBLE, AUDIBLE[2])):
        model, given = ending(seed, eager), bed.text()
        frames = run(model, given, max_new_tokens=40).frames
        grid, ended = FAMILY.grid(FAMILY.descriptor(model), frames)
        assert (len(frames), len(grid), ended) == (length, heard, True)
        assert grids(model, bed.library(model, given, max_new_tokens=40)) == [grid]
        assert FAMILY.grid(FAMILY.descriptor(model), frames[:3])[1] is False


def test_end_marks_in_some_codebooks_end_nothing() -> None:
    steps = FAMILY.descriptor(bed.shared())
    assert [steps.stopping(frame) for frame in ((0, 0, 5, 0), (0, 5, 0, 0), (5, 0, 0, 0))] == (
        [False] * 3
    )
    model = bed.shared()
    said_ = said(model, "a conversation", 40)
    assert any(0 in frame for frame in said_)
    assert len(said_) == 40


@pytest.mark.parametrize("gamma", [1, 3, 5])
@pytest.mark.parametrize("guess", [None, repeat_previous])
def test_a_copy_is_always_right(gamma: int, guess: Guess | None) -> None:
    model, given = bed.shared(), bed.voiced()
    rounds = 3
    frames = rounds * (gamma + 1)
    draft = Drafting(bed.tiny(), given)
    got = run(model, given, draft, gamma, guess=guess, max_new_tokens=frames)
    assert got.kept == [(gamma, gamma)] * rounds
    assert got.forwards == 1 + rounds
    assert got.frames == bed.library_rows(model, given, max_new_tokens=frames)[0]
    assert got.stats.by_drafter["model"][0] == draft.opened.forwards


def test_a_drafting_model_is_opened_by_its_kind() -> None:
    model, given = bed.shared(), bed.voiced()
    checkpoint = SpeechCheckpoint.of(model, packed=False, family=FAMILY)
    draft = model_draft(checkpoint, bed.tiny(), "small")
    got = run(model, given, draft, 3)
    assert got.kept == [(3, 3)] * 3
    # Its prompt, two frames behind the first one, then three passes a round.
    assert got.stats.by_drafter == {"small": (1 + 2 + 3 + 3, "own")}
    with pytest.raises(ModelError, match="the drafter 3 codebooks"):
        model_draft(checkpoint, bed.shared(books=3), "small")


def test_layers_may_run_packed() -> None:
    model, given = bed.shared(), bed.text()
    assert tuple(run(model, given, packed=True).frames) == said(model)
    draft = Telling(said(model), spoilt_in(1))
    assert tuple(run(model, given, draft, packed=True).frames) == said(model)


class Heads:
    """Heads on the backbone's state, drawn at random."""

    name = "heads"

    def open(self, opening: Any) -> Drafter:
        weight = torch.randn(3, BOOKS, VOCAB, bed.WIDTH, generator=torch.Generator().manual_seed(0))
        return HeadsDrafter(opening.target, lambda state: weight @ state, 3)


@pytest.mark.parametrize("options", [{}, SAMPLED["both"][0]])
def test_heads_for_coming_frames_cost_no_code(options: dict[str, Any]) -> None:
    model, given = bed.shared(), bed.text()
    got = run(model, given, Heads(), 3, seed=3 if options else None, **options)
    assert got.frames == (sampled("both", 3) if options else list(said(model)))
    assert max(drafted for drafted, _ in got.kept) == 3


def test_depth_passes_are_counted_apart() -> None:
    model, given, frames = bed.shared(), bed.text(), 12
    plain = run(model, given, max_new_tokens=frames)
    assert (plain.forwards, plain.depth_passes) == (frames, frames * (BOOKS - 1))
    # A round of three right drafts: one pass for their laws, one per code of the frame behind.
    told = run(model, given, Telling(said(model)), 3, max_new_tokens=frames)
    assert (told.forwards, told.depth_passes) == (4, 3 * (1 + BOOKS - 1))
    draft = Drafting(bed.tiny(), given)
    run(model, given, draft, 3, max_new_tokens=frames)
    assert draft.opened.depth.passes == 9 * (BOOKS - 1)


def test_a_code_wrong_in_the_last_codebook_takes_no_more_depth_passes() -> None:
    # All laws of the rejected frame are known from the pass that judged it.
    model, given = bed.shared(), bed.text()
    draft = Telling(said(model), spoilt_in(BOOKS - 1, every=1))
    got = run(model, given, draft, 1)
    drafted = sum(count for count, _ in got.kept)
    assert drafted == FRAMES - 1
    assert all(accepted == 0 for _, accepted in got.kept)
    assert got.depth_passes == drafted + (BOOKS - 1)  # the last frame isn't drafted


def test_guesses_save_depth_passes_in_silence() -> None:
    model, given = bed.tiny(5), bed.text()
    with (
        torch.no_grad()
    ):  # all codes are about as likely whatever was said: one frame over and over
        for part in (model.backbone_model, model.depth_decoder.model):
            for layer in part.layers:
                layer.self_attn.o_proj.weight.zero_()
                layer.mlp.down_proj.weight.zero_()
            part.embed_tokens.weight.zero_() if part is not model.backbone_model else None
        model.backbone_model.embed_tokens.embed_audio_tokens.weight[:] = 1.0
    plain, guessed = run(model, given), run(model, given, guess=repeat_previous)
    assert (
        guessed.frames == plain.frames == bed.library_rows(model, given, max_new_tokens=FRAMES)[0]
    )
    assert len(set(plain.frames[1:])) == 1
    assert guessed.depth_passes <= 2 * (BOOKS - 1) + FRAMES - 2 < plain.depth_passes


def test_blocks_are_scored_as_one_by_one_and_rolled_back() -> None:
    model, given = bed.shared(), bed.voiced()
    frames = list(said(model, "a voice"))
    with opened(model, given) as (target, first, _):
        assert first.shape == (1, 1, VOCAB)
        held = [target.state.growing(layer).keys.data_ptr() for layer in range(2)]
        block = target.score(frames[:5], keep=5)
        assert block.shape == (5, 1, VOCAB)
        assert target.hidden.shape == (5, bed.WIDTH)
        assert target.states.shape == (6, bed.WIDTH)
        assert target.behind == [None, *frames[:5]]
        assert target.state.length == 5
        target.state.rollback(0)
        target.state.poison_unused()
        target.score([frames[7]], keep=1)
        target.state.rollback(0)
        target.state.poison_unused()
        singly = torch.cat([target.score([frame], keep=1) for frame in frames[:5]])
        torch.testing.assert_close(block, singly, atol=1e-5, rtol=0)
        for count, row in enumerate([first[0], *block]):
            expected = with_no_memory(model, given, frames[:count])
            torch.testing.assert_close(row[0], expected, atol=1e-5, rtol=0)
        assert held == [target.state.growing(layer).keys.data_ptr() for layer in range(2)]


@torch.no_grad()
def with_no_memory(model: Any, given: dict[str, Tensor], frames: Sequence[Frame]) -> Tensor:
    """The library's distribution behind a prompt and some frames, everything read anew."""
    ends = given.get("input_values_cutoffs")
    line = model._merge_input_ids_with_input_values(
        given["input_ids"], given.get("input_values"), ends
    )["inputs_embeds"]
    if frames:
        read = model.backbone_model.embed_tokens(torch.tensor([list(frames)]))
        line = torch.cat([line, read], dim=1)
    states = model.backbone_model(inputs_embeds=line, use_cache=False).last_hidden_state
    return model.lm_head(states[0, -1]).float()


def test_the_prompt_is_frozen_and_read_once() -> None:
    model, given = bed.shared(), bed.voiced()
    heard: list[Any] = []
    hook = model.codec_model.encoder.register_forward_hook(lambda *_: heard.append(1))
    try:
        got = run(model, given, Telling(said(model, "a voice")))
    finally:
        hook.remove()
    assert len(heard) == 1
    assert got.forwards == 4
    with opened(model, given) as (target, _, _):
        before = given["input_ids"].shape[1]
        prompt = target.state.growing(0).keys[:, :, :before].clone()
        target.score(list(said(model, "a voice")), keep=1)
        torch.testing.assert_close(target.state.growing(0).keys[:, :, :before], prompt)
        with pytest.raises(StateError, match="frozen"):
            target.state.rollback(-1)


def test_a_round_that_fails_changes_nothing() -> None:
    model, given, frames = bed.shared(), bed.text(), said(bed.shared())
    with opened(model, given) as (target, _, _):
        law = target.depth.rest(0, frames[0][:2])
        mark = target.state.mark()
        target.score(list(frames[:3]), keep=3)
        target.depth.teach(list(frames[:3]))
        target.state.restore(mark)
        again = target.depth.rest(0, frames[0][:2])
        torch.testing.assert_close(again, law, atol=1e-6, rtol=0)


def test_a_prompt_of_frames_is_gone_on_from() -> None:
    model = bed.shared()
    given = {"input_ids": torch.tensor([said(model)[:5]])}
    expected = bed.library_rows(model, given, max_new_tokens=6)[0]
    assert len(expected) == 11
    for draft in (None, Telling(expected), Telling(expected, spoilt_in(1))):
        assert run(model, given, draft, max_new_tokens=6).frames == expected
    assert run(model, given, max_new_tokens=None, max_length=8).frames == expected[:8]


def test_a_prompt_of_embeddings() -> None:
    model = bed.shared()
    with torch.no_grad():
        given = {"inputs_embeds": model.embed_text_tokens(bed.text()["input_ids"])}
    limits: dict[str, Any]
    for limits in ({"max_new_tokens": 6}, {"max_new_tokens": None, "max_length": 14}):
        expected = bed.library_rows(model, given, **limits)[0]
        assert run(model, given, Telling(expected), **limits).frames == expected
    assert tuple(expected) == said(model)[: len(expected)]


@pytest.mark.parametrize("longest", [10, 13, 40])
def test_a_limit_counts_the_text(longest: int) -> None:
    model, given = bed.shared(), bed.text()
    limits: dict[str, Any] = {"max_new_tokens": None, "max_length": longest}
    expected = bed.library_rows(model, given, **limits)[0]
    assert len(expected) == longest - 9
    assert run(model, given, Telling(expected), **limits).frames == expected


BATCHES: dict[str, Callable[[], list[dict[str, Tensor]]]] = {
    "texts": lambda: [bed.text(9), bed.text(4, 1), bed.text(13, 2)],
    "voices": lambda: [bed.voiced(), bed.voiced((3, 5), 1)],
    "a voice and a text": lambda: [bed.voiced(), bed.text(6, 3)],
}


@pytest.mark.parametrize("name", BATCHES)
def test_rows_of_a_batch_are_the_librarys(name: str) -> None:
    model, rows = bed.shared(), BATCHES[name]()
    whole = bed.batch(rows)
    expected = bed.library_rows(model, whole, max_new_tokens=8)
    parts = split(whole)
    assert len(parts) == len(rows)
    for given, frames in zip(parts, expected, strict=True):
        for draft in (None, Telling(frames), Telling(frames, spoilt_in(2))):
            assert run(model, given, draft, max_new_tokens=8).frames == frames


def test_rows_end_one_by_one_and_the_rest_of_a_row_is_no_output() -> None:
    model = ending(SILENT[0], SILENT[1])
    whole = bed.batch([bed.text(), bed.text(7, 5)])
    sequences = bed.library(model, whole, max_new_tokens=14)
    assert sequences.shape[1] == 14
    expected = bed.library_rows(model, whole, max_new_tokens=14)
    assert sorted(map(len, expected)) == [10, 14]
    found = [run(model, given, max_new_tokens=14).frames for given in split(whole)]
    assert found == expected
    assert [len(grid) for grid in grids(model, sequences)] == [
        len(FAMILY.grid(FAMILY.descriptor(model), frames)[0]) for frames in found
    ]


def test_padding_that_the_library_finds_by_itself_is_left_out() -> None:
    # Without a mask, `generate` takes the padding id for padding wherever it stands.
    model = bed.shared()
    ids = bed.text()["input_ids"]
    ids[0, 3] = ids[0, 5] = model.config.pad_token_id
    given = {"input_ids": ids}
    expected = bed.library_rows(model, given, max_new_tokens=8)[0]
    masked = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    assert expected != bed.library_rows(model, masked, max_new_tokens=8)[0]
    assert run(model, given, Telling(expected), max_new_tokens=8).frames == expected
    assert run(model, masked, max_new_tokens=8).frames != expected


DEPTH_OPTIONS: dict[str, dict[str, Any]] = {
    "repetition": {"depth_decoder_repetition_penalty": 1.8},
    "no repeats": {"depth_decoder_no_repeat_ngram_size": 1},
    "left out": {"depth_decoder_suppress_tokens": [3, 14]},
    "both left out": {"suppress_tokens": [11], "depth_decoder_suppress_tokens": [9]},
    "an end of its own": {"depth_decoder_eos_token_id": 9},
}


@pytest.mark.parametrize("name", DEPTH_OPTIONS)
@pytest.mark.parametrize("guess", [None, repeat_previous])
def test_the_depth_decoder_keeps_its_own_settings(name: str, guess: Guess | None) -> None:
    model, given, options = bed.shared(), bed.text(), DEPTH_OPTIONS[name]
    expected = bed.library_rows(model, given, max_new_tokens=FRAMES, **options)[0]
    assert tuple(expected) != said(model)
    for draft in (None, Telling(expected), Telling(expected, spoilt_in(1))):
        got = run(model, given, draft, guess=guess, **options)
        assert got.frames == expected


def test_the_model_is_not_written_to() -> None:
    model = bed.tiny(2)
    before = [part.generation_config.to_dict() for part in (model, model.depth_decoder)]
    run(model, bed.text(), depth_decoder_repetition_penalty=1.8, suppress_tokens=[4])
    after = [part.generation_config.to_dict() for part in (model, model.depth_decoder)]
    assert after == before
    assert type(model).__name__ == "CsmForConditionalGeneration"


class Spy(LogitsProcessor):
    """Notes the ids that it is shown, and makes codes depend on them."""

    def __init__(self) -> None:
        self.shown: list[Tensor] = []

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        self.shown.append(input_ids.clone())
        shift = int(input_ids.sum()) % 5
        return scores.roll(shift, dims=-1)


def test_processors_of_the_users_are_shown_what_the_library_shows_them() -> None:
    model, given = bed.shared(), bed.text()
    theirs = Spy()
    expected = bed.library_rows(
        model, given, max_new_tokens=6, logits_processor=LogitsProcessorList([theirs])
    )[0]
    assert [ids.ndim for ids in theirs.shown[:2]] == [2, 3]
    for draft, gamma in ((None, 0), (Telling(expected), 2), (Telling(expected, spoilt_in(0)), 2)):
        ours = Spy()
        processors = LogitsProcessorList([ours])
        got = run(model, given, draft, gamma, max_new_tokens=6, logits_processor=processors)
        assert got.frames == expected
        if draft is None:
            assert all(map(torch.equal, ours.shown, theirs.shown))
            assert len(ours.shown) == len(theirs.shown)


@pytest.mark.parametrize(
    "drafter", ["nobody", "told", "wrong in 1", "copy", "another", "repeats", "lookup"]
)
@pytest.mark.parametrize("name", SAMPLED)
def test_seeded_frames_are_the_librarys_under_the_same_noise(name: str, drafter: str) -> None:
    model, options = bed.shared(), SAMPLED[name][0]
    for seed, gamma, guess in ((3, 2, None), (4, 60, repeat_previous)):
        expected = sampled(name, seed)
        draft = drafts(drafter, model, "text")
        if isinstance(draft, Telling):
            draft = Telling(expected, draft.spoil)
        got = run(model, bed.text(), draft, gamma, guess=guess, seed=seed, **options)
        assert got.frames == expected


def test_seeds_differ() -> None:
    for name in SAMPLED:
        assert sampled(name, 3) != sampled(name, 4)


@pytest.mark.parametrize("rule", ["token", "frame", "block"])
@pytest.mark.parametrize("name", SAMPLED)
def test_a_copy_that_samples_is_always_kept(name: str, rule: str) -> None:
    torch.manual_seed(0)
    model, given = bed.shared(), bed.text()
    draft = Drafting(bed.tiny(), given)
    got = run(model, given, draft, 3, rule=rule, **SAMPLED[name][0])
    assert got.kept == [(3, 3)] * 3


@pytest.mark.parametrize("rule", ["token", "frame", "block"])
def test_another_model_that_samples_drafts_with_its_own_laws(rule: str) -> None:
    torch.manual_seed(1)
    model, given, options = bed.shared(), bed.text(), SAMPLED["both"][0]
    seen: list[Any] = []

    class Watched(Drafting):
        def open(self, opening: Any) -> Drafter:
            drafter: Any = super().open(opening)
            propose = drafter.propose

            def noted(*args: Any) -> Any:
                made = propose(*args)
                begun = [made.draft_rest(at, frame[:1]) for at, frame in enumerate(made.ids)]
                other = [made.draft_rest(at, (5, 6)) for at in range(len(made.ids))]
                seen.append((made, begun, other))
                return made

            drafter.propose = noted
            return drafter

    draft = Watched(bed.tiny(1, 1), given)
    got = run(model, given, draft, 2, rule=rule, **options)
    assert len(got.frames) == FRAMES
    prepared = prepare(model, given, max_new_tokens=FRAMES, **options)
    at = 0
    for (made, begun, other), (drafted, accepted) in zip(seen, got.kept, strict=False):
        before = got.frames[:at]
        for place, frame in enumerate(made.ids):
            line = [*before, *made.ids[:place]]
            laws = own_laws(bed.tiny(1, 1), given, line, prepared)
            for known in range(BOOKS):
                expected = laws(frame[:known])
                torch.testing.assert_close(
                    made.draft_probs[place, known], expected, atol=1e-5, rtol=0
                )
            torch.testing.assert_close(begun[place], laws(frame[:1]), atol=1e-5, rtol=0)
            torch.testing.assert_close(other[place], laws((5, 6)), atol=1e-5, rtol=0)
        assert drafted == len(made.ids)
        at += accepted + 1


def own_laws(
    model: Any, given: dict[str, Tensor], frames: Sequence[Frame], prepared: Any
) -> Callable[[Frame], Tensor]:
    """A model's own laws inside the frame behind some others, under a request's processors."""

    @torch.no_grad()
    def law(codes: Frame) -> Tensor:
        line = model.embed_text_tokens(given["input_ids"])
        if frames:
            read = model.backbone_model.embed_tokens(torch.tensor([list(frames)]))
            line = torch.cat([line, read], dim=1)
        state = model.backbone_model(inputs_embeds=line, use_cache=False).last_hidden_state[:, -1]
        if not codes:
            row = prepared.processors(None, model.lm_head(state))
        else:
            ids = torch.tensor([[0, *codes]])
            made = model.depth_decoder(ids, backbone_last_hidden_state=state, use_cache=False)
            row = prepared.depth.processors(ids, made.logits[:, -1])
        return row[0].double().softmax(-1)

    return law


def test_a_drafter_that_breaks_down_is_let_go() -> None:
    class Broken(Telling):
        def open(self, opening: Any) -> Drafter:
            drafter: Any = super().open(opening)
            drafter.propose = lambda *_: 1 / 0
            return drafter

    with pytest.raises(AssertionError, match="dismissed: ZeroDivisionError"):
        run(bed.shared(), bed.text(), Broken(said(bed.shared())))


def test_a_drafter_that_says_no_numbers_is_let_go() -> None:
    broken = bed.tiny(1, 1)
    with torch.no_grad():
        broken.lm_head.weight.fill_(torch.nan)
    with pytest.raises(AssertionError, match="logits are NaN"):
        run(bed.shared(), bed.text(), Drafting(broken, bed.text()))


def test_ids_that_are_no_codes_are_never_clipped() -> None:
    model = bed.tiny(0)
    with torch.no_grad():
        model.depth_decoder.codebooks_head.weight[1, :, 17] = (
            3 * model.depth_decoder.codebooks_head.weight[1, :, 3]
        )
    got = run(model, bed.text())
    assert any(frame[2] == 17 for frame in got.frames)
    with pytest.raises(InputError, match=r"codebook 2: 17 is no code of this place"):
        FAMILY.grid(FAMILY.descriptor(model), got.frames)
    with pytest.raises(InputError, match=r"codebook 2: 17 is no code of this place"):
        grids(model, torch.tensor([got.frames]))


def changed(**entries: Any) -> Any:
    """A model whose configuration contradicts itself."""
    model = bed.tiny()
    for path, value in entries.items():
        *parts, name = path.split("__")
        config = model.config
        for part in parts:
            config = getattr(config, part)
        setattr(config, name, value)
    return model


CONTRADICTIONS: dict[str, dict[str, Any]] = {
    "the backbone has num_codebooks 4, its depth decoder 5": {
        "depth_decoder_config__num_codebooks": 5
    },
    "the backbone has vocab_size 19, its depth decoder 20": {
        "depth_decoder_config__vocab_size": 20
    },
    "the backbone is 32 wide, its depth decoder reads states of 16": {
        "depth_decoder_config__backbone_hidden_size": 16
    },
    "the model says 4 codebooks, its codec hears 3": {"codec_config__num_quantizers": 3},
    "the codec has 32 codes in a codebook, the model 19 ids": {"codec_config__codebook_size": 32},
    "expected one id, for all codebooks": {"codebook_eos_token_id": [0, 1]},
    "a CSM of one codebook has no end": {"num_codebooks": 1},
}


@pytest.mark.parametrize("message", CONTRADICTIONS)
def test_a_model_that_contradicts_itself_is_refused(message: str) -> None:
    with pytest.raises(ModelError, match=message):
        check(changed(**CONTRADICTIONS[message]))


def test_the_descriptor_is_a_chain_of_the_models_codebooks() -> None:
    steps = FAMILY.descriptor(bed.shared())
    assert isinstance(steps, DepthFrames)
    assert (len(steps.codebooks), steps.stops) == (BOOKS, (0, 1, 2))
    book = steps.codebooks[0]
    assert (book.vocab_size, book.codes, book.end, book.pad) == (VOCAB, bed.CODES, 0, bed.PAD)
    steps.check_axis("codebook")


REFUSED: dict[str, tuple[type[Exception], dict[str, Any]]] = {
    "forgets its text": (OptionError, {"use_cache": False}),
    "of the depth decoder: beam search": (OptionError, {"depth_decoder_num_beams": 2}),
    "depth_decoder_pad_token_id=3 would hide that code": (
        OptionError,
        {"depth_decoder_pad_token_id": 3},
    ),
    "not supported for CSM": (ValueError, {"num_beams": 2}),
    "must be equal to self.config.num_codebooks": (
        ValueError,
        {"depth_decoder_max_new_tokens": 2},
    ),
    "max_new_tokens": (ValueError, {"max_new_tokens": 0}),
}


@pytest.mark.parametrize("message", REFUSED)
def test_options_that_cannot_be_kept_are_refused(message: str) -> None:
    kind, options = REFUSED[message]
    with pytest.raises(kind, match=message):
        prepare(bed.shared(), bed.text(), **{"max_new_tokens": 3, **options})


def test_inputs_that_cannot_be_read_are_refused() -> None:
    model, voiced = bed.shared(), bed.voiced()
    empty = {"input_ids": torch.zeros(1, 0, dtype=torch.long)}
    for given, message in (
        ({}, "no text to speak"),
        (empty, "no text to speak"),
        (bed.batch([bed.text(), bed.text(4)]), "2 rows: CSM's rows are prepared one by one"),
        (bed.text(128), "a prompt of 128 positions leaves no room for a frame"),
        ({**bed.text(), "input_values": voiced["input_values"]}, "where each ends"),
    ):
        with pytest.raises(InputError, match=message):
            prepare(model, given, max_new_tokens=3)
    with pytest.raises(InputError, match="2 rows: CSM's rows are prepared one by one"):
        prepare(model, bed.text(), max_new_tokens=3, do_sample=True, num_return_sequences=2)
    with pytest.raises(InputError, match="unequal rows"):
        split({**bed.text(), "input_values": torch.zeros(2, 1, 8)})


def test_a_drafter_with_other_frames_is_refused() -> None:
    with pytest.raises(ModelError, match="the drafter 3 codebooks of 16 codes"):
        FAMILY.check_drafter(bed.shared(), bed.shared(books=3))
    FAMILY.check_drafter(bed.shared(), bed.shared(1, 1))


def test_a_text_becomes_what_the_librarys_processor_makes_of_it() -> None:
    model = bed.shared()
    checkpoint = SpeechCheckpoint.of(model, bed.processor(), packed=False, family=FAMILY)
    plain, first, second = (
        FAMILY.text_inputs(checkpoint, text) for text in ("so be it", "[0]so be it", "[1]so be it")
    )
    assert plain["input_ids"].tolist() == first["input_ids"].tolist()
    assert plain["input_ids"].shape == (1, 11)
    assert (plain["input_ids"] != second["input_ids"]).sum() == 1
    assert run(model, plain).frames == bed.library_rows(model, plain, max_new_tokens=FRAMES)[0]
    assert FAMILY.codec(checkpoint) is model.codec_model


@pytest.mark.parametrize(
    ("text", "message"), [("  ", "empty"), ("so <|AUDIO|> be it", "no audio were provided")]
)
def test_a_text_that_cannot_be_said_is_refused(text: str, message: str) -> None:
    checkpoint = SpeechCheckpoint.of(bed.shared(), bed.processor(), packed=False, family=FAMILY)
    with pytest.raises(InputError, match=f"(?i){message}"):
        FAMILY.text_inputs(checkpoint, text)


def test_a_first_guess_of_a_drafters_cost_counts_its_depth_decoder_per_code() -> None:
    two, one = (FAMILY.step_size(bed.shared(0, layers)) for layers in (2, 1))
    layer = sum(w.numel() for w in bed.shared().backbone_model.layers[0].parameters())
    assert two - one == layer
    inside = sum(w.numel() for w in bed.shared().depth_decoder.model.layers.parameters())
    assert one - layer == (BOOKS - 1) * inside


def test_without_its_text_only_marks_and_recordings_are_left() -> None:
    model = bed.shared()
    for given, kept in ((bed.text(9), [0, 8]), (bed.voiced(), [0, *range(4, 11), 14])):
        prepared = prepare(model, given, max_new_tokens=8)
        dropped = FAMILY.without_text(prepared)
        ids = given["input_ids"][:, kept]
        assert dropped.input_ids.tolist() == ids.tolist()
        bare = {**given, "input_ids": ids, "attention_mask": torch.ones_like(ids)}
        rows = []
        for request in (prepared, dropped, prepare(model, bare, max_new_tokens=8)):
            target = FAMILY.open(request, packed=False)
            rows.append(target.read_prompt())
            target.close()
        torch.testing.assert_close(rows[1], rows[2], atol=0, rtol=0)
        assert not torch.allclose(rows[0], rows[1])
    frames = {"input_ids": torch.tensor([said(model)[:5]])}
    with pytest.raises(OptionError, match="no text that could be dropped"):
        FAMILY.without_text(prepare(model, frames, max_new_tokens=8))


def test_an_output_may_be_read_again_in_blocks() -> None:
    model, given, frames = bed.shared(), bed.text(), list(said(bed.shared()))
    with opened(model, given) as (target, _, _):
        target.score(frames, keep=len(frames))
        whole = target.depth.teach(frames)
        target.state.rollback(0)
        parts = []
        for block in (frames[:5], frames[5:8], frames[8:]):
            target.score(block, keep=len(block))
            parts.append(target.depth.teach(block))
        torch.testing.assert_close(torch.cat(parts), whole, atol=1e-5, rtol=0)


def test_codes_are_alike_as_the_backbone_reads_them() -> None:
    model = bed.shared()
    tables = FAMILY.code_embeddings(model)
    assert [table.shape for table in tables] == [(VOCAB, bed.WIDTH)] * BOOKS
    frame = torch.tensor([[[3, 1, 4, 1]]])
    read = model.backbone_model.embed_tokens(frame)[0, 0]
    torch.testing.assert_close(sum(t[c] for t, c in zip(tables, (3, 1, 4, 1), strict=True)), read)


def test_ours_is_what_the_codec_makes_sound_of() -> None:
    model, given = ending(SILENT[0], SILENT[1]), bed.text()
    grid, _ = FAMILY.grid(FAMILY.descriptor(model), run(model, given, max_new_tokens=40).frames)
    with torch.no_grad():
        codes = torch.tensor(grid).t()[None]
        ours = model.codec_model.decode(codes).audio_values[0, 0]
        theirs = bed.library(model, given, max_new_tokens=40, output_audio=True)[0]
    torch.testing.assert_close(ours, theirs, atol=0, rtol=0)

"""MusicGen Melody: codes behind a prefix of melody and text, against the library's own."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from mmspec.errors import InputError, ModelError, OptionError, StateError
from mmspec.modalities.base.speculative_decoder import Draft
from mmspec.modalities.speech.checkpoint import SpeechCheckpoint
from mmspec.modalities.speech.delay_pattern import RowsTarget
from mmspec.modalities.speech.draft import LookupDraft, ModelDraft, RepeatDraft
from mmspec.modalities.speech.musicgen_melody import FAMILY
from mmspec.modalities.speech.preparation import prepare
from mmspec.modalities.speech.state import BehindConditioning

from .bed_musicgen import (
    CHROMA,
    CHROMA_LENGTH,
    CODES,
    late,
    prompt_codes,
    text,
    tiny_melody,
    tiny_melody_decoder,
)
from .delayed_runs import GAMMAS, Run, Telling, run
from .test_musicgen import keyed_library

GUIDED = (None, 3.0)
ROWS = 14
MODELS: dict[str, Callable[[], Any]] = {
    "mono": tiny_melody,
    "stereo": lambda: tiny_melody(codebooks=4, channels=2, text_width=16),
}
MELODIES = {"none": 0, "short": 2, "long": 9}
"""Frames of chroma; the prefix has room for 5."""

model_of = functools.cache(lambda name: MODELS[name]())
twin_of = functools.cache(lambda name: MODELS[name]())


def given(melody: str = "none", prompt: int = 0) -> dict[str, Tensor]:
    inputs = text()
    if frames := MELODIES[melody]:
        pitches = torch.arange(frames) % CHROMA
        inputs["input_features"] = torch.nn.functional.one_hot(pitches, CHROMA).float()[None]
    return inputs | ({"decoder_input_ids": prompt_codes(prompt)} if prompt else {})


def options(scale: float | None, rows: int = ROWS) -> dict[str, Any]:
    return {"max_new_tokens": rows, "do_sample": False, "guidance_scale": scale}


@functools.cache
def library(name: str, melody: str, scale: float | None, prompt: int = 0) -> Any:
    return FAMILY.library_codes(model_of(name), given(melody, prompt), **options(scale))


def says(
    name: str = "mono",
    melody: str = "none",
    scale: float | None = None,
    draft: Draft | None = None,
    gamma: int = 4,
    prompt: int = 0,
    **more: Any,
) -> Run:
    asked = {**options(scale), **more}
    return run(FAMILY, model_of(name), given(melody, prompt), draft, gamma, **asked)


def drafted_by(drafter: Any, name: str = "mono") -> ModelDraft:
    return ModelDraft(SpeechCheckpoint.of(model_of(name), packed=False, family=FAMILY), drafter)


@pytest.mark.parametrize("gamma", GAMMAS)
@pytest.mark.parametrize("scale", GUIDED)
@pytest.mark.parametrize("melody", MELODIES)
@pytest.mark.parametrize("name", MODELS)
def test_greedy_codes_are_the_librarys(
    name: str, melody: str, scale: float | None, gamma: int
) -> None:
    expected = library(name, melody, scale)
    plain = says(name, melody, scale)
    assert plain.said.grid == expected
    assert plain.stats.finish_reason == "length"
    for draft in (Telling(plain.rows), Telling(plain.rows, late)):
        assert says(name, melody, scale, draft, gamma).said.grid == expected


@pytest.mark.parametrize("gamma", GAMMAS)
@pytest.mark.parametrize("scale", GUIDED)
@pytest.mark.parametrize("rows", [6, 7, 9, 13])
def test_odd_lengths(rows: int, scale: float | None, gamma: int) -> None:
    asked = options(scale, rows)
    expected = FAMILY.library_codes(model_of("mono"), given("short"), **asked)
    assert len(expected) == rows - 3
    plain = says("mono", "short", scale, max_new_tokens=rows)
    assert plain.said.grid == expected
    draft = Telling(plain.rows, late)
    drafted = says("mono", "short", scale, draft, gamma, max_new_tokens=rows)
    assert drafted.rows == plain.rows


@pytest.mark.parametrize("scale", GUIDED)
def test_seeded_codes_are_the_librarys_with_the_same_noise(scale: float | None) -> None:
    asked = {**options(scale), "do_sample": True, "temperature": 0.8, "top_k": 9}
    with keyed_library(11):
        expected = FAMILY.library_codes(model_of("mono"), given("short"), **asked)
    plain = says("mono", "short", scale, seed=11, **asked)
    assert plain.said.grid == expected != library("mono", "short", scale)
    kinds = (Telling(plain.rows), Telling(plain.rows, late), LookupDraft(), RepeatDraft())
    for draft in (*kinds, drafted_by(twin_of("mono")), drafted_by(tiny_melody(9, layers=1))):
        assert says("mono", "short", scale, draft, 3, seed=11, **asked).rows == plain.rows


def test_melodies_and_texts_are_heard() -> None:
    said = {melody: library("mono", melody, None) for melody in MELODIES}
    assert len(set(said.values())) == len(MELODIES)


def test_without_its_text_a_melody_is_left() -> None:
    prepared = prepare(model_of("mono"), given("short"), **options(3.0))
    dropped = FAMILY.without_text(prepared).inputs["encoder_hidden_states"]
    whole = prepared.inputs["encoder_hidden_states"]
    assert torch.equal(dropped[:, :CHROMA_LENGTH], whole[:, :CHROMA_LENGTH])
    assert (dropped[:, CHROMA_LENGTH:] == 0).all()
    assert (whole[1, CHROMA_LENGTH:] == 0).all()  # so guidance drops it
    assert whole[0, CHROMA_LENGTH:].all()


@pytest.mark.parametrize("scale", GUIDED)
@pytest.mark.parametrize("drafter", ["copy", "other", "decoder"])
def test_no_drafter_changes_a_code(drafter: str, scale: float | None) -> None:
    made: dict[str, Callable[[], Any]] = {
        "copy": lambda: twin_of("mono"),
        "other": lambda: tiny_melody(9, width=24, layers=1),
        "decoder": lambda: tiny_melody_decoder(3),
    }
    draft = drafted_by(made[drafter]())
    for seed in (None, 5):
        how = {"do_sample": seed is not None, "seed": seed}
        plain = says("mono", "short", scale, **how)
        for gamma in (1, 3, 60):
            assert says("mono", "short", scale, draft, gamma, **how).rows == plain.rows


@pytest.mark.parametrize("scale", GUIDED)
@pytest.mark.parametrize("name", MODELS)
def test_a_copy_is_always_right(name: str, scale: float | None) -> None:
    copied = says(name, "long", scale, drafted_by(twin_of(name), name), gamma=6)
    tally = copied.stats.tally
    assert tally.accepted == tally.proposed
    assert [len(done.emitted) for done in tally.trace] == [7, 7]
    assert copied.forwards == 1 + 2


@pytest.mark.parametrize("scale", GUIDED)
def test_a_prompts_codes_stand_behind_the_prefix(scale: float | None) -> None:
    expected = library("mono", "short", scale, prompt=4)
    plain = says("mono", "short", scale, prompt=4)
    assert plain.said.grid == expected
    assert [list(frame) for frame in expected[:4]] == prompt_codes(4).t().tolist()
    assert says("mono", "short", scale, Telling(plain.rows), 3, prompt=4).said.grid == expected


# Blocks, states and conditioning.


def opened(scale: float | None = None) -> RowsTarget:
    prepared = prepare(model_of("mono"), given("short"), **options(scale))
    return FAMILY.open(prepared, packed=False)


@pytest.mark.parametrize("scale", GUIDED)
def test_a_block_is_scored_as_rows_one_by_one_and_rolls_back(scale: float | None) -> None:
    target = opened(scale)
    rows = says("mono", "short", scale).rows
    prepared = prepare(model_of("mono"), given("short"), **options(scale))
    block = torch.tensor(rows[:7]).t()
    with torch.no_grad():
        made = model_of("mono")(
            decoder_input_ids=block.repeat(2, 1) if scale else block,
            encoder_hidden_states=prepared.inputs["encoder_hidden_states"],
            use_cache=False,
        )
    expected = made.logits[:, -7:].transpose(0, 1)
    first = target.read_prompt()
    assert (target.state.length, target.state.frozen, target.hidden_from) == (1, 1, 0)
    scored = target.score(rows[1:5], 4)
    target.state.rollback(3)
    target.state.poison_unused()
    own = torch.cat([first, scored[:2], target.score(rows[3:7], 4)])
    torch.testing.assert_close(own[..., :CODES], expected, atol=1e-5, rtol=1e-5)
    assert (target.hidden_from, len(target.hidden)) == (3, 4)


def test_the_prefix_is_written_once() -> None:
    target = opened()
    target.read_prompt()
    state = target.state
    length = CHROMA_LENGTH + 3  # of text
    memory = state.growing(0)
    place, prefix = memory.keys.data_ptr(), memory.keys[:, :, :length].clone()
    target.score([(1, CODES, CODES, CODES)], 1)
    state.rollback(1)
    assert memory.keys.data_ptr() == place
    assert torch.equal(memory.keys[:, :, :length], prefix)
    assert memory.keys.shape[2] == length + 1 + ROWS
    with pytest.raises(StateError, match="can't roll back to position 0"):
        state.rollback(0)
    target.close()


def test_memory_with_conditioning_in_front_is_lent_to_nobody() -> None:
    state = BehindConditioning(1, 8, before=3, cross_attention=False)
    with state.block(4):
        pass
    assert (state.length, state.before) == (1, 3)
    with pytest.raises(StateError, match="3 positions of conditioning in front can't be lent"):
        state.lend(1)
    with pytest.raises(StateError, match="can't be opened a second time"):
        state.fork()
    with pytest.raises(StateError, match="can't be asked for a path"):
        state.keep_path(1, ())
    with pytest.raises(StateError, match="a block of 8 positions doesn't fit"), state.block(8):
        pass


# Drafters and their conditioning.


@pytest.mark.parametrize(
    ("drafter", "runs"),
    [
        (lambda: tiny_melody_decoder(3), 0),
        (tiny_melody, 0),
        (lambda: tiny_melody(9), 1),
    ],
    ids=["decoder", "same prefix", "own prefix"],
)
def test_a_text_is_encoded_once_per_text_and_model(drafter: Callable[[], Any], runs: int) -> None:
    draft = drafted_by(drafter())
    ran: list[int] = []
    both = (draft.target.model, draft.drafter)
    encoders = [model.text_encoder for model in both if hasattr(model, "text_encoder")]
    hooks = [part.register_forward_hook(lambda *_: ran.append(1)) for part in encoders]
    says("mono", "short", 3.0, draft, 3)
    for hook in hooks:
        hook.remove()
    assert len(ran) == 1 + runs


def test_prefixes_are_the_same_where_all_that_makes_them_is() -> None:
    model = model_of("mono")
    assert FAMILY.shares_encoder(model, twin_of("mono"))
    changed = tiny_melody()
    with torch.no_grad():
        changed.audio_enc_to_dec_proj.bias += 1
    assert not FAMILY.shares_encoder(model, changed)
    assert not FAMILY.shares_encoder(model, tiny_melody(text_width=16))


# Bad input.


def test_rows_behind_the_last_position_are_refused() -> None:
    with pytest.raises(OptionError, match=r"58 rows don't fit: .* 64 positions, 8 of them taken"):
        says(max_new_tokens=57)
    assert len(says(max_new_tokens=56).rows) == 57


def test_two_texts_at_once_are_refused() -> None:
    two = {name: value.repeat(2, 1) for name, value in text().items()}
    with pytest.raises(InputError, match="2 requests at once"):
        run(FAMILY, model_of("mono"), two, **options(None))


def test_a_decoder_of_another_width_is_refused() -> None:
    prepared = prepare(model_of("mono"), given(), **options(None))
    with pytest.raises(ModelError, match="reads a prefix 24 wide, the target's is 16 wide"):
        FAMILY.open_drafter(prepared, tiny_melody_decoder(width=24))


def test_a_drafter_with_an_encoder_of_its_own_needs_a_text() -> None:
    prepared = prepare(model_of("mono"), given(), **options(None))
    with pytest.raises(InputError, match="given nothing to encode"):
        FAMILY.open_drafter(prepared, tiny_melody(9))

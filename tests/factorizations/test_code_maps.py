"""Sequences of codec tokens and their grids: both ways, against slow maps, and what is refused."""

from __future__ import annotations

import pickle
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from mmspec.errors import InputError, OptionError
from mmspec.factorizations import (
    DIA_DELAYS,
    Codebook,
    CodebookMajorStreams,
    DelayedFrames,
    DepthFrames,
    FirstStream,
    TimeMajorFrames,
)
from tests.factorizations.code_orders import (
    BASE,
    CODES,
    KINDS,
    PAD,
    SIZES,
    STAGED,
    START,
    grids,
    plain,
    slowly,
    steps_of,
)

quick = settings(max_examples=150, deadline=None, derandomize=True, database=None)


@quick
@given(grids(), st.booleans())
def test_both_ways_as_the_slow_map_has_it(given_grid: Any, ended: bool) -> None:
    kind, width, grid = given_grid
    steps = steps_of(kind, width)
    sequence = steps.from_grid(grid, ended=ended)
    assert plain(sequence) == slowly(kind, grid, width, ended)
    assert steps.has_ended(sequence) is ended
    assert plain(steps.to_grid(sequence)) == grid
    assert steps.from_grid(steps.to_grid(sequence), ended=ended) == sequence
    assert steps.to_grid([list(part) if isinstance(part, tuple) else part for part in sequence])


@quick
@given(grids(), st.booleans(), st.data())
def test_a_unit_more_or_less_is_refused(given_grid: Any, ended: bool, data: Any) -> None:
    kind, width, grid = given_grid
    steps = steps_of(kind, width)
    sequence = plain(steps.from_grid(grid, ended=ended))
    assume(width > 1)  # of single codes any number is whole frames
    stream = data.draw(st.sampled_from(sequence))
    if not isinstance(stream, list):
        stream = sequence
    at = data.draw(st.integers(0, max(0, len(stream) - 1 - ended)))
    if data.draw(st.booleans()):
        stream.insert(at, stream[at])
    else:
        del stream[at]
    with pytest.raises(InputError):
        steps.to_grid(sequence)


@pytest.mark.parametrize("kind", KINDS)
def test_arrays_are_grids_and_numbers_that_are_no_integers_are_not(kind: str) -> None:
    steps = steps_of(kind, 7)
    codes = np.arange(14).reshape(2, 7) % (CODES - 1) + 1
    sequence = steps.from_grid(codes)
    np.testing.assert_array_equal(np.array(steps.to_grid(sequence)), codes)
    with pytest.raises(InputError, match=r"1\.5 is no integer"):
        steps.from_grid([[1.5] * 7])  # type: ignore[list-item]


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_clipped(kind: str) -> None:
    steps = steps_of(kind, 7)
    for code in (-1, CODES, 1000):
        with pytest.raises(InputError, match=rf"frame 1, codebook 6: {code} is no code: they go"):
            steps.from_grid([[1] * 7, [1] * 6 + [code]])
    with pytest.raises(InputError, match=r"frame 1 has 6 tokens, expected 7"):
        steps.from_grid([[1] * 7, [1] * 6])


# Time-major: seven slots.

SEVEN = TimeMajorFrames.seven_slots(vocab_size=156_940, base=128_266, end=128_258)
SPOKEN = SEVEN.from_grid([(1, 2, 3, 4, 5, 6, 7), (11, 12, 13, 14, 15, 16, 17)])


def test_H7_every_slot_has_ids_of_its_own() -> None:
    assert [SPOKEN[slot] - 128_266 - 4096 * slot for slot in range(7)] == [1, 2, 4, 5, 3, 6, 7]
    for slot in range(7):
        (cell,) = SEVEN.step(slot, frames=1).decided
        first = 128_266 + 4096 * slot
        assert SEVEN.codebooks[cell.codebook].ids == range(first, first + 4096)
    swapped = [*SPOKEN[:8], SPOKEN[9], SPOKEN[8], *SPOKEN[10:]]
    with pytest.raises(InputError, match=r"frame 1, codebook 1: \d+ is no code of this place"):
        SEVEN.to_grid(swapped)


@pytest.mark.parametrize("length", [1, 6, 8, 13])
def test_H8_frames_are_whole_or_refused(length: int) -> None:
    with pytest.raises(InputError, match=rf"{length} tokens are no whole frames of 7"):
        SEVEN.to_grid(SPOKEN[:length])
    with pytest.raises(InputError, match=rf"{length} tokens are no whole frames of 7"):
        SEVEN.to_grid([*SPOKEN[:length], 128_258])


def test_H4_an_end_inside_is_no_code() -> None:
    for place in range(len(SPOKEN) - 1):
        with pytest.raises(InputError, match=r"128258 is the end mark, no code"):
            SEVEN.to_grid([*SPOKEN[:place], 128_258, *SPOKEN[place + 1 :]])


# Delayed.

MUSICGEN = DelayedFrames((Codebook(2049, 2048, start=2048, pad=2048),) * 4, (0, 1, 2, 3))
DIA = DelayedFrames((Codebook(1028, 1024, start=1026, end=1024, pad=1025),) * 9, DIA_DELAYS)


def numbered(frames: int, width: int) -> list[list[int]]:
    return [[1 + t * width + k for k in range(width)] for t in range(frames)]


@pytest.mark.parametrize("frames", [4, 5, 9])
@pytest.mark.parametrize("prompt", [0, 1, 3])
def test_H1_rows_are_laid_out_as_transformers_does_for_musicgen(frames: int, prompt: int) -> None:
    import torch
    from transformers import MusicgenForCausalLM

    model: Any = SimpleNamespace(num_codebooks=4, config=SimpleNamespace(audio_channels=1))
    grid = numbered(frames, 4)
    rows = MUSICGEN.from_grid(grid)
    known = torch.tensor([[2048] * 4, *grid[:prompt]]).T
    layout = MusicgenForCausalLM.build_delay_pattern_mask
    begun, mask = layout(model, known, 2048, max_length=len(rows))
    open_places = (mask.T == -1).tolist()
    for index in range(MUSICGEN.steps(frames)):
        step = MUSICGEN.step(index, frames, prompt)
        decided = {cell.codebook for cell in step.decided}
        assert decided == {k for k in range(4) if open_places[index + 1][k]}
    filled = torch.where(mask.T == -1, torch.tensor(rows), mask.T)
    assert filled.tolist() == plain(rows), "given and forced places hold the same"
    assert begun.shape[-1] == 1 + prompt


@pytest.mark.parametrize("frames", SIZES)
def test_rows_are_laid_out_as_transformers_does_for_dia(frames: int) -> None:
    import torch
    from transformers import DiaProcessor

    grid = numbered(frames, 9)
    length = 1 + frames + 1 + max(DIA_DELAYS)
    audio = torch.full((1, length, 9), 1025)
    audio[0, : frames + 2] = torch.tensor([[1026] * 9, *grid, [1024] * 9])
    indices = DiaProcessor.build_indices(1, length, 9, list(DIA_DELAYS))
    rows = DiaProcessor.apply_audio_delay(audio, 1025, 1026, indices)[0]
    assert plain(DIA.from_grid(grid, ended=True)) == rows.tolist()
    assert plain(DIA.to_grid(rows.tolist())) == grid


@pytest.mark.parametrize("steps", [MUSICGEN, DIA])
@pytest.mark.parametrize("frames", SIZES)
def test_H1_a_delay_is_neither_applied_nor_undone_twice(steps: DelayedFrames, frames: int) -> None:
    grid = numbered(frames, len(steps.delays))
    rows = steps.from_grid(grid)
    with pytest.raises(InputError, match=r"frame 0, codebook 0: \d+ is no code: they go from 0"):
        steps.from_grid(rows)
    with pytest.raises(InputError, match=r"expected the mark|are no whole frames"):
        steps.to_grid(grid)


def test_H2_marks_among_codes_are_never_clipped() -> None:
    rows = plain(DIA.from_grid(numbered(3, 9), ended=True))
    for row in range(len(rows)):
        for k in range(9):
            for mark in (1024, 1025, 1026):
                if rows[row][k] == mark:
                    continue
                changed = [list(tokens) for tokens in rows]
                changed[row][k] = mark
                with pytest.raises(InputError, match=r"is the \w+ mark, no code|expected the mark"):
                    DIA.to_grid(changed)


def test_H4_an_end_elsewhere_than_in_codebook_0_ends_nothing() -> None:
    assert DIA.stop_codebooks == (0,)
    rows = plain(DIA.from_grid(numbered(3, 9)))
    rows[10][2] = 1024
    assert not DIA.has_ended(rows)
    with pytest.raises(InputError, match=r"frame 0, codebook 2: 1024 is the end mark, no code"):
        DIA.to_grid(rows)


def test_H3_frames_out_are_where_the_end_stands() -> None:
    for frames in SIZES:
        rows = DIA.from_grid(numbered(frames, 9), ended=True)
        assert [row[0] for row in rows].index(1024) - 1 == frames == len(DIA.to_grid(rows))


def test_rows_that_have_not_caught_up() -> None:
    with pytest.raises(InputError, match=r"3 rows are no whole frames: even none takes 4"):
        MUSICGEN.to_grid(MUSICGEN.from_grid(numbered(3, 4))[:3])
    with pytest.raises(InputError, match=r"row 3, codebook 0: expected the mark 2048, got 9"):
        MUSICGEN.to_grid(MUSICGEN.from_grid(numbered(3, 4))[:-1])


# Depth frames, streams and stages.


def test_H6_a_frame_ends_as_its_model_looks_at_it() -> None:
    steps = DepthFrames((Codebook(2051, 2048, end=0, pad=2050),) * 4, stops=(0, 1, 2))
    assert steps.stopping((0, 0, 0, 7))
    assert not steps.stopping((0, 0, 7, 0))
    kept = ((1, 2, 3, 4), (0, 0, 0, 7))
    assert steps.to_grid(kept) == kept, "its codec drops frames of nothing but end marks"
    assert steps.to_grid(((1, 2, 3, 4), (0, 0, 0, 0))) == ((1, 2, 3, 4),)
    with pytest.raises(InputError, match=r"frame 1 ends the sequence, but more frames follow it"):
        steps.to_grid((*kept, (5, 6, 7, 8)))
    assert steps.from_grid(kept) == kept
    with pytest.raises(InputError, match=r"frame 1 ends the sequence, but more frames follow it"):
        steps.from_grid(kept, ended=True)
    with pytest.raises(InputError, match=r"frame 1 is the end, no codes: leave it out"):
        steps.from_grid(((1, 2, 3, 4), (0, 0, 0, 0)))
    with pytest.raises(InputError, match=r"frame 0, codebook 3: 2050 is the pad mark, no code"):
        steps.to_grid([(1, 2, 3, 2050)])


def test_streams_of_other_lengths() -> None:
    steps = steps_of("first", 3)
    with pytest.raises(InputError, match=r"codebook 2 has 1 tokens, the first stream 2 frames"):
        steps.to_grid([(20, 21), (25, 26), (30,)])
    with pytest.raises(InputError, match=r"expected the chain and 2 streams, got 2"):
        steps.to_grid([(20, 21), (25, 26)])
    with pytest.raises(InputError, match=r"5 codes are no 3 streams of one length"):
        steps_of("codebook-major", 3).to_grid([20, 21, 25, 26, 30])


def test_a_stage_has_the_length_that_the_one_before_sets() -> None:
    sequence = ((7, 5, 8), (10, 15, 11, 16, 12, 17), (0, 1, 2))
    grid = STAGED.to_grid(sequence)
    assert grid == (((7,), (5,)), ((0, 0, 0), (1, 1, 1), (2, 2, 2)))
    assert STAGED.has_ended(sequence)
    assert STAGED.from_grid(grid, ended=True) == sequence
    assert STAGED.from_grid(grid) == ((7, 5), *sequence[1:])
    assert [STAGED.frames(tokens) for tokens in range(5)] == [0, 1, 3, 4, 6]
    with pytest.raises(InputError, match=r"1 semantic tokens make 1 frames, got 3"):
        STAGED.to_grid(((7, 8), *sequence[1:]))
    with pytest.raises(InputError, match=r"2 semantic tokens make 3 frames, got 1"):
        STAGED.from_grid((grid[0], grid[1][:1]))
    with pytest.raises(InputError, match=r"frame 0, codebook 0: 15 is no code of this place"):
        STAGED.to_grid((sequence[0], (15, 10, 11, 16, 12, 17), sequence[2]))
    with pytest.raises(InputError, match=r"no stage at all"):
        STAGED.to_grid(())
    with pytest.raises(InputError, match=r"a semantic and an acoustic grid, got 1"):
        STAGED.from_grid(grid[:1])


def test_an_end_where_there_is_none() -> None:
    with pytest.raises(OptionError, match=r"this order has no end mark"):
        MUSICGEN.from_grid(numbered(1, 4), ended=True)


# Values.


@pytest.mark.parametrize("kind", KINDS)
def test_an_order_is_a_value_unlike_every_other(kind: str) -> None:
    steps = steps_of(kind, 7)
    twin = pickle.loads(pickle.dumps(steps))
    assert twin == steps
    assert hash(twin) == hash(steps)
    others = {steps_of(other, 7) for other in KINDS if other != kind} | {STAGED}
    assert steps not in others
    assert not steps.stop_tokens & steps.reserved
    assert steps.vocab_size == (9 if kind in ("delayed", "depth") else 60)
    assert steps.reserved == ({START, PAD} if kind == "delayed" else set())
    assert DIA.stop_tokens == {1024}
    assert not MUSICGEN.stop_tokens


BOOK = Codebook(9, CODES, start=6, end=7, pad=8)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Codebook(4, 5), r"Codebook has token 4, outside the vocabulary of 4"),
        (lambda: Codebook(4, 0), r"codes must be positive, got 0"),
        (lambda: Codebook(4, 2, end=4), r"Codebook has token 4, outside the vocabulary of 4"),
        (lambda: TimeMajorFrames((), ()), r"needs a codebook, got none"),
        (lambda: CodebookMajorStreams(()), r"needs a codebook, got none"),
        (lambda: TimeMajorFrames((BOOK,) * 2, (0, 0)), r"each of 2 columns once, got \(0, 0\)"),
        (
            lambda: TimeMajorFrames((BOOK, Codebook(9, CODES)), (0, 1)),
            r"must have the same end mark",
        ),
        (lambda: DelayedFrames((BOOK,) * 2, (0,)), r"2 codebooks need as many delays: \(0,\)"),
        (lambda: DelayedFrames((BOOK,) * 2, (1, 0)), r"delays count from codebook 0's"),
        (lambda: DelayedFrames((Codebook(9, CODES),), (0,)), r"need a start and a pad mark each"),
        (
            lambda: DelayedFrames((BOOK, Codebook(9, CODES, start=6, pad=8)), (0, 1)),
            r"either every delayed codebook has an end mark, or none",
        ),
        (lambda: DepthFrames((Codebook(9, CODES),), (0,)), r"needs one in every codebook"),
        (lambda: DepthFrames((BOOK,) * 2, (1, 0)), r"some of 2 codebooks, in order: \(1, 0\)"),
        (lambda: FirstStream((BOOK,), chained=2), r"chained must be 1 to 1 codebooks, got 2"),
    ],
)
def test_layouts_that_cant_be(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_ids_begin_where_the_slot_does() -> None:
    assert [steps_of("time-major", 3).codebooks[k].first for k in range(3)] == [
        BASE,
        BASE + CODES,
        BASE + 2 * CODES,
    ]

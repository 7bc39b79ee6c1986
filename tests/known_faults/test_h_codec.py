"""H: codes on their way into a codec and sound on its way into codes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from mmspec.errors import InputError, ModelError
from mmspec.factorizations import Codebook, DelayedFrames, DepthFrames
from mmspec.modalities.speech.codec import Codec, open_codec
from tests.modalities.speech.bed_codec import CODES, codes, dac, encodec, mimi, package, sound, tiny
from tests.test_generation import one_line

FOUR = pytest.mark.parametrize("kind", ["encodec", "dac", "mimi", "package"])
MARK = CODES
"""The id behind the last code: start, padding or end."""


def heard(model: Any, wave: np.ndarray) -> torch.Tensor:
    """What the library encodes a mono wave `[n]`, or a batch of them, to."""
    batch = torch.tensor(np.atleast_2d(wave))[:, None]
    with torch.no_grad():
        found = model.encode(batch)
    if isinstance(found, list):
        return found[0][0]
    return found.audio_codes if found.audio_codes.ndim == 3 else found.audio_codes[0]


def played(codec: Codec, grid: Any) -> np.ndarray:
    """Decoded whole; piece by piece it comes to the same."""
    decoder, whole = codec.stream(), codec.decode(grid)
    pieces = np.concatenate([*(decoder.push([frame]) for frame in grid), decoder.end()])
    scale = max(1e-6, float(np.abs(whole).max(initial=0)))
    np.testing.assert_allclose(pieces / scale, whole / scale, atol=1e-5)
    return whole


def delayed(codebooks: int, end: int | None = None) -> DelayedFrames:
    book = Codebook(CODES + 2, CODES, start=MARK, pad=MARK, end=end)
    return DelayedFrames((book,) * codebooks, delays=tuple(range(codebooks)))


@pytest.mark.parametrize("frames", [1, 5, 8, 12])
def test_H2_marks_of_the_ramps_are_no_sound(frames: int) -> None:
    """Rows that begin and end an utterance mix codes and marks: clipped, they are a click."""
    steps, grid = delayed(8), codes(frames, codebooks=8)
    codec = open_codec(encodec(codebooks=8))
    rows = steps.from_grid(grid)
    for mixed in (rows, rows[1:], np.array(rows[1 : 1 + frames])):  # taken for frames
        with pytest.raises(InputError, match=f"codebook [1-7]: {MARK} is no code|frame 0, codeb"):
            played(codec, mixed)
    clean = played(codec, steps.to_grid(rows))
    assert len(clean) == frames * codec.frame_samples
    np.testing.assert_array_equal(clean, codec.decode(grid))


@pytest.mark.parametrize("codebook", [1, 2, 3])
def test_H4_an_end_mark_elsewhere_than_in_codebook_0_reaches_no_codec(codebook: int) -> None:
    steps, codec = delayed(4, end=CODES + 1), open_codec(tiny("encodec"))
    codec.check(steps)
    rows = [list(row) for row in steps.from_grid(codes(6))]
    rows[1 + 3 + codebook][codebook] = CODES + 1  # frame 3
    with pytest.raises(InputError, match=f"frame 3, codebook {codebook}: 17 is the end mark"):
        steps.to_grid(rows)
    grid = codes(6)
    grid[3, codebook] = CODES + 1
    with pytest.raises(InputError, match=f"frame 3, codebook {codebook}: 17 is no code"):
        codec.decode(grid)
    decoder = codec.stream()
    decoder.push(grid[:3])
    with pytest.raises(InputError, match=f"frame 3, codebook {codebook}: 17 is no code"):
        decoder.push(grid[3:])


def test_H4_the_frame_that_ends_by_zeros_is_not_heard() -> None:
    """CSM's end is the code 0 everywhere, which a codec would take."""
    steps = DepthFrames((Codebook(CODES, CODES, end=0),) * 4, stops=(0, 1, 2))
    codec, grid = open_codec(tiny("mimi")), codes(5) | 1
    ended = steps.to_grid([*map(tuple, grid), (0, 0, 0, 0)])
    np.testing.assert_array_equal(played(codec, ended), codec.decode(grid))


@FOUR
def test_H11_a_short_clip_is_encoded_as_if_alone(kind: str) -> None:
    model = tiny(kind)
    codec = open_codec(model)
    short, long = sound(5 * codec.frame_samples), sound(10 * codec.frame_samples, seed=1)
    padded = np.stack([np.pad(short, (0, len(short))), long])
    assert heard(model, padded).shape == (2, 4, 10)  # the fault: five frames of padding
    np.testing.assert_array_equal(codec.encode(short), heard(model, short)[0].T)
    np.testing.assert_array_equal(codec.encode(long), heard(model, long)[0].T)
    assert len(codec.encode(short)) == 5
    with pytest.raises(InputError, match="shape 2x"):  # so nothing takes a batch
        codec.encode(padded)


def test_H12_a_quantizer_in_training_mode_does_not_pass() -> None:
    model, wave = dac(), torch.tensor(sound(80))[None, None]
    with torch.no_grad():
        assert model.encode(wave, n_quantizers=2).audio_codes.shape[1] == 2
        model.train()
        assert model.encode(wave, n_quantizers=2).audio_codes.shape[1] == 4  # the fault
    with pytest.raises(
        ModelError, match=r"DacModel\) is in training mode: call \.eval\(\)"
    ) as error:
        open_codec(model, codebooks=2)
    one_line(error.value)
    assert open_codec(model.eval(), codebooks=2).encode(sound(80)).shape == (10, 2)


@FOUR
@pytest.mark.parametrize("codebooks", [1, 2, 3, 4])
def test_H12_as_many_codebooks_as_asked_for(kind: str, codebooks: int) -> None:
    every, codec = open_codec(tiny(kind)), open_codec(tiny(kind), codebooks=codebooks)
    wave = sound(7 * codec.frame_samples)
    grid = codec.encode(wave)
    assert grid.shape == (7, codebooks)
    np.testing.assert_array_equal(grid, every.encode(wave)[:, :codebooks])
    with pytest.raises(InputError, match=f"expected {codebooks}$"):
        codec.decode(codes(3, codebooks=codebooks + 1))


@pytest.mark.parametrize("size", [2, 4, 16, 64, 2048])
def test_H13_codebooks_are_counted_not_computed_from_a_bandwidth(size: int) -> None:
    """A bandwidth counts bits: by ten a codebook, as was assumed, there are fewer or more."""
    model = encodec(codebooks=4, codes=size)
    codec = open_codec(model)
    assert codec.codebook_sizes == (size,) * 4
    assert codec.encode(sound(160)).shape == (10, 4)
    for codebooks in (3, 5):
        book = Codebook(size + 1, size, start=size, pad=size)
        steps = DelayedFrames((book,) * codebooks, tuple(range(codebooks)))
        with pytest.raises(ModelError, match=rf"writes {codebooks} codebooks, .* has 4"):
            codec.check(steps)


def test_H13_a_list_of_bandwidths_leaves_no_codebook_out() -> None:
    model = encodec(target_bandwidths=[0.2, 0.4, 0.8])
    assert heard(model, sound(160)).shape[1] == 1  # transformers takes the smallest by itself
    assert open_codec(model).encode(sound(160)).shape == (10, 4)
    assert open_codec(package()).encode(sound(160)).shape == (10, 4)


@FOUR
def test_H15_sound_of_any_length_comes_back_as_long(kind: str) -> None:
    codec = open_codec(tiny(kind))
    hop = codec.frame_samples
    for count in (0, 1, hop - 1, hop, hop + 1, 3 * hop - 1, 3 * hop + 1):
        grid = codec.encode(sound(count))
        assert len(grid) == -(-count // hop)
        assert codec.decode(grid, count).shape == (count,)


def test_H15_what_the_libraries_make_of_short_sound() -> None:
    """Each on its own: a crash, or a tail that is lost. Else the test above would say little."""
    for kind in ("encodec", "mimi"):
        with pytest.raises((RuntimeError, IndexError, ValueError)):
            heard(tiny(kind), sound(0))
    model = tiny("dac")
    with pytest.raises(RuntimeError):
        heard(model, sound(1))
    assert heard(model, sound(9)).shape[-1] == 1  # nine samples in frames of eight
    assert len(open_codec(model).encode(sound(9))) == 2


@FOUR
@pytest.mark.parametrize("wrong", [MARK, MARK + 1, 10**6, -1, -100])
def test_H18_ids_outside_the_codebook_have_a_place(kind: str, wrong: int) -> None:
    codec, grid = open_codec(tiny(kind)), codes(6)
    grid[4, 2] = wrong
    decoder = codec.stream()
    for use in (lambda: codec.decode(grid), lambda: decoder.push(grid)):
        with pytest.raises(
            InputError, match=rf"^frame 4, codebook 2: {wrong} is no code: "
        ) as error:
            use()
        one_line(error.value)
    assert decoder.frames == 0


@pytest.mark.parametrize("make", [encodec, dac, mimi])
@pytest.mark.parametrize("wrong", [MARK, -1])
def test_H18_what_the_library_says_names_no_place(make: Any, wrong: int) -> None:
    model, grid = make(), torch.tensor(codes(6).T)[None]
    grid[0, 2, 4] = wrong
    asked = (grid[None], [None]) if make is encodec else (grid,)
    with pytest.raises(IndexError, match="index out of range in self"), torch.no_grad():
        model.decode(audio_codes=grid) if make is dac else model.decode(*asked)

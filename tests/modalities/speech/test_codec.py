"""Codecs: what the libraries make of codes, whole and piece by piece; what is refused before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import torch

from mmspec.errors import InputError, ModelError, OptionError, StateError
from mmspec.factorizations import Codebook, DelayedFrames, TimeMajorFrames
from mmspec.modalities.speech.codec import open_codec
from mmspec.modalities.speech.codec_stages import stage_of
from tests.modalities.speech.bed_codec import (
    CODES,
    KINDS,
    codes,
    dac,
    encodec,
    mimi,
    package,
    sound,
    tiny,
)
from tests.test_generation import one_line

kinds = pytest.mark.parametrize("kind", KINDS)
NEAR = {"rtol": 0.0, "atol": 1e-5}
"""Of a waveform scaled to 1: the same sums in another order."""


def library_wave(model: Any, grid: np.ndarray) -> np.ndarray:
    """What the library itself decodes, `[channels, n]`."""
    known = torch.tensor(grid.T)[None]
    with torch.no_grad():
        if type(model).__module__ == "encodec.model":
            wave = model.decode([(known, None)])[0]
        elif model.config.model_type == "encodec":
            wave = model.decode(known[None], [None]).audio_values[0]
        elif model.config.model_type == "dac":
            wave = model.decode(audio_codes=known).audio_values
        else:
            wave = model.decode(known).audio_values[0]
    return wave.numpy()


def library_codes(model: Any, wave: np.ndarray) -> np.ndarray:
    """What the library itself encodes a waveform of whole frames to."""
    heard = torch.tensor(np.atleast_2d(wave))[None]
    with torch.no_grad():
        if type(model).__module__ == "encodec.model":
            found = model.encode(heard)[0][0]
        elif model.config.model_type == "encodec":
            found = model.encode(heard).audio_codes[0]
        else:
            found = model.encode(heard).audio_codes
    return found[0].T.numpy()


def pieces(codec: Any, grid: np.ndarray, sizes: int) -> list[np.ndarray]:
    decoder = codec.stream()
    found = [decoder.push(grid[at : at + sizes]) for at in range(0, len(grid), sizes)]
    return [*found, decoder.end()]


class TestDecode:
    @kinds
    @pytest.mark.parametrize("frames", [1, 2, 7, 30])
    def test_it_is_what_the_library_decodes(self, kind: str, frames: int) -> None:
        codec, grid = open_codec(tiny(kind)), codes(frames)
        wave = codec.decode(grid)
        assert wave.dtype == np.float32
        assert wave.ndim == (1 if codec.channels == 1 else 2)
        np.testing.assert_array_equal(np.atleast_2d(wave), library_wave(tiny(kind), grid))

    @kinds
    def test_every_codebook_is_heard(self, kind: str) -> None:
        codec, grid = open_codec(tiny(kind)), codes(5)
        plain = codec.decode(grid)
        for codebook in range(4):
            other = grid.copy()
            other[2, codebook] = (other[2, codebook] + 1) % CODES
            assert np.abs(codec.decode(other) - plain).max() > 1e-6

    @kinds
    def test_no_frames_are_no_samples(self, kind: str) -> None:
        codec = open_codec(tiny(kind))
        for nothing in ([], np.empty((0, 4), int), torch.empty(0, 4, dtype=torch.long)):
            assert codec.decode(nothing).shape[-1] == 0
        assert codec.stream().end().shape == codec.decode([]).shape

    def test_grids_of_any_kind(self) -> None:
        codec, grid = open_codec(tiny("encodec")), codes(3)
        expected = codec.decode(grid)
        for other in (grid.tolist(), tuple(map(tuple, grid)), torch.tensor(grid), list(grid)):
            np.testing.assert_array_equal(codec.decode(other), expected)
        np.testing.assert_array_equal(codec.decode(grid.astype(np.uint8)), expected)

    @pytest.mark.parametrize(
        ("wrong", "message"),
        [
            ([(1, 2, 3, 4), (1, 2, CODES, 4)], r"^frame 1, codebook 2: 16 is no code: .* 0 to 15$"),
            ([(1, 2, 3, -1)], "^frame 0, codebook 3: -1 is no code"),
            ([(1, 2, 3, -100)], "^frame 0, codebook 3: -100 is no code"),
            ([(1, 2, 3, 4), (1, 2, 3)], "^frame 1 has 3 codes, expected 4$"),
            ([(1, 2, 3)], "^frame 0 has 3 codes, expected 4$"),
            ([(1, None, 3, 4)], "^frame 0, codebook 1: None is no integer$"),
            ([(1, 2.0, 3, 4)], "^frame 0, codebook 1: 2.0 is no integer$"),
            (np.ones((2, 4)), "^frame 0, codebook 0: .*1.0.* is no integer$"),
            (np.ones((1, 4, 5), int), "^codes of shape 1x4x5, expected frames × codebooks$"),
            (torch.ones(4, dtype=torch.long), "^codes of shape 4, expected frames × codebooks$"),
            ([1, 2, 3, 4], "^frame 0 is 1, expected a code for each codebook$"),
            (["abcd"], "^frame 0 is 'abcd'"),
            (7, "^int is no grid of codes$"),
        ],
    )
    def test_what_is_no_code_never_reaches_the_codec(
        self, wrong: Any, message: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        codec = open_codec(encodec())
        monkeypatch.setattr(codec.model, "decode", lambda *_, **__: pytest.fail("it was decoded"))
        for decode in (codec.decode, codec.stream().push):
            with pytest.raises(InputError, match=message) as error:
                decode(wrong)
            one_line(error.value)

    def test_half_precision_comes_back_in_float32(self) -> None:
        codec, grid = open_codec(encodec().bfloat16()), codes(6)
        wave = codec.decode(grid)
        assert wave.dtype == np.float32
        joined = np.concatenate(pieces(codec, grid, 2))
        assert joined.dtype == np.float32
        assert joined.shape == wave.shape


class TestStream:
    @kinds
    @pytest.mark.parametrize("sizes", [1, 3, 1000])
    @pytest.mark.parametrize("frames", [1, 2, 5, 8, 40])
    def test_pieces_joined_are_the_whole(self, kind: str, frames: int, sizes: int) -> None:
        codec, grid = open_codec(tiny(kind)), codes(frames)
        whole = codec.decode(grid)
        joined = np.concatenate(pieces(codec, grid, sizes), axis=-1)
        assert joined.shape == whole.shape
        scale = np.abs(whole).max()
        np.testing.assert_allclose(joined / scale, whole / scale, **NEAR)

    @kinds
    def test_what_was_given_out_depends_on_nothing_that_follows(self, kind: str) -> None:
        codec, grid = open_codec(tiny(kind)), codes(40)
        decoder, other = codec.stream(), codec.stream()
        first = np.concatenate([decoder.push(frame[None]) for frame in grid[:30]], axis=-1)
        same = np.concatenate([other.push(frame[None]) for frame in grid[:30]], axis=-1)
        assert first.shape[-1] > 0
        scale = np.abs(first).max()
        rest = (codes(10, seed=1), codes(10, seed=2))
        wholes = [codec.decode(np.concatenate([grid[:30], tail])) for tail in rest]
        for whole in wholes:
            begun = whole[..., : first.shape[-1]]
            np.testing.assert_allclose(begun / scale, first / scale, **NEAR)
        np.testing.assert_array_equal(first, same)

    @pytest.mark.parametrize("kind", ["encodec, zeros", "mimi"])
    def test_a_causal_codec_plays_each_frame_at_once(self, kind: str) -> None:
        codec = open_codec(tiny(kind))
        *played, left = (len(piece) for piece in pieces(codec, codes(9), 1))
        assert played == [codec.frame_samples] * 9
        assert left == 0

    def test_one_that_begins_with_a_reflection_is_late_once(self) -> None:
        codec = open_codec(tiny("encodec"))  # kernels of 7: six frames are reflected
        *played, left = (len(piece) for piece in pieces(codec, codes(9), 1))
        assert played == [0] * 6 + [7 * 16, 16, 16]
        assert left == 0

    def test_each_code_goes_through_the_codec_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        codec, grid = open_codec(encodec(pad_mode="constant")), codes(12)
        seen: list[int] = []
        decode = codec.model.quantizer.decode

        def watched(known: torch.Tensor) -> torch.Tensor:
            seen.append(known.shape[-1])
            return decode(known)

        monkeypatch.setattr(codec.model.quantizer, "decode", watched)
        pieces(codec, grid, 5)
        assert seen == [5, 5, 2]

    def test_a_refused_frame_leaves_everything_as_it_was(self) -> None:
        codec, grid = open_codec(tiny("encodec, zeros")), codes(8)
        decoder = codec.stream()
        found = [decoder.push(grid[:3])]
        with pytest.raises(InputError, match=r"^frame 4, codebook 1: 99 is no code"):
            decoder.push([grid[3], (0, 99, 0, 0)])
        assert decoder.frames == 3
        found += [decoder.push([]), decoder.push(grid[3:]), decoder.end()]
        whole = codec.decode(grid)
        scale = np.abs(whole).max()
        np.testing.assert_allclose(np.concatenate(found) / scale, whole / scale, **NEAR)

    def test_nothing_follows_the_end(self) -> None:
        decoder = open_codec(tiny("dac")).stream()
        decoder.push(codes(2))
        decoder.end()
        with pytest.raises(StateError, match="has ended: open another"):
            decoder.push(codes(1))
        with pytest.raises(StateError, match="has ended"):
            decoder.end()

    def test_two_streams_of_one_codec_know_nothing_of_each_other(self) -> None:
        codec, grids = open_codec(tiny("mimi")), (codes(10, seed=1), codes(10, seed=2))
        decoders = [codec.stream() for _ in grids]
        found: list[list[np.ndarray]] = [[], []]
        for at in range(10):
            for decoder, grid, kept in zip(decoders, grids, found, strict=True):
                kept.append(decoder.push(grid[at : at + 1]))
        for grid, kept in zip(grids, found, strict=True):
            whole = codec.decode(grid)
            scale = np.abs(whole).max()
            np.testing.assert_allclose(np.concatenate(kept) / scale, whole / scale, **NEAR)

    def test_a_layer_that_hears_all_of_time_is_refused(self) -> None:
        codec = open_codec(encodec(norm_type="time_group_norm", use_causal_conv=False))
        assert codec.decode(codes(3)).shape == (48,)
        with pytest.raises(ModelError, match=r"GroupNorm can't be decoded .* sees all of time"):
            codec.stream()
        with pytest.raises(ModelError, match="pads by 'circular'"):
            open_codec(encodec(pad_mode="circular")).stream()
        with pytest.raises(ModelError, match="a layer Bilinear"):
            stage_of(torch.nn.Bilinear(1, 1, 1))


class TestEncode:
    @kinds
    def test_it_is_what_the_library_encodes(self, kind: str) -> None:
        codec = open_codec(tiny(kind))
        wave = sound(9 * codec.frame_samples, codec.channels)
        found = codec.encode(wave)
        np.testing.assert_array_equal(found, library_codes(tiny(kind), wave))
        np.testing.assert_array_equal(codec.encode(torch.tensor(wave)), found)
        assert len(np.unique(found)) > 3  # else an equality says nothing

    @kinds
    def test_any_length_comes_back(self, kind: str) -> None:
        codec = open_codec(tiny(kind))
        hop = codec.frame_samples
        for count in (0, 1, hop - 1, hop, hop + 1, 5 * hop - 1, 5 * hop, 5 * hop + 1):
            grid = codec.encode(sound(count, codec.channels))
            assert grid.shape == (-(-count // hop), 4)
            assert codec.decode(grid, count).shape[-1] == count

    @pytest.mark.parametrize("kind", ["encodec", "dac", "mimi", "package"])
    def test_the_first_few_codebooks_are_those_of_all(self, kind: str) -> None:
        model, wave = tiny(kind), sound(400)
        every, few = open_codec(model), open_codec(model, codebooks=2)
        assert few.codebook_sizes == (CODES, CODES)
        np.testing.assert_array_equal(few.encode(wave), every.encode(wave)[:, :2])
        grid = codes(6, codebooks=2)
        np.testing.assert_array_equal(few.decode(grid), library_wave(model, grid)[0])

    def test_a_bandwidth_that_was_set_changes_nothing(self) -> None:
        model, wave = package(), sound(320)
        expected = open_codec(model).encode(wave)
        model.set_target_bandwidth(0.2)
        assert library_codes(model, wave).shape[1] == 1
        np.testing.assert_array_equal(open_codec(model).encode(wave), expected)

    def test_a_recording_is_resampled(self, tmp_path: Path) -> None:
        codec, path = open_codec(tiny("encodec")), tmp_path / "prompt.wav"
        soundfile.write(path, np.stack([sound(1600), sound(1600)], axis=1), 1600)
        assert codec.encode_file(path).shape == (50, 4)
        with pytest.raises(InputError, match="no such file"):
            codec.encode_file(tmp_path / "missing.wav")

    @pytest.mark.parametrize(
        ("wrong", "message"),
        [
            (sound(64, 2), r"shape 2x64, .* hears mono samples \[n\]"),
            (np.ones((1, 2, 3), np.float32), "shape 1x2x3"),
            (np.ones(64, np.int16), "samples of torch.int16, .* floats from -1 to 1"),
            (np.full(64, np.nan, np.float32), "NaN or infinite samples"),
        ],
    )
    def test_what_is_no_waveform_for_it(self, wrong: np.ndarray, message: str) -> None:
        with pytest.raises(InputError, match=message) as error:
            open_codec(tiny("encodec")).encode(wrong)
        one_line(error.value)

    def test_a_stereo_codec_hears_no_mono(self) -> None:
        codec = open_codec(tiny("encodec, stereo"))
        with pytest.raises(InputError, match=r"shape 1x64, .* hears \[2, n\]"):
            codec.encode(sound(64))


class TestSignals:
    """A stereo model writes two signals' codebooks in turn, for a codec that is mono."""

    def test_codebooks_in_turn(self) -> None:
        model, grid = tiny("encodec"), codes(9, codebooks=8)
        codec, mono = open_codec(model, signals=2), open_codec(model)
        assert codec.channels == 2
        assert codec.codebook_sizes == (CODES,) * 8
        left, right = mono.decode(grid[:, 0::2]), mono.decode(grid[:, 1::2])
        np.testing.assert_array_equal(codec.decode(grid), np.stack([left, right]))
        joined = np.concatenate(pieces(codec, grid, 2), axis=-1)
        scale = np.abs(joined).max()
        np.testing.assert_allclose(joined / scale, codec.decode(grid) / scale, **NEAR)

    def test_both_are_encoded(self) -> None:
        model, wave = tiny("dac"), sound(83, 2)
        grid = open_codec(model, signals=2).encode(wave)
        for signal in range(2):
            alone = open_codec(model).encode(wave[signal])
            np.testing.assert_array_equal(grid[:, signal::2], alone)
        assert open_codec(model, signals=2).decode(grid, 83).shape == (2, 83)

    def test_there_must_be_one(self) -> None:
        with pytest.raises(OptionError, match="signals must be at least 1, got 0"):
            open_codec(tiny("dac"), signals=0)


class TestFit:
    def steps(self, codebooks: int = 4, size: int = CODES) -> DelayedFrames:
        book = Codebook(size + 1, size, start=size, pad=size)
        return DelayedFrames((book,) * codebooks, tuple(range(codebooks)))

    @kinds
    def test_codes_of_the_same_kind_fit(self, kind: str) -> None:
        codec = open_codec(tiny(kind))
        codec.check(self.steps())
        codec.check(self.steps(), sample_rate_hz=800, channels=codec.channels)
        codec.check(TimeMajorFrames.even(codebooks=4, codes=CODES))

    @pytest.mark.parametrize(
        ("given", "message"),
        [
            ({"codebooks": 3}, r"the model writes 3 codebooks, the codec \(DacModel\) has 4$"),
            ({"size": 17}, r"codebook 0: the model writes 17 codes, the codec \(DacModel\) has 16"),
            ({"size": 15}, "codebook 0: the model writes 15 codes"),
        ],
    )
    def test_other_codes_do_not(self, given: dict[str, int], message: str) -> None:
        with pytest.raises(ModelError, match=message) as error:
            open_codec(tiny("dac")).check(self.steps(**given))
        one_line(error.value)

    def test_another_rate_or_another_number_of_channels(self) -> None:
        codec = open_codec(tiny("encodec, stereo"))
        with pytest.raises(
            ModelError, match=r"Hz of the sound: 24000 for the model, 800 for the codec"
        ):
            codec.check(self.steps(), sample_rate_hz=24_000)
        with pytest.raises(ModelError, match=r"channels: 1 for the model, 2 for the codec"):
            codec.check(self.steps(), channels=1)

    def test_rates(self) -> None:
        codec = open_codec(tiny("dac, odd ratios"))
        assert (codec.sample_rate_hz, codec.frame_samples) == (800, 30)
        assert codec.frame_rate_hz == pytest.approx(800 / 30)


class TestOpen:
    def test_more_codebooks_than_there_are(self) -> None:
        for wanted in (5, 0, -1):
            with pytest.raises(ModelError, match=rf"{wanted} codebooks are wanted, .* has 4$"):
                open_codec(tiny("mimi"), codebooks=wanted)

    def test_what_is_no_codec(self) -> None:
        with pytest.raises(ModelError, match=r"Linear \(torch.nn.* is no codec that mmspec knows"):
            open_codec(torch.nn.Linear(1, 1))

    @pytest.mark.parametrize(
        ("make", "message"),
        [
            (lambda: encodec(normalize=True), "scales its input"),
            (lambda: encodec(chunk_length_s=1.0, overlap=0.1), "cuts its input into chunks"),
            (lambda: package(normalize=True), "scales its input"),
            (lambda: package(segment=1.0), "cuts its input into chunks"),
        ],
    )
    def test_codes_that_are_not_everything(self, make: Any, message: str) -> None:
        with pytest.raises(ModelError, match=f"{message}.*codes alone don't say"):
            open_codec(make())

    @pytest.mark.parametrize("make", [encodec, dac, mimi, package])
    def test_training_mode_is_refused_whenever_it_is_met(self, make: Any) -> None:
        model = make()
        codec = open_codec(model)
        model.quantizer.train()  # a part of it is enough
        for use in (
            lambda: open_codec(model),
            lambda: codec.decode(codes(2)),
            lambda: codec.encode(sound(64)),
            codec.stream,
        ):
            with pytest.raises(ModelError, match=r"in training mode: call \.eval\(\)"):
                use()

    @pytest.mark.parametrize("kind", ["encodec", "dac", "mimi", "package"])
    def test_the_model_is_not_written_to(self, kind: str) -> None:
        model = KINDS[kind]()
        before = {name: value.clone() for name, value in model.state_dict().items()}
        settings = None if kind == "package" else model.config.to_dict()
        codec = open_codec(model, codebooks=3)
        codec.decode(codec.encode(sound(100)), 100)
        pieces(codec, codes(4, codebooks=3), 1)
        for name, value in model.state_dict().items():
            torch.testing.assert_close(value, before[name], rtol=0, atol=0)
        assert settings is None or model.config.to_dict() == settings
        assert not any(part.training for part in model.modules())

    def test_samples_and_frames_belong_together(self) -> None:
        codec = open_codec(tiny("dac"))
        for samples in (16, 25, -1):
            with pytest.raises(OptionError, match=f"{samples} samples are not 3 frames of 8"):
                codec.decode(codes(3), samples)

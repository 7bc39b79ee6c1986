"""Audio in: what every file and array becomes, and every input that is refused, in one line."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import torch

from mmspec.errors import InputError
from mmspec.modalities.media.audio import duration_s, load_audio

SECONDS = 0.5


def tone(rate: int, seconds: float = SECONDS) -> np.ndarray:
    return 0.4 * np.sin(2 * np.pi * 440 * np.arange(round(rate * seconds)) / rate)


def refused(source: Any, *words: str, **options: Any) -> str:
    with pytest.raises(InputError, match=r"found .+, expected ") as caught:
        load_audio(source, **options)
    message = str(caught.value)
    assert "\n" not in message
    for word in words:
        assert word in message
    return message


class TestFiles:
    @pytest.mark.parametrize("rate", [8_000, 16_000, 22_050, 44_100, 48_000])
    @pytest.mark.parametrize(
        ("name", "subtype"),
        [
            ("wav", "PCM_U8"),
            ("wav", "PCM_16"),
            ("wav", "PCM_24"),
            ("wav", "FLOAT"),
            ("wav", "DOUBLE"),
            ("flac", "PCM_16"),
            ("flac", "PCM_24"),
            ("ogg", "VORBIS"),
            ("mp3", "MPEG_LAYER_III"),
        ],
    )
    def test_any_format_and_rate_becomes_16_khz(
        self, tmp_path: Path, name: str, subtype: str, rate: int
    ) -> None:
        path = tmp_path / f"tone.{name}"
        soundfile.write(path, tone(rate), rate, subtype=subtype)
        samples = load_audio(path)
        assert samples.dtype == np.float32
        assert duration_s(samples) == pytest.approx(SECONDS, abs=0.08 if name == "mp3" else 0.001)
        spectrum = np.abs(np.fft.rfft(samples))
        heard_hz = spectrum.argmax() * 16_000 / len(samples)
        assert heard_hz == pytest.approx(440, abs=3)
        assert np.abs(samples[2_000:6_000]).max() == pytest.approx(0.4, abs=0.05)

    def test_16_khz_mono_is_read_bit_for_bit(self, tmp_path: Path) -> None:
        path = tmp_path / "tone.wav"
        soundfile.write(path, tone(16_000), 16_000, subtype="PCM_16")
        np.testing.assert_array_equal(load_audio(path), soundfile.read(path, dtype="float32")[0])

    @pytest.mark.filterwarnings("ignore::DeprecationWarning")  # librosa's own imports
    @pytest.mark.parametrize("rate", [8_000, 11_025, 44_100])
    def test_resampling_is_librosas(self, tmp_path: Path, rate: int) -> None:
        librosa = pytest.importorskip("librosa")
        path = tmp_path / "tone.wav"
        soundfile.write(path, tone(rate), rate)
        np.testing.assert_array_equal(load_audio(path), librosa.load(path, sr=16_000)[0])

    def test_stereo_is_the_mean(self, tmp_path: Path) -> None:
        path, left = tmp_path / "stereo.wav", tone(16_000)
        soundfile.write(path, np.stack([left, 0 * left], axis=1), 16_000, subtype="FLOAT")
        np.testing.assert_allclose(load_audio(path), left / 2, atol=1e-7)

    def test_str_path_and_an_agreeing_rate(self, tmp_path: Path) -> None:
        path = tmp_path / "tone.wav"
        soundfile.write(path, tone(8_000), 8_000)
        assert len(load_audio(str(path), 8_000)) == 8_000
        refused(path, "8000 Hz", "16000 Hz", sampling_rate=16_000)

    def test_wav_from_a_pipe_has_no_length_to_keep(self, tmp_path: Path) -> None:
        path = tmp_path / "pipe.wav"
        soundfile.write(path, tone(16_000), 16_000, subtype="PCM_16")
        data = bytearray(path.read_bytes())
        assert data[36:40] == b"data"
        data[4:8] = data[40:44] = b"\xff\xff\xff\xff"  # as ffmpeg writes it
        path.write_bytes(data)
        assert len(load_audio(path)) == 8_000


class TestBadFiles:
    """G10, G12 and the issue's list: each a one-line error that names the file."""

    def test_missing_directory_empty_and_device(self, tmp_path: Path) -> None:
        refused(tmp_path / "nowhere.wav", "nowhere.wav", "no such file")
        refused(tmp_path, "a directory", tmp_path.name)
        (tmp_path / "zero.wav").touch()
        refused(tmp_path / "zero.wav", "0 bytes")
        refused(os.devnull, "a pipe or a device")

    def test_an_open_file_is_named_and_stays_open(self, tmp_path: Path) -> None:
        path = tmp_path / "clip.wav"
        path.write_bytes(b"RIFF")
        with path.open("rb") as file:
            refused(file, "BufferedReader", "a path, a NumPy array", sampling_rate=16_000)
            assert file.read() == b"RIFF"

    def test_no_permission(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path = tmp_path / "secret.wav"
        soundfile.write(path, tone(16_000), 16_000)
        path.chmod(0)
        if os.access(path, os.R_OK):  # root may read everything

            def denied(*_: Any, **__: Any) -> None:
                raise PermissionError(13, "Permission denied")

            monkeypatch.setattr(Path, "open", denied)
        refused(path, "secret.wav", "without read permission")

    def test_text_and_noise_are_no_audio(self, tmp_path: Path) -> None:
        path = tmp_path / "notes.wav"
        path.write_text("héllo\n" * 200)
        refused(path, "notes.wav", "a text file", "wav, flac, ogg, mp3, m4a or webm")
        path.write_bytes(bytes(range(256)) * 4)
        refused(path, "no audio that FFmpeg can read")

    @pytest.mark.parametrize("share", [0.02, 0.3, 0.9, 0.99])
    @pytest.mark.parametrize("name", ["wav", "aiff", "flac", "ogg", "mp3"])
    def test_truncated(self, tmp_path: Path, name: str, share: float) -> None:
        path = tmp_path / f"cut.{name}"
        soundfile.write(path, tone(16_000, 2.0), 16_000)
        data = path.read_bytes()
        path.write_bytes(data[: int(len(data) * share)])
        message = refused(path, f"cut.{name}")
        assert "truncated" in message or "no audio that FFmpeg can read" in message

    def test_no_frames(self, tmp_path: Path) -> None:
        path = tmp_path / "none.wav"
        soundfile.write(path, np.zeros(0), 16_000)
        refused(path, "none.wav", "empty audio")

    def test_one_sample_and_silence(self, tmp_path: Path) -> None:
        path = tmp_path / "clip.wav"
        soundfile.write(path, np.array([0.5]), 16_000)
        refused(path, "1 sample at 16000 Hz", "10 ms")
        soundfile.write(path, np.zeros(4_000), 16_000)
        refused(path, "all 4000 samples are zero")

    def test_nan_in_a_file(self, tmp_path: Path) -> None:
        path, samples = tmp_path / "nan.wav", tone(16_000)
        samples[[100, 200]] = np.nan, np.inf
        soundfile.write(path, samples, 16_000, subtype="FLOAT")
        refused(path, "2 NaN or infinite samples", "index 100")

    def test_a_name_with_control_characters_stays_on_one_line(self, tmp_path: Path) -> None:
        refused(tmp_path / "a\nb\x1b[2J.wav", "no such file")


class TestArrays:
    def test_rate_is_required_and_checked(self) -> None:
        refused(tone(16_000), "no sampling rate", "sampling_rate=")
        for rate in (0, -1, 1.5, float("nan"), "16000", True):
            refused(tone(16_000), "sampling rate", sampling_rate=rate)
        assert len(load_audio(tone(16_000), np.int64(16_000))) == 8_000  # type: ignore[arg-type]

    @pytest.mark.parametrize(
        "dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int16]
    )
    def test_torch(self, dtype: torch.dtype) -> None:
        scale = 32_768 if dtype == torch.int16 else 1
        wave = (torch.from_numpy(tone(16_000)) * scale).to(dtype)
        samples = load_audio(wave[None], 16_000)
        assert samples.dtype == np.float32
        np.testing.assert_allclose(samples, tone(16_000), atol=4e-3)

    def test_a_tensor_with_a_gradient(self) -> None:
        wave = torch.from_numpy(tone(16_000)).requires_grad_()
        assert len(load_audio(wave, 16_000)) == 8_000

    @pytest.mark.parametrize(
        ("dtype", "peak"), [(np.int8, 127), (np.int16, 32_767), (np.int32, 2**31 - 1)]
    )
    def test_integers_are_scaled(self, dtype: type, peak: int) -> None:
        samples = load_audio((tone(16_000) * peak).astype(dtype), 16_000)
        np.testing.assert_allclose(samples, tone(16_000), atol=0.02)
        unsigned = (tone(16_000) * 127 + 128).astype(np.uint8)
        np.testing.assert_allclose(load_audio(unsigned, 16_000), tone(16_000), atol=0.02)

    def test_channels_first_or_last(self) -> None:
        stereo = np.stack([tone(16_000), 0 * tone(16_000)])
        np.testing.assert_allclose(load_audio(stereo, 16_000), tone(16_000) / 2, atol=1e-7)
        np.testing.assert_allclose(load_audio(stereo.T, 16_000), tone(16_000) / 2, atol=1e-7)

    def test_shapes_that_say_nothing(self) -> None:
        refused(np.ones((2, 2)), "shape 2x2", sampling_rate=16_000)
        refused(np.ones((300, 300)), "shape 300x300", sampling_rate=16_000)
        refused(np.ones((1, 2, 300)), "shape 1x2x300", sampling_rate=16_000)
        refused(np.ones(()), "a single number", sampling_rate=16_000)
        refused(np.zeros((2, 0)), "empty audio", sampling_rate=16_000)

    def test_types_that_are_no_audio(self) -> None:
        refused([0.1, 0.2], "list", sampling_rate=16_000)
        refused(None, "NoneType")
        refused(np.ones(4_000, dtype=complex), "complex128", sampling_rate=16_000)
        refused(np.ones(4_000, dtype=bool), "bool", sampling_rate=16_000)

    def test_not_finite(self) -> None:
        samples = tone(16_000)
        samples[7] = -np.inf
        refused(samples, "1 NaN or infinite sample,", "index 7", sampling_rate=16_000)
        samples[7] = 1e300  # finite in float64 only
        refused(samples, "index 7", sampling_rate=16_000)

    def test_empty_short_and_silent(self) -> None:
        refused(np.zeros(0), "empty audio", sampling_rate=16_000)
        refused(np.ones(1), "1 sample at", sampling_rate=16_000)
        refused(np.zeros(16_000), "all 16000 samples are zero", sampling_rate=16_000)
        assert len(load_audio(tone(16_000)[:160], 16_000)) == 160

    def test_the_callers_array_is_left_alone(self) -> None:
        wave = tone(16_000).astype(np.float32)
        before = wave.copy()
        load_audio(wave, 44_100)[:] = 0
        np.testing.assert_array_equal(wave, before)

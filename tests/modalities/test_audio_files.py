"""Recordings are heard to their end, or refused in a line: never in part."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
import soundfile

from mmspec.errors import InputError
from mmspec.modalities.media import audio_files
from mmspec.modalities.media.audio import load_audio

RATE, SECONDS = 16_000, 3
KINDS: dict[str, dict[str, Any]] = {
    "tagged.mp3": {"codec": "libmp3lame"},
    "vbr.mp3": {"codec": "libmp3lame", "options": {"write_xing": "0"}, "quality": 9},
    "a.wav": {"codec": "pcm_s16le"},
    "float.wav": {"codec": "pcm_f32le"},
    "wide.wav": {"codec": "pcm_s24le"},
    "gsm.wav": {"subtype": "GSM610", "rate": 8_000},
    "adpcm.wav": {"codec": "adpcm_ms"},
    "a.flac": {"codec": "flac"},
    "a.ogg": {"subtype": "VORBIS"},
    "a.opus": {"codec": "libopus", "rate": 48_000},
    "a.m4a": {"codec": "aac"},
    "a.webm": {"codec": "libopus", "rate": 48_000},
    "a.aiff": {"codec": "pcm_s16be"},
    "a.w64": {"codec": "pcm_s16le"},
    "a.au": {"codec": "pcm_s16be"},
    "a.caf": {"codec": "pcm_s16be"},
    "a.mka": {"codec": "flac"},
    "a.tta": {"codec": "tta"},
    "a.avi": {"codec": "pcm_s16le"},
    "a.wma": {"codec": "wmav2", "bit_rate": 64_000},
    "big.wav": {"codec": "pcm_s16le", "options": {"rf64": "always"}},
    "flac.oga": {"codec": "flac"},
}


def sound(rate: int, quiet_s: float = 0.0) -> np.ndarray:
    """Silence, then noise: a bit rate that changes on the way."""
    noise = np.random.default_rng(1).normal(scale=0.1, size=rate * SECONDS)
    noise[: round(quiet_s * rate)] = 0
    return noise.astype(np.float32)


def written(place: Path, kind: str, quiet_s: float = 0.0) -> Path:
    """A file of a kind; skips where this build of FFmpeg can't write it."""
    facts = KINDS[kind]
    rate, path = facts.get("rate", RATE), place / kind
    if "subtype" in facts:
        soundfile.write(path, sound(rate, quiet_s), rate, subtype=facts["subtype"])
        return path
    try:
        codec = av.codec.Codec(facts["codec"], "w")
    except av.codec.codec.UnknownCodecError:
        pytest.skip(f"this FFmpeg can't write {facts['codec']}")
    with av.open(str(path), "w", options=facts.get("options", {})) as container:
        stream = container.add_stream(facts["codec"], rate=rate, layout="mono")
        if "bit_rate" in facts:
            stream.bit_rate = facts["bit_rate"]
        if "quality" in facts:
            stream.codec_context.qscale = True
            stream.codec_context.global_quality = facts["quality"] * 118
        frame = av.AudioFrame.from_ndarray(sound(rate, quiet_s)[None], "fltp", "mono")
        frame.sample_rate = rate
        shape = av.AudioResampler(codec.audio_formats[0].name, "mono", rate)
        fifo = av.AudioFifo()
        for piece in shape.resample(frame):
            fifo.write(piece)
        size = stream.codec_context.frame_size or 1024
        while (piece := fifo.read(size, partial=True)) is not None:
            container.mux(stream.encode(piece))
        container.mux(stream.encode(None))
    return path


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_heard_to_its_end(tmp_path: Path, kind: str) -> None:
    heard = load_audio(written(tmp_path, kind))
    assert len(heard) / RATE == pytest.approx(SECONDS, abs=0.2)
    ends = heard[round((SECONDS - 0.2) * RATE) : round((SECONDS - 0.02) * RATE)]
    assert np.abs(ends).max() > 0.05, "the end is missing"


@pytest.mark.parametrize("quiet_s", [0.0, 2.0])
def test_an_estimate_of_an_mp3s_length_is_no_promise(tmp_path: Path, quiet_s: float) -> None:
    heard = load_audio(written(tmp_path, "vbr.mp3", quiet_s))
    assert len(heard) / RATE == pytest.approx(SECONDS, abs=0.2)


@pytest.mark.parametrize("kind", ["tagged.mp3", "vbr.mp3", "a.ogg", "a.opus", "a.flac"])
def test_recordings_behind_each_other_are_heard_whole(tmp_path: Path, kind: str) -> None:
    one = written(tmp_path, kind).read_bytes()
    both = tmp_path / f"both{Path(kind).suffix}"
    both.write_bytes(one + one)
    assert len(load_audio(both)) / RATE == pytest.approx(2 * SECONDS, abs=0.4)


def refused(path: Path, *words: str) -> None:
    with pytest.raises(InputError, match=r"found .+, expected ") as caught:
        load_audio(path)
    assert "\n" not in str(caught.value)
    for word in words:
        assert word in str(caught.value)


def with_size(path: Path, size: int) -> None:
    """Write another size of the samples into a wav file's header."""
    data = bytearray(path.read_bytes())
    at = data.find(b"data") + 4
    data[at : at + 4] = size.to_bytes(4, "little")
    path.write_bytes(data)


def test_more_than_was_promised_is_named(tmp_path: Path) -> None:
    path = written(tmp_path, "a.wav")
    two = tmp_path / "two.wav"
    two.write_bytes(path.read_bytes() * 2)
    refused(two, "another recording behind its first")
    with_size(path, 32_000)
    refused(path, "bytes behind the samples that its header promises")


@pytest.mark.parametrize("size", [0, 0xFFFFFFFF])
def test_a_length_that_nobody_knew_is_read_to_the_end(tmp_path: Path, size: int) -> None:
    path = written(tmp_path, "a.wav")
    with_size(path, size)
    assert len(load_audio(path)) == SECONDS * RATE


PROMISING = [kind for kind in KINDS if kind != "vbr.mp3"]


@pytest.mark.parametrize("part", [0.4, 0.9])
@pytest.mark.parametrize("kind", PROMISING)
def test_a_file_that_was_cut_is_refused(tmp_path: Path, kind: str, part: float) -> None:
    path = written(tmp_path, kind)
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * part)])
    refused(path, kind)


READ_ONCE = ["a.wav", "big.wav", "a.aiff", "a.caf", "a.w64", "a.m4a", "a.tta", "a.wma"]


@pytest.mark.parametrize("kind", READ_ONCE)
def test_a_second_recording_that_nobody_would_hear_is_named(tmp_path: Path, kind: str) -> None:
    path = written(tmp_path, kind)
    path.write_bytes(path.read_bytes() * 2)
    refused(path, "another recording behind its first")


def test_a_film_is_as_long_as_its_longest_stream(tmp_path: Path) -> None:
    path = tmp_path / "film.mkv"
    with av.open(str(path), "w") as film:
        sound_track = film.add_stream("flac", rate=RATE, layout="mono")
        pictures = film.add_stream("mpeg4", rate=5)
        pictures.width, pictures.height, pictures.pix_fmt = 16, 16, "yuv420p"
        heard = av.AudioFrame.from_ndarray((sound(RATE)[None] * 9_000).astype("i2"), "s16", "mono")
        heard.sample_rate, heard.pts = RATE, 0
        packets = [*sound_track.encode(heard), *sound_track.encode(None)]
        for at in range(5 * 2 * SECONDS):
            picture = av.VideoFrame(16, 16, "yuv420p")
            picture.pts = at
            packets += pictures.encode(picture)
        film.mux([*packets, *pictures.encode(None)])
    assert len(load_audio(path)) == SECONDS * RATE
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    refused(path, "header promises")


def test_a_pipes_estimated_length_is_no_promise(tmp_path: Path) -> None:
    path = written(tmp_path, "adpcm.wav")
    with_size(path, 0xFFFFFFFF)
    data = bytearray(path.read_bytes())
    at = data.find(b"fact")
    data[at : at + 4] = b"JUNK"
    at = data.find(b"fmt ") + 16  # bytes a second, from which FFmpeg estimates a length
    data[at : at + 4] = (2_000).to_bytes(4, "little")
    path.write_bytes(data)
    assert len(load_audio(path)) / RATE == pytest.approx(SECONDS, abs=0.2)


def test_a_promise_of_another_encoders_tag_counts(tmp_path: Path) -> None:
    path = written(tmp_path, "tagged.mp3")
    data = bytearray(path.read_bytes())
    tag = max(data.find(b"Xing"), data.find(b"Info"))
    data[tag : tag + 14] = b"VBRI" + bytes(6) + (len(data) + 5_000).to_bytes(4, "big")
    path.write_bytes(data)
    refused(path, "its first frame promises")


def test_a_file_damaged_inside_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, "a.flac")
    data = bytearray(path.read_bytes())
    middle = len(data) // 2
    data[middle : middle + 9_000] = bytes(9_000)
    path.write_bytes(data)
    refused(path, "a.flac")


def test_other_rates_behind_each_other_are_named(tmp_path: Path) -> None:
    both = tmp_path / "both.ogg"
    both.write_bytes(
        written(tmp_path, "a.ogg").read_bytes() + written(tmp_path, "a.opus").read_bytes()
    )
    refused(both, "both.ogg")


def test_whatever_a_library_raises_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path, "a.wav")

    def broken(*_: Any) -> Any:
        raise ZeroDivisionError("no sound\nat all")

    monkeypatch.setattr(audio_files, "_decoded", broken)
    refused(path, "no sound at all")


@pytest.mark.skipif(shutil.which("ffmpeg") is None, reason="ffmpeg isn't here")
@pytest.mark.parametrize("kind", KINDS)
def test_as_long_as_ffmpeg_hears_it(tmp_path: Path, kind: str) -> None:
    path = written(tmp_path, kind, quiet_s=1.5)
    command = [
        "ffmpeg",
        "-v",
        "error",
        "-i",
        path,
        "-ac",
        "1",
        "-ar",
        str(RATE),
        "-f",
        "f32le",
        "-",
    ]
    there = np.frombuffer(subprocess.run(command, capture_output=True, check=True).stdout, "f4")
    assert abs(len(load_audio(path)) - len(there)) <= 800

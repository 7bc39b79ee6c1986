"""Samples on another scale than their type's are refused: as noise or silence they'd be heard."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from mmspec.errors import InputError
from mmspec.modalities.media.audio import load_audio
from mmspec.modalities.media.audio_buffer import AudioBuffer

RATE = 16_000
VOICE = (9_000 * np.sin(np.arange(2 * RATE) / 9)).astype(np.int16)
MISSCALED: list[Any] = [
    VOICE.astype(np.float32),
    VOICE.astype(np.float64),
    VOICE.astype(np.int32),
    VOICE.astype(np.int64),
    torch.from_numpy(VOICE).to(torch.int32),
    torch.from_numpy(VOICE).to(torch.bfloat16),
]
RIGHT: list[Any] = [
    VOICE,
    (VOICE / 32768).astype(np.float32),
    VOICE / 8192,  # it overshoots, as loud mixes do
    VOICE.astype(np.int32) << 16,
    (VOICE // 256 + 128).astype(np.uint8),
]


@pytest.mark.parametrize("samples", MISSCALED, ids=lambda samples: str(samples.dtype))
def test_another_scale_is_refused_and_says_what_to_do(samples: Any) -> None:
    with pytest.raises(InputError, match=r"found samples .+, expected .*int16"):
        load_audio(samples, RATE)


@pytest.mark.parametrize("samples", RIGHT, ids=lambda samples: str(samples.dtype))
def test_the_types_own_scale_is_taken(samples: Any) -> None:
    assert np.abs(load_audio(samples, RATE)).max() > 0.2


def fed(pieces: Any) -> AudioBuffer:
    stream = AudioBuffer()
    for piece in pieces:
        stream.add(piece, RATE)
    return stream


def pieces(samples: Any) -> Any:
    return [samples[at : at + 1_600] for at in range(0, len(samples), 1_600)]


@pytest.mark.parametrize("samples", MISSCALED, ids=lambda samples: str(samples.dtype))
def test_a_stream_on_another_scale_is_refused_within_a_second(samples: Any) -> None:
    with pytest.raises(InputError, match=r"expected .*int16"):
        fed(pieces(samples)[:11])


def test_a_short_stream_on_another_scale_is_refused_at_its_end() -> None:
    stream = fed([VOICE[:1_600].astype(np.int32)])
    with pytest.raises(InputError, match="silence on its scale"):
        stream.finish()


def test_a_stream_that_begins_quietly_is_heard() -> None:
    loud, quiet = VOICE.astype(np.int32) << 16, VOICE[: RATE // 2].astype(np.int32)
    stream = fed([np.zeros(RATE, np.int32), *pieces(quiet), *pieces(loud), *pieces(quiet)] * 2)
    stream.finish()
    assert stream.end == 2 * (RATE + 2 * len(quiet) + len(loud))


def test_a_stream_takes_what_a_whole_recording_is_taken_as() -> None:
    wave = torch.from_numpy(VOICE / 32768)
    for samples in (wave.bfloat16(), wave.half(), wave.requires_grad_()):
        assert fed([samples]).end == len(load_audio(samples, RATE)) == len(VOICE)


def test_what_is_masked_is_neither_sound_nor_silence() -> None:
    for take in (load_audio, lambda samples, rate: AudioBuffer().add(samples, rate)):
        with pytest.raises(InputError, match="masked array"):
            take(np.ma.masked_array(VOICE, VOICE > 0), RATE)


@pytest.mark.parametrize("rate", ["16000", 0, 1.5, float("nan"), True])
def test_a_rate_is_looked_at_before_the_samples(rate: Any) -> None:
    stream = AudioBuffer()
    with pytest.raises(InputError, match="found sampling rate"):
        stream.add(VOICE.astype(np.int32), rate)
    stream.add(VOICE, RATE)
    assert stream.end == len(VOICE)

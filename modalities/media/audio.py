"""Audio in: any file or array becomes mono float32 samples at the rate that a model hears.

Whatever can't be that is an `InputError` of one line: a model that is fed noise, silence or the
wrong rate answers with confident nonsense, and nothing downstream would notice.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import soxr

from mmspec.modalities.media.audio_files import read_audio
from mmspec.modalities.media.inputs import is_tensor, refuse

if TYPE_CHECKING:
    import torch

SHORTEST_S = 0.01
"""One hop of a spectrogram: shorter clips hold nothing that could be heard."""

LOUDEST = 8.0
"""Of samples whose full scale is 1: some overshoot it, but not eightfold; 16-bit ones do."""

SIXTEEN_BITS = 2**15
"""Full scale of 16-bit samples."""

MOST_CHANNELS = 16
"""A longer axis of an array is taken for time, never for channels."""


def load_audio(
    source: str | Path | np.ndarray | torch.Tensor,
    sampling_rate: int | None = None,
    *,
    target_rate: int = 16_000,
) -> np.ndarray:
    """Read, mix down and resample audio.

    Args:
        source: a file that FFmpeg reads (wav, flac, ogg, mp3, m4a, ...), or samples `[n]`,
            `[channels, n]` or `[n, channels]` as a NumPy array or a torch tensor. Floats are on a
            scale of -1..1, integers on that of their type.
        sampling_rate: Hz; needed for samples, checked against the header for a file.
        target_rate: Hz of what is returned.

    Returns:
        Mono float32 samples `[n]`, resampled with soxr as `librosa.load` does it.

    Raises:
        InputError: names the source, what was found and what was expected.

    Example:
        >>> tone = np.sin(np.arange(8_000) / 9)
        >>> samples = load_audio(tone, 8_000)
        >>> samples.shape, samples.dtype
        ((16000,), dtype('float32'))
    """
    if isinstance(source, str | Path):
        name = str(source)
        samples, rate = read_audio(Path(source), name)
        if sampling_rate is not None and sampling_rate != rate:
            refuse(
                name, f"a sampling rate of {rate} Hz in the file", f"{sampling_rate} Hz, as given"
            )
    else:
        name = "audio array"
        samples, rate = _to_numpy(source, name), _checked_rate(sampling_rate, name)
        if is_small_for_its_type(samples):
            refuse_scale(samples, name)
    mono = _mono(_scaled(samples, name), name)
    _check_samples(mono, rate, name)
    _check_scale(mono, name)
    return _resampled(mono.astype(np.float32), rate, target_rate)


def chunk_samples(samples: np.ndarray | torch.Tensor) -> np.ndarray:
    """A piece of a stream as mono float32 samples `[n]`, at its own rate.

    It may be short, silent or empty: that says nothing about the stream.

    Args:
        samples: as `load_audio` takes them.

    Raises:
        InputError: no samples, or not all of them finite.

    Example:
        >>> chunk_samples(np.array([16384, -32768], dtype=np.int16))
        array([ 0.5, -1. ], dtype=float32)
    """
    name = "audio chunk"
    mono = _mono(_scaled(_to_numpy(samples, name), name), name)
    _check_finite(mono, name)
    _check_scale(mono, name)
    return mono.astype(np.float32)


def is_small_for_its_type(samples: np.ndarray | torch.Tensor) -> bool:
    """Whether there is sound, in integers of more than 16 bits, that 16 bits would hold.

    On the scale of its type that is silence; so it is on another one. Digital silence is neither.

    Example:
        >>> [is_small_for_its_type(np.array([3, peak])) for peak in (2**14, 2**30)]
        [True, False]
    """
    samples = _to_numpy(samples, "audio array")
    if samples.dtype.kind != "i" or samples.dtype.itemsize <= 2 or not samples.any():
        return False
    return int(samples.min()) >= -SIXTEEN_BITS and int(samples.max()) <= SIXTEEN_BITS


def refuse_scale(samples: np.ndarray | torch.Tensor, name: str) -> NoReturn:
    """Say that these are 16-bit samples in a wider type.

    Raises:
        InputError: always.
    """
    kind = str(samples.dtype).removeprefix("torch.")
    refuse(
        name,
        f"samples of type {kind} that are all between -32768 and 32768: silence on its scale",
        "int16 for 16-bit samples (samples.astype('int16')), or floats between -1 and 1",
    )


def duration_s(samples: np.ndarray, rate: int = 16_000) -> float:
    """Seconds of mono samples `[n]`.

    Example:
        >>> duration_s(np.zeros(8_000))
        0.5
    """
    return len(samples) / rate


def _resampled(mono: np.ndarray, rate: int, target_rate: int) -> np.ndarray:
    if rate == target_rate:
        return np.ascontiguousarray(mono)
    length = math.ceil(len(mono) * target_rate / rate)
    resampled = soxr.resample(mono, rate, target_rate, quality="soxr_hq")[:length]
    return np.pad(resampled, (0, length - len(resampled)))


def _to_numpy(source: Any, name: str) -> np.ndarray:
    if is_tensor(source):
        tensor: Any = source.detach().cpu()
        if "bfloat16" in str(tensor.dtype):
            tensor = tensor.float()
        return np.asarray(tensor.numpy())
    if not isinstance(source, np.ndarray):
        found = f"{type(source).__name__}"
        refuse(name, found, "a path, a NumPy array or a torch tensor")
    if isinstance(source, np.ma.MaskedArray):
        refuse(name, "a masked array", "one that says what is heard where it is masked (filled(0))")
    return source


def _checked_rate(rate: object, name: str) -> int:
    expected = "sampling_rate= in Hz: an array doesn't say how fast it is to be played"
    if rate is None:
        refuse(name, "no sampling rate", expected)
    whole = isinstance(rate, int | float | np.integer | np.floating) and not isinstance(rate, bool)
    if not whole or not math.isfinite(rate) or rate != int(rate) or rate < 1:  # type: ignore
        refuse(name, f"sampling rate {rate!r}", "a whole number of Hz above 0")
    return int(rate)  # type: ignore[call-overload]


def _scaled(samples: np.ndarray, name: str) -> np.ndarray:
    """Float samples; integers scaled to -1..1."""
    if samples.dtype.kind == "f":
        return samples
    if samples.dtype.kind == "i":
        return samples / float(-int(np.iinfo(samples.dtype).min))
    if samples.dtype != np.uint8:
        refuse(name, f"samples of type {samples.dtype}", "floats, signed integers or uint8")
    return (samples.astype(np.float32) - 128) / 128  # as in wav files: 128 is silence


def _mono(samples: np.ndarray, name: str) -> np.ndarray:
    """The mean over channels, `[n]`."""
    if samples.ndim == 1:
        return samples
    shape = "x".join(map(str, samples.shape)) or "a single number"
    if samples.ndim != 2:
        refuse(name, f"shape {shape}", "[n], [channels, n] or [n, channels]")
    if 0 in samples.shape:
        return samples.reshape(-1)
    few, many = min(samples.shape), max(samples.shape)
    if few > MOST_CHANNELS or (few > 1 and many <= MOST_CHANNELS):
        refuse(name, f"shape {shape}, no telling which axis is time", "mono samples [n]")
    return samples.mean(axis=int(np.argmin(samples.shape)))


def _check_samples(samples: np.ndarray, rate: int, name: str) -> None:
    if len(samples) == 0:
        refuse(name, "no samples (empty audio)", f"at least {SHORTEST_S * 1000:.0f} ms of sound")
    _check_finite(samples, name)
    if len(samples) < SHORTEST_S * rate:
        found = f"{len(samples)} {_plural(len(samples), 'sample')} at {rate} Hz"
        refuse(name, found, f"at least {SHORTEST_S * 1000:.0f} ms of sound")
    if not samples.any():
        found = f"silence (all {len(samples)} samples are zero)"
        refuse(name, found, "a recording with some sound in it")


def _check_scale(samples: np.ndarray, name: str) -> None:
    loudest = float(np.abs(samples).max(initial=0.0))
    if loudest > LOUDEST:
        refuse(
            name,
            f"samples up to {loudest:.6g}",
            "floats between -1 and 1 (divide 16-bit samples by 32768, or give them as int16)",
        )


def _check_finite(samples: np.ndarray, name: str) -> None:
    with np.errstate(over="ignore"):
        bad = ~np.isfinite(samples.astype(np.float32))
    count = int(bad.sum())
    if count:
        first = int(bad.argmax())
        refuse(
            name,
            f"{count} NaN or infinite {_plural(count, 'sample')}, the first at index {first}",
            "finite samples",
        )


def _plural(count: int, noun: str) -> str:
    return noun if count == 1 else noun + "s"

"""Recordings in files: decoded by FFmpeg's libraries (PyAV), to the end, whatever a header says.

What a header says is compared afterwards. Only some containers promise a length; of others it is
an estimate (an mp3 whose bit rate changes), or nobody's (a stream that was written into a pipe):
then what is there is what was recorded. A single Ogg stream is read by libsndfile, which ends where
the stream says; FFmpeg's decoder of Vorbis is some samples off there.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import av
import numpy as np
import soundfile

from mmspec.modalities.media.containers import check_whole, describe_junk, is_single_ogg
from mmspec.modalities.media.inputs import check_readable, door, one_line, refuse

FORMATS = "wav, flac, ogg, mp3, m4a or webm"

PROMISES = frozenset({"aiff", "au", "caf", "flac", "mov", "w64", "wav"})
"""Containers whose length is no estimate, by FFmpeg's names."""

SLACK = 4096
"""Samples that may be missing at an edge: what encoders add, and decoders drop."""

TAGS = (b"ID3", b"TAG", b"APETAGEX", b"LYRICS")
"""What stands between the recordings of an mp3 that was joined from several, and is no sound."""

av.logging.set_level(None)  # what it thinks of files goes to no one's terminal


def read_audio(path: Path, name: str) -> tuple[np.ndarray, int]:
    """Decode a file to its end.

    Args:
        path: the file.
        name: of it, for messages.

    Returns:
        Samples `[n, channels]` as they are stored (integers or floats), and their rate in Hz.

    Raises:
        InputError: no audio, damaged or cut; or recordings of several rates behind each other.
    """
    check_readable(path, name, f"an audio file ({FORMATS})")
    fault = check_whole(path)
    if fault is not None:
        refuse(name, fault, "a whole file")

    def junk(error: Exception) -> str:
        return describe_junk(path, one_line(error))

    if is_single_ogg(path):
        with door(name, junk, f"audio ({FORMATS})"):
            return soundfile.read(str(path), dtype="float32", always_2d=True)
    with door(name, junk, f"audio ({FORMATS})"), av.open(str(path)) as container:
        if not container.streams.audio:
            refuse(name, "a file without sound", f"audio ({FORMATS})")
        stream = container.streams.audio[0]
        frames, damaged = _decoded(container, stream)
        rates = sorted({frame.sample_rate for frame in frames})
        promised = 0.0
        if stream.duration and PROMISES & set(container.format.name.split(",")):
            promised = float(stream.duration * stream.time_base)
        samples = [_samples(frame) for frame in frames]
    if not samples:
        return np.zeros((0, 1), np.float32), 1
    if len(rates) > 1:
        found = f"recordings of {' and '.join(map(str, rates))} Hz behind each other"
        refuse(name, found, "one sampling rate")
    joined = _joined(samples)
    if len(joined) + SLACK < promised * rates[0]:
        found = (
            f"{len(joined)} of the {round(promised * rates[0])} samples that its header promises "
            "(truncated?)"
        )
        refuse(name, found, "a whole file")
    if damaged:
        refuse(name, f"{damaged} damaged pieces that can't be decoded", "a whole file")
    return joined, rates[0]


def _decoded(container: Any, stream: Any) -> tuple[list[Any], int]:
    """(all frames of a stream, how many packets of sound couldn't be decoded)."""
    frames: list[Any] = []
    damaged = 0
    for packet in container.demux(stream):
        try:
            frames += packet.decode()
        except av.error.FFmpegError:
            damaged += not bytes(packet).startswith(TAGS)
    return frames, damaged


def _samples(frame: Any) -> np.ndarray:
    """A frame's samples `[n, channels]`."""
    stored = frame.to_ndarray()
    if frame.format.is_planar:
        return stored.T
    return stored.reshape(-1, frame.layout.nb_channels)


def _joined(samples: list[np.ndarray]) -> np.ndarray:
    """Pieces behind each other; mixed down where they don't have the same channels."""
    if len({piece.shape[1] for piece in samples}) > 1:
        samples = [piece.mean(axis=1, keepdims=True).astype(piece.dtype) for piece in samples]
    return np.concatenate(samples)

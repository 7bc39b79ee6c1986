"""Recordings in files: decoded by FFmpeg's libraries (PyAV), to the end, whatever a header says.

What a header says is compared afterwards. Only some containers promise a length; of others it is
an estimate (an mp3 whose bit rate changes), or nobody's (a stream that was written into a pipe):
then what is there is what was recorded. A single Ogg stream is read by libsndfile, which ends where
the stream says; FFmpeg's decoder of Vorbis is some samples off there.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import av
import numpy as np
import soundfile

from mmspec.modalities.media.containers import (
    ANOTHER,
    begins_again,
    check_whole,
    describe_junk,
    is_single_ogg,
    says_duration,
)
from mmspec.modalities.media.inputs import check_readable, door, one_line, refuse

FORMATS = "wav, flac, ogg, mp3, m4a or webm"

PROMISES = frozenset({"flac", "matroska", "mov", "tta"})
"""Containers, by FFmpeg's names, that say how long they are, not how many bytes."""

LAST_PICTURE_S = 1.0
"""Seconds that a film may seem shorter: nobody says how long its last picture is to be seen."""

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
        heard = _decoded(container, stream)
        promised_s = _promised_s(container, stream, path)
        samples = [_samples(frame) for frame in heard.frames]
        rates = sorted({frame.sample_rate for frame in heard.frames})
    if begins_again(path, heard.end):
        refuse(name, ANOTHER, "one recording")
    if not samples:
        return np.zeros((0, 1), np.float32), 1
    if len(rates) > 1:
        found = f"recordings of {' and '.join(map(str, rates))} Hz behind each other"
        refuse(name, found, "one sampling rate")
    joined = _joined(samples)
    seconds = max(len(joined) / rates[0], heard.others_s)
    if seconds + (LAST_PICTURE_S if heard.others_s else SLACK / rates[0]) < promised_s:
        found = f"{seconds:.2f} of the {promised_s:.2f} s that its header promises (truncated?)"
        refuse(name, found, "a whole file")
    if heard.damaged:
        refuse(name, f"{heard.damaged} damaged pieces that can't be decoded", "a whole file")
    return joined, rates[0]


@dataclass
class _Heard:
    """What was found on the way through a file.

    Attributes:
        frames: of sound.
        damaged: how many packets of sound couldn't be decoded.
        end: where in the file its last packet ends, in bytes.
        others_s: seconds after which its other streams end; 0 where it has none.
    """

    frames: list[Any] = field(default_factory=list)
    damaged: int = 0
    end: int = 0
    others_s: float = 0.0


def _decoded(container: Any, stream: Any) -> _Heard:
    heard = _Heard()
    for packet in container.demux():
        heard.end = max(heard.end, (packet.pos or 0) + packet.size)
        if packet.stream.index != stream.index:
            if packet.pts is not None and packet.time_base:
                last = float((packet.pts + (packet.duration or 0)) * packet.time_base)
                heard.others_s = max(heard.others_s, last)
            continue
        try:
            heard.frames += packet.decode()
        except av.error.FFmpegError:
            heard.damaged += not bytes(packet).startswith(TAGS)
    return heard


def _promised_s(container: Any, stream: Any, path: Path) -> float:
    """Seconds that a header promises; 0 where it doesn't, or where its bytes were counted."""
    kinds = PROMISES & set(container.format.name.split(","))
    if "matroska" in kinds and container.duration and says_duration(path):
        return float(container.duration / av.time_base)
    return float(stream.duration * stream.time_base) if kinds and stream.duration else 0.0


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

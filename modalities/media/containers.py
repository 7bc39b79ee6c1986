"""Is an audio file whole? Decoders return what is there and don't say that more was promised.

Each container says somewhere how long it is: RIFF and AIFF in the size of their data chunk, Ogg
by an end-of-stream page, mp3 in the Xing tag of its first frame, FLAC in a header that its
decoder checks by itself.
"""

from __future__ import annotations

import mmap
from pathlib import Path

from mmspec.modalities.media.inputs import is_text

UNKNOWN_LENGTH = 0x7FFFF000
"""Sizes from here on are placeholders that programs write into a pipe ("until it ends")."""

Bytes = mmap.mmap | bytes


def check_whole(path: Path) -> str | None:
    """What is missing of a file, in words; None where nothing is, or where nobody can know."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        missing = _missing(data)
    return None if missing is None else f"a truncated file ({missing})"


def describe_junk(path: Path, reason: str) -> str:
    """What a file without audio looks like, for an error message."""
    with path.open("rb") as file:
        head = file.read(512)
    if is_text(head):
        return "a text file"
    if head[:4] in (b"fLaC", b"OggS", b"RIFF"):
        return f"damaged or truncated audio ({reason})"
    return f"no audio that libsndfile can read ({reason})"


def _missing(data: Bytes) -> str | None:
    head = bytes(data[:4])
    if head in (b"RIFF", b"RIFX"):
        return _missing_of_chunks(data, b"data", "little" if head == b"RIFF" else "big")
    if head == b"FORM":
        return _missing_of_chunks(data, b"SSND", "big")
    if head == b"OggS":
        return _missing_of_ogg(data)
    if head[:3] == b"ID3" or (head[:1] == b"\xff" and head[1:2] >= b"\xe0"):
        return _missing_of_mp3(data)
    return None


def _missing_of_chunks(data: Bytes, samples: bytes, order: str) -> str | None:
    at = 12
    while at + 8 <= len(data):
        size = int.from_bytes(data[at + 4 : at + 8], "little" if order == "little" else "big")
        if bytes(data[at : at + 4]) == samples:
            there = len(data) - at - 8
            if there >= size or size >= UNKNOWN_LENGTH:
                return None
            return f"its header promises {size} bytes of samples, {there} are there"
        at += 8 + size + size % 2
    return "it ends before its samples begin"


def _missing_of_ogg(data: Bytes) -> str | None:
    at = data.rfind(b"OggS")
    segments = data[at + 26] if at + 27 <= len(data) else 0
    body = at + 27 + segments
    ends = body + sum(data[at + 27 : body])
    if at + 27 > len(data) or ends > len(data):
        return "it ends inside a page"
    last_page = data[at + 5] & 4
    return None if last_page else "its last page doesn't end the stream"


def _missing_of_mp3(data: Bytes) -> str | None:
    start = 0
    if bytes(data[:3]) == b"ID3" and len(data) >= 10:
        size = 0
        for byte in data[6:10]:  # four times seven bits
            size = size << 7 | byte & 0x7F
        start = 10 + size
        if start >= len(data):
            return "it ends inside its tag"
    tag = max(data.find(mark, start, start + 64) for mark in (b"Xing", b"Info"))
    if tag < 0:
        return None  # no tag, no promise
    flags = int.from_bytes(data[tag + 4 : tag + 8], "big")
    if not flags & 2:
        return None
    at = tag + 8 + 4 * (flags & 1)
    promised, there = int.from_bytes(data[at : at + 4], "big"), len(data) - start
    if there >= promised:
        return None
    return f"its first frame promises {promised} bytes, {there} are there"

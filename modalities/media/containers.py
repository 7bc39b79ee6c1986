"""Is an audio file whole? Decoders return what is there and don't say that more was promised, or
that something else lies behind it.

Each container says somewhere how long it is: RIFF and AIFF in the size of their data chunk, Ogg
by an end-of-stream page, mp3 in the Xing tag of its first frame, FLAC in a header that its
decoder checks by itself.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from mmspec.modalities.media.inputs import is_text

UNKNOWN_LENGTH = 0x7FFFF000
"""Sizes from here on are placeholders that programs write into a pipe ("until it ends")."""

NO_SAMPLES = "it ends before its samples begin"

Bytes = mmap.mmap | bytes
Order = Literal["little", "big"]

ORDERS: dict[bytes, Order] = {b"RIFF": "little", b"RIFX": "big", b"FORM": "big"}
"""Files of chunks, by how they begin: the order of bytes in their numbers."""


def check_whole(path: Path) -> str | None:
    """What is missing of a file or too much, in words; None: nothing, or nobody can know."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        missing = _missing(data)
        behind = _behind_samples(data) if missing is None else None
    return behind if missing is None else f"a truncated file ({missing})"


def is_single_ogg(path: Path) -> bool:
    """Whether a file is one Ogg stream of sound, no chain of several."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        at, begun = 0, 0
        while bytes(data[at : at + 4]) == b"OggS" and at + 27 <= len(data):
            begun += bool(data[at + 5] & 2)
            body = at + 27 + data[at + 26]
            at = body + sum(data[at + 27 : body])
        return begun == 1 and at == len(data)


def describe_junk(path: Path, reason: str) -> str:
    """What a file without audio looks like, for an error message."""
    with path.open("rb") as file:
        head = file.read(512)
    if is_text(head):
        return "a text file"
    if head[:4] in (b"fLaC", b"OggS", b"RIFF"):
        return f"damaged or truncated audio ({reason})"
    return f"no audio that FFmpeg can read ({reason})"


def _missing(data: Bytes) -> str | None:
    head = bytes(data[:4])
    if head in ORDERS:
        return _missing_of_chunks(data, b"SSND" if head == b"FORM" else b"data", ORDERS[head])
    if head == b"riff":
        return _missing_of_w64(data)
    if head == b".snd":
        return _less_than(int.from_bytes(data[8:12], "big"), len(data) - 24)
    if head == b"OggS":
        return _missing_of_ogg(data)
    if head[:3] == b"ID3" or (head[:1] == b"\xff" and head[1:2] >= b"\xe0"):
        return _missing_of_mp3(data)
    return None


def _missing_of_chunks(data: Bytes, samples: bytes, order: Order) -> str | None:
    for at, name, size in _chunks(data, order):
        if name == samples:
            return _less_than(size, len(data) - at - 8)
    return NO_SAMPLES


def _less_than(promised: int, there: int) -> str | None:
    if there >= promised or promised >= UNKNOWN_LENGTH:
        return None
    return f"its header promises {promised} bytes of samples, {there} are there"


def _missing_of_w64(data: Bytes) -> str | None:
    """Chunks again, with longer names and sizes that count themselves."""
    at = 40
    while at + 24 <= len(data):
        size = int.from_bytes(data[at + 16 : at + 24], "little")
        if bytes(data[at : at + 4]) == b"data":
            return _less_than(size - 24, len(data) - at - 24)
        at += max(24, size + -size % 8)
    return NO_SAMPLES


def _behind_samples(data: Bytes) -> str | None:
    """What stands behind the samples of a file of chunks and is no chunk of its own."""
    order, before = ORDERS.get(bytes(data[:4])), True
    if order is None:
        return None
    for at, name, size in _chunks(data, order):
        if before:
            before = name not in (b"data", b"SSND")
            if not before and (size == 0 or size >= UNKNOWN_LENGTH):
                return None  # nobody said how many there are
        elif name in ORDERS:
            return "a file with another recording behind its first"
        elif not name.isascii() or not name.decode("ascii").isprintable():
            if any(data[at : at + 4096]):
                found = len(data) - at
                return f"{found} bytes behind the samples that its header promises"
            return None  # padding
    return None


def _chunks(data: Bytes, order: Order) -> Iterator[tuple[int, bytes, int]]:
    """(where it is, its name, its size in bytes) of each chunk."""
    at = 12
    while at + 8 <= len(data):
        size = int.from_bytes(data[at + 4 : at + 8], order)
        yield at, bytes(data[at : at + 4]), size
        at += 8 + size + size % 2


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

"""Is an audio file whole? Decoders return what is there and don't say that more was promised, or
that something else lies behind it.

Each container says somewhere how long it is: RIFF and AIFF in the size of their data chunk, Ogg
by an end-of-stream page, mp3 in the Xing or VBRI tag of its first frame, FLAC in a header that its
decoder checks by itself.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from mmspec.modalities.media.inputs import is_text

UNKNOWN_LENGTHS = {4: 0x7FFFF000, 8: 1 << 62}
"""Sizes from here on, by their bytes, are placeholders that programs write into a pipe."""

NO_SAMPLES = "it ends before its samples begin"
ANOTHER = "a file with another recording behind its first"

Bytes = mmap.mmap | bytes


@dataclass(frozen=True, slots=True)
class Layout:
    """How a file of chunks is written.

    Attributes:
        first: where its first chunk begins.
        order: of bytes in numbers.
        samples: the name of the chunk that holds them.
        name: bytes of a chunk's name.
        size: bytes of its size.
        counts_head: whether a size counts the chunk's name and itself.
        align: what chunks are padded to a multiple of.
    """

    first: int
    order: Literal["little", "big"]
    samples: bytes
    name: int = 4
    size: int = 4
    counts_head: bool = False
    align: int = 2


LAYOUTS = {
    b"RIFF": Layout(12, "little", b"data"),
    b"RIFX": Layout(12, "big", b"data"),
    b"RF64": Layout(12, "little", b"data"),
    b"BW64": Layout(12, "little", b"data"),
    b"FORM": Layout(12, "big", b"SSND"),
    b"riff": Layout(40, "little", b"data", name=16, size=8, counts_head=True, align=8),
    b"caff": Layout(8, "big", b"data", size=8, align=1),
}
"""Files of chunks, by how they begin."""

READ_ONCE = (b"ftyp", b"riff", b"TTA1", bytes.fromhex("3026b2758e66cf11"))
"""How files begin of which FFmpeg reads the first recording and passes over what is behind it."""

ASF_PROPERTIES = bytes.fromhex("a1dcab8c47a9cf118ee400c00c205365")
MATROSKA_DURATIONS = (b"\x44\x89\x84", b"\x44\x89\x88")
HEAD = 1 << 16
"""Bytes that the headers of a file are looked for in."""


@contextmanager
def _opened(path: Path) -> Iterator[mmap.mmap]:
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        yield data


def check_whole(path: Path) -> str | None:
    """What is missing of a file or too much, in words; None: nothing, or nobody can know."""
    with _opened(path) as data:
        missing = _missing(data)
        behind = _behind_samples(data) if missing is None else None
    return behind if missing is None else f"a truncated file ({missing})"


def begins_again(path: Path, end: int) -> bool:
    """Whether another recording of the file's own kind begins behind what was read of it.

    Args:
        path: the file.
        end: behind the last byte that was read as sound.
    """
    with _opened(path) as data:
        mark = next((mark for mark in READ_ONCE if mark in data[:12]), None)
        return mark is not None and data.find(mark, max(end, 12)) >= 0


def says_duration(path: Path) -> bool:
    """Whether a Matroska file has its duration; FFmpeg estimates it otherwise."""
    with _opened(path) as data:
        return any(data.find(mark, 0, HEAD) >= 0 for mark in MATROSKA_DURATIONS)


def is_single_ogg(path: Path) -> bool:
    """Whether a file is one Ogg stream of Vorbis or Opus, no chain of several."""
    with _opened(path) as data:
        if not any(data.find(mark, 0, 300) >= 0 for mark in (b"\x01vorbis", b"OpusHead")):
            return False
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
    if head == b"RIFF" and bytes(data[8:12]) != b"WAVE":
        return _missing_of_riffs(data)
    if head in LAYOUTS:
        return _missing_of_chunks(data, LAYOUTS[head])
    if head == b".snd":
        begin = int.from_bytes(data[4:8], "big")
        return _less_than(int.from_bytes(data[8:12], "big"), len(data) - begin)
    if head == READ_ONCE[-1][:4]:
        return _missing_of_asf(data)
    if head == b"OggS":
        return _missing_of_ogg(data)
    if head[:3] == b"ID3" or (head[:1] == b"\xff" and head[1:2] >= b"\xe0"):
        return _missing_of_mp3(data)
    return None


def _missing_of_chunks(data: Bytes, layout: Layout) -> str | None:
    for at, name, size in _chunks(data, layout):
        if name.startswith(layout.samples):
            there = len(data) - at - layout.name - layout.size
            return _less_than(size, there, layout.size)
    return NO_SAMPLES


def _less_than(promised: int, there: int, width: int = 4) -> str | None:
    if there >= promised or promised >= UNKNOWN_LENGTHS[width]:
        return None
    return f"its header promises {promised} bytes of samples, {there} are there"


def _missing_of_riffs(data: Bytes) -> str | None:
    """Films: their sound lies between pictures, in one RIFF chunk or several."""
    for at, _, size in _chunks(data, Layout(0, "little", b"")):
        if missing := _less_than(size, len(data) - at - 8):
            return missing
    return None


def _missing_of_asf(data: Bytes) -> str | None:
    at = data.find(ASF_PROPERTIES, 0, HEAD)
    is_broadcast = data[at + 88 : at + 89] != b"" and data[at + 88] & 1
    if at < 0 or is_broadcast:
        return None
    return _less_than(int.from_bytes(data[at + 40 : at + 48], "little"), len(data), 8)


def _behind_samples(data: Bytes) -> str | None:
    """What stands behind the samples of a file of chunks and is no chunk of its own."""
    layout, before = LAYOUTS.get(bytes(data[:4])), True
    if layout is None or layout.name != 4 or bytes(data[8:12]) == b"AVI ":
        return None
    for at, name, size in _chunks(data, layout):
        if before:
            before = name != layout.samples
            if not before and (size == 0 or size >= UNKNOWN_LENGTHS[layout.size]):
                return None  # nobody said how many there are
        elif name in LAYOUTS:
            return ANOTHER
        elif not name.isascii() or not name.decode("ascii").isprintable():
            if any(data[at : at + 4096]):
                found = len(data) - at
                return f"{found} bytes behind the samples that its header promises"
            return None  # padding
    return None


def _chunks(data: Bytes, layout: Layout) -> Iterator[tuple[int, bytes, int]]:
    """(where it is, its name, how many bytes are in it) of each chunk."""
    at, head = layout.first, layout.name + layout.size
    while at + head <= len(data):
        name = bytes(data[at : at + layout.name])
        size = int.from_bytes(data[at + layout.name : at + head], layout.order)
        if name == b"data" and size == 0xFFFFFFFF and bytes(data[12:16]) == b"ds64":
            size = int.from_bytes(data[28:36], layout.order)
        if layout.counts_head:
            size = max(0, size - head)
        yield at, name, size
        at += head + size + -size % layout.align


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
    tag = max(data.find(mark, start, start + 64) for mark in (b"Xing", b"Info", b"VBRI"))
    if tag < 0:
        return None  # no tag, no promise
    flags = int.from_bytes(data[tag + 4 : tag + 8], "big")
    if bytes(data[tag : tag + 4]) == b"VBRI":
        at = tag + 10
    elif flags & 2:
        at = tag + 8 + 4 * (flags & 1)
    else:
        return None
    promised, there = int.from_bytes(data[at : at + 4], "big"), len(data) - start
    if there >= promised:
        return None
    return f"its first frame promises {promised} bytes, {there} are there"

"""Where a live stream's samples come from: a file at some pace, or raw samples on a pipe."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import BinaryIO

import numpy as np

RAW = {"s16le": "<i2", "f32le": "<f4"}
"""Raw sample formats by name."""

RATE = 16_000
PIECE_S = 0.1
"""Seconds of a file that are handed out at once where it has a pace."""

WAITING = 16
"""Chunks that may wait to be heard; who has more has to wait himself."""


def paced(
    samples: np.ndarray,
    pace: float,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[np.ndarray]:
    """Pieces of a recording, each when it would have been said: at pace 1 in real time."""
    size, start = round(PIECE_S * RATE), clock()
    for first in range(0, len(samples), size):
        piece = samples[first : first + size]
        wait_s = start + (first + len(piece)) / RATE / pace - clock()
        if wait_s > 0:
            sleep(wait_s)
        yield piece


def raw(file: BinaryIO, kind: str) -> Iterator[np.ndarray]:
    """Raw mono samples as they come; half a sample at the very end is none.

    Args:
        file: with `read1`, as standard input's buffer has.
        kind: a name in `RAW`.
    """
    width, left = np.dtype(RAW[kind]).itemsize, b""
    while data := file.read1(1 << 16):  # type: ignore[attr-defined]
        left += data
        whole = len(left) // width * width
        yield np.frombuffer(left[:whole], RAW[kind])
        left = left[whole:]


def in_background(chunks: Iterable[np.ndarray], waiting: int = WAITING) -> Iterator[np.ndarray]:
    """Read in a thread, so that a source that can't wait needn't; memory stays bounded.

    Whatever has come meanwhile is one chunk: whoever is behind catches up with one decode. Nothing
    is dropped; a source that is `waiting` chunks ahead has to wait.
    """
    came: queue.Queue[np.ndarray | BaseException | None] = queue.Queue(waiting)
    left = threading.Event()

    def put(item: np.ndarray | BaseException | None) -> None:
        waits = True
        while waits and not left.is_set():
            with contextlib.suppress(queue.Full):
                came.put(item, timeout=0.1)
                waits = False

    def read() -> None:
        try:
            for chunk in chunks:
                put(chunk)
                if left.is_set():
                    return
            put(None)
        except BaseException as error:  # it is raised where the chunks are used
            put(error)

    threading.Thread(target=read, daemon=True).start()  # it may hang in a read for good
    try:
        while True:
            items = [came.get()]
            while not came.empty():
                items.append(came.get_nowait())
            arrays = [item for item in items if isinstance(item, np.ndarray)]
            if arrays:
                yield np.concatenate(arrays)
            if items[-1] is None:
                return
            if isinstance(items[-1], BaseException):
                raise items[-1]
    finally:
        left.set()

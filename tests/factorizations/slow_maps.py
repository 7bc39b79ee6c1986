"""The maps between sequences and grids again, by plain loops from the definition of each order.

Nothing here is shared with the code under test. Ids of codes are given by `first[k] + code`.
"""

from __future__ import annotations

from collections.abc import Sequence

Rows = Sequence[Sequence[int]]


def time_major(grid: Rows, first: Sequence[int], end: Sequence[int]) -> list[int]:
    out: list[int] = []
    for frame in grid:
        for k in range(len(first)):
            out.append(first[k] + frame[k])
    return out + list(end)


def seven_slots(grid: Rows, base: int, codes: int, end: Sequence[int]) -> list[int]:
    """code0, code1[0], code2[0], code2[1], code1[1], code2[2], code2[3], one slot after another."""
    out: list[int] = []
    for code0, code1_0, code1_1, code2_0, code2_1, code2_2, code2_3 in grid:
        slots = [code0, code1_0, code2_0, code2_1, code1_1, code2_2, code2_3]
        for slot, code in enumerate(slots):
            out.append(base + slot * codes + code)
    return out + list(end)


def codebook_major(grid: Rows, first: Sequence[int], end: Sequence[int]) -> list[int]:
    out: list[int] = []
    for k in range(len(first)):
        for frame in grid:
            out.append(first[k] + frame[k])
        if k == 0:
            out.extend(end)
    return out


def delayed(
    grid: Rows, delays: Sequence[int], start: int, pad: int, end: Sequence[int]
) -> list[list[int]]:
    """Each codebook as a stream of its own, shifted, then cut into rows."""
    streams = []
    for k, delay in enumerate(delays):
        stream = [start] * (1 + delay)
        for frame in grid:
            stream.append(frame[k])
        streams.append(stream + list(end))
    longest = max(len(stream) for stream in streams)
    for stream in streams:
        while len(stream) < longest:
            stream.append(pad)
    return [[stream[row] for stream in streams] for row in range(longest)]


def depth(grid: Rows, end: Sequence[int]) -> list[list[int]]:
    out = [list(frame) for frame in grid]
    if end:
        out.append([end[0]] * len(grid[0]))
    return out


def first_stream(
    grid: Rows, chained: int, first: Sequence[int], end: Sequence[int]
) -> list[list[int]]:
    chain: list[int] = []
    for frame in grid:
        for k in range(chained):
            chain.append(first[k] + frame[k])
    out = [chain + list(end)]
    for k in range(chained, len(first)):
        out.append([first[k] + frame[k] for frame in grid])
    return out


def order_of_decisions(kind: str, frames: int, width: int, prompt: int) -> list[tuple[int, int]]:
    """(frame, codebook) of every cell that is decided, in order."""
    if kind == "seven":
        order = [0, 1, 3, 4, 2, 5, 6]
        return [(t, k) for t in range(prompt, frames) for k in order]
    if kind == "codebook-major":
        return [(t, k) for k in range(width) for t in range(prompt, frames)]
    if kind == "first":
        head = [(t, 0) for t in range(prompt, frames)]
        return head + [(t, k) for k in range(1, width) for t in range(prompt, frames)]
    if kind == "delayed":  # codebook k is k steps late: walk the anti-diagonals
        cells = []
        for step in range(frames + width):
            for k in range(width):
                if prompt <= step - k < frames:
                    cells.append((step - k, k))
        return cells
    return [(t, k) for t in range(prompt, frames) for k in range(width)]

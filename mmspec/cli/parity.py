"""`mmspec parity codec`: whether two runs wrote the same codes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from mmspec.cli.groups import argument, given, grouped


@grouped
def codec(
    first: Annotated[
        Path,
        argument(
            "A",
            "Codes (.npz, .npy), or a sound file with its codes beside it.",
            required=True,
        ),
    ],
    second: Annotated[Path, argument("B", "Likewise.", required=True)],
    /,
    *,
    json: Annotated[
        Path | None, given("Write everything there.", panel="Output", metavar="FILE")
    ] = None,
) -> int:
    """Say whether two code arrays are the same, all codebooks, and where they part.

    Exit code 0 where they are equal, 1 where they differ, 2 where one of them is no code array.

      mmspec parity codec plain.wav speculative.wav
      mmspec parity codec mine.npz theirs.npy --json parity.json
    """
    from mmspec.compare.code_parity import compare_codes
    from mmspec.output.formats import dump_json, write_atomic
    from mmspec.tasks.tts.code_files import read_codes

    one, other = read_codes(first), read_codes(second)
    found = compare_codes(
        one.codes,
        other.codes,
        gaps=(one.gaps, other.gaps),
        decided_at=one.decided_at if one.decided_at is not None else other.decided_at,
    )
    if json is not None:
        paths = {"first": str(first), "second": str(second)}
        write_atomic(json, dump_json(paths | found.to_dict()))
    _show([(first, one), (second, other)], found)
    return 0 if found.equal else 1


def _show(files: list[tuple[Path, Any]], found: Any) -> None:
    from rich.console import Console

    from mmspec.output.render import new_table, plain_text

    table = new_table(show_header=False, pad_edge=False)
    table.add_column(style="cyan", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in [*_inputs(files), *_facts(found)]:
        table.add_row(plain_text(name), plain_text(value))
    console = Console(highlight=False)
    console.print(plain_text(_sentence(found), "green" if found.equal else "red"))
    console.print(table)


def _sentence(found: Any) -> str:
    from mmspec.compare.code_parity import TIE, Verdict

    if found.verdict is Verdict.EQUAL:
        return "equal: every code of every codebook"
    if found.verdict is Verdict.TIE:
        return f"different, as a numerical tie explains: the scores were less than {TIE} apart"
    if found.verdict is Verdict.UNEXPLAINED:
        return "different, and nobody wrote down how close the scores were"
    (frames, width), (others, other_width) = found.first_shape, found.second_shape
    if width != other_width:
        return f"different: {width} codebooks in A, {other_width} in B"
    if found.parted:
        return f"different, by more than a tie ({TIE})"
    return f"different: equal as far as both go, {frames} frames in A, {others} in B"


def _inputs(files: list[tuple[Path, Any]]) -> list[tuple[str, str]]:
    rows = []
    for name, (path, file) in zip("AB", files, strict=True):
        frames, width = file.codes.shape
        written = "" if file.family is None else f", written by {file.family}"
        rows.append((name, f"{path}: {frames} frames × {width} codebooks{written}"))
    return rows


def _facts(found: Any) -> list[tuple[str, str]]:
    rows = [
        (f"codebook {codebook}", f"{count} of {found.frames} codes equal")
        for codebook, count in enumerate(found.equal_codes)
    ]
    if found.equal:
        return rows
    rows.append(("equal before", f"{found.equal_frames} frames"))
    if found.difference is not None:
        rows.append(("first difference", _place(found.difference)))
    if found.parted and found.parted != (found.difference,):
        rows += [("decided first", _place(place)) for place in found.parted]
    return rows


def _place(place: Any) -> str:
    gap = "" if place.gap is None else f"; the two best scores were {place.gap:.2g} apart"
    codes = f"{place.first} in A, {place.second} in B"
    return f"frame {place.frame}, codebook {place.codebook}: {codes}{gap}"

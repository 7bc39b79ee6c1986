"""What was measured, as a page: each drafter's way to each output, and the times of peers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mmspec.bench.measured_run import Result
from mmspec.bench.measuring import Measured
from mmspec.compare.comparison import Comparison


def say_again(result: Result, entries: Any) -> None:
    """Show what was measured of models that speak: once more, since a measured run keeps no rounds.

    Args:
        result: of the measurement.
        entries: of the page: `done(name, speech, compared)` and `failed(name, message)`.
    """
    for member in result.members[: len(result.ours)]:
        if member.why_not is not None:
            entries.failed(member.name, member.why_not)
            continue
        peer: Any = member.peer
        for place, case in enumerate(result.cases):
            said = peer.speaker.speak(case.subject, case.request)
            name = f"{case.path.name}, {member.name.removeprefix('mmspec ')}"
            entries.done(name, said, compared(result, member, place))


def compared(result: Result, member: Measured, place: int) -> dict[str, Comparison]:
    """Medians over all pairs of runs of one case."""
    by_name = {one.name: one for one in result.members}
    found = {}
    for pair in result.versus:
        if pair.ours != member.name:
            continue
        peer = by_name[pair.peer]
        if pair.why_not is not None:
            found[pair.peer] = Comparison(False, pair.why_not)
            continue
        found[pair.peer] = Comparison(
            available=True,
            ids_equal=_ids(peer, place) == _ids(member, place),
            decode_ratio=pair.decode_by_file[place].median,
            end_to_end_ratio=pair.end_to_end_by_file[place].median,
            remark=peer.peer.remark,
        )
    return found


def _ids(member: Measured, place: int) -> Sequence[tuple[int, ...]]:
    return [run[place].ids for run in member.outcomes]

"""What was measured, as a page: each drafter's way to each output, and the times of peers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mmspec.bench.contest import Result
from mmspec.bench.measuring import Measured
from mmspec.compare.comparison import Comparison
from mmspec.page import Decoded, Failure, PageData, TokenTexts, picture_of, sight_of
from mmspec.page.wording import SEEN


def page_of(result: Result, grounding: bool | float | None = None) -> PageData:
    """The page of a benchmark of models that look.

    Every drafter looks once more, untimed, since a measured run keeps no rounds.

    Args:
        result: of the measurement.
        grounding: find out what rests on the images: True, or a threshold in nats.
    """
    ours = result.contenders[: len(result.ours)]
    entries: list[Decoded | Failure] = []
    for member in ours:
        if member.why_not is not None:
            entries.append(Failure(member.name, member.why_not, SEEN))
            continue
        entries += _entries(result, member, grounding)
    return PageData(result.settings, tuple(entries))


def say_again(result: Result, entries: Any) -> None:
    """The same of a benchmark of models that speak.

    Args:
        result: of the measurement.
        entries: of the page: `done(name, speech, compared)` and `failed(name, message)`.
    """
    for member in result.contenders[: len(result.ours)]:
        if member.why_not is not None:
            entries.failed(member.name, member.why_not)
            continue
        contender: Any = member.contender
        for place, case in enumerate(result.cases):
            said = contender.speaker.speak(case.subject, case.request)
            name = f"{case.path.name}, {member.name.removeprefix('mmspec ')}"
            entries.done(name, said, _compared(result, member, place))


def _entries(result: Result, member: Measured, grounding: bool | float | None) -> list[Decoded]:
    contender: Any = member.contender
    texts = TokenTexts.of_viewer(contender.viewer)
    entries: list[Decoded] = []
    for place, case in enumerate(result.cases):
        request = case.request
        said = contender.viewer.describe(
            case.subject,
            task=request.task,
            max_new_tokens=request.max_new_tokens,
            hypothesis=contender.expected(request, member.hypothesis_of(case)),
            grounding=grounding,
        )
        compared = _compared(result, member, place)
        name = f"{case.path.name}, {member.name.removeprefix('mmspec ')}"
        pictures = [picture_of(case.subject)]
        entries.append(sight_of(name, said, texts, pictures, compared=compared))
    return entries


def _compared(result: Result, member: Measured, place: int) -> dict[str, Comparison]:
    """Medians over all pairs of runs of one case."""
    by_name = {one.name: one for one in result.contenders}
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
            remark=peer.contender.remark,
        )
    return found


def _ids(member: Measured, place: int) -> Sequence[tuple[int, ...]]:
    return [run[place].ids for run in member.outcomes]

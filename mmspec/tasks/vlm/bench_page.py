"""What was measured of models that look, as a page."""

from __future__ import annotations

from typing import Any

from mmspec.bench.measured_run import Result
from mmspec.bench.measuring import Measured
from mmspec.bench.page import compared
from mmspec.page import Decoded, Failure, PageData, TokenTexts, picture_of
from mmspec.page.wording import SEEN
from mmspec.tasks.vlm.page import sight_of


def page_of(result: Result, grounding: bool | float | None = None) -> PageData:
    """The page of a benchmark of models that look.

    Every drafter looks once more, untimed, since a measured run keeps no rounds.

    Args:
        result: of the measurement.
        grounding: find out what rests on the images: True, or a threshold in nats.
    """
    ours = result.members[: len(result.ours)]
    entries: list[Decoded | Failure] = []
    for member in ours:
        if member.why_not is not None:
            entries.append(Failure(member.name, member.why_not, SEEN))
            continue
        entries += _entries(result, member, grounding)
    return PageData(result.settings, tuple(entries))


def _entries(result: Result, member: Measured, grounding: bool | float | None) -> list[Decoded]:
    peer: Any = member.peer
    texts = TokenTexts.of_viewer(peer.viewer)
    entries: list[Decoded] = []
    for place, case in enumerate(result.cases):
        request = case.request
        said = peer.viewer.describe(
            case.subject,
            task=request.task,
            max_new_tokens=request.max_new_tokens,
            hypothesis=peer.expected(request, member.hypothesis_of(case)),
            grounding=grounding,
        )
        beside = compared(result, member, place)
        name = f"{case.path.name}, {member.name.removeprefix('mmspec ')}"
        pictures = [picture_of(case.subject)]
        entries.append(sight_of(name, said, texts, pictures, compared=beside))
    return entries

"""A request by itself, step by step."""

from __future__ import annotations

from typing import Any

from mmspec.engine import Steps, stepwise
from tests.toys import Run, open_session, ordinary, toy_law


def request(run: Run) -> Steps[list[int]]:
    """A session's rounds to its end, as a request."""
    while run.session.finish_reason is None:
        yield from run.session.steps()
    return run.session.prefix.emitted


def test_stepping_through_a_request_and_leaving_it_early() -> None:
    law = toy_law(0)
    run = open_session(law, max_length=30)
    pauses: Any = stepwise(request(run))
    for _ in range(3):
        next(pauses)
    pauses.close()
    held = run.target.held
    assert held == tuple(run.session.prefix.ids[: len(held)])
    assert run.session.run() == ordinary(law, max_length=30).ids

"""How mutants are caught: a fault is planted in production code, and a check has to see it.

A module of mutants has `CHECKS`, which pass on the real code, and `MUTANTS`: what plants a fault,
the check that raises `Caught` on it, and what that has to say. It imports the tests from here;
`conftest` hands them its checks and mutants.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

Patch = pytest.MonkeyPatch
Check = Callable[[], None]
Mutant = tuple[Callable[[Patch], None], Check, str]


class Caught(Exception):
    """A check has seen a fault (no AssertionError: it must be raised under `python -O` too)."""


def expect(condition: bool, what: str) -> None:
    if not condition:
        raise Caught(what)


def test_the_real_code_passes(check: Check) -> None:
    check()


def test_the_mutant_is_caught(mutant: Mutant, monkeypatch: Patch) -> None:
    mutate, check, seen = mutant
    mutate(monkeypatch)
    with pytest.raises(Caught, match=seen):
        check()


def test_every_check_catches_something(request: pytest.FixtureRequest) -> None:
    caught = {check for _, check, _ in request.module.MUTANTS}
    # No assert statement: this is no test module, so pytest doesn't rewrite it.
    expect(caught == set(request.module.CHECKS), "a check catches nothing")

"""The default run takes every value of every parameter; the grid every other combination."""

from __future__ import annotations

from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest

from tests.conftest import pytest_collection_modifyitems


class Case:
    """A collected test, as far as the choice looks at it."""

    def __init__(self, name: str, marks: list[str], **params: Any) -> None:
        self.nodeid = f"{name}[{'-'.join(map(str, params.values()))}]" if params else name
        self.marks = [SimpleNamespace(args=(names,)) for names in marks]
        self.grid = False
        if params:
            self.callspec = SimpleNamespace(params=params)

    def iter_markers(self, name: str) -> list[Any]:
        return self.marks

    def add_marker(self, name: str) -> None:
        self.grid = name == "grid"


def chosen(cases: list[Case], part: str | None = None) -> list[Case]:
    ignored = SimpleNamespace(pytest_deselected=lambda items: None)
    config: Any = SimpleNamespace(option=SimpleNamespace(part=part), hook=ignored)
    items: Any = list(cases)
    pytest_collection_modifyitems(config, items)
    return items  # type: ignore[no-any-return]


def drafters() -> list[Case]:
    sizes = product("abc", range(4), (True, False))
    return [Case("f", ["drafter", "gamma"], drafter=d, gamma=g, times=t) for d, g, t in sizes]


def test_of_a_product_every_value_is_kept_and_the_rest_is_grid() -> None:
    kept = [case.callspec.params for case in chosen(drafters()) if not case.grid]
    assert len(kept) == 4
    assert {p["drafter"] for p in kept} == set("abc")
    assert {p["gamma"] for p in kept} == set(range(4))
    assert {p["times"] for p in kept} == {True, False}


@pytest.mark.parametrize("names", ["what, wanted", ["what", "wanted"]])
def test_cases_that_are_spelled_out_and_single_tests_are_no_grid(names: Any) -> None:
    cases = [Case("f", [names], what=w, wanted=v) for w, v in product("abc", (1, 2))]
    cases += [Case("g", []), Case("h", []), *(Case("one", ["x"], x=x) for x in range(9))]
    assert not any(case.grid for case in chosen(cases))


def test_parts_are_the_whole_and_share_nothing() -> None:
    parts = [chosen(drafters(), f"{7 + day}/3") for day in range(3)]
    names = [case.nodeid for part in parts for case in part]
    assert len(names) == len(set(names)) == 24
    assert all(len(part) > 2 for part in parts)
    assert sum(case.grid for part in parts for case in part) == 20  # which is told before

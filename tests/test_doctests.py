"""Every example in a docstring runs, as it stands."""

import doctest
import importlib
import pkgutil

import pytest

import mmspec

REFERENCES = (
    "tests.acceptance.reference",
    "tests.acceptance.frames_reference",
    "tests.proposals.scripted",
)
"""What the rules are held against: test code, whose examples run too."""


def modules() -> list[str]:
    found = [m.name for m in pkgutil.walk_packages(mmspec.__path__, "mmspec.")]
    ours = {name for name in found if not name.startswith("mmspec.samples")}
    return sorted(ours | set(REFERENCES))


@pytest.mark.parametrize("name", modules())
def test_docstring_examples_run(name: str) -> None:
    module = importlib.import_module(name)
    result = doctest.testmod(module, optionflags=doctest.ELLIPSIS)
    assert result.failed == 0


def test_some_docstrings_have_examples() -> None:
    finder = doctest.DocTestFinder()
    examples = [
        test
        for name in modules()
        for test in finder.find(importlib.import_module(name))
        if test.examples
    ]
    assert len(examples) > 10

"""Hands the tests of `catching` the checks and mutants of the module that they were imported to."""

from __future__ import annotations

import pytest


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "check" in metafunc.fixturenames:
        checks = metafunc.module.CHECKS
        metafunc.parametrize("check", checks, ids=[check.__name__ for check in checks])
    if "mutant" in metafunc.fixturenames:
        mutants = metafunc.module.MUTANTS
        names = [f"{mutate.__name__}-{check.__name__}" for mutate, check, _ in mutants]
        metafunc.parametrize("mutant", mutants, ids=names)

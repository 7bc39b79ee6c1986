"""What every test gets: one thread and a known seed. Which tests are the grid."""

import os
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import compress
from operator import not_
from pathlib import Path

import pytest
import torch

import mmspec

# Programs that tests start import the mmspec that is tested, also where that is a clone's own.
CLONE = Path(__file__).parents[1]
if Path(mmspec.__file__).parents[1] == CLONE:
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(CLONE), *([before] if before else [])])


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> Iterator[None]:
    """Tiny operations by the thousand: threads only wait for each other here."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def _seeded() -> None:
    """Fresh noise follows torch's global generator, so a test starts from a known one."""
    torch.manual_seed(20240)


@pytest.fixture(params=[1, 2, 3, 4])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    """torch's CPU threads, as many as there are to be shared out."""
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--part", metavar="K/N", help="one test in N: those whose name's checksum leaves K mod N"
    )


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Two processes for the whole suite; tests that were named run in this one."""
    return 2 if config.args_source is config.ArgsSource.TESTPATHS else 0


def values(item: pytest.Item) -> set[tuple[object, ...]]:
    """What a test is called with, one tuple per parametrisation."""
    given = item.callspec.params if hasattr(item, "callspec") else {}
    marks = [mark.args[0] for mark in item.iter_markers("parametrize")]
    groups = [tuple(n.replace(",", " ").split() if isinstance(n, str) else n) for n in marks]
    groups += [(name,) for name in given if not any(name in group for group in groups)]
    return {(group, *(id(given[name]) for name in group)) for group in groups}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of a product of parametrisations some cases hold every value; the others are the grid."""
    functions: dict[str, dict[pytest.Item, set[tuple[object, ...]]]] = defaultdict(dict)
    for item in items:
        functions[item.nodeid.partition("[")[0]][item] = values(item)
    for cases in functions.values():
        unseen, taken = set().union(*cases.values()), Counter[tuple[object, ...]]()
        while unseen:
            best = max(
                cases, key=lambda i: (len(cases[i] & unseen), -sum(taken[v] for v in cases[i]))
            )
            taken.update(cases[best])
            unseen -= cases.pop(best)
        for item in cases:
            if cases[item]:
                item.add_marker("grid")
    if config.option.part:
        part, of = map(int, config.option.part.split("/"))
        there = [(zlib.crc32(item.nodeid.encode()) - part) % of == 0 for item in items]
        config.hook.pytest_deselected(items=[*compress(items, map(not_, there))])
        items[:] = compress(items, there)

"""What every test gets: one thread and a known seed."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import mmspec

# Programs that tests start import the mmspec that is tested, also where that is a clone's own.
if Path(__file__).parents[1] == Path(mmspec.__file__).parents[1]:
    os.environ["PYTHONPATH"] = str(Path(__file__).parents[1])


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

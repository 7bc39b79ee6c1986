"""The recipe of the CTC head: a run that was killed goes on as if nothing had been."""

from __future__ import annotations

import importlib
import itertools
import json
from pathlib import Path
from types import ModuleType

import pytest
import torch
from safetensors.torch import save_file

from mmspec.modalities.whisper.ctc_head import Shape

RECIPE = Path(__file__).parents[1] / "samples" / "recipe" / "ctc"
TINY = {
    "states": 8,
    "width": 64,
    "inner": 16,
    "kernel": 3,
    "blocks": 2,
    "attentive": (1,),
    "guess_after": 1,
}
PARTS = ("head", "optimizer", "step", "at")


@pytest.fixture
def recipe(monkeypatch: pytest.MonkeyPatch) -> dict[str, ModuleType]:
    monkeypatch.syspath_prepend(str(RECIPE))
    modules = {name: importlib.import_module(name) for name in ("score", "train")}
    monkeypatch.setattr(modules["train"], "_BATCH_STATES", 256)  # two lines
    return modules


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    """Six shards of two windows, two lines each: more than one pool."""
    chance = torch.Generator().manual_seed(0)
    lines = [["A few words.", 0, 40], ["And some more.", 50, 90]]
    for number in range(6):
        codes = torch.randint(-127, 128, (200, 16), dtype=torch.int8, generator=chance)
        tensors = {
            "codes": codes,
            "scales": torch.full((2, 16), 0.01),
            "ends": torch.tensor([0, 100, 200]),
        }
        facts = {"lines": json.dumps([lines, lines]), "sessions": json.dumps(["a", "b"])}
        save_file(tensors, tmp_path / f"{number:05d}.safetensors", facts)
    return tmp_path


def fresh(recipe: dict[str, ModuleType]) -> object:
    return recipe["train"].Run(Shape(**TINY), steps=20)


def test_a_killed_run_has_the_losses_of_one_that_was_not(
    recipe: dict[str, ModuleType], shards: Path
) -> None:
    whole = list(itertools.islice(fresh(recipe).losses(shards), 10))  # eight are of the first pool
    assert len(set(whole)) == 10
    first = fresh(recipe)
    before = list(itertools.islice(first.losses(shards), 6))
    first.save(shards / "checkpoint.pt")
    list(itertools.islice(first.losses(shards), 1))  # done and lost
    (shards / "00099.safetensors").write_bytes(b"made meanwhile, for the next turn")
    second = fresh(recipe)
    second.load(shards / "checkpoint.pt")
    assert before + list(itertools.islice(second.losses(shards), 4)) == whole


@pytest.mark.parametrize("part", PARTS)
def test_each_part_of_the_checkpoint_counts(
    recipe: dict[str, ModuleType], shards: Path, part: str
) -> None:
    run = fresh(recipe)
    whole = list(itertools.islice(run.losses(shards), 4))
    run = fresh(recipe)
    fresh(recipe).save(shards / "other.pt")
    list(itertools.islice(run.losses(shards), 2))
    run.save(shards / "checkpoint.pt")
    saved = torch.load(shards / "checkpoint.pt")
    torch.save({**saved, part: torch.load(shards / "other.pt")[part]}, shards / "checkpoint.pt")
    run = fresh(recipe)
    run.load(shards / "checkpoint.pt")
    assert list(itertools.islice(run.losses(shards), 2)) != whole[2:]

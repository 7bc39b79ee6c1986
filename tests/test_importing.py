"""One package, wherever it lies: in a clone, installed from there, and where a wheel has it."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import mmspec

ROOT = Path(__file__).parents[1]

LAWS = """
import importlib, importlib.resources, pickle, pkgutil, sys
import mmspec
from mmspec.factorizations import TextSteps
import mmspec.modalities

assert pickle.loads(pickle.dumps(TextSteps)) is TextSteps
for name in ("mmspec", "tests", "benchmarks", "docs"):
    assert importlib.util.find_spec(f"mmspec.{name}") is None, name
assert importlib.util.find_spec("mmspec.modalities.factorizations") is None
found = [module.name for module in pkgutil.iter_modules(mmspec.__path__, "mmspec.")]
assert len(found) == len(set(found)) and {"mmspec.cli", "mmspec.modalities"} <= set(found)
assert "torch" not in sys.modules
for package in ("factorizations", "modalities"):
    files = importlib.resources.files(f"mmspec.{package}")
    assert (files / "__init__.py").is_file()
    print(files)
"""

CLONE = f"""
import sys
sys.meta_path = [found for found in sys.meta_path if "ditable" not in repr(found)]
sys.path.insert(0, {str(ROOT)!r})
"""

EDITABLE = f"""
import sys
from importlib.util import module_from_spec, spec_from_file_location
spec = spec_from_file_location("mmspec", {str(ROOT / "mmspec" / "__init__.py")!r})
sys.modules["mmspec"] = module_from_spec(spec)
spec.loader.exec_module(sys.modules["mmspec"])
"""


def started(code: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-c", code]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packages where a wheel has them."""
    folder = tmp_path_factory.mktemp("wheel")
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    for name, source in settings["package-dir"].items():
        if name != "mmspec.samples":
            code = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / source, folder.joinpath(*name.split(".")), ignore=code)
    return folder


@pytest.mark.parametrize("start", [CLONE, EDITABLE], ids=["clone", "editable"])
def test_a_clone_adds_its_two_packages_and_nothing_else(start: str) -> None:
    run = started(start + LAWS)
    assert run.returncode == 0, run.stderr
    assert run.stdout.split() == [str(ROOT / "factorizations"), str(ROOT / "modalities")]


def test_a_wheel_needs_no_addition(wheel: Path) -> None:
    run = started(f"{CLONE}\nsys.path[0] = {str(wheel)!r}\n{LAWS}\nprint(len(mmspec.__path__))")
    assert run.returncode == 0, run.stderr
    folder = wheel / "mmspec"
    assert run.stdout.split() == [str(folder / "factorizations"), str(folder / "modalities"), "1"]


@pytest.mark.parametrize(
    "mutant",
    ["mmspec.__path__.append(sys.path[0])", "mmspec._Beside.packages = __import__('os').listdir()"],
    ids=["the whole clone", "no choice"],
)
def test_the_laws_see_more_than_two_packages(mutant: str) -> None:
    run = started(f"{CLONE}\nimport mmspec\n{mutant}\n{LAWS}", cwd=ROOT)
    assert run.returncode == 1
    assert run.stderr.splitlines()[-1] == "AssertionError: mmspec"


def test_the_module_runs_in_a_clones_folder() -> None:
    command = [sys.executable, "-m", "mmspec", "--version"]
    run = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert run.stdout == f"mmspec {mmspec.__version__}\n", run.stderr


def test_programs_that_tests_start_run_the_code_that_is_tested() -> None:
    assert started("import mmspec; print(mmspec.__file__)").stdout.strip() == mmspec.__file__

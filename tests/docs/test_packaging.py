"""What wheel and sdist hold: the samples with their licences, the manual, all of the tests."""

import tomllib
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from tests.docs.pages import PAGES, ROOT, links, read


def setuptools() -> dict[str, Any]:
    settings: dict[str, Any] = tomllib.loads(read("pyproject.toml"))["tool"]["setuptools"]
    return settings


def test_every_sample_is_installed_with_the_page_that_names_its_licence() -> None:
    patterns = setuptools()["package-data"]["mmspec.samples"]
    samples = ROOT / "samples"
    files = [path.relative_to(samples) for path in samples.rglob("*") if path.is_file()]
    shipped = [file for file in files if file.parts[0] != "recipe"]
    assert Path("README.md") in shipped
    for file in shipped:
        depth = len(file.parts)
        fits = [p for p in patterns if len(Path(p).parts) == depth and fnmatch(str(file), p)]
        assert fits, f"{file} isn't in the wheel"


def test_every_package_of_the_tree_is_installed() -> None:
    settings = setuptools()
    folders = {name: ROOT / folder for name, folder in settings["package-dir"].items()}
    for name in ("mmspec", "mmspec.factorizations", "mmspec.modalities"):
        for marker in folders[name].rglob("__init__.py"):
            inner = marker.parent.relative_to(folders[name]).parts
            assert ".".join((name, *inner)) in settings["packages"]


def test_the_sdist_has_what_its_pages_link_to_and_the_tests() -> None:
    # setuptools takes these by itself, and of tests only those at the top.
    held = {"README.md", "LICENSE", "pyproject.toml", "mmspec", "modalities", "factorizations"}
    for line in read("MANIFEST.in").splitlines():
        command, *names = line.split()
        held |= set(names) if command in ("include", "graft") else set()
    needed = {"tests", "mkdocs.yml", ".ci/run"}  # tests read the last two
    for page in PAGES:
        for link in links(page):
            place = link.partition("#")[0]
            if place and not link.startswith("https://"):
                needed.add((page.parent / place).resolve().relative_to(ROOT).parts[0])
    assert needed <= held

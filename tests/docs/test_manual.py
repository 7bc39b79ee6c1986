"""The manual as a whole: it builds, its links lead somewhere, it knows every option and field."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mmspec.cli import app, main
from mmspec.engine import policy
from mmspec.modalities import ADAPTERS
from mmspec.modalities.whisper.draft import ModelDraft
from mmspec.proposals import NgramDrafter
from mmspec.report.report import RoundStats
from tests.docs.pages import (
    PAGES,
    ROOT,
    anchors,
    first_cells,
    links,
    name_of,
    prose,
    read,
    section,
)

CLI = "docs/cli.md"


def test_mkdocs_builds_strictly(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    built = {page.stem for page in tmp_path.glob("*.html")}
    assert {page.stem for page in PAGES if page.parent.name == "docs"} <= built


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    for link in links(page):
        if link.startswith("https://"):
            continue
        place, _, anchor = link.partition("#")
        there = page if not place else (page.parent / place).resolve()
        assert there.exists(), f"{name_of(page)}: {link}"
        assert not anchor or anchor in anchors(there), f"{name_of(page)}: {link}"


def commands() -> dict[str, Any]:
    """Every command of the command line by its name."""
    found: dict[str, Any] = {}

    def walk(name: str, command: Any) -> None:
        inner = [part for part in command if not part.startswith("-")]
        if not inner:
            found[name] = command
        for part in inner:
            walk(f"{name} {part}", command[part])

    walk("mmspec", app)
    return found


def parameters(command: Any) -> list[Any]:
    """Options and arguments, no groups of them."""
    return [one for one in command.assemble_argument_collection() if one.show]


def options(command: Any) -> set[str]:
    """Options and arguments as `--help` shows them."""
    names = {"--help", "-h"}
    for parameter in parameters(command):
        several = parameter.field_info.kind is parameter.field_info.VAR_POSITIONAL
        for name in parameter.names:
            names.add(f"{name}..." if several else name)
    return names


def test_the_cli_page_has_every_command() -> None:
    headings = re.findall(r"^## (mmspec .+)$", prose(CLI), re.MULTILINE)
    assert sorted(headings) == sorted(commands())


@pytest.mark.parametrize("name", commands())
def test_the_cli_page_has_every_option_and_no_other(name: str) -> None:
    cells = " ".join(first_cells(section(CLI, name)))
    documented = set(re.findall(r"`(--?[a-z][a-z-]*|[A-Z]+(?:\.\.\.)?)`", cells))
    assert documented == options(commands()[name])


@pytest.mark.parametrize("name", commands())
def test_the_cli_page_knows_the_defaults(name: str) -> None:
    rows = [line.split("|") for line in section(CLI, name).splitlines() if "`-" in line[:5]]
    shown = {cells[1].split("`")[1]: cells[2].replace("`", " ").split() for cells in rows}
    for parameter in parameters(commands()[name]):
        default, option = parameter.field_info.default, parameter.names[0]
        if option not in shown:
            continue
        if isinstance(default, bool):
            assert shown[option][0] == ("on" if default else "off"), option
        elif isinstance(default, str | int | float) and default != "":
            assert f"{default}".removesuffix(".0") in shown[option], option


@pytest.mark.parametrize("name", commands())
def test_help_shows_every_option(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    command = commands()[name]
    with pytest.raises(SystemExit):
        main([*name.split()[1:], "--help"])
    shown = capsys.readouterr().out
    for option in options(command):
        assert option in shown


def test_options_named_in_the_text_exist() -> None:
    known = {"--version"}.union(*(options(command) for command in commands().values()))
    for page in PAGES:
        for code in re.findall(r"`(-[^`]*)`", prose(page)):
            assert code.split()[0] in known, f"{name_of(page)}: {code}"


def test_every_field_of_a_report_is_explained() -> None:
    facts = {"drafter_forwards": 0, "conditioning": "none", "target_forwards": 0}
    facts |= {"encoder_runs": 0, "drafter_encoder_runs": 0, "parity": "L0", "finish_reason": "stop"}
    seconds = dict.fromkeys(("draft", "verify", "reconcile"), 0.0)
    fields = RoundStats().report(**facts, seconds=seconds).to_dict()
    cells = " ".join(first_cells(section("docs/report.md", "Every field")))
    assert set(re.findall(r"`(\w+)`", cells)) == set(fields)


def test_numbers_in_the_text_are_those_of_the_code() -> None:
    text = " ".join(read("docs/drafters.md").split())
    sizes = NgramDrafter()._own.sizes
    for sentence in (
        f"among sizes up to {policy.CANDIDATES[-1]}.",
        f"promises less than {round(100 * (policy.MARGIN - 1))} % gain",
        f"After {policy.FIRST_PROBE} tokens without a draft",
        f"({sizes.start} down to {sizes.stop + 1} tokens)",
        "with a probability under 0.4",
    ):
        assert sentence in text
    assert "sure=0.4" in Path(sys.modules[ModelDraft.__module__].__file__ or "").read_text()


def test_the_families_that_look_are_named_where_a_reader_looks_for_them() -> None:
    shown = {"blip_text_model": "BLIP", "vision-encoder-decoder": "TrOCR", "mllama": "Llama 3.2"}
    pages = {
        "README.md": prose("README.md"),
        "docs/vision.md": section("docs/vision.md", "Families"),
    }
    for kind in (kind for kind, row in ADAPTERS.items() if row.task == "vlm"):
        for page, text in pages.items():
            assert _letters(shown.get(kind, kind)) in _letters(text), f"{page}: {kind}"


def _letters(text: str) -> str:
    return re.sub(r"[^a-z0-9]", "", text.lower())

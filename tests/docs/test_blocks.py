"""Every code block of the README and the manual does what it says.

Python blocks of a page share a namespace. Lines of `bash` blocks that call `mmspec` run as they
stand; install and test commands are held against the files that they rest on. A `text` block is the
output of the block before it, a `json` block has the shape of the file that it wrote.
"""

import contextlib
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.docs.pages import PAGES, Block, blocks, name_of, read
from tests.docs.shell import Shell


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_blocks_run(page: Path, workplace: Path, hub: None) -> None:
    runner = Runner(page)
    for block in blocks(page):
        runner.run(block)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_no_code_hides_in_an_indented_block(page: Path) -> None:
    before = "\n"
    for line in re.sub(r"^```.*?^```$", "", read(page), flags=re.M | re.S).splitlines():
        listed = line.lstrip().startswith(("-", "*", "<")) or before.lstrip()[:2] in ("- ", "* ")
        assert not line.startswith("    ") or listed or before.strip(), f"{name_of(page)}: {line}"
        before = line if line.strip() else before if before.startswith((" ", "-")) else ""


def test_readme_begins_with_the_two_commands_that_ci_runs() -> None:
    commands = [block.text.strip() for block in blocks(PAGES[0])[:2]]
    assert commands == ["pip install . && mmspec demo", 'pip install ".[test]" && pytest']
    steps = [
        line.strip("()").rpartition("&& ")[2].replace("pip install -q", "pip install")
        for line in read(".ci/run").splitlines()
    ]
    for command in (*commands[1].split(" && "), "mmspec demo"):
        assert command in steps


class Runner:
    """Runs the blocks of one page in order."""

    def __init__(self, page: Path) -> None:
        self._page, self._names = page, {"__name__": "__main__"}
        self._output: str | None = None
        self._shell = Shell()

    def run(self, block: Block) -> None:
        where = f"{name_of(self._page)}:{block.line}"
        kinds = {
            "python": self._python,
            "bash": self._bash,
            "text": self._text,
            "json": self._json,
        }
        assert block.kind in kinds, f"{where}: a block of kind {block.kind!r}, which nothing runs"
        try:
            kinds[block.kind](block, where)
        except Exception as error:
            error.add_note(f"in the block at {where}")
            raise

    def _python(self, block: Block, where: str) -> None:
        lines = "\n" * (block.line - 1) + block.text
        with contextlib.redirect_stdout(io.StringIO()) as shown:
            exec(compile(lines, str(self._page), "exec"), self._names)
        self._output = shown.getvalue()

    def _bash(self, block: Block, where: str) -> None:
        self._shell = Shell()
        self._output = self._shell.run(block.text)

    def _text(self, block: Block, where: str) -> None:
        assert self._output is not None, f"{where}: output of nothing"
        assert matches(block.text, self._output), (
            f"{where}: the page says\n{block.text}\nbut it was\n{self._output}"
        )
        self._output = None

    def _json(self, block: Block, where: str) -> None:
        command = self._shell.ran[0]
        written = json.loads(Path(command[command.index("--json") + 1]).read_text(encoding="utf-8"))
        check_shape(json.loads(block.text), written, where)


def matches(expected: str, found: str) -> bool:
    """Equal but for white space; `...` stands for anything."""
    words = [re.escape(word) for word in expected.split()]
    pattern = r"\s*".join(words).replace(r"\.\.\.", ".*")
    return re.fullmatch(pattern, found.strip(), re.DOTALL) is not None


def check_shape(documented: Any, found: Any, where: str) -> None:
    """The same keys at every depth, values of the same kind; null, {} and [] stand for any."""
    if documented is None or found is None:
        return
    if isinstance(documented, dict):
        if documented:
            assert documented.keys() == found.keys(), where
        for key, value in documented.items():
            check_shape(value, found[key], f"{where}.{key}")
    elif isinstance(documented, list):
        assert isinstance(found, list), where
        for number, (one, other) in enumerate(zip(documented, found, strict=False)):
            check_shape(one, other, f"{where}[{number}]")
    else:
        kinds = (int, float) if isinstance(documented, float) else type(documented)
        assert isinstance(found, kinds), f"{where}: {found!r}"


def test_output_is_compared() -> None:
    assert matches("a 1.5 ... b\n", "a  1.5 x\ny b")
    assert matches("", "")
    for expected, found in (("True", "False"), ("a", "a b"), ("1", "2"), ("a b", "a")):
        assert not matches(expected, found)


def test_shapes_are_compared() -> None:
    check_shape({"a": [1.5], "b": None, "c": {}}, {"a": [2, 3], "b": 1, "c": {"x": 1}}, "")
    with pytest.raises(AssertionError, match="x"):
        check_shape({"a": 1}, {"a": 1, "b": 2}, "x")
    with pytest.raises(AssertionError, match="'1'"):
        check_shape({"a": 1}, {"a": "1"}, "x")

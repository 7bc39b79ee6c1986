"""Runs the command lines of the manual: `mmspec` in this process, the rest by checks.

Knows what the manual uses: several commands on a line (`&&`, `||`, `;`), globs, `> file`, `$?`.
"""

import contextlib
import glob
import io
import os
import shlex
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from mmspec.cli import main
from tests.docs.pages import ROOT, read

OPERATORS = ("&&", "||", ";")

ONCE = (["mmspec", "demo"], ["mmspec", "info"])
"""Commands that touch no files: the same line on several pages runs once."""

_done: dict[tuple[str, ...] | None, tuple[int, str, str]] = {}


class Shell:
    """What a block of commands writes and how its last command ends."""

    def __init__(self) -> None:
        self.status = 0
        self.ran: list[list[str]] = []

    def run(self, script: str) -> str:
        """Run every line; return standard output and standard error together."""
        shown = io.StringIO()
        for line in script.replace("\\\n", " ").splitlines():
            self._line(line, shown)
            if self.status:
                raise AssertionError(f"{line!r} ended with {self.status}:\n{shown.getvalue()}")
        return shown.getvalue()

    def _line(self, line: str, shown: io.StringIO) -> None:
        before = ";"
        for words, operator in _commands(line):
            skipped = (before == "&&" and self.status) or (before == "||" and not self.status)
            if not skipped:
                self._command(words, shown)
            before = operator

    def _command(self, words: list[str], shown: io.StringIO) -> None:
        place = None
        if ">" in words:
            at = words.index(">")
            place, words = words[at + 1], words[:at]
        words = [found for word in words for found in self._expanded(word)]
        self.ran.append(words)
        key = tuple(words) if words[:2] in ONCE else None
        if key in _done:
            self.status, written, complained = _done[key]
        else:
            output, errors = _Terminal(), _Terminal()
            with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
                self.status = self._program(words)
            written, complained = output.getvalue(), errors.getvalue()
        if key is not None:
            _done[key] = self.status, written, complained
        if place is None:
            shown.write(written)
        else:
            Path(place).write_text(written, encoding="utf-8")
        shown.write(complained)

    def _expanded(self, word: str) -> list[str]:
        word = word.replace("$?", str(self.status))
        if "*" not in word:
            return [word]
        found = sorted(glob.glob(word))
        if not found:
            raise AssertionError(f"{word} matches nothing")
        return found

    def _program(self, words: list[str]) -> int:
        if words[0] == "echo":
            print(*words[1:])
            return 0
        if words[0] == "mmspec":
            try:
                main(words[1:])
            except SystemExit as done:
                return int(done.code or 0)
        else:
            CHECKS[words[0]](words[1:])
        return 0


class _Terminal(io.StringIO):
    """Standard output and error as `main` expects them."""

    def reconfigure(self, **settings: object) -> None:
        """Nothing to do."""


def _commands(line: str) -> Iterator[tuple[list[str], str]]:
    """Commands of a line, each with the operator behind it."""
    parts = shlex.shlex(line, posix=True, punctuation_chars=";&|<>")
    parts.whitespace_split = True
    words: list[str] = []
    for part in parts:
        if part in OPERATORS:
            yield words, part
            words = []
        else:
            words.append(part)
    if words:
        yield words, ";"


def _pip(arguments: list[str]) -> None:
    """`pip install [-e] .[extra]`: the extra is one of ours."""
    *options, place = arguments
    name, _, extra = place.partition("[")
    known = project()["optional-dependencies"]
    if options[0] != "install" or name != "." or (extra and extra.rstrip("]") not in known):
        raise AssertionError(f"pip {arguments}: no such extra")


def _pytest(arguments: list[str]) -> None:
    for argument in arguments:
        if not (ROOT / argument).exists():
            raise AssertionError(f"pytest {argument}: no such tests")


def _ci(arguments: list[str]) -> None:
    if arguments or not os.access(ROOT / ".ci/run", os.X_OK):
        raise AssertionError(".ci/run can't be run")


def _tool(name: str) -> Callable[[list[str]], None]:
    """A tool that the `dev` extra installs, called as `.ci/run` or a test calls it."""

    def check(arguments: list[str]) -> None:
        extras = project()["optional-dependencies"]
        needed = " ".join([*extras["dev"], *extras["test"]])
        if name not in needed:
            raise AssertionError(f"{name} isn't in the dev extra")
        if name == "ruff" and " ".join([name, *arguments]) not in read(".ci/run"):
            raise AssertionError(f"{name} {arguments}: .ci/run calls it otherwise")

    return check


CHECKS: dict[str, Callable[[list[str]], None]] = {
    "pip": _pip,
    "pytest": _pytest,
    ".ci/run": _ci,
    **{name: _tool(name) for name in ("ruff", "mkdocs", "pre-commit")},
}


def project() -> dict[str, Any]:
    return tomllib.loads(Path(ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

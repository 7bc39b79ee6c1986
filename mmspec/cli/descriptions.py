"""What was said of images: on standard output, in a file per input, in the JSON of the run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mmspec.cli.output import Output
from mmspec.cli.settings import OutputSettings
from mmspec.output.formats import neutral, one_line, to_json, write_atomic

PAGE_BREAK = "\f"
"""Between the pages of a text, as other programs that make text of documents write it."""


class Descriptions(Output):
    """A result per image or page.

    Args:
        wanted: formats and places.
        files: the inputs, in order.
        settings: what the JSON says about the run.
        steps: the progress bar, which steps aside for lines on standard output.
        page: of the run, None where none is wanted.
        lines: a text keeps its lines, and texts are set apart by `PAGE_BREAK`; else each is one.
    """

    def __init__(
        self,
        wanted: OutputSettings,
        files: Sequence[Path],
        settings: dict[str, Any],
        steps: Any,
        page: Any = None,
        *,
        lines: bool,
    ) -> None:
        super().__init__(wanted, files, settings, steps, page)
        self._lines = lines
        self._file = -1
        self._of_file: list[tuple[str, dict[str, Any]]] = []

    @property
    def files_done(self) -> int:
        """How many inputs have a result, or their complaint."""
        return self._file + 1

    def begin(self, file: int) -> None:
        """What comes next belongs to the input with this number."""
        if file != self._file:
            self._file, self._of_file = file, []

    def done(
        self,
        path: Path,
        said: Any,
        image: Any,
        compared: Mapping[str, Any] | None,
        page: int | None = None,
    ) -> None:
        """An image or page was looked at; `image` is what the page of the run shows of it."""
        if self._page is not None:
            self._page.entries.done(name_of(path, page), said, [image], compared)
        entry = {"path": str(path), **said.to_dict()}
        if compared is not None:
            entry["compare"] = {name: peer.to_dict() for name, peer in compared.items()}
        self._add(self._shown(said.text), entry)

    def failed(self, path: Path, message: str, page: int | None = None) -> None:
        """It couldn't be: its text is empty, so that texts match images."""
        if self._page is not None:
            self._page.entries.failed(name_of(path, page), message)
        entry: dict[str, Any] = {"path": str(path), "error": message}
        if page is not None:
            entry["page"] = page
        self._add("" if self._lines else "\n", entry)

    def _shown(self, text: str) -> str:
        if not self._lines:
            return one_line(text) + "\n"
        return "".join(neutral(line).rstrip() + "\n" for line in text.splitlines())

    def _add(self, text: str, entry: dict[str, Any]) -> None:
        first = not self.entries
        self.entries.append(entry)
        self._of_file.append((text, entry))
        if self.is_one_document:
            return
        between = PAGE_BREAK if self._lines else ""
        if self._wanted.output_dir is None:
            self._print(text if first else between + text)
            return
        entries = [entry for _, entry in self._of_file]
        if self._wanted.format == "json":
            content = to_json(self.settings, entries)
        else:
            content = between.join(text for text, _ in self._of_file)
        # A file that only couldn't be read leaves none behind.
        if any("error" not in entry for entry in entries):
            write_atomic(self._wanted.output_dir / self._names[self._file], content)


def name_of(path: Path, page: int | None) -> str:
    """What an image or a page is called in lines and tables.

    Example:
        >>> name_of(Path("a/b.pdf"), 2), name_of(Path("c.png"), None)
        ('b.pdf, page 2', 'c.png')
    """
    return path.name if page is None else f"{path.name}, page {page}"

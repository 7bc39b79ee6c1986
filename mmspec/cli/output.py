"""Where results go: lines on standard output, a file per input, the JSON of the run."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from mmspec.cli.settings import STDOUT, OutputSettings
from mmspec.output.formats import one_line, output_names, to_json, to_srt, to_vtt, write_atomic


class Output:
    """Writes each result as it comes, and the JSON at the end, however the run ends.

    Args:
        wanted: formats and places.
        files: the inputs, in order.
        settings: what the JSON says about the run.
        steps: the progress bar, which steps aside for lines on standard output.
        page: of the run, None where none is wanted.
    """

    def __init__(
        self,
        wanted: OutputSettings,
        files: Sequence[Path],
        settings: dict[str, Any],
        steps: Any,
        page: Any = None,
    ) -> None:
        self._wanted, self._steps, self._page = wanted, steps, page
        self._names = output_names(files, wanted.format)
        self.settings = settings
        self.entries: list[dict[str, Any]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: Any) -> None:
        try:
            self._write_json()
        finally:
            if self._page is not None:
                self._page.write()

    @property
    def files_done(self) -> int:
        """How many inputs have their result, or their complaint."""
        return len(self.entries)

    @property
    def is_one_document(self) -> bool:
        """Whether everything is written at the end, as JSON on standard output."""
        return self._wanted.format == "json" and self._wanted.output_dir is None

    def _print(self, text: str) -> None:
        with self._steps.aside():
            sys.stdout.write(text)
            sys.stdout.flush()

    def _write_json(self) -> None:
        if self._wanted.json == STDOUT:
            self._print(to_json(self.settings, self.entries))
        elif self._wanted.json is not None:
            write_atomic(self._wanted.json, to_json(self.settings, self.entries))
        if self.is_one_document:
            self._print(to_json(self.settings, self.entries))


class Transcripts(Output):
    """What was heard, a result per recording."""

    def done(self, path: Path, said: Any, samples: Any, compared: Mapping[str, Any] | None) -> None:
        """A recording was transcribed."""
        if self._page is not None:
            self._page.entries.done(path, said, samples, compared)
        entry = {"path": str(path), **said.to_dict()}
        if compared is not None:
            entry["compare"] = {name: peer.to_dict() for name, peer in compared.items()}
        self.entries.append(entry)
        if self.is_one_document:
            return
        content = self._content(said, entry)
        if self._wanted.output_dir is not None:
            name = self._names[len(self.entries) - 1]
            write_atomic(self._wanted.output_dir / name, content)
        else:
            self._print(content)

    def failed(self, path: Path, message: str) -> None:
        """A recording couldn't be transcribed: its line is empty, so that lines match inputs."""
        if self._page is not None:
            self._page.entries.failed(path, message)
        self.entries.append({"path": str(path), "error": message})
        if self._wanted.format == "txt" and self._wanted.output_dir is None:
            self._print("\n")

    def _content(self, said: Any, entry: dict[str, Any]) -> str:
        if self._wanted.format == "srt":
            return to_srt(said.segments)
        if self._wanted.format == "vtt":
            return to_vtt(said.segments)
        if self._wanted.format == "json":
            return to_json(self.settings, [entry])
        return one_line(said.text) + "\n"

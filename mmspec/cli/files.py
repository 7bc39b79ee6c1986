"""A run over files, whatever is in them: load, decode one after the other, compare, write."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from mmspec.cli.output import Output
from mmspec.cli.settings import OutputSettings
from mmspec.errors import MMSpecError, ModelError, OptionError
from mmspec.output.console import (
    Steps,
    complain,
    offline_if_unreachable,
    quiet_libraries,
    stderr,
    unforeseen,
)
from mmspec.tasks.settings import ModelSettings, as_json, describe_machine


class FilesRun(ABC):
    """Everything between the options and the exit code.

    Args:
        files: as given.
        models: which models, where.
        output: what is written, where.
        request: what is asked of the model, and of peers alike.
        batch: how many are decoded side by side.
    """

    def __init__(
        self,
        files: Sequence[Path],
        models: ModelSettings,
        output: OutputSettings,
        request: Any,
        batch: int = 1,
    ) -> None:
        self._files, self._models, self._wanted = list(files), models, output
        self._request, self._batch = request, batch
        self._peers = output.peers(batch)
        self._console = stderr()
        self._done_reports: list[tuple[str, Any, Any]] = []
        self._compared: list[tuple[str, dict[str, Any]]] = []
        self._comparer: Any = None
        self._exit_code = 0

    def go(self) -> int:
        """Run; return the exit code.

        Raises:
            MMSpecError: an option or a model that no file can be decoded with.
        """
        self._models.check()
        self._wanted.check(self._files)
        offline_if_unreachable([self._models.target, self._models.draft])
        with ExitStack() as stack:
            stack.enter_context(quiet_libraries(self._wanted.verbose))
            steps = Steps(len(self._files), self._console, quiet=self._wanted.quiet)
            stack.enter_context(steps)
            self._steps = steps
            steps.say("loading")
            self._read_what_is_expected()
            self._model = stack.enter_context(self._models.load())
            if self._peers:
                self._comparer = self._new_comparer()
            output = self._new_output(self._settings())
            try:
                with output:
                    if self._batch > 1:
                        self._together(output)
                    else:
                        self._in_turn(output)
            except KeyboardInterrupt:
                self._say_interrupted(output.files_done)
                raise
        self._tables()
        return self._exit_code

    @abstractmethod
    def _read_what_is_expected(self) -> None:
        """Files that hold hypotheses: what is wrong with them is said before a model is loaded."""

    @abstractmethod
    def _new_comparer(self) -> Any:
        """What runs the peers."""

    @abstractmethod
    def _new_output(self, settings: dict[str, Any]) -> Output:
        """Where results go."""

    @abstractmethod
    def _in_turn(self, output: Any) -> None:
        """Decode one after the other."""

    @abstractmethod
    def _together(self, output: Any) -> None:
        """Decode side by side; results still come in order."""

    @abstractmethod
    def _overview(self) -> Any:
        """A table of all that was decoded."""

    def _settings(self) -> dict[str, Any]:
        settings = as_json(self._models)
        settings["target"] = self._models.target or self._model.model.config.name_or_path
        settings |= self._request.to_dict() | {"compare": list(self._peers)}
        return settings | describe_machine(self._model)

    def _failed(self, path: Path | str, error: Exception, output: Any, *place: Any) -> None:
        """One file's failure is its own; what the next one would fail with as well is raised."""
        if isinstance(error, OptionError | ModelError):
            raise error
        if isinstance(error, MMSpecError):
            self._exit_code = self._exit_code or 2
            self._give_up(path, str(error), output, *place)
        elif os.environ.get("MMSPEC_DEBUG"):
            raise error
        else:
            self._exit_code = 1
            self._give_up(path, unforeseen(error), output, *place)

    def _give_up(self, path: Path | str, why: str, output: Any, *place: Any) -> None:
        message = why if why.startswith(str(path)) else f"{path}: {why}"
        complain(message, self._console)
        output.failed(path, message, *place)

    def _title(self, name: str) -> str:
        """Of the table of a single result."""
        return name

    def _say_about(self, name: object, report: Any, empty: bool) -> None:
        """On standard error: what went wrong beside the output, and why there is none."""
        for fault in report.faults:
            complain(f"{name}: {fault}; the output is not affected", self._console)
        for note in report.notes if empty else ():
            complain(f"{name}: {note}", self._console)

    def _say_interrupted(self, done: int) -> None:
        complain(
            f"interrupted after {done} of {len(self._files)} files; what was finished is written",
            self._console,
        )

    def _tables(self) -> None:
        from mmspec.output.render import comparison_notes, comparison_table, report_table

        wanted = self._wanted.table
        show = self._console.is_terminal if wanted is None else wanted
        if self._wanted.quiet or not self._done_reports:
            return
        if show and len(self._done_reports) == 1:
            name, _, report = self._done_reports[0]
            self._console.print(report_table(report, self._title(name)))
        elif show:
            self._console.print(self._overview())
        if self._compared:
            for part in (comparison_table(self._compared), *comparison_notes(self._compared)):
                self._console.print(part)

"""One run of `mmspec transcribe`: load, decode file after file, compare, write."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from mmspec.cli.console import (
    Steps,
    complain,
    offline_if_unreachable,
    quiet_libraries,
    stderr,
    unforeseen,
)
from mmspec.cli.output import Output
from mmspec.cli.settings import OutputSettings
from mmspec.errors import MMSpecError, ModelError, OptionError
from mmspec.hypotheses import Hypothesis, read_hypotheses
from mmspec.settings import ModelSettings, as_json, describe_machine


class Run:
    """Everything between the options and the exit code.

    Args:
        files: the recordings.
        models: which models, where.
        output: what is written, where.
        request: what is asked of the recogniser, and of peers alike.
        peers: what it is compared with.
        verbose: let the libraries talk.
        looks: what else is to be found out about a transcript.
        batch: how many recordings are decoded side by side.
    """

    def __init__(
        self,
        files: Sequence[Path],
        models: ModelSettings,
        output: OutputSettings,
        request: dict[str, Any],
        peers: Sequence[str] = (),
        verbose: bool = False,
        looks: dict[str, Any] | None = None,
        batch: int = 1,
    ) -> None:
        self._batch = batch
        self._files, self._models, self._wanted = list(files), models, output
        self._request, self._looks = request, looks or {}
        self._peers, self._verbose = peers, verbose
        self._console = stderr()
        self._heard: list[tuple[str, float, Any]] = []
        self._compared: list[tuple[str, dict[str, Any]]] = []
        self._exit_code = 0

    def go(self) -> int:
        """Run; return the exit code.

        Raises:
            MMSpecError: an option or a model that no file can be transcribed with.
        """
        self._models.check()
        self._wanted.check(self._files)
        offline_if_unreachable([self._models.target, self._models.draft])
        with ExitStack() as stack:
            stack.enter_context(quiet_libraries(self._verbose))
            steps = Steps(len(self._files), self._console, quiet=self._wanted.quiet)
            stack.enter_context(steps)
            self._steps = steps
            steps.say("loading")
            hypotheses = self._hypotheses()
            self._transcriber = stack.enter_context(self._models.load())
            self._prepare_comparison()
            settings = self._settings()
            output = Output(self._wanted, self._files, settings, steps, self._page(settings))
            try:
                with output:
                    if self._batch > 1:
                        self._together(hypotheses, output)
                    else:
                        self._in_turn(hypotheses, output)
            except KeyboardInterrupt:
                self._say_interrupted(len(output.entries))
                raise
        self._tables()
        return self._exit_code

    def _hypotheses(self) -> list[Hypothesis | None]:
        file = self._models.hypothesis_file
        if file is None:
            return [None] * len(self._files)
        from mmspec.loading import DEFAULT_TARGET

        found = read_hypotheses(file, self._files, self._models.target or DEFAULT_TARGET)
        # An empty one says that there is none: the file is decoded without drafting.
        return ["" if hypothesis is None else hypothesis for hypothesis in found]

    def _prepare_comparison(self) -> None:
        self._comparer: Any = None
        if self._peers:
            from mmspec.compare import Comparer

            self._comparer = Comparer(self._transcriber, self._peers, packed=self._models.packed)

    def _settings(self) -> dict[str, Any]:
        settings = as_json(self._models)
        settings["target"] = self._models.target or self._transcriber.model.config.name_or_path
        settings |= self._request | self._looks | {"compare": list(self._peers)}
        return settings | describe_machine(self._transcriber)

    def _page(self, settings: dict[str, Any]) -> Any:
        if self._wanted.report is None:
            return None
        from mmspec.cli.page import RunPage

        return RunPage(self._wanted.report, self._transcriber, settings)

    def _in_turn(self, hypotheses: Sequence[Hypothesis | None], output: Output) -> None:
        for path, hypothesis in zip(self._files, hypotheses, strict=True):
            try:
                said, samples, compared = self._transcribe(path, hypothesis)
            except Exception as error:
                self._failed(path, error, output)
            else:
                self._done(path, said, samples, compared, output)
            self._steps.advance()

    def _together(self, hypotheses: Sequence[Hypothesis | None], output: Output) -> None:
        """Side by side; results still come in the order of the files."""
        asked = {**self._request, **self._looks}
        requests = (
            {"audio": path, "hypothesis": hypothesis, **asked}
            for path, hypothesis in zip(self._files, hypotheses, strict=True)
        )
        self._steps.say(f"{len(self._files)} files")
        early: dict[int, Any] = {}
        upcoming = 0
        for number, outcome in self._transcriber.outcomes(requests, self._batch):
            early[number] = outcome
            while upcoming in early:
                self._settle(self._files[upcoming], early.pop(upcoming), output)
                upcoming += 1
            self._steps.advance()

    def _settle(self, path: Path, outcome: Any, output: Output) -> None:
        from mmspec.modalities.audio import load_audio

        if isinstance(outcome, Exception):
            self._failed(path, outcome, output)
        else:
            self._done(path, outcome, load_audio(path), None, output)

    def _failed(self, path: Path, error: Exception, output: Output) -> None:
        """One file's failure is its own; what the next one would fail with as well is raised."""
        if isinstance(error, OptionError | ModelError):
            raise error
        if isinstance(error, MMSpecError):
            self._exit_code = self._exit_code or 2
            self._give_up(path, str(error), output)
        elif os.environ.get("MMSPEC_DEBUG"):
            raise error
        else:
            self._exit_code = 1
            self._give_up(path, unforeseen(error), output)

    def _done(self, path: Path, said: Any, samples: Any, compared: Any, output: Output) -> None:
        from mmspec.modalities.audio import duration_s

        self._heard.append((path.name, duration_s(samples), said.report))
        if compared is not None:
            self._compared.append((path.name, compared))
        output.done(path, said, samples, compared)
        for fault in said.report.faults:
            complain(f"{path}: {fault}; the output is not affected", self._console)

    def _give_up(self, path: Path, why: str, output: Output) -> None:
        message = why if why.startswith(str(path)) else f"{path}: {why}"
        complain(message, self._console)
        output.failed(path, message)

    def _transcribe(
        self, path: Path, hypothesis: Hypothesis | None
    ) -> tuple[Any, Any, dict[str, Any] | None]:
        from mmspec.modalities.audio import load_audio

        samples = load_audio(path)
        if self._comparer is not None and not self._heard:
            self._steps.say("warming up")
            self._warm_up(samples, hypothesis)
        self._steps.say(path.name)
        said, end_to_end_s = self._timed(samples, hypothesis)
        if self._comparer is None:
            return said, samples, None
        from mmspec.contenders import Outcome, Request

        self._steps.say(f"{path.name}: peers")
        ours = Outcome(said.ids, said.text, said.report.decode_seconds, end_to_end_s, said.report)
        compared = self._comparer.compare(samples, Request(**self._request), ours)
        return said, samples, compared

    def _timed(self, samples: Any, hypothesis: Any) -> tuple[Any, float]:
        start = time.perf_counter()
        said = self._transcriber.transcribe(
            samples,
            sampling_rate=16_000,
            hypothesis=hypothesis,
            **self._request,
            **self._looks,
        )
        return said, time.perf_counter() - start

    def _warm_up(self, samples: Any, hypothesis: Any) -> None:
        from mmspec.contenders import Request

        request = Request(**self._request)
        self._comparer.warm_up(samples, request)
        few = dataclasses.asdict(request) | {"max_new_tokens": 4}
        self._transcriber.transcribe(samples, sampling_rate=16_000, hypothesis=hypothesis, **few)

    def _say_interrupted(self, done: int) -> None:
        complain(
            f"interrupted after {done} of {len(self._files)} files; what was finished is written",
            self._console,
        )

    def _tables(self) -> None:
        from mmspec.render import comparison_notes, comparison_table, overview_table, report_table

        wanted = self._wanted.table
        show = self._console.is_terminal if wanted is None else wanted
        if self._wanted.quiet or not self._heard:
            return
        if show and len(self._heard) == 1:
            name, _, report = self._heard[0]
            self._console.print(report_table(report, name))
        elif show:
            self._console.print(overview_table(self._heard))
        if self._compared:
            for part in (comparison_table(self._compared), *comparison_notes(self._compared)):
                self._console.print(part)

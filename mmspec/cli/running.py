"""One run of `mmspec transcribe`: load, decode file after file, compare, write."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mmspec.cli.files import FilesRun
from mmspec.cli.output import Transcripts
from mmspec.cli.settings import OutputSettings
from mmspec.output.hypotheses import Hypothesis, read_hypotheses
from mmspec.tasks.settings import ModelSettings


class Run(FilesRun):
    """Recordings to text.

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
        super().__init__(files, models, output, request, peers, verbose, batch)
        self._looks = looks or {}

    def _read_what_is_expected(self) -> None:
        file = self._models.hypothesis_file
        self._hypotheses: list[Hypothesis | None] = [None] * len(self._files)
        if file is not None:
            from mmspec.loading import DEFAULT_TARGET

            found = read_hypotheses(file, self._files, self._models.target or DEFAULT_TARGET)
            # An empty one says that there is none: the file is decoded without drafting.
            self._hypotheses = ["" if text is None else text for text in found]

    def _new_comparer(self) -> Any:
        from mmspec.compare.comparison import Comparer

        return Comparer(self._model, self._peers, packed=self._models.packed)

    def _settings(self) -> dict[str, Any]:
        settings = super()._settings()
        compare = settings.pop("compare")
        return settings | self._looks | {"compare": compare}

    def _new_output(self, settings: dict[str, Any]) -> Transcripts:
        page = None
        if self._wanted.report is not None:
            from mmspec.page.writing import RunPage
            from mmspec.tasks.asr.page import RecordingEntries

            page = RunPage(self._wanted.report, settings, RecordingEntries(self._model))
        return Transcripts(self._wanted, self._files, settings, self._steps, page)

    def _in_turn(self, output: Transcripts) -> None:
        for path, hypothesis in zip(self._files, self._hypotheses, strict=True):
            try:
                said, samples, compared = self._transcribe(path, hypothesis)
            except Exception as error:
                self._failed(path, error, output)
            else:
                self._done(path, said, samples, compared, output)
            self._steps.advance()

    def _together(self, output: Transcripts) -> None:
        asked = {**self._request, **self._looks}
        requests = (
            {"audio": path, "hypothesis": hypothesis, **asked}
            for path, hypothesis in zip(self._files, self._hypotheses, strict=True)
        )
        self._steps.say(f"{len(self._files)} files")
        early: dict[int, Any] = {}
        upcoming = 0
        for number, outcome in self._model.outcomes(requests, self._batch):
            early[number] = outcome
            while upcoming in early:
                self._settle(self._files[upcoming], early.pop(upcoming), output)
                upcoming += 1
            self._steps.advance()

    def _settle(self, path: Path, outcome: Any, output: Transcripts) -> None:
        from mmspec.modalities.media.audio import load_audio

        if isinstance(outcome, Exception):
            self._failed(path, outcome, output)
        else:
            self._done(path, outcome, load_audio(path), None, output)

    def _done(
        self, path: Path, said: Any, samples: Any, compared: Any, output: Transcripts
    ) -> None:
        from mmspec.modalities.media.audio import duration_s

        self._done_reports.append((path.name, duration_s(samples), said.report))
        if compared is not None:
            self._compared.append((path.name, compared))
        output.done(path, said, samples, compared)
        self._say_faults(path, said.report)

    def _transcribe(
        self, path: Path, hypothesis: Hypothesis | None
    ) -> tuple[Any, Any, dict[str, Any] | None]:
        from mmspec.modalities.media.audio import load_audio

        samples = load_audio(path)
        if self._comparer is not None and not self._done_reports:
            self._steps.say("warming up")
            self._warm_up(samples, hypothesis)
        self._steps.say(path.name)
        said, end_to_end_s = self._timed(samples, hypothesis)
        if self._comparer is None:
            return said, samples, None
        from mmspec.compare.peers import Outcome
        from mmspec.tasks.asr.peers import Request

        self._steps.say(f"{path.name}: peers")
        ours = Outcome(said.ids, said.text, said.report.decode_seconds, end_to_end_s, said.report)
        compared = self._comparer.compare(samples, Request(**self._request), ours)
        return said, samples, compared

    def _timed(self, samples: Any, hypothesis: Any) -> tuple[Any, float]:
        start = time.perf_counter()
        said = self._model.transcribe(
            samples,
            sampling_rate=16_000,
            hypothesis=hypothesis,
            **self._request,
            **self._looks,
        )
        return said, time.perf_counter() - start

    def _warm_up(self, samples: Any, hypothesis: Any) -> None:
        from mmspec.tasks.asr.peers import Request

        request = Request(**self._request)
        self._comparer.warm_up(samples, request)
        few = dataclasses.asdict(request) | {"max_new_tokens": 4}
        self._model.transcribe(samples, sampling_rate=16_000, hypothesis=hypothesis, **few)

    def _overview(self) -> Any:
        from mmspec.output.render import overview_table

        return overview_table(self._done_reports)

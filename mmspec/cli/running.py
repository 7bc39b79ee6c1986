"""One run of `mmspec transcribe`: load, decode file after file, compare, write."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from mmspec.cli.files import FilesRun
from mmspec.cli.output import Transcripts
from mmspec.output.hypotheses import Hypothesis, read_hypotheses


class Run(FilesRun):
    """Recordings to text."""

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
        requests = (
            {"audio": path, "hypothesis": hypothesis, "request": self._request}
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
        self._say_about(path, said.report, empty=not said.text.strip())

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

        self._steps.say(f"{path.name}: peers")
        ours = Outcome(said.ids, said.text, said.report.decode_seconds, end_to_end_s, said.report)
        compared = self._comparer.compare(samples, self._request.decoding, ours)
        return said, samples, compared

    def _timed(self, samples: Any, hypothesis: Any) -> tuple[Any, float]:
        start = time.perf_counter()
        said = self._model.transcribe(
            samples, self._request, sampling_rate=16_000, hypothesis=hypothesis
        )
        return said, time.perf_counter() - start

    def _warm_up(self, samples: Any, hypothesis: Any) -> None:
        request = self._request.decoding
        self._comparer.warm_up(samples, request)
        self._model.transcribe(samples, request.few, sampling_rate=16_000, hypothesis=hypothesis)

    def _overview(self) -> Any:
        from mmspec.output.render import overview_table

        return overview_table(self._done_reports)

"""One run of `mmspec speak`: load, say text after text, compare, write sound and codes."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from mmspec.cli.files import FilesRun
from mmspec.cli.output import Output
from mmspec.cli.settings import SpeechSettings
from mmspec.errors import InputError, OptionError
from mmspec.output.console import Steps, offline_if_unreachable, quiet_libraries, stderr
from mmspec.tasks.settings import SpeakingSettings
from mmspec.tasks.tts.request import SpeechRequest

NO_CODEC = "this model has no codec: --codes-only writes its codes"


def read_texts(file: Path | None) -> list[str]:
    """The lines of a file that hold something; `-` is standard input.

    Raises:
        InputError: it can't be read, or holds nothing to say.
    """
    if file is None:
        return []
    try:
        content = sys.stdin.read() if str(file) == "-" else file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is no UTF-8 text"
        raise InputError(
            f"--file {file}: found nothing readable ({reason}), expected lines of text"
        ) from None
    lines = [line.strip() for line in content.splitlines() if line.strip()]
    if not lines:
        raise InputError(f"--file {file}: found nothing to say, expected lines of text")
    return lines


class SpeakRun(FilesRun):
    """Texts to sound files, with codes beside them.

    Args:
        texts: what to say.
        places: where the sound of each goes, or its codes where there is no sound to be.
        models: which models, where.
        output: what is written besides.
        request: what is asked of the speaker, and of peers alike.
        batch: how many are said side by side.
    """

    _wanted: SpeechSettings

    def __init__(
        self,
        texts: Sequence[str],
        places: Sequence[Path],
        models: SpeakingSettings,
        output: SpeechSettings,
        request: SpeechRequest,
        batch: int = 1,
    ) -> None:
        super().__init__(places, models, output, request, batch)
        self._texts = texts
        self._looks_up = "lookup" in models.draft.split("+")
        self._latest: list[Any] = []

    def _read_what_is_expected(self) -> None:
        """Nobody expects codes."""

    def _new_comparer(self) -> Any:
        from mmspec.compare.comparison import Comparer

        return Comparer(self._model, self._peers, packed=self._models.packed)

    def _new_output(self, settings: dict[str, Any]) -> Speeches:
        if self._model.codec is None and not self._wanted.codes_only:
            raise OptionError(NO_CODEC)
        page: Any = None
        if self._wanted.report is not None:
            from mmspec.page.writing import RunPage
            from mmspec.tasks.tts.page import SpeechEntries

            page = RunPage(self._wanted.report, settings, SpeechEntries(self._model))
        return Speeches(self._wanted, self._files, settings, self._steps, page)

    def _settings(self) -> dict[str, Any]:
        return super()._settings() | {"sound": self._request.sound}

    def _in_turn(self, output: Speeches) -> None:
        for number, text in enumerate(self._texts):
            self._steps.say(self._name(number))
            outcome: Any
            try:
                outcome, compared = self._spoken(number, text)
            except Exception as error:
                outcome, compared = error, None
            self._settle(number, outcome, compared, output)

    def _together(self, output: Speeches) -> None:
        self._steps.say(f"{len(self._texts)} texts")
        requests = ({"text": text, "request": self._request} for text in self._texts)
        early: dict[int, Any] = {}
        upcoming = 0
        for number, outcome in self._model.outcomes(requests, self._batch):
            early[number] = outcome
            while upcoming in early:
                self._settle(upcoming, early.pop(upcoming), None, output)
                upcoming += 1

    def _settle(self, number: int, outcome: Any, compared: Any, output: Speeches) -> None:
        name = self._name(number)
        if isinstance(outcome, Exception):
            self._failed(name, outcome, output, self._texts[number])
        else:
            seconds = "-" if outcome.seconds is None else outcome.seconds
            self._done_reports.append((name, seconds, outcome.report))
            if compared is not None:
                self._compared.append((name, compared))
            output.spoken(name, self._files[number], outcome, compared)
            if self._looks_up:  # what comes next may be drafted from it
                self._latest = [outcome]
            self._say_about(name, outcome.report, empty=not len(outcome.codes))
        self._steps.advance()

    def _give_up(self, path: Any, why: str, output: Any, *place: Any) -> None:
        super()._give_up(path, why.removeprefix("text: "), output, *place)

    def _name(self, number: int) -> str:
        """What a text is called in lines and tables."""
        return self._files[number].name if len(self._files) > 1 else "text"

    def _spoken(self, number: int, text: str) -> tuple[Any, dict[str, Any] | None]:
        name, request = self._name(number), replace(self._request, earlier=self._latest)
        if self._comparer is None:
            bar = FrameBar(self._steps, name)
            return self._model.speak(text, request, streamer=bar), None
        from mmspec.compare.peers import Outcome
        from mmspec.tasks.tts.peers import MMSpecPeer, frames_of

        asked = request.decoding
        if not self._done_reports:
            self._steps.say("warming up")
            MMSpecPeer(self._model, "ours").run(text, asked.few)
            self._comparer.warm_up(text, asked)
            self._steps.say(name)
        start = time.perf_counter()
        said = self._model.speak(text, request)
        seconds = time.perf_counter() - start
        self._steps.say(f"{name}: peers")
        ours = Outcome(
            frames_of(said.codes), text, said.report.decode_seconds, seconds, said.report
        )
        return said, self._comparer.compare(text, asked, ours)

    def _overview(self) -> Any:
        from mmspec.output.render import overview_table, plain_text
        from mmspec.tasks.tts.peers import step_of

        table = overview_table(self._done_reports, measure="sound")
        table.title = plain_text(f"A token is {step_of(self._model)}")
        return table

    def _title(self, name: str) -> str:
        from mmspec.tasks.tts.peers import step_of

        return f"{name}: a token is {step_of(self._model)}"


class Speeches(Output):
    """What was said: a sound file and its codes for each text, and the names on standard output."""

    _wanted: SpeechSettings

    def spoken(self, name: str, place: Path, said: Any, compared: Mapping[str, Any] | None) -> None:
        """A text was said."""
        whole = not self._wanted.codes_only
        codes = said.save(place) if whole else said.save_codes(place)
        if self._page is not None:
            self._page.entries.done(name, said, compared)
        paths = {"path": str(place) if whole else None, "codes_path": str(codes)}
        entry = {"name": name, **paths, **said.to_dict()}
        if compared is not None:
            entry["compare"] = {peer: one.to_dict() for peer, one in compared.items()}
        self.entries.append(entry)
        self._print(f"{place if whole else codes}\n")

    def failed(self, name: str, message: str, text: str) -> None:
        """A text couldn't be said: its line is empty, so that lines match texts."""
        if self._page is not None:
            self._page.entries.failed(name, message)
        self.entries.append({"name": name, "text": text, "error": message})
        self._print("\n")


class FrameBar:
    """A streamer that says how far a text has come.

    Args:
        steps: the progress bar.
        name: of the text.
    """

    def __init__(self, steps: Steps, name: str) -> None:
        self._steps, self._name, self._count = steps, name, -1

    def put(self, value: Any) -> None:
        """What was given, then what was decided."""
        self._count += 1 if self._count < 0 or value.ndim == 0 else len(value)
        self._steps.say(f"{self._name}: step {self._count}")

    def end(self) -> None:
        """Nothing more comes."""


def stream_aloud(
    texts: Sequence[str],
    models: SpeakingSettings,
    output: SpeechSettings,
    request: SpeechRequest,
) -> int:
    """Say texts one after the other, each piece of sound as soon as it is certain.

    Raises:
        MMSpecError: an option or a model that nothing can be said with; the first text that can't
            be said.
    """
    if sys.stdout.isatty():
        raise OptionError("--stream: standard output is a terminal, expected a pipe or a file")
    offline_if_unreachable([models.target, models.draft])
    console = stderr()
    with ExitStack() as stack:
        stack.enter_context(quiet_libraries(output.verbose))
        steps = stack.enter_context(Steps(len(texts), console, quiet=output.quiet))
        steps.say("loading")
        speaker = stack.enter_context(models.load())
        if speaker.codec is not None:
            steps.say(f"raw samples, 16 bits, {speaker.codec.sample_rate_hz} Hz")
        for text in texts:
            for piece in speaker.stream(text, request):
                sys.stdout.buffer.write(as_pcm(piece))
                sys.stdout.buffer.flush()
            steps.advance()
    return 0


def as_pcm(samples: np.ndarray) -> bytes:
    """Samples as 16-bit little-endian integers, channels interleaved, louder ones clipped.

    Args:
        samples: float `[n]` or `[channels, n]`, full scale is 1.

    Example:
        >>> as_pcm(np.array([0.5, -2.0])).hex(" ", 2)
        '0040 0180'
    """
    scaled = np.rint(np.clip(samples, -1.0, 1.0) * 32767.0)
    return scaled.T.astype("<i2").tobytes()

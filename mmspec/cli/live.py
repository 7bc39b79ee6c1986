"""`mmspec transcribe --stream`: committed text as it comes; what is printed is never taken back."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol

from rich.console import Console
from rich.live import Live
from rich.text import Text

from mmspec.cli.settings import LiveSettings, OutputSettings
from mmspec.cli.sources import RATE, in_background, paced, raw
from mmspec.errors import InputError
from mmspec.modalities.whisper.request import AFTERWARDS, TranscriptionRequest
from mmspec.output.console import Steps, complain, offline_if_unreachable, quiet_libraries, stderr
from mmspec.output.formats import neutral, one_line, to_json, write_atomic
from mmspec.tasks.settings import ModelSettings, as_json, describe_machine


class Display(Protocol):
    """Shows updates; used with `with`."""

    def __enter__(self) -> Display: ...

    def __exit__(self, *_: Any) -> None: ...

    def show(self, update: Any) -> None:
        """Show what is new."""
        ...


class Lines:
    """On a pipe: a line for each piece of committed text, at once."""

    def __enter__(self) -> Lines:
        return self

    def __exit__(self, *_: Any) -> None:
        return

    def show(self, update: Any) -> None:
        """The new text, if there is any."""
        if text := one_line(update.new):
            sys.stdout.write(text + "\n")
            sys.stdout.flush()


class OnTerminal:
    """On a terminal: committed text, behind it the tentative one, dimmed and rewritten in place.

    Lines that are full leave the rewritten part for good.
    """

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(file=sys.stdout, highlight=False)
        self._live = Live(console=self._console, auto_refresh=False)
        self._line = ""

    def __enter__(self) -> OnTerminal:
        self._live.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._live.update(Text(self._line), refresh=True)  # what is tentative goes away
        self._live.stop()

    def show(self, update: Any) -> None:
        """Committed and tentative text."""
        text = self._line + neutral(update.new)
        *full, last = Text(text if self._line else text.lstrip()).wrap(
            self._console, self._console.width
        ) or [Text("")]
        for line in full:
            self._live.update(Text())  # a full line is printed above what is rewritten
            line.rstrip()
            self._console.print(line)
        self._line = last.plain
        tentative = Text(neutral(update.tentative), style="dim")
        self._live.update(Text(self._line) + tentative, refresh=True)


class LiveRun:
    """Everything between the options and the exit code.

    Args:
        files: one recording, or `-` for raw samples on standard input.
        models: which models, where.
        output: what is written, where.
        request: what is asked of the recogniser.
        live: how the stream is heard.
    """

    def __init__(
        self,
        files: Sequence[Path],
        models: ModelSettings,
        output: OutputSettings,
        request: TranscriptionRequest,
        live: LiveSettings,
    ) -> None:
        live.check(files)
        self._file, self._models, self._wanted = files[0], models, output
        self._request, self._settings = request, live
        self._console, self._exit_code = stderr(), 0
        self._updates: list[dict[str, Any]] = []

    def go(self) -> int:
        """Run; return the exit code.

        Raises:
            MMSpecError: an option, a model or a file that can't be used.
        """
        self._models.check()
        self._wanted.check([self._file])
        offline_if_unreachable([self._models.target, self._models.draft])
        with ExitStack() as stack:
            stack.enter_context(quiet_libraries(self._wanted.verbose))
            with Steps(1, self._console, quiet=self._wanted.quiet) as steps:
                steps.say("loading")
                recogniser = stack.enter_context(self._models.load())
                session = stack.enter_context(recogniser.live(**self._asked()))
                chunks = self._chunks()
            try:
                self._hear(session, chunks)
            except KeyboardInterrupt:
                heard = f"{session.totals.audio_s:.1f} s"
                complain(f"interrupted after {heard}; what was committed is written", self._console)
                raise
            finally:
                self._write_json(recogniser, session)
        self._tables(session)
        return self._exit_code

    def _asked(self) -> dict[str, Any]:
        asked = {name: one for name, one in self._plain().items() if one is not None}
        if "condition_on_prev_tokens" in asked:
            asked["condition_on_committed"] = asked.pop("condition_on_prev_tokens")
        return asked | {"step_s": self._settings.step_s}

    def _plain(self) -> dict[str, Any]:
        """What is asked of every decode."""
        asked = self._request.to_dict()
        return {name: one for name, one in asked.items() if name not in AFTERWARDS}

    def _chunks(self) -> Iterator[Any]:
        if str(self._file) == "-":
            return in_background(raw(sys.stdin.buffer, self._settings.raw))
        from mmspec.modalities.media.audio import load_audio

        samples, size = load_audio(self._file), max(1, round(self._settings.step_s * RATE))
        if self._settings.pace > 0:
            return in_background(paced(samples, self._settings.pace))
        return (samples[start : start + size] for start in range(0, len(samples), size))

    def _hear(self, session: Any, chunks: Iterator[Any]) -> None:
        display: Display = OnTerminal() if sys.stdout.isatty() else Lines()
        with display:
            for chunk in chunks:
                try:
                    updates = session.feed(chunk)
                except InputError as error:
                    complain(f"{self._file}: {error}; it is left out", self._console)
                    self._exit_code = 2
                    continue
                for update in updates:
                    self._note(display, update)
            self._note(display, session.finish())
        if session.totals.decodes == 0:
            kind = self._settings.raw
            raise InputError(f"{self._file}: found no samples, expected raw {kind} at 16 kHz, mono")

    def _note(self, display: Display, update: Any) -> None:
        display.show(update)
        if self._wanted.json is not None:
            reports = [decode.report for decode in update.decodes]
            self._updates.append(
                {
                    "heard_s": update.heard_s,
                    "new": update.new,
                    "tentative": update.tentative,
                    "buffers": [[decode.start_s, decode.end_s] for decode in update.decodes],
                    "tokens": sum(report.tokens for report in reports),
                    "rounds": sum(report.rounds for report in reports),
                }
            )

    def _write_json(self, recogniser: Any, session: Any) -> None:
        if self._wanted.json is None:
            return
        settings = as_json(self._models) | self._plain() | as_json(self._settings)
        settings["target"] = self._models.target or recogniser.model.config.name_or_path
        report, segments = session.totals.report, session.segments
        entry = {
            "path": str(self._file),
            "text": session.text,
            "ids": [token for part in segments for token in part.ids],
            "language": session.language,
            "segments": [
                {"start": part.start_s, "end": part.end_s, "text": part.text, "ids": list(part.ids)}
                for part in segments
            ],
            "report": None if report is None else report.to_dict(),
            "stream": session.totals.to_dict() | {"updates": self._updates},
        }
        document = to_json(settings | describe_machine(recogniser), [entry])
        write_atomic(self._wanted.json, document)

    def _tables(self, session: Any) -> None:
        from mmspec.output.render import plain_text, report_table

        wanted = self._wanted.table
        show = self._console.is_terminal if wanted is None else wanted
        totals = session.totals
        if self._wanted.quiet or not show or totals.report is None:
            return
        self._console.print(report_table(totals.report, self._file.name))
        again = f"{100 * totals.encoded_again_share:.0f} % of the audio encoded more than once"
        self._console.print(
            plain_text(
                f"{totals.decodes} decodes; {again}, {totals.encoded_times:.1f} times on average; "
                f"encoder {totals.encode_seconds:.1f} s, decoding {totals.decode_seconds:.1f} s"
            )
        )

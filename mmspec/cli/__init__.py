"""The command line: `mmspec transcribe`, `caption`, `ocr`, `speak`, `demo`, `info`, `bench` and
`parity`.

Exit codes: 0 done; 1 an error that nobody foresaw; 2 bad input or options (other files are done
all the same); 130 interrupted; 141 nobody reads any more; 143 ended by SIGTERM. Standard output
holds results and nothing else.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import typer

from mmspec.cli.bench import bench_app
from mmspec.cli.caption import caption
from mmspec.cli.demo import demo
from mmspec.cli.info import info
from mmspec.cli.ocr import ocr
from mmspec.cli.parity import parity_app
from mmspec.cli.speak import speak
from mmspec.cli.transcribe import transcribe
from mmspec.errors import MMSpecError
from mmspec.output.console import ReaderGoneError, complain, unforeseen, until_reader_leaves

EPILOG = """
Try it, offline, in seconds: [bold]mmspec demo[/bold]

Transcribe with the sample: [bold]mmspec transcribe FILE -t sample -d sample[/bold]

Same ids, and how much sooner: [bold]mmspec transcribe FILE -t DIR -d ngram --compare hf[/bold]
"""

app = typer.Typer(
    name="mmspec",
    help="The same output, sooner: exact speculative decoding for models that hear, see or speak.",
    epilog=EPILOG,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(until_reader_leaves(transcribe))
app.command()(until_reader_leaves(caption))
app.command()(until_reader_leaves(ocr))
app.command()(until_reader_leaves(speak))
app.command()(until_reader_leaves(demo))
app.command()(until_reader_leaves(info))
app.add_typer(bench_app)
app.add_typer(parity_app)

_USAGE_ERROR: type[BaseException] = next(
    kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "UsageError"
)


def _say_version(wanted: bool) -> None:
    if wanted:
        from mmspec import __version__

        typer.echo(f"mmspec {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Say the version and stop.", callback=_say_version, is_eager=True
        ),
    ] = False,
) -> None:
    """The root command only says its version; everything else is a command of its own."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and leave the process with its exit code."""
    for stream in (sys.stdout, sys.stderr):  # a terminal that can't show a character shows its code
        with contextlib.suppress(AttributeError, ValueError):
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    with _as_interruption() as came:
        code = _run(arguments)
    sys.exit(143 if came and code == 130 else code)


@contextlib.contextmanager
def _as_interruption() -> Iterator[list[int]]:
    """SIGTERM interrupts as Ctrl-C does: what was finished is written. Gives those that came."""
    came: list[int] = []

    def interrupt(number: int, _: Any) -> None:
        came.append(number)
        raise KeyboardInterrupt

    if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:  # somebody has other plans
        yield came
        return
    try:
        signal.signal(signal.SIGTERM, interrupt)
    except ValueError:  # in a thread, and only the main one hears signals
        yield came
        return
    try:
        yield came
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _run(arguments: Sequence[str] | None) -> int:
    try:
        given = None if arguments is None else list(arguments)
        code = app(given, prog_name="mmspec", standalone_mode=False)
    except _USAGE_ERROR as error:
        return _usage(error)
    except (KeyboardInterrupt, typer.Abort):
        return 130
    except MMSpecError as error:
        return _fail(str(error), 2)
    except (ReaderGoneError, SystemExit):  # typer and rich leave so when a pipe breaks
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except Exception as error:
        if os.environ.get("MMSPEC_DEBUG"):
            raise
        return _fail(unforeseen(error), 1)
    return code if isinstance(code, int) else 0


def _usage(error: BaseException) -> int:
    message = error.format_message()  # type: ignore[attr-defined]
    context = getattr(error, "ctx", None)
    if not message:  # a bare `mmspec`, which has printed its help
        return 2
    path = "mmspec" if context is None else context.command_path
    return _fail(f"{message} (see {path} --help)", 2)


def _fail(message: str, code: int) -> int:
    complain(message)
    return code

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
from typing import Any

from cyclopts import (
    App,
    CoercionError,
    CycloptsError,
    MissingArgumentError,
    Token,
    UnknownOptionError,
    UnusedCliTokensError,
)

from mmspec import __version__
from mmspec.cli.panels import PANELS
from mmspec.errors import MMSpecError
from mmspec.output.console import ReaderGoneError, complain, unforeseen, until_reader_leaves

EPILOG = """
Try it, offline, in seconds: [bold]mmspec demo[/bold]

Transcribe with the sample: [bold]mmspec transcribe FILE -t sample -d sample[/bold]

Same ids, and how much sooner: [bold]mmspec transcribe FILE -t DIR -d ngram --compare hf[/bold]
"""


def _app(name: str, help: str, **more: Any) -> App:
    made = App(
        name=name,
        help=help,
        help_flags=["--help", "-h"],
        help_format="rich",
        group_arguments=PANELS["Arguments"],
        group_parameters=PANELS["Options"],
        **more,
    )
    made["--help"].group = PANELS["Options"]
    made["--help"].help = "Show this message and exit."
    return made


def _add(parent: App, module: str, commands: dict[str, str]) -> None:
    """Commands that are imported when they are called: their help's first line stands here."""
    for place, (name, words) in enumerate(commands.items()):
        where = f"mmspec.cli.{module.format(name)}:{name}"
        parent.command(where, name=name, help=words, help_epilogue="", sort_key=place)


app = _app(
    "mmspec",
    "The same output, sooner: exact speculative decoding for models that hear, see or speak.",
    help_epilogue=EPILOG,
    version=f"mmspec {__version__}",
    version_flags=["--version"],
)
app["--version"].group = PANELS["Options"]
app["--version"].help = "Say the version and stop."
bench_app = _app(
    "bench", "Measure, by the benchmark contract.", version_flags=[], help_epilogue="", sort_key=6
)
parity_app = _app(
    "parity",
    "Compare what two runs wrote, id for id.",
    version_flags=[],
    help_epilogue="",
    sort_key=7,
)
_add(
    app,
    "{}",
    {
        "transcribe": "Turn recordings into text.",
        "caption": "Say what is on images, one line each.",
        "ocr": "Read what is written on images and documents, page by page.",
        "speak": "Say texts aloud.",
        "demo": "Show it: hear the embedded clips, see the images, say a sentence, offline.",
        "info": "Say what mmspec can do with a model, and why not.",
    },
)
_add(
    bench_app,
    "bench",
    {
        "asr": "Measure drafters against ordinary decoding and against transformers.",
        "vlm": "Measure drafters on images, for captions and for reading.",
        "tts": "Measure drafters on sentences that are said aloud.",
    },
)
_add(
    parity_app,
    "parity",
    {"codec": "Say whether two code arrays are the same, all codebooks, and where they part."},
)
for _several in (bench_app, parity_app):
    app.command(_several)
    _several["--help"].show = True


def as_page(command: App, path: Sequence[str]) -> None:
    """Let a command's own help show all of its docstring, and how help is asked for.

    Args:
        command: one of ours.
        path: the words that lead to it.
    """
    words = ["mmspec", *(name for name in path if not name.startswith("-")), "[OPTIONS]"]
    for one in command.assemble_argument_collection():
        if one.field_info.is_positional:
            name = one.name + "..." * (one.field_info.kind is one.field_info.VAR_POSITIONAL)
            words.append(name if one.required else f"[{name}]")
    command.usage = f"Usage: {' '.join(words)}\n"
    command.help, command["--help"].show = None, True
    command["--help"].group, command["--help"].help = app["--help"].group, app["--help"].help


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
        code = _called(sys.argv[1:] if arguments is None else list(arguments))
    except CycloptsError as error:
        return _usage(error)
    except KeyboardInterrupt:
        return 130
    except MMSpecError as error:
        return _fail(str(error), 2)
    except (ReaderGoneError, SystemExit):  # rich leaves so when a pipe breaks
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except Exception as error:
        if os.environ.get("MMSPEC_DEBUG"):
            raise
        return _fail(unforeseen(error), 1)
    return code if isinstance(code, int) else 0


def _called(arguments: list[str]) -> Any:
    """What the command gives that these arguments are for; a command of commands shows its help.

    Raises:
        CycloptsError: arguments that no command takes.
    """
    chain, _, _ = app.parse_commands(arguments)
    of = app
    for name in (name for name in chain if not name.startswith("-")):
        of = of[name]
    if of.default_command is not None:
        as_page(of, chain)
    command, bound, _ = app.parse_args(arguments, print_error=False, exit_on_error=False)
    options = arguments[: arguments.index("--")] if "--" in arguments else arguments
    check_known(bound.args, options, of, chain)
    code = until_reader_leaves(command)(*bound.args, **bound.kwargs)
    asked = {"--help", "-h", "--version"}.intersection(options)
    return 2 if command.__name__ == "help_print" and not asked else code


def check_known(files: Sequence[Any], options: Sequence[str], of: App, path: Sequence[str]) -> None:
    """Raise where an option that nobody knows was taken for a file: `-` may be one, `--x` isn't.

    Args:
        files: what was given without an option's name.
        options: all that was given before `--`.
        of: the command.
        path: the words that lead to it.

    Raises:
        UnknownOptionError: names it, and what is spelled alike.
    """
    for value in map(str, files):
        if value.startswith("-") and value != "-" and value in options:
            raise UnknownOptionError(
                token=Token(value=value, source="cli"),
                argument_collection=of.assemble_argument_collection(),
                command_chain=path,
            )


def _usage(error: CycloptsError) -> int:
    error.verbose = False
    message = " ".join(str(error).split())
    if isinstance(error, MissingArgumentError) and error.keyword:
        message = f"{error.keyword}: found nothing behind it, expected a value"
    elif isinstance(error, MissingArgumentError) and error.argument is not None:
        message = f"found no {error.argument.name}, expected it"
    elif isinstance(error, CoercionError) and error.token is not None and error.msg is not None:
        message = f"{error.token.keyword}: {error.msg}"
    elif isinstance(error, UnusedCliTokensError):
        message = f"found {' '.join(error.unused_tokens or ())}, expected nothing more"
    path = " ".join(["mmspec", *(error.command_chain or ())])
    return _fail(f"{message} (see {path} --help)", 2)


def _fail(message: str, code: int) -> int:
    complain(message)
    return code

"""Everything that goes to standard error: complaints, progress, tables."""

from __future__ import annotations

import contextlib
import functools
import os
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from logging import CRITICAL
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies

from rich.console import Console
from rich.text import Text

from mmspec.output.formats import one_line

LONGEST = 600
"""Characters of a complaint: a message from deep inside may carry a whole log."""


def unforeseen(error: Exception) -> str:
    """What to say of an error that is nobody's input."""
    return f"unexpected {type(error).__name__}: {error} (set MMSPEC_DEBUG=1 for the traceback)"


class ReaderGoneError(Exception):
    """Whoever read standard output has gone away: nothing more to say, and no fault."""


def until_reader_leaves(command: Callable[..., int]) -> Callable[..., int]:
    """A command that ends quietly with its reader (`mmspec ... | head`)."""

    @functools.wraps(command)
    def run(*arguments: Any, **options: Any) -> int:
        try:
            code = command(*arguments, **options)
            sys.stdout.flush()
        except BrokenPipeError:
            raise ReaderGoneError from None
        return code

    return run


def stderr() -> Console:
    """A console on standard error that never wraps or colours what isn't asked for."""
    return Console(stderr=True, highlight=False, soft_wrap=False)


def complain(message: str, console: Console | None = None) -> None:
    """One line on standard error: `mmspec: ...`."""
    line = one_line(f"mmspec: {message}")
    shown = line if len(line) <= LONGEST else line[:LONGEST] + "…"
    (console or stderr()).print(Text(shown), soft_wrap=True)


@contextlib.contextmanager
def quiet_libraries(verbose: bool) -> Iterator[None]:
    """Keep the libraries' log lines, warnings and progress bars off the terminal.

    Set before transformers is imported: the hub client reads its setting then.
    """
    if verbose:
        yield
        return
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    import huggingface_hub.utils
    from transformers.utils import logging

    from mmspec.compat import quiet

    huggingface_hub.utils.logging.set_verbosity(CRITICAL)  # its retries; the outcome is an error
    bars = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        with quiet():
            yield
    finally:
        if bars:
            logging.enable_progress_bar()


def offline_if_unreachable(names: Sequence[str | None]) -> None:
    """Where a model may have to come from the hub and the hub's name leads nowhere: say so now.

    The hub client would try for half a minute. Its cache is used all the same. Has to come before
    the client is imported; behind a proxy nothing is assumed.

    Args:
        names: targets and drafters as given; None is the default, a hub id.
    """
    remote = [name for name in names if name is None or (name.count("/") == 1 and ":" not in name)]
    if not any(name is None or not Path(name).exists() for name in remote) or getproxies():
        return
    endpoint = urlsplit(os.environ.get("HF_ENDPOINT", "https://huggingface.co"))
    try:
        socket.getaddrinfo(endpoint.hostname, endpoint.port or 443)
    except OSError:
        os.environ.setdefault("HF_HUB_OFFLINE", "1")


class Steps:
    """A progress bar on standard error, there only where someone watches.

    Results go to standard output meanwhile: the bar steps aside for them on a shared terminal.
    """

    def __init__(self, total: int, console: Console, *, quiet: bool = False) -> None:
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            SpinnerColumn,
            TextColumn,
            TimeElapsedColumn,
        )

        text = TextColumn("{task.description}", markup=False)
        columns = (SpinnerColumn(), text, BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._hidden = quiet or not console.is_terminal
        self._progress = Progress(
            *columns,
            console=console,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
            disable=self._hidden,
        )
        self._task = self._progress.add_task("", total=total)

    def __enter__(self) -> Steps:
        self._progress.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._progress.stop()

    def say(self, what: str, total: int | None = None) -> None:
        """What is going on now, of how many steps where that wasn't known before."""
        self._progress.update(self._task, description=one_line(what), total=total)

    def advance(self) -> None:
        """One more is done."""
        self._progress.advance(self._task)

    @contextlib.contextmanager
    def aside(self) -> Iterator[None]:
        """Hide the bar while a result is written to the same terminal."""
        shared = not self._hidden and sys.stdout.isatty()
        if shared:
            self._progress.stop()
        try:
            yield
        finally:
            if shared:
                self._progress.start()

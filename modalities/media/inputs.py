"""What every input is refused for before anybody looks inside, and the one line that says so."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from mmspec.errors import InputError, MMSpecError

LONGEST_NAME = 300
"""Characters of a name in a message: a data URI in place of a path would fill the screen."""


def refuse(name: str, found: str, expected: str) -> NoReturn:
    """Say what was given, what was found in it and what should have been, on one line.

    Raises:
        InputError: always.
    """
    shown = name if name.isprintable() else ascii(name)  # one line, whatever the file is called
    if len(shown) > LONGEST_NAME:
        shown = shown[: LONGEST_NAME - 3] + "..."
    raise InputError(f"{shown}: found {found}, expected {expected}") from None


@contextmanager
def door(name: str, found: Callable[[Exception], str], expected: str) -> Iterator[None]:
    """Whatever a library raises over an input in here becomes the one line of `refuse`.

    Args:
        name: of the input.
        found: what to say of what was raised.
        expected: what should have been there.

    Raises:
        InputError: anything was raised that isn't one of mmspec's own.
    """
    try:
        yield
    except MMSpecError:
        raise
    except Exception as error:  # a zoo: files make libraries raise whatever they like
        refuse(name, found(error), expected)


def check_readable(path: Path, name: str, expected: str) -> None:
    """Whether there is a file with something in it.

    Raises:
        InputError: a directory, a pipe, nothing at all, 0 bytes, or no permission to read.
    """
    try:
        if path.is_dir():
            refuse(name, "a directory", expected)
        if not path.exists():
            refuse(name, "nothing there (no such file)", expected)
        if not path.is_file():
            refuse(name, "a pipe or a device", expected)
        with path.open("rb") as file:
            if not file.read(1):
                refuse(name, "an empty file (0 bytes)", expected)
    except PermissionError:
        refuse(name, "a file without read permission", expected)
    except (OSError, ValueError) as error:
        refuse(name, f"a path that can't be read ({error})", expected)


def is_tensor(source: Any) -> bool:
    """Whether this is torch's, which need not be imported for that; open files have a `detach`."""
    return hasattr(source, "detach") and hasattr(source, "is_floating_point")


def is_text(head: bytes) -> bool:
    """Whether the first bytes of a file are UTF-8 text (the last character may be cut)."""
    try:
        text, _ = codecs.utf_8_decode(head, "strict", False)
    except UnicodeDecodeError:
        return False
    return all(character.isprintable() or character.isspace() for character in text)


def one_line(error: BaseException) -> str:
    """What a library said, for a message of ours."""
    return " ".join(str(error).split()).rstrip(".") or type(error).__name__

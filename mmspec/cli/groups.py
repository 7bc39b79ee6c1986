"""Dataclasses as groups of options: what a command takes is what its dataclasses hold."""

from __future__ import annotations

import contextlib
import inspect
import re
import typing
from collections.abc import Callable, Sequence
from dataclasses import MISSING, Field, field, fields, is_dataclass, make_dataclass
from functools import cache
from typing import Annotated, Any, TypeVar

from cyclopts import Parameter, Token

from mmspec.cli.panels import PANELS
from mmspec.modalities.base.options import FLAG, Flag

F = TypeVar("F", bound=Callable[..., Any])


def grouped(command: F) -> F:
    """A command whose dataclasses are groups of options, each in the panel of its own name."""
    hints = typing.get_type_hints(command, include_extras=True)
    for name, hint in hints.items():
        options, *marks = typing.get_args(hint) if hasattr(hint, "__metadata__") else [hint]
        if is_dataclass(options) and name != "return":
            only = next((mark for mark in marks if isinstance(mark, Only)), None)
            group = _group_of(options, name.capitalize(), only)  # type: ignore[arg-type]
            hints[name] = Annotated[group, Parameter(name="*")]
            if all(
                of.default is not MISSING or callable(of.default_factory) for of in fields(group)
            ):
                command.__kwdefaults__ = {**(command.__kwdefaults__ or {}), name: group()}
    command.__annotations__ = hints
    return command


class Only:
    """Beside a dataclass: which of its options a command takes.

    Args:
        *names: of its fields.
    """

    def __init__(self, *names: str) -> None:
        self.names = names


def given(help: str, default: Any = MISSING, *, panel: str = "Options", **flag: Any) -> Parameter:
    """An option that belongs to no dataclass.

    Args:
        help: what it is for.
        default: its value where it isn't given.
        panel: the part of `--help` that shows it.
        **flag: as `Flag` has them.
    """
    return _parameter(Flag(help=help, **flag), "", help, default, panel, flag.get("kind"))


def argument(metavar: str, help: str, *, required: bool = False) -> Parameter:
    """What is given without an option's name. `-` stands for standard input, or output."""
    return Parameter(
        name=metavar,
        help=help,
        required=required,
        show_default=False,
        negative=(),
        group=PANELS["Arguments"],
        allow_leading_hyphen=True,
        json_list=False,
    )


def _group_of(options: type, panel: str, only: Only | None) -> type:
    """The same dataclass, its fields annotated for the command line; others can't be given."""
    helps, hints, annotated = _helps(options), typing.get_type_hints(options), []
    for of in fields(options):
        flag = of.metadata.get(FLAG) if only is None or of.name in only.names else None
        if flag is None:
            hint: Any = Annotated[Any, Parameter(parse=False, show=False)]
        else:
            name = flag.name or f"--{of.name.replace('_', '-')}"
            words = flag.help or helps.get(of.name, "")
            kind = hints[of.name] if flag.kind is None else flag.kind
            hint = Annotated[kind, _parameter(flag, name, words, of.default, panel, kind)]
        annotated.append((of.name, hint, _copy(of)))
    made = make_dataclass(options.__name__, annotated, bases=(options,), frozen=True)
    made.__module__ = options.__module__
    made.__doc__ = None  # each option has its help already
    return made


def _parameter(
    flag: Flag, name: str, help: str, default: Any, panel: str, kind: Any = None
) -> Parameter:
    if flag.negative:
        negative: Any = name.replace("--", "--no-", 1)
    else:
        negative = ()
    shown: Any = False
    if default is True:
        shown = lambda _: name.removeprefix("--")  # noqa: E731
    elif not (default is MISSING or default is None or default is False or default == ""):
        shown = True
    return Parameter(
        name=name or None,
        alias=flag.short,
        help=help,
        metavar=_metavar(flag),
        group=PANELS[flag.panel or panel],
        negative=negative,
        show_default=shown,
        converter=_number(kind, flag),
        allow_leading_hyphen=True,
        allow_repeating=True,
        json_list=False,
    )


def _number(kind: Any, flag: Flag) -> Callable[[Any, Sequence[Token]], float] | None:
    """What reads an option's number; None where it takes none."""
    read = next((one for one in (int, float) if kind in (one, one | None)), None)
    if read is None:
        return None
    words = ["a whole number" if read is int else "a number"]
    least, most = flag.least, flag.most
    if least is not None:
        words.append(f"{least:g} to {most:g}" if most is not None else f"{least:g} or more")

    def convert(_: Any, tokens: Sequence[Token]) -> float:
        given = tokens[0].value
        with contextlib.suppress(ValueError):
            value = read(given)
            if (least is None or value >= least) and (most is None or value <= most):
                return value
        raise ValueError(f"found {given}, expected {', '.join(words)}")

    return convert


def _metavar(flag: Flag) -> str | None:
    """What stands for a value, and between which limits it may lie."""
    if flag.least is None and flag.most is None:
        return flag.metavar
    least = "" if flag.least is None else f"{flag.least:g}<="
    most = "" if flag.most is None else f"<={flag.most:g}"
    return f"{flag.metavar or 'X'} [{least}x{most}]"


def _copy(of: Field[Any]) -> Any:
    return field(default=of.default, default_factory=of.default_factory, kw_only=of.kw_only)


@cache
def _helps(options: type) -> dict[str, str]:
    """What each field is for, as the docstrings of a class and of its bases say it."""
    helps: dict[str, str] = {}
    for base in reversed(options.__mro__):
        if is_dataclass(base) and base.__doc__:
            helps |= _attributes(inspect.cleandoc(base.__doc__))
    return {name: re.sub(r"`([^`]+)`", r"[bold]\1[/bold]", words) for name, words in helps.items()}


def _attributes(text: str) -> dict[str, str]:
    """The section `Attributes:` of a docstring, a line for each.

    Example:
        >>> _attributes("Attributes:\\n    one: first,\\n        still.\\n    two: last.")
        {'one': 'first, still.', 'two': 'last.'}
    """
    found: dict[str, str] = {}
    name = ""
    for line in text.partition("Attributes:\n")[2].splitlines():
        if not line.startswith("    "):
            break
        if line.startswith(" " * 8):
            found[name] += " " + line.strip()
        else:
            name, _, words = line.strip().partition(": ")
            found[name] = words
    return found


Batch = Annotated[
    int,
    given(
        "Decode so many recordings side by side, or chunks of one: the same text, less time.",
        1,
        panel="Machine",
        metavar="N",
        least=1,
        kind=int,
    ),
]

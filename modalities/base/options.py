"""What a request's fields are beside values: options of the command line, and keywords with types.

Nothing is imported that takes time: `--help` shows options before any model is thought of.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from numbers import Integral, Real
from typing import Any, ClassVar, Self, TypedDict, get_args, get_type_hints

from mmspec.errors import OptionError

FLAG = "flag"
"""Where a field's metadata says how it is given on the command line."""

FEW_TOKENS = 4
"""Enough to warm up with."""


@dataclass(frozen=True, slots=True)
class Flag:
    """How a field is given on the command line; what it is for stands in its class' docstring.

    Attributes:
        name: with its dashes; None: the field's own.
        short: one letter, dash included.
        metavar: what stands for the value; of several choices all, set apart by `|`.
        panel: the part of `--help` that shows it; None: as the class belongs to one.
        least: the smallest value.
        most: the largest value.
        kind: the type of the value, where fewer are taken than in Python.
        help: where it differs from the docstring's.
        negative: whether there is a `--no-...` of it.
    """

    name: str | None = None
    short: str | None = None
    metavar: str | None = None
    panel: str | None = None
    least: float | None = None
    most: float | None = None
    kind: Any = None
    help: str | None = None
    negative: bool = False


def option(default: Any = MISSING, **flag: Any) -> Any:
    """A dataclass field that the command line offers too.

    Args:
        default: its value where it isn't given.
        **flag: as `Flag` has them.
    """
    return field(default=default, metadata={FLAG: Flag(**flag)})


NUMBERS: dict[Any, tuple[type, str]] = {
    int: (Integral, "a whole number"),
    float: (Real, "a number"),
    bool: (Real, "True or False"),
}
"""What is taken for a type, NumPy's numbers too, and how it is called."""


def check_numbers(options: Any) -> None:
    """Raise where an attribute of a dataclass that has to be a number is none.

    Raises:
        OptionError: names the first, what was found and what was expected.
    """
    of: Any = type(options)
    for name, kinds in _numbers(of).items():
        value = getattr(options, name)
        if value is not None and not isinstance(value, tuple(NUMBERS[kind][0] for kind in kinds)):
            expected = " or ".join(NUMBERS[kind][1] for kind in kinds)
            raise OptionError(f"{name}: found {value!r}, expected {expected}")


@functools.cache
def _numbers(kind: type) -> dict[str, tuple[type, ...]]:
    """The attributes of a class that are numbers by their types, and which numbers.

    A command line's class takes fewer types than the one that it is made of, whose are asked.
    """
    hints: dict[str, Any] = {}
    for base in kind.__mro__[:-1]:
        hints |= get_type_hints(base)
    found = {}
    for of in fields(kind):
        hint = hints[of.name]
        alternatives = set(get_args(hint) or (hint,)) - {type(None)}
        if alternatives <= NUMBERS.keys():
            found[of.name] = tuple(one for one in NUMBERS if one in alternatives)
    return found


def check_streamer(streamer: Any) -> None:
    """Raise where this is no streamer.

    Raises:
        OptionError: it can't be given ids, or the end.
    """
    for method in ("put", "end") if streamer is not None else ():
        if not callable(getattr(streamer, method, None)):
            raise OptionError(
                f"streamer: found {type(streamer).__name__} without {method}(), expected a "
                "transformers streamer"
            )


@dataclass(frozen=True, kw_only=True)
class Request:
    """What every request may say of transformers' `generate`; a task's own fields come with it.

    Attributes:
        streamer: A transformers streamer, gets ids that are certain to stay.
        generation_config: As `generate` takes it.
        logits_processor: Further processors, as `generate` takes them.
        stopping_criteria: Further criteria, as `generate` takes them.
        further: Further options of `generate`.
        untold: fields that no JSON tells of.
    """

    untold: ClassVar[frozenset[str]] = frozenset(
        ("streamer", "generation_config", "logits_processor", "stopping_criteria", "further")
    )

    streamer: Any = None
    generation_config: Any = None
    logits_processor: Sequence[Any] | None = None
    stopping_criteria: Sequence[Any] | None = None
    further: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_numbers(self)
        check_streamer(self.streamer)

    def having(self, options: Mapping[str, Any]) -> Self:
        """The same with other options; what no attribute is named after is one of `generate`'s."""
        known = {of.name for of in fields(self)}
        ours = {name: value for name, value in options.items() if name in known}
        further = {name: value for name, value in options.items() if name not in known}
        if further:
            ours["further"] = {**self.further, **further}
        return replace(self, **ours)

    @property
    def apart(self) -> Self:
        """The same with processors and criteria of its own, for one of several requests."""
        from mmspec.engine.processor_copies import with_copies

        both = {
            "logits_processor": self.logits_processor,
            "stopping_criteria": self.stopping_criteria,
        }
        return replace(self, **with_copies(both))

    def to_dict(self) -> dict[str, Any]:
        """What is wanted, as plain data; what is for Python alone is left out."""
        return {
            of.name: getattr(self, of.name) for of in fields(self) if of.name not in self.untold
        }


class GenerationOptions(TypedDict, total=False):
    """Options of transformers' `generate` that every task takes; it takes others as well."""

    max_new_tokens: int | None
    min_new_tokens: int | None
    top_k: int | None
    top_p: float | None
    min_p: float | None
    typical_p: float | None
    repetition_penalty: float | None
    no_repeat_ngram_size: int | None
    bad_words_ids: list[list[int]] | None
    suppress_tokens: list[int] | None
    begin_suppress_tokens: list[int] | None
    renormalize_logits: bool | None
    streamer: Any
    generation_config: Any
    logits_processor: Sequence[Any] | None
    stopping_criteria: Sequence[Any] | None

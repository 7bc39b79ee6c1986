"""What all codec-token orders share: codebooks, cells of the grid, and what one step decides.

The grid is what the user means: one row of codes per frame, one column per codebook. Codes count
from 0 within their codebook. Ids are what the model sees: codes behind an offset, and marks that
stand for start, end and padding. No mark is ever turned into a code.
"""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar, NamedTuple

from mmspec.errors import InputError, OptionError
from mmspec.factorizations.base import check_tokens

Grid = tuple[tuple[int, ...], ...]
"""Codes, frames × codebooks."""


class Cell(NamedTuple):
    """A place in the grid."""

    frame: int
    codebook: int


class Order(StrEnum):
    """How the cells of one step depend on each other."""

    ONE = "one"
    """A single cell."""
    INDEPENDENT = "independent"
    """Several, independent of each other given the backbone."""
    CHAIN = "chain"
    """Several, each given those before it in the step."""
    FILLED = "filled"
    """A whole codebook in one pass that is not autoregressive: nothing in it can be drafted."""


@dataclass(frozen=True, slots=True)
class Step:
    """What one step of the target does to the grid.

    Attributes:
        order: how the decided cells depend on each other.
        decided: the cells that the step decides, in order.
        given: cells of the prompt that it meets: known, no decisions.
        forced: codebooks whose place in this step holds a mark that the order prescribes. They
            have no cell: they are no decisions and no acceptance figure counts them.
    """

    order: Order
    decided: tuple[Cell, ...] = ()
    given: tuple[Cell, ...] = ()
    forced: tuple[int, ...] = ()

    @property
    def decisions(self) -> int:
        """How many cells a drafter may be right or wrong about."""
        return 0 if self.order is Order.FILLED else len(self.decided)


@dataclass(frozen=True, slots=True)
class Codebook:
    """The ids that one column of the grid may hold.

    Attributes:
        vocab_size: how many ids the model knows in this place.
        codes: how many of them are codes.
        first: the id of code 0.
        start: the mark before the first code, None where there is none.
        end: the mark behind the last code, likewise.
        pad: the mark where there is nothing to say, likewise.

    Example:
        >>> codebook = Codebook(vocab_size=20, codes=8, first=10, end=2)
        >>> codebook.id_of(3), codebook.code_of(13)
        (13, 3)
        >>> codebook.code_of(2)
        Traceback (most recent call last):
        ...
        mmspec.errors.InputError: 2 is the end mark, no code: codes have ids 10 to 17
    """

    vocab_size: int
    codes: int
    first: int = 0
    start: int | None = None
    end: int | None = None
    pad: int | None = None

    def __post_init__(self) -> None:
        if self.codes < 1:
            raise ValueError(f"codes must be positive, got {self.codes}")
        ids = [self.first, self.first + self.codes - 1, *self.marks.values()]
        check_tokens("Codebook", ids, self.vocab_size)

    @property
    def ids(self) -> range:
        """The ids that are codes."""
        return range(self.first, self.first + self.codes)

    @property
    def marks(self) -> dict[str, int]:
        """The ids of the marks that there are."""
        named = {"start": self.start, "end": self.end, "pad": self.pad}
        return {name: token for name, token in named.items() if token is not None}

    def id_of(self, code: int, where: str = "") -> int:
        """The id of a code.

        Raises:
            InputError: no code of this codebook; says which and, if given, where.
        """
        code = _integer(code, where)
        if not 0 <= code < self.codes:
            raise InputError(f"{where}{code} is no code: they go from 0 to {self.codes - 1}")
        return code + self.first

    def code_of(self, token: int, where: str = "") -> int:
        """The code that an id stands for.

        Raises:
            InputError: a mark, another codebook's id, or no id at all; never clipped.
        """
        token = _integer(token, where)
        if token in self.ids:
            return token - self.first
        mark = next((name for name, known in self.marks.items() if known == token), None)
        what = f"is the {mark} mark, no code" if mark else "is no code of this place"
        raise InputError(f"{where}{token} {what}: codes have ids {self.ids[0]} to {self.ids[-1]}")


class CodeSteps(ABC):
    """What every order of codec tokens answers.

    Attributes:
        axes: the directions in which decisions might be drafted ahead; the reason why not, or ""
            where they may.
        codebooks: one per column of the grid.
    """

    __slots__ = ()

    axes: ClassVar[Mapping[str, str]]
    codebooks: tuple[Codebook, ...]

    @property
    def vocab_size(self) -> int:
        """The size of the largest vocabulary of all places."""
        return max(codebook.vocab_size for codebook in self.codebooks)

    @property
    @abstractmethod
    def stop_codebooks(self) -> tuple[int, ...]:
        """The codebooks whose end marks, all at once, end a sequence; () if its length does."""

    @property
    def stop_tokens(self) -> frozenset[int]:
        """The end marks of `stop_codebooks`."""
        ends = (self.codebooks[k].end for k in self.stop_codebooks)
        return frozenset(end for end in ends if end is not None)

    @property
    def reserved(self) -> frozenset[int]:
        """Start and padding marks: the order prescribes them, nobody drafts them."""
        marks = (token for codebook in self.codebooks for token in (codebook.start, codebook.pad))
        return frozenset(token for token in marks if token is not None) - self.stop_tokens

    @abstractmethod
    def steps(self, frames: int) -> int:
        """How many steps it takes to decide this many frames, a prompt's included."""

    def step(self, index: int, frames: int, prompt: int = 0) -> Step:
        """What one step does.

        Args:
            index: the step, from 0.
            frames: frames of the whole grid.
            prompt: how many of them are given.

        Raises:
            OptionError: there is no such step, or the prompt is longer than the grid.
        """
        if not 0 <= prompt <= frames:
            raise OptionError(f"a prompt of {prompt} frames doesn't fit a grid of {frames} frames")
        if not 0 <= index < self.steps(frames):
            count = self.steps(frames)
            raise OptionError(f"step {index} doesn't exist: {frames} frames take {count} steps")
        order, cells, forced = self._cells(index, frames)
        return Step(
            order,
            tuple(cell for cell in cells if cell.frame >= prompt),
            tuple(cell for cell in cells if cell.frame < prompt),
            forced,
        )

    @abstractmethod
    def _cells(self, index: int, frames: int) -> tuple[Order, tuple[Cell, ...], tuple[int, ...]]:
        """(order, cells, forced codebooks) of a step that exists, if nothing were given."""

    def decisions(self, frames: int, prompt: int = 0) -> int:
        """How many cells are decided one by one: what acceptance figures are shares of."""
        every = (self.step(index, frames, prompt) for index in range(self.steps(frames)))
        return sum(step.decisions for step in every)

    def check_axis(self, axis: str) -> None:
        """Return quietly where decisions may be drafted along an axis.

        Raises:
            OptionError: names the axis and the reason, or the axes that there are.
        """
        check_axis(self.axes, axis)

    @abstractmethod
    def to_grid(self, sequence: Sequence[Any]) -> Grid:
        """The codes of a whole sequence, frames × codebooks.

        Raises:
            InputError: the sequence is incomplete, or not in this order.
        """

    @abstractmethod
    def from_grid(self, grid: Sequence[Sequence[int]], *, ended: bool = False) -> tuple[Any, ...]:
        """The sequence that the model sees of a grid.

        Args:
            grid: codes, frames × codebooks.
            ended: whether it ended by its end mark (not by its length).

        Raises:
            InputError: what is given is no grid of codes.
            OptionError: it can't end by a mark: this order has none.
        """

    def whole_frame(self, sequence: Sequence[Any], frame: int) -> tuple[int, ...] | None:
        """The codes of one frame of a sequence that may go on; None while it isn't complete.

        Nothing else of the sequence is looked at, so following a sequence costs the same however
        long it is. A frame behind the end is never complete; none is, in orders that finish one
        codebook before they begin the next.

        Raises:
            InputError: what stands in its place are no codes.
        """
        return None

    @abstractmethod
    def has_ended(self, sequence: Sequence[Any]) -> bool:
        """Whether a whole sequence ended by its end mark."""

    def _ids(self, grid: Sequence[Sequence[int]]) -> Grid:
        """The ids of a grid of codes, same shape, checked."""
        check_width(grid, len(self.codebooks), "frame")
        return tuple(
            tuple(
                self.codebooks[k].id_of(code, f"frame {frame}, codebook {k}: ")
                for k, code in enumerate(row)
            )
            for frame, row in enumerate(grid)
        )

    def _code(self, frame: int, codebook: int, token: int) -> int:
        """The code that an id means in a cell, checked."""
        return self.codebooks[codebook].code_of(token, f"frame {frame}, codebook {codebook}: ")

    def _check_end(self, ended: bool) -> None:
        if ended and not self.stop_codebooks:
            raise OptionError("this order has no end mark: its length ends a sequence")


def check_axis(axes: Mapping[str, str], axis: str) -> None:
    """Raise where decisions may not be drafted along an axis.

    Raises:
        OptionError: names the axis and the reason, or the axes that there are.
    """
    if axis not in axes:
        raise OptionError(f"unknown axis {axis!r}: this order has {', '.join(axes)}")
    if axes[axis]:
        raise OptionError(f"nothing can be drafted along the {axis} axis: {axes[axis]}")


def check_width(rows: Sequence[Sequence[int]], width: int, name: str) -> None:
    """Raise where a row doesn't hold one token per codebook.

    Raises:
        InputError: says which row and how many it holds.
    """
    for index, row in enumerate(rows):
        if len(row) != width:
            raise InputError(f"{name} {index} has {len(row)} tokens, expected {width}")


def check_codebooks(codebooks: tuple[Codebook, ...]) -> None:
    """Raise where an order has no codebook.

    Raises:
        ValueError: there is none.
    """
    if not codebooks:
        raise ValueError("an order of codes needs a codebook, got none")


def _integer(token: Any, where: str) -> int:
    try:
        return operator.index(token)
    except TypeError:
        raise InputError(f"{where}{token!r} is no integer") from None

"""Staged codes: a semantic stream, then coarse codes, then fine ones, each stage on its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

from mmspec.errors import InputError, OptionError
from mmspec.factorizations.codes import Grid, Step, check_axis
from mmspec.factorizations.first_stream import FirstStream
from mmspec.factorizations.time_major import TimeMajorFrames


@dataclass(frozen=True, slots=True)
class StagedCodes:
    """Bark's stages: the semantic stream says how many frames there will be.

    Attributes:
        semantic: the first stage, one token per frame of its own rate.
        acoustic: the coarse codes as a chain, the fine ones filled.
        frames_per_token: acoustic frames per semantic token.

    Example:
        >>> from mmspec.factorizations import Codebook
        >>> acoustic = FirstStream((Codebook(12, codes=4, first=8), Codebook(4, codes=4)))
        >>> semantic = TimeMajorFrames.even(codebooks=1, codes=8, end=8)
        >>> steps = StagedCodes(semantic, acoustic, Fraction(3, 2))
        >>> steps.to_grid([(7, 5, 8), (8, 9, 10), (0, 1, 2)])
        (((7,), (5,)), ((0, 0), (1, 1), (2, 2)))
        >>> [steps.step(index, tokens=2)[0] for index in range(steps.steps(tokens=2))]
        ['semantic', 'semantic', 'coarse', 'coarse', 'coarse', 'fine']
    """

    axes: ClassVar[dict[str, str]] = {
        "semantic": "",
        "coarse": "",
        "fine": "each fine codebook is filled in one pass, not one code after another",
        "stage": "a stage begins when the one before it is whole: it reads all of it",
    }

    semantic: TimeMajorFrames
    acoustic: FirstStream
    frames_per_token: Fraction

    def __post_init__(self) -> None:
        if len(self.semantic.codebooks) != 1:
            raise ValueError(f"one semantic stream, got {len(self.semantic.codebooks)}")
        if self.acoustic.stop_codebooks:
            raise ValueError("acoustic codes must have no end mark: the semantic stream ends them")
        if not isinstance(self.frames_per_token, Fraction) or self.frames_per_token <= 0:
            raise ValueError(
                f"frames_per_token must be a positive Fraction, got {self.frames_per_token!r}"
            )

    @property
    def vocab_size(self) -> int:
        """The size of the largest vocabulary of all stages."""
        return max(self.semantic.vocab_size, self.acoustic.vocab_size)

    @property
    def stop_tokens(self) -> frozenset[int]:
        """The semantic stream's; the other stages end by their length."""
        return self.semantic.stop_tokens

    @property
    def reserved(self) -> frozenset[int]:
        """Start and padding marks of every stage."""
        return (self.semantic.reserved | self.acoustic.reserved) - self.stop_tokens

    def frames(self, tokens: int) -> int:
        """How many acoustic frames this many semantic tokens have."""
        return int(tokens * self.frames_per_token)

    def steps(self, tokens: int) -> int:
        """The steps of all stages."""
        return self.semantic.steps(tokens) + self.acoustic.steps(self.frames(tokens))

    def step(self, index: int, tokens: int) -> tuple[str, Step]:
        """The stage of a step, and what it does to that stage's grid.

        Args:
            index: the step, from 0, over all stages.
            tokens: length of the semantic stream.

        Raises:
            OptionError: there is no such step.
        """
        if not 0 <= index < self.steps(tokens):
            count = self.steps(tokens)
            raise OptionError(f"step {index} doesn't exist: {tokens} tokens take {count} steps")
        late = index - self.semantic.steps(tokens)
        if late < 0:
            return "semantic", self.semantic.step(index, tokens)
        frames = self.frames(tokens)
        stage = "coarse" if late < self.acoustic.chain.steps(frames) else "fine"
        return stage, self.acoustic.step(late, frames)

    def decisions(self, tokens: int) -> int:
        """How many cells of all stages are decided one by one."""
        return self.semantic.decisions(tokens) + self.acoustic.decisions(self.frames(tokens))

    def check_axis(self, axis: str) -> None:
        """Return quietly where decisions may be drafted along an axis.

        Raises:
            OptionError: names the axis and the reason, or the axes that there are.
        """
        check_axis(self.axes, axis)

    def has_ended(self, sequence: Sequence[Sequence[int]]) -> bool:
        """Whether the semantic stream has ended by its end mark."""
        return len(sequence) > 0 and self.semantic.has_ended(sequence[0])

    def to_grid(self, sequence: Sequence[Sequence[int]]) -> tuple[Grid, Grid]:
        """(semantic grid, acoustic grid) of the semantic ids, the coarse chain and fine streams.

        Raises:
            InputError: a stage is missing, not in its order, or not of the length that the
                semantic stream sets.
        """
        if not sequence:
            raise InputError("no stage at all: expected semantic ids, coarse ids, fine streams")
        semantic, acoustic = self.semantic.to_grid(sequence[0]), self.acoustic.to_grid(sequence[1:])
        self._check_lengths(semantic, acoustic)
        return semantic, acoustic

    def from_grid(
        self, grid: Sequence[Sequence[Sequence[int]]], *, ended: bool = False
    ) -> tuple[tuple[int, ...], ...]:
        """The semantic ids, the coarse chain and the fine streams of both grids.

        Raises:
            InputError: not two grids of codes, or not of lengths that fit.
        """
        if len(grid) != 2:
            raise InputError(f"expected a semantic and an acoustic grid, got {len(grid)}")
        self._check_lengths(*grid)
        return (
            self.semantic.from_grid(grid[0], ended=ended),
            *self.acoustic.from_grid(grid[1]),
        )

    def _check_lengths(
        self, semantic: Sequence[Sequence[int]], acoustic: Sequence[Sequence[int]]
    ) -> None:
        expected = self.frames(len(semantic))
        if len(acoustic) != expected:
            raise InputError(
                f"{len(semantic)} semantic tokens make {expected} frames, got {len(acoustic)}"
            )

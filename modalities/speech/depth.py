"""The chain inside a frame: a small decoder that goes down the codebooks.

The backbone decides a frame's first code; a depth decoder decides the others, each behind those
before it. How many passes it takes to know its distributions is open:

    drafted frames: One pass for all of them at once, each frame's own codes as input.
    another frame: A pass per code, K - 1 of them. If the codes to come are guessed, a pass also
        gives the distributions behind the guess, and as long as the guess is right nothing else is
        asked.

A guess only says which distributions are worth knowing early. Codes are drawn from the decoder's
own distributions, so a wrong guess costs a pass and changes no code.

Legend: K codebooks, V codes in a codebook, D width of the backbone.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import Protocol

import torch
from torch import Tensor
from transformers import LogitsProcessorList

from mmspec.engine.processing import IGNORES_PREFIX, Processors
from mmspec.errors import OptionError
from mmspec.modalities.speech.depth_guesses import Guess
from mmspec.prefix import Frame, Prefix
from mmspec.state import DecoderState

PLACE = 0
"""The id that stands in a depth decoder's prompt where it reads the backbone's state."""


NOTHING: tuple[int, Frame] = -1, ()
"""What a memory holds that holds nothing: of no frame, no code."""


class Depth(Protocol):
    """A decoder of a frame's codes.

    Attributes:
        codebooks: K.
        vocab_size: V.
        layers: how many of its layers remember keys and values.
    """

    codebooks: int
    vocab_size: int
    layers: int

    def score(self, hidden: Tensor | None, codes: Tensor, state: DecoderState | None) -> Tensor:
        """The distributions behind some codes: one pass.

        Args:
            hidden: the backbone's state at each frame, `[n, D]`; None where `state` holds it.
            codes: int64 `[n, m]`, m ≥ 1: of codebooks 0 to m - 1; behind what `state` holds.
            state: memory of a single frame, its block announced; None: nothing is remembered.

        Returns:
            Float32 logits `[n, m, V]`: row j is the distribution of the code that follows `codes[:,
            j]`.
        """
        ...


class Backbone(Protocol):
    """What a chain has to know of the decoder that decides the first codes.

    Attributes:
        states: `[m, D]`, its final states that the frames of a round stand behind: behind what is
            committed, and behind each drafted frame. Another tensor after each pass.
        behind: the m frames that these states stand behind; None for a prompt that is no frame.
    """

    states: Tensor
    behind: Sequence[Frame | None]


class Inside:
    """A depth decoder's logits processors, as its own `generate` calls them, frame by frame.

    It begins every frame anew, with the backbone's place and the first code as its prompt.

    Args:
        processors: transformers' list.
        best_only: each distribution is all on its highest code: this decoder doesn't sample where
            the backbone does.

    Raises:
        OptionError: a processor remembers what it was called with.
    """

    def __init__(
        self, processors: LogitsProcessorList | None = None, *, best_only: bool = False
    ) -> None:
        self._processors, self._best_only = list(processors or []), best_only
        self._by_frame = Processors(processors)
        if self._by_frame.has_memory or self._by_frame.refuses_blocks:
            names = ", ".join(type(processor).__name__ for processor in self._processors)
            raise OptionError(
                f"a depth decoder's logits processors must look at scores and ids alone: {names}"
            )

    def __call__(self, rows: Tensor, frames: Sequence[Frame], first: int) -> Tensor:
        """Process rows.

        Args:
            rows: `[n, m, V]`; row j of a frame is the distribution behind `first + j` of its codes.
            frames: n frames, at least `first + m - 1` codes of each.
            first: how many codes are known at the first row.
        """
        if all(type(processor) in IGNORES_PREFIX for processor in self._processors):
            flat = rows.flatten(0, 1)
            for processor in self._processors:
                flat = processor(None, flat)
            rows = flat.view_as(rows)
        else:
            pairs = zip(rows, frames, strict=True)
            rows = torch.stack([self._single(own, codes, first) for own, codes in pairs])
        return only_best(rows) if self._best_only else rows

    def _single(self, rows: Tensor, codes: Frame, first: int) -> Tensor:
        prefix = Prefix([PLACE], len(codes) + 1, rows.device)
        prefix.show_draft(codes)
        return self._by_frame(rows.clone(), prefix, codes, first)


def only_best(rows: Tensor) -> Tensor:
    """Distributions `[..., V]` that give everything to their highest code, the first one if several
    are.

    Example:
        >>> only_best(torch.tensor([1.0, 3.0, 3.0])).tolist()
        [-inf, 0.0, -inf]
    """
    best = rows.argmax(-1, keepdim=True)
    return torch.full_like(rows, -torch.inf).scatter_(-1, best, 0.0)


class Chain:
    """The distributions inside the frames of one request.

    Args:
        depth: the decoder.
        backbone: where frames begin.
        processors: of the depth decoder; none if None.
        guess: how frames may go on; None: no distribution is asked for early.

    Attributes:
        passes: forward passes of the depth decoder so far.
        guessed: distributions that were computed behind a guess.
        used: how many of these were asked for: their guess was right.
    """

    def __init__(
        self,
        depth: Depth,
        backbone: Backbone,
        processors: Inside | None = None,
        guess: Guess | None = None,
    ) -> None:
        self._depth, self._backbone = depth, backbone
        self._processors, self.guess = processors or Inside(), guess
        self._state = DecoderState(depth.layers, depth.codebooks, cross_attention=False)
        self._seen: Tensor | None = None
        self._hidden: list[Tensor] = []
        self._behind: list[Frame | None] = []
        self._distributions: dict[tuple[int, Frame], Tensor] = {}
        self._early: set[tuple[int, Frame]] = set()
        self._held = NOTHING
        self.passes = self.guessed = self.used = 0

    @torch.no_grad()
    def teach(self, frames: Sequence[Frame]) -> Tensor:
        """Know the distributions of n drafted frames, which the backbone has just read: one pass.

        Args:
            frames: their codes; where there are none, no pass is made.

        Returns:
            Processed scores `[n, K-1, V]` of codebooks 1 to K - 1, each behind the drafted codes
            before it.
        """
        self._look()
        hidden, count = self._backbone.states, len(frames)
        if not frames:
            shape = 0, self._depth.codebooks - 1, self._depth.vocab_size
            return torch.empty(shape, device=hidden.device)
        codes = torch.tensor([frame[:-1] for frame in frames], device=hidden.device)
        rows = self._depth.score(hidden[:count], codes, None)
        self.passes += 1
        return self._processors(rows, frames, 1)

    def begin(self, frame_idx: int, hidden: Tensor, before: Frame | None) -> None:
        """Begin a frame: for a drafter, whose frames come one by one.

        Args:
            frame_idx: frames drafted so far; 0 forgets all earlier ones.
            hidden: the backbone's state that it stands behind, `[D]`.
            before: the frame before it; None where there is none.
        """
        if frame_idx == 0:
            self._forget()
        self._hidden[frame_idx:] = [hidden]
        self._behind[frame_idx:] = [before]
        self._seen = self._backbone.states

    def rest(self, frame_idx: int, codes: Frame) -> Tensor:
        """Processed scores `[V]` of the code that follows `codes` in a frame.

        Args:
            frame_idx: which frame: 0 stands behind the first of the backbone's states.
            codes: the first codes of it, 1 to K - 1 of them.
        """
        if self._seen is not self._backbone.states:
            self._look()  # nothing was drafted, so nothing was taught
        asked = frame_idx, codes
        if asked not in self._distributions:
            self._read(frame_idx, codes)
        if asked in self._early:
            self._early.remove(asked)
            self.used += 1
        return self._distributions[asked]

    @torch.no_grad()
    def _read(self, frame_idx: int, codes: Frame) -> None:
        """Know the distribution behind `codes`, and those behind a guess: one pass."""
        hidden, last = self._hidden[frame_idx], self._depth.codebooks - 1
        line = codes
        if self.guess is not None and len(codes) < last:
            line = (*codes, *self.guess(hidden, codes, self._behind[frame_idx]))[:last]
        known = self._roll_back(frame_idx, codes)
        fed = torch.tensor([line[known:]], device=hidden.device)
        begins = self._state.length == 0
        with self._state.block(fed.shape[1] + begins):
            rows = self._depth.score(hidden[None] if begins else None, fed, self._state)
        self._held = frame_idx, line
        self.passes += 1
        for count, row in enumerate(self._processors(rows, [line], known + 1)[0], known + 1):
            self._distributions.setdefault((frame_idx, line[:count]), row)
            if count > len(codes):
                self._early.add((frame_idx, line[:count]))
        self.guessed += len(line) - len(codes)

    def _roll_back(self, frame_idx: int, codes: Frame) -> int:
        """Leave in memory what it holds of all but the last of `codes`; returns how many."""
        held_idx, line = self._held
        known = 0
        if held_idx == frame_idx:
            pairs = zip(line, codes[:-1], strict=False)
            known = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        self._held = (frame_idx, codes[:known]) if known else NOTHING
        self._state.rollback(1 + known if known else 0)
        return known

    def _look(self) -> None:
        """Another round, behind what the backbone has read by now."""
        self._forget()
        self._seen = self._backbone.states
        self._hidden, self._behind = list(self._seen), list(self._backbone.behind)

    def _forget(self) -> None:
        self._distributions, self._early, self._held = {}, set(), NOTHING
        self._state.rollback(0)

    def close(self) -> None:
        """Release the memory."""
        self._distributions, self._hidden = {}, []
        self._state.close()

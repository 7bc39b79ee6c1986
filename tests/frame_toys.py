"""Toys whose steps decide frames, and the slow, obvious decoding that they are compared with.

As in `tests.toys`, rows are a function of everything that the state really holds: frames are
written into its memory and read back from it. Under guidance the memory has two halves, and each
half's rows are a function of that half alone.

Legend: K codebooks, V scores in a row, R rows of a step: K, in a chain 1, for guidance twice that.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import torch
from torch import Tensor
from transformers import LogitsProcessorList, StoppingCriteriaList

from mmspec.acceptance.frames import FREE, code_noise
from mmspec.clock import Clock
from mmspec.engine import FixedPolicy, Sampling, Session
from mmspec.engine.frames import DelayedLayout, DepthLayout, Frames, FrameStops, Layout
from mmspec.factorizations import Codebook, DelayedFrames, DepthFrames
from mmspec.prefix import Frame, Prefix
from mmspec.proposals import Drafter, Outlook
from mmspec.proposals.base import Pick
from mmspec.proposals.frames import (
    DraftedFrames,
    FrameIndex,
    FrameModelDrafter,
    HeadsDrafter,
    LookupDrafter,
    RepeatDrafter,
)
from mmspec.state import DecoderState
from mmspec.target import Pass

K, V = 3, 7
CPU = torch.device("cpu")


@functools.lru_cache(maxsize=1 << 17)
def _row(key: tuple[int, ...], size: int) -> Tensor:
    generator = torch.Generator().manual_seed(hash(key) & ((1 << 63) - 1))
    return torch.randn(size, generator=generator, dtype=torch.float64) * 2


@dataclass(frozen=True)
class FrameLaw:
    """Scores of every code, given all frames and, in a chain, the codes of the frame before it.

    Attributes:
        seed: of the scores.
        codes: V.
        mark: an id that no head says, None where there is none.
        chain: codes depend on those before them in the frame.
        guided: rows come in pairs.
        end: the id of the end mark, None where there is none.
        ends_at: how many frames stand in front of the one that ends the output.
        together: all codebooks say the end, not only the first.
        holding: how much likelier the last frame's codes are in some stretches, and those of the
            frame four back in others: for lookup and repeats.
    """

    seed: int = 0
    codes: int = V
    mark: int | None = None
    chain: bool = False
    guided: bool = False
    end: int | None = None
    ends_at: int | None = None
    together: bool = False
    holding: float = 5.0

    def row(
        self, frames: Sequence[Frame], codebook: int, before: Frame = (), half: int = 0
    ) -> Tensor:
        """Scores `[V]` of one code, float32."""
        inside = before if self.chain else ()
        key = (self.seed, half, codebook, len(frames), *itertools.chain(*frames, inside))
        row = _row(key, self.codes).clone()
        back = 1 if len(frames) % 9 > 4 else 4
        if len(frames) > back and 0 <= frames[-back][codebook] < self.codes:
            row[frames[-back][codebook]] += self.holding
        if self.end is not None and (codebook == 0 or self.together):
            row[self.end] += 90.0 if len(frames) == self.ends_at else -90.0
        if self.mark is not None:
            row[self.mark] = torch.finfo(torch.float32).min
        return row.float()

    def told(self, row: int, codebook: int, code: int) -> int:
        """What stands in a cell where this code was drawn: the code, unless a mark has to."""
        return code

    def rows(self, frames: Sequence[Frame], half: int = 0) -> Tensor:
        """Rows of a step in one half: `[K, V]`, in a chain `[1, V]`."""
        return torch.stack([self.row(frames, k, half=half) for k in range(1 if self.chain else K)])

    def pairs(self, frames: Sequence[Frame]) -> Tensor:
        """Rows `[R, V]` as a target gives them: the conditional ones first."""
        return torch.cat([self.rows(frames, half) for half in range(1 + self.guided)])


class FrameToy:
    """The target of frames over a distribution.

    Attributes:
        blocks: every block that was fed.
        fault: called with each block before the state moves; may raise.
        hidden: `[keep, 1]`: a number per frame whose distribution was asked for last, see `seen`.
        hidden_from: position of the first of them.
        seen: by that number, the frames up to it.
    """

    takes_trees = False
    note = None

    def __init__(self, law: FrameLaw, *, capacity: int = 96) -> None:
        self.law, self.capacity, self.device = law, capacity, CPU
        self.vocab_size = law.codes
        self.state = DecoderState(1, capacity, cross_attention=False)
        self.codebooks, self.forwards, self.closed = K, 0, 0
        self.blocks: list[tuple[Frame, ...]] = []
        self.fault: Callable[[Sequence[Frame]], None] = lambda frames: None
        self.hidden, self.hidden_from = torch.empty(0, 1), 0
        self.seen: list[tuple[Frame, ...]] = []

    def score(self, ids: Sequence[Any], keep: int, parents: Sequence[int] | None = None) -> Tensor:
        if parents is not None:
            raise ValueError("frames are no trees here")
        written = torch.tensor(list(ids), dtype=torch.float64).view(1, 1, len(ids), K)
        written = written.repeat(1 + self.law.guided, 1, 1, 1)
        with self.state.block(len(ids)):
            held, _ = self.state.cache.update(written, written.clone(), 0)
            self.fault(ids)
            halves = [_frames(half[0]) for half in held]
        self.forwards += 1
        self.blocks.append(tuple(ids))
        behind = range(self.state.length - keep + 1, self.state.length + 1)
        self.hidden = torch.arange(keep)[:, None] + len(self.seen)
        self.hidden_from = self.state.length - keep
        self.seen += [tuple(halves[0][:length]) for length in behind]
        rows = [
            torch.cat([self.law.rows(half[:length], at) for at, half in enumerate(halves)])
            for length in behind
        ]
        return torch.stack(rows) if rows else torch.empty(0, K, self.vocab_size)

    def score_batched(self, passes: Sequence[Pass]) -> list[Tensor]:
        return [one.target.score(one.ids, one.keep, one.parents) for one in passes]

    def held(self, half: int = 0) -> list[Frame]:
        """The frames that one half of the state describes."""
        keys = self.state.cache.layers[0].keys
        return [] if keys is None else _frames(keys[half, 0, : self.state.length])

    def close(self) -> None:
        self.closed += 1
        self.state.close()


def _frames(held: Tensor) -> list[Frame]:
    return [tuple(int(code) for code in frame) for frame in held.tolist()]


class ToyChain:
    """The chain of a toy: what it knows of drafted frames, it reads from the target's state.

    Attributes:
        prefix: what was committed before them.
        taught: how many frames each pass of it was over.
    """

    prefix: Prefix[Frame]

    def __init__(self, target: FrameToy) -> None:
        self._target = target
        self.taught: list[int] = []

    def teach(self, frames: Sequence[Frame]) -> Tensor:
        start = len(self.prefix)
        if self._target.held()[start : start + len(frames)] != list(frames):
            raise ValueError("taught other frames than were scored")
        self.taught.append(len(frames))
        return torch.stack(
            [
                torch.stack([self.rest(at, frame[:k]) for k in range(1, K)])
                for at, frame in enumerate(frames)
            ]
        )

    def rest(self, frame_idx: int, codes: Frame) -> Tensor:
        before = self._target.held()[: len(self.prefix) + frame_idx]
        return self._target.law.row(before, len(codes), codes)


# Layouts once more, from what has been said only.


class SlowLayout(Protocol):
    def forced(self, frames: Sequence[Frame]) -> Frame:
        """What the next frame is forced to, `FREE` where a distribution decides."""
        ...

    def ended(self, frames: Sequence[Frame]) -> bool:
        """Whether the last frame ends the output."""
        ...


@dataclass(frozen=True)
class KnownRows:
    """Delayed rows of a known number: the rows of a grid, as the descriptor lays it out."""

    steps: DelayedFrames
    rows: int

    def forced(self, frames: Sequence[Frame]) -> Frame:
        if len(frames) >= self.rows:
            return tuple(pad_of(self.steps, k) for k in range(K))
        count = self.rows - 1 - max(self.steps.delays)
        laid = self.steps.from_grid([(0,) * K] * count)[len(frames)]
        step = self.steps.step(len(frames) - 1, count)
        decided = {cell.codebook for cell in step.decided}
        return tuple(FREE if k in decided else token for k, token in enumerate(laid))

    def ended(self, frames: Sequence[Frame]) -> bool:
        return False


@dataclass(frozen=True)
class EndMark:
    """Delayed rows that end where the first codebook says so: the others follow, then padding."""

    steps: DelayedFrames

    def forced(self, frames: Sequence[Frame]) -> Frame:
        row, end = len(frames), self._end(frames)
        out = []
        for book, delay in zip(self.steps.codebooks, self.steps.delays, strict=True):
            mark: int | None = FREE
            if row <= delay:
                mark = book.start
            elif end is not None and row == end + delay:
                mark = book.end
            elif end is not None and row > end + delay:
                mark = book.pad
            out.append(FREE if mark is None else mark)
        return tuple(out)

    def ended(self, frames: Sequence[Frame]) -> bool:
        end = self._end(frames)
        return end is not None and len(frames) == end + max(self.steps.delays) + 1

    def _end(self, frames: Sequence[Frame]) -> int | None:
        mark = self.steps.codebooks[0].end
        return next((row for row, frame in enumerate(frames) if row and frame[0] == mark), None)


@dataclass(frozen=True)
class WholeFrames:
    """Nothing is forced; a frame that holds `end` in the first codebooks is the last one."""

    end: int | None
    looked_at: int = K - 1

    def forced(self, frames: Sequence[Frame]) -> Frame:
        return (FREE,) * K

    def ended(self, frames: Sequence[Frame]) -> bool:
        return self.end is not None and set(frames[-1][: self.looked_at]) == {self.end}


def pad_of(steps: DelayedFrames, codebook: int) -> int:
    pad = steps.codebooks[codebook].pad
    if pad is None:
        raise ValueError("delayed codebooks have padding")
    return pad


# Cases: a law, an order of codes, a prompt.


@dataclass(frozen=True)
class Case:
    """What is decoded.

    Attributes:
        distribution: of the target.
        layout: of the order, as production code has it.
        slow: the same, slowly.
        prompt: given frames.
        max_length: frames, the prompt's included.
    """

    law: FrameLaw
    layout: Layout
    slow: SlowLayout
    prompt: tuple[Frame, ...]
    max_length: int


MUSIC = DelayedFrames((Codebook(V + 1, V, start=V, pad=V),) * K, delays=(0, 1, 2))
"""As MusicGen's: no head can say the mark."""
SPEECH = DelayedFrames((Codebook(V, V - 3, start=6, end=4, pad=5),) * K, delays=(0, 2, 3))
"""As Dia's: the heads know the marks, and codebook 0 ends it."""
DEPTH = DepthFrames((Codebook(V, V, end=0),) * K, stops=tuple(range(K - 1)))
"""As CSM's."""

ORDERS = ("known rows", "end mark", "depth")


def case(order: str, seed: int = 0, *, frames: int = 18, guided: bool = False) -> Case:
    """One of `ORDERS`, of about so many frames."""
    law = FrameLaw(seed, guided=guided)
    if order == "known rows":
        law, rows = replace(law, codes=V + 1, mark=V), 1 + frames + 2
        slow, prompt = KnownRows(MUSIC, rows), ((V,) * K,)
        return Case(law, DelayedLayout(MUSIC, rows), slow, prompt, rows)
    if order == "end mark":
        law = replace(law, end=4, ends_at=frames)
        given = ((6, 6, 6), (1, 6, 6))
        return Case(law, DelayedLayout(SPEECH), EndMark(SPEECH), given, frames + 20)
    law = replace(law, chain=True, end=0, ends_at=frames, together=True)
    return Case(law, DepthLayout(DEPTH), WholeFrames(0), ((1, 2, 3), (2, 2, 1)), frames + 20)


# Ordinary decoding.


@dataclass
class Ordinary:
    """What ordinary decoding gives."""

    frames: list[Frame] = field(default_factory=list)
    rows: list[Tensor] = field(default_factory=list)
    reason: str = "length"


def ordinary(
    given: Case,
    *,
    max_length: int | None = None,
    processors: Sequence[Any] = (),
    criteria: Sequence[Any] = (),
    seed: int | None = None,
) -> Ordinary:
    """One frame at a time, code by code, with processors and criteria as `_sample` calls them."""
    out, frames = Ordinary(), list(given.prompt)
    listed, asked = LogitsProcessorList(processors), StoppingCriteriaList(criteria)
    law, going = given.law, torch.ones(K, dtype=torch.bool)
    while len(frames) < min(given.max_length, max_length or given.max_length):
        ids = torch.tensor(frames).t()
        rows = listed(ids[:1] if law.chain else ids, law.pairs(frames))
        noise = torch.zeros(K, law.codes)
        if seed is not None:
            noise = code_noise(seed, torch.tensor(len(frames)), K, law.codes)
        codes: Frame = ()
        for k, mark in enumerate(given.slow.forced(frames)):
            row = law.row(frames, k, codes) if law.chain and k else rows[k]
            codes = (*codes, int((row + noise[k]).argmax()) if mark == FREE else mark)
        frames.append(codes)
        out.frames.append(codes)
        out.rows.append(rows)
        going = going & ~asked(torch.tensor(frames).t(), None)  # once ended, a row stays ended
        stops = not bool(going.any())
        if given.slow.ended(frames) or stops:
            out.reason = "stop" if given.slow.ended(frames) else "criterion"
            break
    return out


# Drafters.


class ScriptedFrames(Drafter):
    """Proposes the frames that a function gives for the committed ones."""

    name = "scripted"

    def __init__(self, script: Callable[[Sequence[Frame], int], Sequence[Any]]) -> None:
        self._script = script

    def outlook(self, prefix: Prefix) -> Outlook:
        return Outlook("scripted", 0.9, 0.9, 1 << 30)

    def propose(self, prefix: Prefix, limit: int, pick: Pick) -> DraftedFrames:
        return DraftedFrames(tuple(self._script(prefix.ids, limit))[:limit])


def noise_of(frames: Sequence[Frame], offset: int, codes: int = V) -> Frame:
    """A frame of anything at all, forced cells too."""
    return tuple(hash((offset, k, *frames)) % codes for k in range(K))


def garbage() -> ScriptedFrames:
    return ScriptedFrames(lambda ids, limit: [noise_of(ids, at) for at in range(limit)])


def recalling(said: Sequence[Frame], prompt: Sequence[Frame]) -> ScriptedFrames:
    """Knows what will be said, wrong in one code of every third frame."""
    whole = [*prompt, *said]

    def script(ids: Sequence[Frame], limit: int) -> list[Frame]:
        ahead = whole[len(ids) : len(ids) + limit]
        return [_spoilt(frame, len(ids) + at) for at, frame in enumerate(ahead)]

    return ScriptedFrames(script)


def _spoilt(frame: Frame, position: int) -> Frame:
    if position % 3:
        return frame
    wrong = position // 3 % K
    return tuple((code + 1) % V if k == wrong else code for k, code in enumerate(frame))


class Failing(ScriptedFrames):
    """Right until it raises, at its third proposal."""

    def __init__(self, said: Sequence[Frame], prompt: Sequence[Frame]) -> None:
        super().__init__(lambda ids, limit: [*prompt, *said][len(ids) :])
        self.proposals = 0

    def propose(self, prefix: Prefix, limit: int, pick: Pick) -> DraftedFrames:
        self.proposals += 1
        if self.proposals == 3:
            raise RuntimeError("out of ideas")
        return super().propose(prefix, limit, pick)


class ChainDrafter(FrameModelDrafter):
    """A drafting model whose codes are a chain: it draws them one by one."""

    def propose(self, prefix: Prefix, limit: int, pick: Any) -> DraftedFrames:
        model: Any = self.model
        rows, frames, laws = self._behind(prefix), list[Frame](), list[Tensor]()
        behind = [list(prefix.ids)]
        while True:
            code, law = pick.first(rows)
            codes: Frame = (model.law.told(len(behind[-1]), 0, code),)
            drawn = [law]
            while len(codes) < K:
                k = len(codes)
                code, law = pick.code(model.law.row(behind[-1], k, codes), k)
                codes = (*codes, model.law.told(len(behind[-1]), k, code))
                drawn.append(law)
            pick.done(codes)
            frames.append(codes)
            behind.append([*behind[-1], codes])
            laws += [torch.stack(drawn)] if law is not None else []
            if len(frames) >= limit or model.state.length >= model.capacity:
                break
            rows = model.score([codes], keep=1)[0]

        def rest(frame_idx: int, codes: Frame) -> Tensor:
            return model.law.row(behind[frame_idx], len(codes), codes).double().softmax(-1)

        return DraftedFrames(tuple(frames), torch.stack(laws) if laws else None, draft_rest=rest)


def model(law: FrameLaw, prompt: Sequence[Frame], **options: Any) -> FrameModelDrafter:
    """A drafting model that has read the prompt."""
    toy = FrameToy(law, **options)
    first_row = toy.score(prompt, keep=1)
    toy.state.freeze()
    return (ChainDrafter if law.chain else FrameModelDrafter)(toy, first_row)


def heads_of(target: FrameToy, said: Sequence[Frame], offsets: int = 3) -> HeadsDrafter:
    """Heads that know the output but for one code of every third frame."""

    def heads(hidden: Tensor) -> Tensor:
        seen = target.seen[int(hidden)]
        rows = torch.zeros(offsets, K, target.vocab_size)
        whole = [*said, *list(said[-1:]) * (offsets + 2)]
        for at in range(offsets):
            place = len(seen) + 1 + at
            for k, code in enumerate(_spoilt(whole[min(place, len(whole) - 1)], place)):
                rows[at, k, code] = 9.0
        return rows

    return HeadsDrafter(target, heads, offsets)


DRAFTERS = (
    "none",
    "copy",
    "wrong",
    "garbage",
    "recalling",
    "failing",
    "lookup",
    "repeat",
    "heads",
    "unguided",
)


def drafter_for(kind: str, given: Case, target: FrameToy, said: Sequence[Frame]) -> Drafter | None:
    """One of `DRAFTERS`, for a target that says these frames."""
    law, prompt = given.law, given.prompt
    if kind == "copy":
        return model(law, prompt)
    if kind == "wrong":  # it also ends too early
        early = None if law.ends_at is None else law.ends_at - 3
        return model(replace(law, seed=law.seed + 991, ends_at=early), prompt)
    if kind == "unguided":
        return model(replace(law, guided=False), prompt)
    if kind == "lookup":
        own = FrameIndex(longest=2, shortest=1, codebooks=1)
        return LookupDrafter(own=own)
    if kind == "repeat":
        return RepeatDrafter()
    if kind == "heads":
        return None if law.chain else heads_of(target, [*prompt, *said])
    if kind == "recalling":
        return recalling(said, prompt)
    if kind == "failing":
        return Failing(said, prompt)
    return garbage() if kind == "garbage" else None


# Sessions.


@dataclass
class Run:
    """A session and its target, decoded or not."""

    session: Session
    target: FrameToy
    drafter: Any
    chain: ToyChain | None
    frames: list[Frame] = field(default_factory=list)

    @property
    def tally(self) -> Any:
        return self.session.tally


def open_session(
    given: Case,
    drafter: str | Drafter | None = None,
    gamma: int = 4,
    *,
    max_length: int | None = None,
    processors: Sequence[Any] = (),
    criteria: Sequence[Any] = (),
    sampling: Sampling | None = None,
    streamer: Any = None,
    said: Sequence[Frame] | None = None,
) -> Run:
    """A session over a toy that has read the prompt.

    Args:
        said: what drafters that know the output think it is; None: the greedy one.
    """
    target = FrameToy(given.law)
    first_row = target.score(given.prompt, keep=1)
    target.state.freeze()
    if isinstance(drafter, str):
        if said is None:
            said = ordinary(given).frames
        drafter = drafter_for(drafter, given, target, said)
    chain = ToyChain(target) if given.law.chain else None
    tokens = Frames(K, given.layout, chain)
    length = min(given.max_length, max_length or given.max_length)
    prefix = tokens.prefix(given.prompt, length, CPU)
    if chain is not None:
        chain.prefix = prefix
    session = Session(
        target,
        prefix,
        first_row,
        drafter=drafter,
        policy=FixedPolicy(gamma),
        sampler=tokens.sampler(sampling or Sampling(), CPU),  # type: ignore[arg-type]
        processors=tokens.processors(LogitsProcessorList(processors)),
        stops=FrameStops(given.layout, length, StoppingCriteriaList(criteria)),
        clock=Clock(CPU),
        streamer=streamer,
    )
    return Run(session, target, drafter, chain)


def decode(given: Case, drafter: str | Drafter | None = None, gamma: int = 4, **how: Any) -> Run:
    """Decode to the end."""
    run = open_session(given, drafter, gamma, **how)
    frames: Any = run.session.run()
    run.frames = frames
    return run

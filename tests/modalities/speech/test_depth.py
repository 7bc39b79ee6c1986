"""Chains inside frames: laws equal a decoder's that remembers nothing, whatever was guessed."""

from __future__ import annotations

import functools
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import (
    LogitsProcessorList,
    NoRepeatNGramLogitsProcessor,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
)
from transformers.generation.logits_process import LogitsProcessor

from mmspec.errors import InputError, OptionError, StaleHandleError
from mmspec.modalities.speech.csm_target import CsmDepth
from mmspec.modalities.speech.depth import Chain, Inside, only_best
from mmspec.modalities.speech.depth_guesses import Guess, repeat_previous
from mmspec.prefix import Frame
from mmspec.state import DecoderState

from . import bed_csm as bed
from .csm_runs import FRAMES, opened, run
from .depth_heads import CodeHeads, fit_heads, states_at

BOOKS, VOCAB = bed.BOOKS, bed.VOCAB
COUNT = 4
"""Frames that a round stands behind."""


@dataclass
class Read:
    """A backbone that has read something."""

    states: Tensor
    behind: Sequence[Frame | None] = (None,) * COUNT


class Watching:
    """A depth decoder that notes how many frames and codes each pass was given."""

    def __init__(self, depth: CsmDepth) -> None:
        self._depth = depth
        self.codebooks, self.vocab_size = depth.codebooks, depth.vocab_size
        self.layers = depth.layers
        self.passes: list[tuple[int, int]] = []
        self.fails = False

    def score(self, hidden: Tensor | None, codes: Tensor, state: DecoderState | None) -> Tensor:
        self.passes.append((codes.shape[0], codes.shape[1]))
        rows = self._depth.score(hidden, codes, state)
        if self.fails:
            raise RuntimeError("in the middle of it")
        return rows


def states(seed: int = 0, count: int = COUNT) -> Tensor:
    return torch.randn(count, bed.WIDTH, generator=torch.Generator().manual_seed(seed))


@torch.no_grad()
def slow(model: Any, state: Tensor, codes: Frame) -> Tensor:
    """The library's own distribution behind some codes, read from the start and not remembered."""
    ids = torch.tensor([[0, *codes]])
    made = model.depth_decoder(ids, backbone_last_hidden_state=state[None], use_cache=False)
    return made.logits[0, -1].float()


def chain_of(
    model: Any, read: Any = None, processors: Inside | None = None, guess: Guess | None = None
) -> tuple[Chain, Watching]:
    watching = Watching(CsmDepth(model))
    return Chain(watching, read or Read(states()), processors, guess), watching


def frames_of(seed: int, count: int, books: int = BOOKS) -> list[Frame]:
    generator = random.Random(seed)
    return [tuple(generator.randrange(VOCAB) for _ in range(books)) for _ in range(count)]


@pytest.mark.parametrize("books", [2, 3, 4, 7])
def test_drafted_frames_are_taught_in_one_pass(books: int) -> None:
    model, read = bed.shared(books=books), Read(states())
    chain, watching = chain_of(model, read)
    frames = frames_of(1, COUNT - 1, books)
    taught = chain.teach(frames)
    assert taught.shape == (len(frames), books - 1, VOCAB)
    assert taught.dtype == torch.float32
    assert watching.passes == [(len(frames), books - 1)]
    for frame_idx, frame in enumerate(frames):
        for known in range(1, books):
            expected = slow(model, read.states[frame_idx], frame[:known])
            torch.testing.assert_close(taught[frame_idx, known - 1], expected, atol=1e-5, rtol=0)


def test_nothing_taught_costs_nothing() -> None:
    chain, watching = chain_of(bed.shared())
    assert chain.teach([]).shape == (0, BOOKS - 1, VOCAB)
    assert (chain.passes, watching.passes) == (0, [])


def knowing(frames: Sequence[Frame], wrong_at: int | None = None) -> Guess:
    """Knows how frames go on by their first code, but for one codebook."""

    def guess(hidden: Tensor, codes: Frame, previous: Frame | None) -> Frame:
        right = next(frame for frame in frames if frame[0] == codes[0])
        spoilt = [(code + (k == wrong_at)) % VOCAB for k, code in enumerate(right)]
        return tuple(spoilt[len(codes) :])

    return guess


GUESSES: dict[str, Guess | None] = {
    "none": None,
    "short": lambda hidden, codes, previous: (3,),
    "long": lambda hidden, codes, previous: (1, 2, 3, 4, 5, 6, 7, 8),
    "nothing": lambda hidden, codes, previous: (),
    "moody": lambda hidden, codes, previous: tuple(range(sum(codes) % 4)),
}


@pytest.mark.parametrize("name", GUESSES)
def test_any_law_in_any_order_whatever_is_guessed(name: str) -> None:
    model, read = bed.shared(books=6), Read(states())
    chain, _ = chain_of(model, read, guess=GUESSES[name])
    generator = random.Random(5)
    frames = [tuple(generator.randrange(3) for _ in range(6)) for _ in range(40)]
    chain.teach(frames[: COUNT - 1])
    for frame in frames:  # of three codes, so that many begin alike
        frame_idx, known = generator.randrange(COUNT), generator.randrange(1, 6)
        for length in (known, *range(known, 6)):
            found = chain.rest(frame_idx, frame[:length])
            expected = slow(model, read.states[frame_idx], frame[:length])
            torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)


def walk(chain: Chain, frame: Frame, frame_idx: int = 0) -> None:
    """Ask what a rule asks that draws this frame."""
    for known in range(1, len(frame)):
        chain.rest(frame_idx, frame[:known])


def test_a_frame_takes_a_pass_per_code_and_each_reads_one() -> None:
    chain, watching = chain_of(bed.shared(books=6))
    walk(chain, (1, 2, 3, 4, 5, 6))
    assert watching.passes == [(1, 1)] * 5
    walk(chain, (1, 2, 3, 9, 9, 9))  # its first three laws are known
    assert watching.passes[5:] == [(1, 1)] * 2
    assert (chain.passes, chain.guessed, chain.used) == (7, 0, 0)


def test_a_right_guess_leaves_one_pass() -> None:
    frame = (1, 2, 3, 4, 5, 6)
    chain, watching = chain_of(bed.shared(books=6), guess=knowing([frame]))
    walk(chain, frame)
    assert watching.passes == [(1, 5)]
    assert (chain.guessed, chain.used) == (4, 4)


@pytest.mark.parametrize(("wrong_at", "passes"), [(1, 2), (2, 2), (3, 2), (4, 2), (5, 1)])
def test_a_wrong_code_takes_another_pass_unless_it_is_the_last(wrong_at: int, passes: int) -> None:
    frame = (1, 2, 3, 4, 5, 6)
    chain, _ = chain_of(bed.shared(books=6), guess=knowing([frame], wrong_at))
    walk(chain, frame)
    assert chain.passes == passes
    assert chain.used == 5 - passes


def test_the_guess_knows_state_and_frame_before() -> None:
    seen: list[tuple[Tensor, Frame, Frame | None]] = []

    def guess(hidden: Tensor, codes: Frame, previous: Frame | None) -> Frame:
        seen.append((hidden, codes, previous))
        return ()

    read = Read(states(), [None, (1, 1, 1, 1), (2, 2, 2, 2), (3, 3, 3, 3)])
    chain, _ = chain_of(bed.shared(), read, guess=guess)
    chain.teach(frames_of(0, COUNT - 1))
    chain.rest(0, (5,))
    chain.rest(2, (6, 7))
    chain.rest(2, (6, 7, 8))  # its last law: nothing is left to guess
    assert [(codes, before) for _, codes, before in seen] == [((5,), None), ((6, 7), (2, 2, 2, 2))]
    torch.testing.assert_close(seen[1][0], read.states[2], atol=0, rtol=0)


def test_another_round_is_noticed_by_what_the_backbone_has_read() -> None:
    model, read = bed.shared(), Read(states())
    chain, _ = chain_of(model, read)
    before = chain.rest(0, (5,))
    read.states = states(1)
    after = chain.rest(0, (5,))
    torch.testing.assert_close(after, slow(model, read.states[0], (5,)), atol=1e-5, rtol=0)
    assert not torch.allclose(before, after)


def test_a_round_that_is_taught_anew_forgets_the_old_one() -> None:
    read = Read(states())
    chain, _ = chain_of(bed.shared(), read)
    chain.teach([(1, 2, 3, 4)])
    walk(chain, (5, 6, 7, 8), frame_idx=1)
    passes = chain.passes
    chain.teach([(4, 3, 2, 1)])  # frame 1 stands behind another frame now
    walk(chain, (5, 6, 7, 8), frame_idx=1)
    assert chain.passes == 2 * passes


def test_frames_begun_one_by_one() -> None:
    model, given = bed.shared(), states(3)
    chain, _ = chain_of(model)
    for frame_idx in range(3):
        chain.begin(frame_idx, given[frame_idx], None)
        for back in range(frame_idx + 1):  # earlier ones may still be asked for
            found = chain.rest(back, (7, frame_idx))
            expected = slow(model, given[back], (7, frame_idx))
            torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)
    chain.begin(0, given[2], None)
    torch.testing.assert_close(
        chain.rest(0, (7, 0)), slow(model, given[2], (7, 0)), atol=1e-5, rtol=0
    )


def test_what_is_left_of_other_codes_is_never_read() -> None:
    model, read = bed.shared(books=6), Read(states())
    chain, _ = chain_of(model, read, guess=lambda *_: (9, 9, 9, 9, 9))
    for frame in ((1, 2, 3, 4, 5), (1, 2, 8, 8, 8), (4, 4, 4, 4, 4)):
        for known in range(1, 6):
            found = chain.rest(1, frame[:known])
            expected = slow(model, read.states[1], frame[:known])
            torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)
            chain._state.poison_unused()


def test_a_pass_that_fails_leaves_the_chain_as_it_was() -> None:
    model, read = bed.shared(books=6), Read(states())
    chain, watching = chain_of(model, read)
    walk(chain, (1, 2, 3, 4, 5, 6))
    for begun in ((1, 2, 7), (4, 4)):
        watching.fails = True
        with pytest.raises(RuntimeError, match="in the middle"):
            chain.rest(0, begun)
        watching.fails = False
        torch.testing.assert_close(
            chain.rest(0, begun), slow(model, read.states[0], begun), atol=1e-5, rtol=0
        )


def test_a_closed_chain_is_stale() -> None:
    chain, _ = chain_of(bed.shared())
    chain.close()
    with pytest.raises(StaleHandleError, match="closed"):
        chain.rest(0, (1,))


LISTS: dict[str, Any] = {
    "warpers": lambda: [TemperatureLogitsWarper(0.7), TopKLogitsWarper(5)],
    "repetition": lambda: [RepetitionPenaltyLogitsProcessor(1.7), TopKLogitsWarper(6)],
    "no repeats": lambda: [NoRepeatNGramLogitsProcessor(1)],
}


@pytest.mark.parametrize("name", LISTS)
def test_processors_see_the_ids_that_the_decoder_itself_would_show_them(name: str) -> None:
    model, read = bed.shared(), Read(states())
    plain = LogitsProcessorList(LISTS[name]())

    def expected(frame_idx: int, codes: Frame) -> Tensor:
        row = slow(model, read.states[frame_idx], codes)
        return plain(torch.tensor([[0, *codes]]), row[None])[0]

    inside = Inside(LogitsProcessorList(LISTS[name]()))
    chain, _ = chain_of(model, read, inside, guess=lambda *_: (4, 4))
    frames = [(4, 4, 9, 1), (0, 9, 0, 2), (7, 7, 7, 7)]
    taught = chain.teach(frames)
    for frame_idx, frame in enumerate(frames):
        for known in range(1, BOOKS):
            right = expected(frame_idx, frame[:known])
            torch.testing.assert_close(taught[frame_idx, known - 1], right, atol=1e-5, rtol=1e-5)
            found = chain.rest(frame_idx, frame[:known])
            torch.testing.assert_close(found, right, atol=1e-5, rtol=1e-5)


def test_a_decoder_that_takes_the_best_code_of_laws_that_are_sampled() -> None:
    model, read = bed.shared(), Read(states())
    chain, _ = chain_of(model, read, Inside(best_only=True))
    taught = chain.teach([(1, 2, 3, 4)])
    for known in range(1, BOOKS):
        law = taught[0, known - 1].softmax(-1)
        best = int(slow(model, read.states[0], (1, 2, 3, 4)[:known]).argmax())
        assert law.nonzero().tolist() == [[best]]
        assert chain.rest(0, (1, 2, 3, 4)[:known]).equal(taught[0, known - 1])


def test_the_first_of_equal_codes_is_the_best() -> None:
    rows = torch.tensor([[2.0, 2.0, 1.0], [0.0, 3.0, 3.0]])
    assert only_best(rows).softmax(-1).argmax(-1).tolist() == [0, 1]


class Counting(LogitsProcessor):
    """Remembers how often it was called."""

    calls = 0

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        self.calls += 1
        return scores


def test_processors_with_a_memory_are_refused() -> None:
    with pytest.raises(OptionError, match="look at scores and ids alone: Counting"):
        Inside(LogitsProcessorList([Counting()]))


def test_repeated_frames() -> None:
    assert repeat_previous(torch.zeros(1), (7,), (7, 1, 2, 3)) == (1, 2, 3)
    assert repeat_previous(torch.zeros(1), (7, 1), (7, 1, 2, 3)) == (2, 3)
    assert repeat_previous(torch.zeros(1), (7, 0), (7, 1, 2, 3)) == ()
    assert repeat_previous(torch.zeros(1), (7,), None) == ()


def test_a_head_reads_the_state_and_the_code_before() -> None:
    counts = torch.eye(6).roll(1, dims=1).expand(3, 6, 6)  # the code before, and one more
    weight = torch.zeros(3, 2, 6)
    weight[1, 0, 0] = 5.0  # this state has codebook 2 say 0
    heads = CodeHeads(weight, counts)
    plain, marked = torch.zeros(2), torch.tensor([1.0, 0.0])
    assert heads(plain, (1,), None) == (2, 3, 4)
    assert heads(plain, (1, 4), None) == (5, 0)
    assert heads(marked, (1,), None) == (2, 0, 1)
    assert heads(marked, (1, 2, 3), None) == (4,)


@functools.cache
def predictable() -> Any:
    """Its depth decoder looks at the code before only: a frame follows from its first code."""
    return bed.tiny(3, chained=0.0)


def said_by(model: Any, lengths: Sequence[int], frames: int = 40) -> tuple[Tensor, list[Frame]]:
    """States and frames of what a model says to some texts."""
    found, said = [], []
    for seed, length in enumerate(lengths):
        with opened(model, bed.text(length, seed)) as (target, _, _):
            rows = bed.library_rows(model, bed.text(length, seed), max_new_tokens=frames)[0]
            found.append(states_at(target, rows))
            said += rows
    return torch.cat(found), said


@pytest.mark.parametrize("count", [0, 1, 2, 5])
def test_states_are_those_that_frames_were_said_behind(count: int) -> None:
    model, given = bed.shared(), bed.text()
    frames = bed.library_rows(model, given, max_new_tokens=5)[0][:count]
    with opened(model, given) as (target, row, _):
        found = states_at(target, frames)
        assert found.shape == (count, bed.WIDTH)
        assert target.state.length == 0
        for state, frame in zip(found, frames, strict=True):
            assert int(model.lm_head(state).argmax()) == frame[0]
        if count:
            torch.testing.assert_close(model.lm_head(found[0]), row[0, 0], atol=1e-6, rtol=0)


def test_heads_learn_what_a_predictable_decoder_says() -> None:
    model = predictable()
    heads = fit_heads(*said_by(model, (5, 7, 9, 11)), VOCAB)
    unheard = bed.text(8, 99)
    plain, guessed = run(model, unheard), run(model, unheard, guess=heads)
    assert (
        guessed.frames == plain.frames == bed.library_rows(model, unheard, max_new_tokens=FRAMES)[0]
    )
    assert plain.depth_passes == FRAMES * (BOOKS - 1)
    chain = guessed.target.depth
    assert chain.used / chain.guessed > 0.8
    assert guessed.depth_passes < 1.5 * FRAMES


def test_heads_that_are_always_wrong_cost_no_code() -> None:
    model, given = bed.shared(), bed.text()
    states_, frames = said_by(model, (5,))
    heads = fit_heads(states_, [(frame[0], *[18] * (BOOKS - 1)) for frame in frames], VOCAB)
    guessed = run(model, given, guess=heads)
    assert guessed.frames == run(model, given).frames
    assert guessed.depth_passes == FRAMES * (BOOKS - 1)
    assert guessed.target.depth.used == 0


@pytest.mark.parametrize(("rows", "frames"), [(0, 0), (3, 2), (1, 0)])
def test_heads_need_a_state_for_each_frame(rows: int, frames: int) -> None:
    with pytest.raises(InputError, match=f"{rows} states for {frames} frames"):
        fit_heads(states(count=rows), frames_of(0, frames), VOCAB)

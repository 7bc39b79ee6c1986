"""H: models that write codes: delays, ends, slots, limits, masks."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import LogitsProcessor
from transformers.generation.logits_process import BarkEosPrioritizerLogitsProcessor

from mmspec.errors import InputError, OptionError
from mmspec.factorizations import Codebook, DelayedFrames, TimeMajorFrames
from mmspec.factorizations.delayed import DIA_DELAYS
from mmspec.modalities.speech import dia, higgs_audio, musicgen, musicgen_melody
from mmspec.modalities.speech.checkpoint import SpeechCheckpoint
from mmspec.modalities.speech.csm import split
from mmspec.modalities.speech.draft import LookupDraft, ModelDraft
from mmspec.modalities.speech.seven_slots import SpecialTokens
from mmspec.prefix import Frame
from tests.modalities.speech import (
    bed_bark,
    bed_csm,
    bed_dia,
    bed_higgs_audio,
    bed_musicgen,
    bed_orpheus,
    bed_valle,
    csm_runs,
)
from tests.modalities.speech.chain_runs import lookup, wrong
from tests.modalities.speech.delayed_runs import Run, Telling, run
from tests.proposals.scripted import ScriptedDrafter

MARK = bed_musicgen.CODES
"""The id behind the last code, MusicGen's start and padding."""


def delayed(delays: Sequence[int], end: int | None = None) -> DelayedFrames:
    book = Codebook(18, 16, start=16, pad=16, end=end)
    return DelayedFrames((book,) * len(delays), tuple(delays))


def grid_of(frames: int, codebooks: int = 4) -> tuple[Frame, ...]:
    drawn = torch.randint(16, (frames, codebooks), generator=torch.Generator().manual_seed(frames))
    return tuple(map(tuple, drawn.tolist()))


# H1: a delay is applied once and undone once.

FOUR = pytest.mark.parametrize("delays", [(0, 1, 2, 3), (0, 0, 1, 1), bed_dia.DELAYS, (0,) * 4])


@FOUR
@pytest.mark.parametrize("end", [None, 17])
@pytest.mark.parametrize("frames", [1, 2, 3, 7])
def test_H1_what_is_delayed_and_undelayed_is_what_it_was(
    frames: int, end: int | None, delays: tuple[int, ...]
) -> None:
    steps, grid = delayed(delays, end), grid_of(frames)
    rows = steps.from_grid(grid, ended=end is not None)
    assert len(rows) == 1 + frames + max(delays) + (end is not None)
    for k, late in enumerate(delays):  # each code stands where its own delay puts it, and once
        stream = [row[k] for row in rows]
        assert stream[1 + late : 1 + late + frames] == [frame[k] for frame in grid]
    assert steps.to_grid(rows) == grid


@FOUR
@pytest.mark.parametrize("frames", [1, 2, 3, 7])
def test_H1_twice_is_refused(frames: int, delays: tuple[int, ...]) -> None:
    steps, grid = delayed(delays), grid_of(frames)
    rows = steps.from_grid(grid)
    with pytest.raises(InputError, match=r"^frame 0, codebook 0: 16 is no code"):
        steps.from_grid(rows)
    with pytest.raises(InputError, match=r"are no whole frames|expected the mark 16, got"):
        steps.to_grid(steps.to_grid(rows))


def music(
    prompt: Tensor | None = None,
    rows: int = 9,
    draft: Any = None,
    gamma: int = 3,
    scale: float | None = None,
) -> Run:
    given = bed_musicgen.text() | ({} if prompt is None else {"decoder_input_ids": prompt})
    asked: dict[str, Any] = {"max_new_tokens": rows, "guidance_scale": scale}
    return run(musicgen.FAMILY, shared(), given, draft, gamma, do_sample=False, **asked)


shared = functools.cache(bed_musicgen.tiny)


@pytest.mark.parametrize("scale", [None, 3.0])
@pytest.mark.parametrize("frames", range(1, 6))
def test_H1_a_prompts_codes_come_out_unchanged(frames: int, scale: float | None) -> None:
    codes = bed_musicgen.prompt_codes(frames)
    plain = music(codes, scale=scale)
    right = Telling(plain.rows, bed_musicgen.late)
    for found in (plain, music(codes, draft=right, scale=scale)):
        assert [list(frame) for frame in found.said.grid[:frames]] == codes.t().tolist()
        assert len(found.said.grid) == frames + 9 - 3
        # What the model has read is the grid, delayed once.
        assert tuple(found.rows) == musicgen.order(shared()).from_grid(found.said.grid)


@pytest.mark.parametrize("frames", range(1, 6))
def test_H1_a_prompt_that_is_delayed_already_never_becomes_codes(frames: int) -> None:
    steps, codes = musicgen.order(shared()), bed_musicgen.prompt_codes(frames)
    rows = torch.tensor(steps.from_grid(codes.t().tolist())).t()
    for twice in (rows, rows[:, 1:]):  # with and without the row of start marks
        with pytest.raises(InputError, match=rf"{MARK} is the start mark, no code"):
            music(twice, rows=12)


# H3: how many frames come out follows from the end's place and the delays.


@pytest.mark.parametrize("frames", [1, 2, 9])
@pytest.mark.parametrize("delays", [DIA_DELAYS, bed_dia.DELAYS, (0, 1, 2, 3)])
def test_H3_as_many_frames_as_rows_before_the_end(delays: tuple[int, ...], frames: int) -> None:
    steps = delayed(delays, end=17)
    rows = steps.from_grid(grid_of(frames, len(delays)), ended=True)
    first_end = next(place for place, row in enumerate(rows) if row[0] == 17)
    assert first_end - 1 == frames == len(steps.to_grid(rows))  # a row of start marks comes first
    assert steps.steps(frames) == frames + max(delays)
    for cut in range(1, 1 + max(delays)):  # the last codebook hasn't come to its end
        assert not steps.has_ended(rows[:-cut])


ENDING = (2, "[S2] no")
"""Seed and text of a Dia whose speech ends by its mark."""


@pytest.mark.parametrize("frames", [0, 5])
def test_H3_a_dia_says_no_frame_less_and_none_more(frames: int) -> None:
    model, given = bed_dia.tiny(ENDING[0]), bed_dia.inputs(ENDING[1], frames)
    asked: dict[str, Any] = {"max_new_tokens": 30, "do_sample": False}
    rows = bed_dia.library_rows(model, given, **asked)
    end = [row[0] for row in rows].index(bed_dia.END)
    for gamma in (0, 1, 5, 60):
        found = run(dia.FAMILY, model, given, Telling(rows), gamma, **asked)
        assert found.stats.finish_reason == "stop"
        assert found.rows == rows
        assert len(rows) == 1 + end + max(bed_dia.DELAYS)
        assert len(found.said.grid) == end - 1
        for k, late in enumerate(bed_dia.DELAYS):  # so every codebook has said as many codes
            assert [row[k] for row in rows[1 + late : end + late]] == [
                c[k] for c in found.said.grid
            ]


# H6: a model that never ends.


@pytest.mark.parametrize("gamma", [0, 3, 60])
@pytest.mark.parametrize("budget", [1, 7, 10])
def test_H6_a_csm_that_never_ends_has_a_budget(budget: int, gamma: int) -> None:
    model, given = bed_csm.shared(), bed_csm.text()
    beyond = bed_csm.library_rows(model, given, max_new_tokens=14)[0]
    assert len(beyond) == 14
    told = csm_runs.Telling(beyond)  # drafts past the budget
    found = csm_runs.run(model, given, told, gamma, max_new_tokens=budget)
    assert found.frames == beyond[:budget]
    assert found.finished == "length"


@pytest.mark.parametrize("gamma", [0, 3, 60])
@pytest.mark.parametrize("budget", [6, 9, 13])
def test_H6_a_dia_that_never_ends_has_a_budget(budget: int, gamma: int) -> None:
    model, given = bed_dia.tiny(0), bed_dia.inputs("[S1] so be it")
    beyond = bed_dia.library_rows(model, given, max_new_tokens=25, do_sample=False)
    assert len(beyond) == 26
    asked: dict[str, Any] = {"max_new_tokens": budget, "do_sample": False}
    found = run(dia.FAMILY, model, given, Telling(beyond), gamma, **asked)
    assert found.rows == bed_dia.library_rows(model, given, **asked)
    assert (len(found.rows), found.stats.finish_reason) == (1 + budget, "length")
    assert len(found.said.grid) == budget - max(bed_dia.DELAYS) - 1


@pytest.mark.parametrize("gamma", [0, 60])
def test_H6_a_higgs_audio_that_never_ends_has_a_budget(gamma: int) -> None:
    model, given = bed_higgs_audio.tiny(0), bed_higgs_audio.inputs()
    beyond = bed_higgs_audio.library_rows(model, given, max_new_tokens=20, do_sample=False)
    asked: dict[str, Any] = {"max_new_tokens": 11, "do_sample": False}
    found = run(higgs_audio.FAMILY, model, given, Telling(beyond), gamma, **asked)
    assert (found.rows, found.stats.finish_reason) == (beyond[:11], "length")


# H7 and H8: seven slots.


@pytest.mark.parametrize("slot", range(7))
def test_H7_a_slots_codes_have_ids_of_their_own(slot: int) -> None:
    marks = SpecialTokens()
    steps = TimeMajorFrames.seven_slots(156_940, marks.base, marks.end)
    book = steps.codebooks[steps.slots[slot]]
    for code in (0, 1, 4095):
        assert book.code_of(marks.base + slot * 4096 + code) == code
    for strange in (marks.base + slot * 4096 - 1, marks.base + (slot + 1) * 4096, marks.end):
        with pytest.raises(InputError, match=f"{strange} is"):
            book.code_of(strange)


class Slipped:
    """Drafts the codes that the target will say, each with an id of another slot."""

    name = "slipped"

    def __init__(self, prompt: int, truth: Sequence[int], by: int) -> None:
        self._prompt, self._truth, self._by = prompt, truth, by

    def open(self, opening: Any) -> ScriptedDrafter:
        def script(ids: Sequence[int], limit: int) -> list[int]:
            at = len(ids) - self._prompt
            return [self._moved(token) for token in self._truth[at : at + limit]]

        return ScriptedDrafter(script)

    def _moved(self, token: int) -> int:
        if token not in bed_orpheus.MARKS.ids:
            return token
        size = bed_orpheus.CODES
        return bed_orpheus.BASE + (token - bed_orpheus.BASE + self._by * size) % (7 * size)


@pytest.mark.parametrize("gamma", [1, 6, 7, 60])
@pytest.mark.parametrize("by", [1, 3, 6])
def test_H7_a_draft_of_another_slot_is_never_kept(by: int, gamma: int) -> None:
    model, given = bed_orpheus.tiny(0), bed_orpheus.inputs(0)
    truth = bed_orpheus.library_ids(model, given)
    draft = Slipped(given["input_ids"].shape[1], truth, by)
    said, report, _ = bed_orpheus.said(model, given, lambda _: draft, gamma)
    assert bed_orpheus.behind(said) == truth
    assert list(said.grid) == bed_orpheus.library_codes(model, given)
    share = report.by_codebook
    assert share is not None
    assert sum(share.agreed) == 0 < sum(share.judged)


@pytest.mark.parametrize("length", [*range(2, 10), 16, 17])
def test_H7_a_length_that_is_no_multiple_of_seven_has_whole_frames(length: int) -> None:
    model, given = bed_orpheus.tiny(4), bed_orpheus.inputs(0)
    whole = bed_orpheus.library_codes(model, given)
    for draft in (None, lookup):
        said, report, _ = bed_orpheus.said(model, given, draft, max_new_tokens=length)
        assert list(said.grid) == whole[: (length - 2) // 7]  # two marks come first
        assert (report.finish_reason, report.tokens) == ("length", length)


class Scripted(LogitsProcessor):
    """Whatever a model would say, it says these tokens behind its prompt."""

    def __init__(self, prompt: int, tokens: Sequence[int]) -> None:
        self._prompt, self._tokens = prompt, tokens

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        at = input_ids.shape[1] - self._prompt
        token = self._tokens[at] if at < len(self._tokens) else bed_orpheus.END
        return torch.full_like(scores, -torch.inf).index_fill(1, torch.tensor(token), 0.0)


FRAMES = [
    [bed_orpheus.BASE + slot * bed_orpheus.CODES + (3 * n + slot) % bed_orpheus.CODES
     for slot in range(7)]
    for n in range(4)
]  # fmt: skip


def by_sevens(tokens: Sequence[int]) -> list[Frame]:
    """The fault: whatever was said, cut into sevens."""
    speech = [u - bed_orpheus.BASE for u in tokens if u not in (bed_orpheus.START, bed_orpheus.END)]
    return [
        tuple(speech[7 * i + slot] - slot * bed_orpheus.CODES for slot in (0, 1, 4, 2, 3, 5, 6))
        for i in range(len(speech) // 7)
    ]


@pytest.mark.parametrize("gamma", [0, 5, 60])
@pytest.mark.parametrize("place", [7, 10, 13])
@pytest.mark.parametrize("change", ["one too many", "one too few"])
def test_H8_one_id_shifts_no_later_frame(change: str, place: int, gamma: int) -> None:
    flat = list(itertools.chain(*FRAMES))
    right = by_sevens(flat)
    many = change == "one too many"
    spoken = [*flat[:place], 5, *flat[place:]] if many else [*flat[:place], *flat[place + 1 :]]
    tokens = [bed_orpheus.START, *spoken, bed_orpheus.END]
    assert by_sevens(tokens)[2:] != right[2:]
    model, given = bed_orpheus.tiny(0), bed_orpheus.inputs(0)
    prompt = given["input_ids"].shape[1]
    asked: dict[str, Any] = {"logits_processor": [Scripted(prompt, tokens)]}
    draft = Slipped(prompt, tokens, by=0)
    said, _, _ = bed_orpheus.said(
        model, given, lambda _: draft, gamma, family=bed_orpheus.LENIENT, **asked
    )
    assert bed_orpheus.behind(said) == tokens
    kept = right if many and place == 7 else [right[0], *right[2:]]  # frame 1 hadn't begun
    assert list(said.grid) == kept
    with pytest.raises(InputError, match=r"^frame 1, codebook \d: \d+ is"):
        bed_orpheus.said(model, given, lambda _: draft, gamma, **asked)


# H14: positions.


def test_H14_rows_beyond_the_positions_are_refused_prompt_included() -> None:
    model, given = shared(), bed_musicgen.text()
    far = musicgen.FAMILY.library_codes(model, given, max_new_tokens=70, do_sample=False)
    assert len(far) == 70 - 3  # the fault: the library goes on without a word
    assert len(music(rows=64, draft=LookupDraft()).rows) == 65  # the last row is never read
    for prompt, most in ((None, 64), (bed_musicgen.prompt_codes(5), 59)):
        assert len(music(prompt, rows=most, draft=LookupDraft(), gamma=60).rows) == 65
        with pytest.raises(OptionError, match=r"^66 rows don't fit: .* 64 positions.*: lower max"):
            music(prompt, rows=most + 1)


def test_H14_what_stands_in_front_of_the_rows_counts() -> None:
    model, given = bed_musicgen.tiny_melody(), bed_musicgen.text()
    before = bed_musicgen.CHROMA_LENGTH + given["input_ids"].shape[1]
    asked: dict[str, Any] = {"do_sample": False, "guidance_scale": None}
    family = musicgen_melody.FAMILY
    found = run(family, model, given, LookupDraft(), 60, max_new_tokens=64 - before, **asked)
    assert len(found.rows) == 65 - before
    with pytest.raises(OptionError, match=rf"64 positions, {before} of them taken by conditioning"):
        run(family, model, given, max_new_tokens=65 - before, **asked)


@pytest.mark.parametrize("frames", [0, 4])
@pytest.mark.parametrize("draft", [None, lookup])
def test_H14_a_text_and_a_voice_count(draft: Any, frames: int) -> None:
    words = "a bad cafe"
    model, given = bed_valle.tiny(3), bed_valle.inputs(words, frames)
    said, report, _ = bed_valle.said(model, given, draft, 60, max_new_tokens=None)
    room = bed_valle.POSITIONS - len(words) - 1  # a mark stands behind the text
    assert (len(said.grid), report.finish_reason) == (room, "length")
    assert report.tokens == room - frames
    with pytest.raises(InputError, match="take 71 positions, the model has 64"):
        bed_valle.said(model, bed_valle.inputs(words, 60), draft)


@pytest.mark.parametrize("draft", [None, lookup])
def test_H14_a_bark_stops_where_its_positions_do(draft: Any) -> None:
    room = 40 - bed_bark.READS  # of the table, less the text and a mark; the last isn't read
    model, given = bed_bark.made(3, longest=room + 5), bed_bark.inputs(0)
    with pytest.raises(IndexError):  # the fault: an error of the table's
        bed_bark.library(model, given)
    said, report, _ = bed_bark.said(model, given, draft, 60)
    assert (len(said.sequence[0]), report.finish_reason) == (room, "length")


# H16: the domain of an end's threshold.


def ends_of(rows: Tensor, least: float) -> list[bool]:
    """Of each row, whether nothing but the end is left."""
    done = BarkEosPrioritizerLogitsProcessor([0], least)(None, rows)
    return (done > -torch.inf).sum(-1).eq(1).tolist()


def test_H16_a_probability_is_no_logit_and_no_log() -> None:
    high = torch.tensor([9.0, 9.0, 9.0, 9.0, 9.0])  # a score of 9, a probability of 0.2
    low = torch.tensor([-2.0, -9.0, -9.0, -9.0, -9.0])  # a score below 0, a probability of 0.99
    assert ends_of(torch.stack([high, low]), 0.5) == [False, True]


@contextmanager
def watching(model: Any) -> Iterator[list[float]]:
    """The probability of the end at each step of the semantic stage, as the library takes it."""
    chances: list[float] = []

    def watch(module: Any, args: Any, made: Any) -> None:
        row = made.logits[0, -1, : bed_bark.END + 1].double()
        chances.append(float(row.softmax(-1)[-1]))

    hook = model.semantic.register_forward_hook(watch)
    try:
        yield chances
    finally:
        hook.remove()


@pytest.mark.parametrize("draft", [None, lookup, wrong(24)])
def test_H16_a_bark_ends_where_the_probability_passes_the_threshold(draft: Any) -> None:
    model, given = bed_bark.tiny(2), bed_bark.inputs(0)
    with watching(model) as chances:
        plain = bed_bark.library(model, given).semantic
    assert len(chances) == len(plain) == bed_bark.LONGEST
    assert bed_bark.END not in plain
    peak = chances.index(max(chances))
    lengths = {}
    for share in (0.999, 1.001):  # just reached, and just missed
        least = share * chances[peak]
        expected = bed_bark.library(model, given, min_eos_p=least).semantic
        said, _, _ = bed_bark.said(model, given, draft, min_eos_p=least)
        assert list(said.sequence[0]) == expected
        lengths[share] = len(expected)
    assert lengths == {0.999: peak + 1, 1.001: bed_bark.LONGEST}


# H17: a mask grows with what is said.


@pytest.mark.parametrize("gamma", [0, 1, 2, 60])
def test_H17_a_text_padded_on_the_left_is_heard_behind_every_frame(gamma: int) -> None:
    model, alone = bed_csm.shared(), bed_csm.text(4, 1)
    whole = bed_csm.batch([bed_csm.text(9), alone])
    assert whole["attention_mask"].tolist()[1] == [0] * 5 + [1] * 4
    padded = split(whole)[1]
    right = bed_csm.slowly(model, alone, 3)
    assert bed_csm.library_rows(model, whole, max_new_tokens=3)[1] == right
    assert csm_runs.run(model, padded, max_new_tokens=3).frames == right
    for spoil in (lambda row, frame: frame, lambda row, frame: (*frame[:2], 1, 1)):
        draft = csm_runs.Telling(right, spoil)
        found = csm_runs.run(model, padded, draft, gamma, max_new_tokens=3)
        assert found.frames == right
    unmasked = {**padded, "attention_mask": torch.ones_like(padded["attention_mask"])}
    assert csm_runs.run(model, unmasked, max_new_tokens=3).frames != right  # padding can be heard


# Without a number: what transformers refuses to speculate on at all.

SUPPORTED: dict[str, tuple[dict[str, Any], str, Callable[[SpeechCheckpoint], Any]]] = {
    "assistant": (
        {"assistant_model": bed_musicgen.tiny(9, layers=1)},
        "assistant_model",
        lambda target: ModelDraft(target, bed_musicgen.tiny(9, layers=1)),
    ),
    "lookup": ({"prompt_lookup_num_tokens": 3}, "incompatible", lambda target: LookupDraft()),
}


@pytest.mark.parametrize("kind", SUPPORTED)
def test_H_musicgen_has_no_speculation_of_the_librarys_and_has_ours(kind: str) -> None:
    asked, message, make = SUPPORTED[kind]
    model, given = shared(), bed_musicgen.text()
    plain = {"max_new_tokens": 15, "do_sample": False}
    with pytest.raises(ValueError, match=message):
        model.generate(**given, **plain, **asked)
    draft = make(SpeechCheckpoint.of(model, packed=False, family=musicgen.FAMILY))
    found = music(rows=15, draft=draft)
    assert found.said.grid == musicgen.FAMILY.library_codes(model, given, **plain)
    assert found.stats.tally.proposed > 0

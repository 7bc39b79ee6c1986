"""Higgs-Audio v2: codes equal to transformers' own `generate`, whatever is drafted."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import StoppingCriteria

from mmspec.acceptance.frames import FREE
from mmspec.engine.frames import FRAME_FORMS, FrameProcessors
from mmspec.errors import InputError, ModelError, OptionError
from mmspec.modalities.speech.draft import LookupDraft, ModelDraft
from mmspec.modalities.speech.higgs_audio import FAMILY, HiggsTarget
from mmspec.modalities.speech.higgs_rows import Marks
from mmspec.modalities.speech.preparation import prepare
from mmspec.modalities.speech.repetition_aware import RepetitionAwareDistribution
from mmspec.prefix import Frame, FramePrefix

from .bed_higgs_audio import (
    AUDIO,
    AUDIO_START,
    BOOKS,
    CODES,
    DELAY,
    END,
    START,
    TEXT_END,
    TEXT_PAD,
    Rows,
    inputs,
    library,
    library_codes,
    library_rows,
    tiny,
    undelayed,
)
from .delayed_runs import GAMMAS, Telling, checkpoint, drafts, drawing, run

NEW = 24
CASES = [
    (0, 0, 0),  # as long as it may be
    (0, 2, 0),  # ends in codebook 0
    (0, 1, 0),  # in codebook 1
    (0, 0, 3),  # in codebook 2, behind a recording
    (6, 0, 0),  # in codebook 3
    (3, 1, 3),  # before a frame is whole
    (7, 2, 0),  # cut off inside the end
]
ENDED = (END,) * BOOKS


@functools.cache
def given(prompt: int = 0, voice: int = 0) -> Mapping[str, Tensor]:
    return inputs(prompt, voice=voice)


@functools.cache
def twin(seed: int) -> Any:
    """The same weights in a model of its own."""
    return tiny.__wrapped__(seed)


def redrawing(seed: int, window: int, repeats: int) -> Any:
    """A model whose checkpoint asks for repeated codes to be drawn again."""
    model = tiny.__wrapped__(seed)
    model.generation_config.ras_win_len = window
    model.generation_config.ras_win_max_num_repeat = repeats
    return model


def greedy(**options: Any) -> dict[str, Any]:
    return {"max_new_tokens": NEW, "do_sample": False, **options}


def length(told: Mapping[str, Tensor]) -> int:
    return told["input_ids"].shape[1]


@contextmanager
def opened(
    model: Any, told: Mapping[str, Tensor], **options: Any
) -> Iterator[tuple[HiggsTarget, Tensor]]:
    """A target behind its prompt, and the row that reading it left."""
    target = FAMILY.open(prepare(model, told, **greedy(**options)), packed=False)
    try:
        yield target, target.read_prompt()
    finally:
        target.close()


@pytest.mark.parametrize("gamma", GAMMAS)
@pytest.mark.parametrize(("seed", "prompt", "voice"), CASES)
def test_greedy_codes_are_the_librarys(seed: int, prompt: int, voice: int, gamma: int) -> None:
    model, told = tiny(seed), given(prompt, voice)
    rows = library_rows(model, told, **greedy())
    codes = library_codes(model, told, **greedy())
    kinds = drafts(checkpoint(FAMILY, model), rows, twin(seed), tiny(seed + 1, layers=1))
    for name, draft in kinds:
        found = run(FAMILY, model, told, draft, gamma, **greedy())
        assert found.rows == rows, (name, gamma)
        assert list(found.said.grid) == codes, (name, gamma)
        assert found.said.ended == (rows[-1] == ENDED)


@pytest.mark.parametrize("new", [5, 6, 7, 9, 13])
@pytest.mark.parametrize("voice", [0, 3])
def test_odd_lengths(voice: int, new: int) -> None:
    model, told, asked = tiny(0), given(0, voice), greedy(max_new_tokens=new)
    rows = library_rows(model, told, **asked)
    beyond = library_rows(model, told, **greedy())
    for gamma in (0, *GAMMAS):
        found = run(FAMILY, model, told, Telling(beyond), gamma, **asked)
        assert found.rows == rows
        assert list(found.said.grid) == library_codes(model, told, **asked)


def test_the_cases_end_in_every_codebook() -> None:
    ends: set[tuple[int, ...]] = set()
    lengths = set()
    for seed, prompt, voice in CASES:
        rows = library_rows(tiny(seed), given(prompt, voice), **greedy())
        first = next((row for row in rows if END in row), ())
        ends.add(tuple(k for k, token in enumerate(first) if token == END))
        lengths.add(len(rows))
    assert {(), (0,), (1,), (2,), (3,)} <= ends
    assert max(lengths) == NEW


def test_an_end_in_a_codebook_other_than_the_first() -> None:
    """It ends the output, and the mark that began it is neither a code nor clipped to one."""
    model, told = tiny(0), given(1)
    rows = library_rows(model, told, **greedy())
    begun = next(place for place, row in enumerate(rows) if END in row)
    assert [k for k, token in enumerate(rows[begun]) if token == END] == [1]
    assert len(rows) == begun + BOOKS + 1
    found = run(FAMILY, model, told, Telling(rows), 4, **greedy())
    assert found.stats.finish_reason == "stop"
    assert all(0 <= code < CODES for frame in found.said.grid for code in frame)
    whole = begun  # frames before the one of end marks; the mark's own frame is none of sound
    starts = sum(START in frame for frame in frames_of(rows, whole))
    assert len(found.said.grid) == whole - 1 - starts


def frames_of(rows: Sequence[Frame], count: int) -> Rows:
    return [tuple(rows[t + 1 + k][k] for k in range(BOOKS)) for t in range(count)]


@pytest.mark.parametrize(("seed", "prompt", "voice"), CASES)
def test_the_text_beside_the_rows(seed: int, prompt: int, voice: int) -> None:
    model, told = tiny(seed), given(prompt, voice)
    text, rows = library(model, told, **greedy())
    with opened(model, told) as (target, _):
        assert target.marks.text(rows, AUDIO, DELAY, TEXT_END) == text


@pytest.mark.parametrize(("seed", "prompt", "voice"), CASES)
def test_the_layout_forces_what_the_librarys_memory_forces(
    seed: int, prompt: int, voice: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cell by cell, also where an end is drafted in the middle of a block and is void later."""
    model, told = tiny(seed), given(prompt, voice)
    monkeypatch.delitem(FRAME_FORMS, Marks)
    text, rows = library(model, told, **greedy())
    prepared = prepare(model, told, **greedy())
    beside = [*told["input_ids"][0].tolist(), *text]
    own = [one for one in prepared.processors if type(one) is Marks]
    counting = FrameProcessors(own, 1)  # of the text beside the rows
    assert counting.has_memory
    with opened(model, told) as (target, _):
        layout = target.marks
    size = length(told)
    prefix = FramePrefix([(token,) for token in beside[:size]], 99, torch.device("cpu"), 1)
    count = 0
    while count < len(rows):
        drafted, kept = rows[count : count + 5], min(2, len(rows) - count)
        if count % 2 and count > BOOKS and len(drafted) > 3:
            k = count % BOOKS
            drafted[0] = (*drafted[0][:k], END, *drafted[0][k + 1 :])  # void: it is rejected
            kept = 1
        said = layout.text([*rows[:count], *drafted], AUDIO, DELAY, TEXT_END)[count:]
        expected = library_marks(counting, prefix, said)
        assert layout.forced(rows[:count], drafted[:-1]) == expected
        counting.commit(kept)
        prefix.extend([(token,) for token in text[count : count + kept]])
        count += kept


def library_marks(
    processors: FrameProcessors, prefix: FramePrefix, said: Sequence[int]
) -> list[Frame]:
    """What the library's processor forces behind the prefix and behind each of some text ids."""
    drafted: Any = [(token,) for token in said]
    prefix.show_draft(drafted)
    scores = torch.zeros(len(said), 1, BOOKS * (CODES + 2))
    done = processors(scores, prefix, drafted)
    done = done.view(len(said), BOOKS, CODES + 2)
    forced = (done > -torch.inf).sum(-1) == 1
    return [tuple(row) for row in torch.where(forced, done.argmax(-1), FREE).tolist()]


@pytest.mark.parametrize("voice", [0, 3])
def test_a_copy_is_always_right(voice: int) -> None:
    model, told = tiny(0), given(0, voice)
    draft = ModelDraft(checkpoint(FAMILY, model), twin(0))
    trace = (found := run(FAMILY, model, told, draft, 4, **greedy())).stats.tally.trace
    assert not any(done.rejected for done in trace)
    assert {len(done.emitted) for done in trace[:-1]} == {5}
    assert all(done.accepted == len(done.proposal) for done in trace[:-1])  # then the end cuts
    codes = found.stats.codes[0]
    assert codes.agreed == codes.judged


def test_target_forwards_are_counted() -> None:
    model, told = tiny(0), given()
    rows = library_rows(model, told, **greedy())
    calls: list[int] = []
    hook = model.model.register_forward_hook(
        lambda module, args, made: calls.append(made.last_hidden_state.shape[1])
    )
    try:
        found = run(FAMILY, model, told, Telling(rows), 4, **greedy())
    finally:
        hook.remove()
    assert found.forwards == len(calls) == 1 + -(-(len(rows) - 1) // 5)  # the prompt, then blocks
    assert calls == [length(told) + 1, *(done.block for done in found.stats.tally.trace)]
    assert calls[1:4] == [4, 5, 5]  # at first nothing is pending


@pytest.mark.parametrize(("seed", "prompt", "voice"), CASES)
def test_forced_cells_are_in_no_figure(seed: int, prompt: int, voice: int) -> None:
    model, told = tiny(seed), given(prompt, voice)
    rows = library_rows(model, told, **greedy())
    found = run(FAMILY, model, told, Telling(rows), 3, **greedy())
    begun = next((place for place, row in enumerate(rows) if END in row), len(rows))
    decided = [
        (place, k)
        for place in range(len(rows))
        for k in range(BOOKS)
        if place > k and (place <= begun or place - begun <= k)
    ]
    codes = found.stats.codes[0]
    assert codes.decided == len(decided)
    assert codes.agreed == codes.judged


def test_what_a_draft_holds_in_forced_cells_is_never_read() -> None:
    model, told = tiny(0), given(1)
    rows = library_rows(model, told, **greedy())
    begun = next(place for place, row in enumerate(rows) if END in row)

    def junk(row: int, frame: Frame) -> Frame:
        forced = [row <= k or row > begun + k for k in range(BOOKS)]
        return tuple((row + k) % END if forced[k] else token for k, token in enumerate(frame))

    for gamma in GAMMAS:
        found = run(FAMILY, model, told, Telling(rows, junk), gamma, **greedy())
        assert found.rows == rows
        assert found.stats.tally.accepted == found.stats.tally.proposed


@pytest.mark.parametrize("gamma", GAMMAS)
@pytest.mark.parametrize("codebook", range(BOOKS))
def test_an_end_that_is_drafted_too_early_is_rejected(codebook: int, gamma: int) -> None:
    model, told = tiny(0), given()
    rows = library_rows(model, told, **greedy())

    def early(row: int, frame: Frame) -> Frame:
        if row % 7 != 5 or frame[codebook] >= CODES:
            return frame
        return (*frame[:codebook], END, *frame[codebook + 1 :])

    found = run(FAMILY, model, told, Telling(rows, early), gamma, **greedy())
    assert found.rows == rows
    assert found.stats.tally.accepted < found.stats.tally.proposed


@pytest.mark.parametrize("gamma", [2, 60])
@pytest.mark.parametrize("options", [{}, {"top_k": 5, "temperature": 1.7}, {"top_p": 0.6}])
@pytest.mark.parametrize("voice", [0, 3])
def test_seeded_codes_are_the_librarys_for_every_drafter(
    voice: int, options: Mapping[str, Any], gamma: int
) -> None:
    model, told = tiny(7), given(1, voice)
    asked = {"max_new_tokens": NEW, "do_sample": True, **options}
    with drawing(11, 0):  # the library draws the row of start marks as well
        rows = library_rows(model, told, **asked)
    kinds = drafts(checkpoint(FAMILY, model), rows, twin(7), tiny(8, layers=1))
    for name, draft in kinds:
        found = run(FAMILY, model, told, draft, gamma, seed=11, **asked)
        assert found.rows == rows, (name, gamma)
    other = run(FAMILY, model, told, seed=12, **asked)
    assert other.rows != rows


@pytest.mark.parametrize("rule", ["token", "frame", "block"])
def test_sampled_outputs_end_as_they_must(rule: str) -> None:
    model, told = tiny(7), given(1)
    draft = ModelDraft(checkpoint(FAMILY, model), tiny(8, layers=1))
    asked = {"max_new_tokens": NEW, "do_sample": True, "top_k": 6}
    found = run(FAMILY, model, told, draft, 3, rule=rule, **asked)
    rows = found.rows
    assert list(found.said.grid) == undelayed(rows)
    begun = next((place for place, row in enumerate(rows) if END in row), NEW)
    assert len(rows) == min(NEW, begun + BOOKS + 1)


@pytest.mark.parametrize("voice", [0, 3])
def test_a_block_scores_as_frames_one_by_one(voice: int) -> None:
    model, told = tiny(0, spread=0.2), given(0, voice)
    rows = library_rows(model, told, **greedy())
    expected = without_cache(model, told, rows)
    with opened(model, told) as (target, first):
        block = target.score(rows[1:10], keep=9)
        target.state.rollback(1)
        target.state.poison_unused()
        single = [target.score([row], keep=1) for row in rows[1:10]]
        states = target.hidden, target.hidden_from
        assert target.state.frozen == 1
    near: dict[str, Any] = {"atol": 1e-5, "rtol": 1e-5}
    torch.testing.assert_close(first[0], expected[0], **near)
    torch.testing.assert_close(block, expected[1:10], **near)
    torch.testing.assert_close(torch.cat(single), block, **near)
    assert states[0].shape == (1, 32)
    assert states[1] == 9


@torch.no_grad()
def without_cache(model: Any, told: Mapping[str, Tensor], rows: Rows) -> Tensor:
    """Logits `[rows, K, V]` behind every row: a forward with no memory."""
    ids = torch.cat([told["input_ids"], torch.full((1, len(rows)), AUDIO)], 1)
    given_rows = told.get("audio_input_ids", torch.empty(1, 0, BOOKS, dtype=torch.long))
    audio = torch.cat([given_rows, torch.tensor([rows])], 1)
    logits = model(input_ids=ids, audio_input_ids=audio, use_cache=False).logits
    return logits[0, length(told) :].view(-1, BOOKS, CODES + 2)


def test_the_prompt_stays_where_it_is() -> None:
    model, told = tiny(0), given(0, 3)
    rows = library_rows(model, told, **greedy())
    with opened(model, told) as (target, _):

        def held() -> list[tuple[int, Tensor]]:
            layers = [target.state.growing(layer) for layer in range(2)]
            memories = [memory for layer in layers for memory in (layer.keys, layer.values)]
            return [(m.data_ptr(), m[:, :, : length(told) + 1].clone()) for m in memories]

        before = held()
        target.score(rows[1:7], keep=6)
        target.state.rollback(3)
        target.score(rows[3:5], keep=1)
        after = held()
    assert [place for place, _ in before] == [place for place, _ in after]
    for (_, was), (_, now) in zip(before, after, strict=True):
        torch.testing.assert_close(now, was, atol=0, rtol=0)


class AtPosition(StoppingCriteria):
    """Ends at a length of the text, words and what stands beside rows."""

    def __init__(self, position: int) -> None:
        self.position = position

    def __call__(self, input_ids: Tensor, scores: Any, **kwargs: Any) -> Tensor:
        if input_ids[0, -1] not in (AUDIO, DELAY, TEXT_END):
            raise AssertionError(input_ids)
        return torch.full((len(input_ids),), input_ids.shape[1] >= self.position)


@pytest.mark.parametrize("rows", [2, 4, 5, 9])
def test_what_a_criterion_cuts_off_has_whole_frames(rows: int) -> None:
    model, told = tiny(0), given()
    whole = library_rows(model, told, **greedy())
    asked = greedy(stopping_criteria=[AtPosition(length(told) + rows)])
    assert library_rows(model, told, **asked) == whole[:rows]
    found = run(FAMILY, model, told, Telling(whole), 3, **asked)
    assert found.rows == whole[:rows]
    assert list(found.said.grid) == undelayed(whole[:rows])
    assert found.stats.finish_reason == "criterion"


class AfterCalls(StoppingCriteria):
    """Ends when it was asked so often, whatever it is shown."""

    def __init__(self, calls: int) -> None:
        self.left = calls

    def __call__(self, input_ids: Tensor, scores: Any, **kwargs: Any) -> Tensor:
        self.left -= 1
        return torch.full((len(input_ids),), self.left <= 0)


@pytest.mark.parametrize("calls", [2, 7])
def test_a_criterion_is_asked_about_the_row_of_start_marks_too(calls: int) -> None:
    model, told = tiny(0), given()
    whole = library_rows(model, told, **greedy())
    expected = library_rows(model, told, **greedy(stopping_criteria=[AfterCalls(calls)]))
    assert expected == whole[:calls]
    asked = greedy(stopping_criteria=[AfterCalls(calls)])
    assert run(FAMILY, model, told, Telling(whole), 3, **asked).rows == expected


def test_repeated_codes_are_drawn_again_by_the_librarys_law() -> None:
    """The first code behind a recording has one distribution in every row of a batch."""
    model, told, count = redrawing(0, 12, 1), given(0, 9), 4000
    asked: dict[str, Any] = {
        "max_new_tokens": 1 + BOOKS,
        "do_sample": True,
        "temperature": 1.3,
        "top_k": 9,
    }
    prepared = prepare(model, told, **asked)
    target = FAMILY.open(prepared, packed=False)
    raw = target.read_prompt()
    prefix = FramePrefix(target.prompt, target.max_rows, torch.device("cpu"), BOOKS)
    law = FrameProcessors(prepared.processors, BOOKS)(raw.clone(), prefix, ())[0, 0].exp()
    target.close()
    torch.testing.assert_close(law.sum(), torch.tensor(1.0))

    batch = {name: value.expand(count, *value.shape[1:]) for name, value in told.items()}
    torch.manual_seed(2)
    made = model.generate(**batch, **asked)
    seen = made[:, -BOOKS, 0].bincount(minlength=CODES + 2) / count
    spread = (law * (1 - law) / count).sqrt()
    assert bool(((seen - law).abs() <= 5 * spread + 1 / count).all())
    kept = (raw[0, 0] / 1.3).topk(9)
    plain = torch.zeros_like(law).scatter(0, kept.indices, kept.values.softmax(-1))
    assert float((plain - law).abs().sum()) / 2 > 0.1


def test_a_law_that_is_drawn_again_is_speculated_under() -> None:
    model, told = redrawing(7, 5, 1), given(1, 3)
    asked: dict[str, Any] = {"max_new_tokens": NEW, "do_sample": True, "top_k": 4}
    plain = run(FAMILY, model, told, seed=3, **asked)
    prepared = prepare(model, told, **asked)
    FAMILY.open(prepared, packed=False).close()
    assert [type(one) for one in prepared.processors] == [RepetitionAwareDistribution]
    for draft in (ModelDraft(checkpoint(FAMILY, model), twin(7)), LookupDraft()):
        assert run(FAMILY, model, told, draft, 4, seed=3, **asked).rows == plain.rows
    assert run(FAMILY, tiny(7), told, seed=3, **asked).rows != plain.rows


def changed(**new: Tensor) -> dict[str, Tensor]:
    return {**given(), **new}


def ending(*ids: int) -> dict[str, Tensor]:
    told = torch.tensor([[2, 3, 4, 5, 6, *ids]])
    return {"input_ids": told, "attention_mask": torch.ones_like(told)}


def two_requests() -> dict[str, Tensor]:
    return {name: value.repeat_interleave(2, 0) for name, value in given().items()}


def padded() -> dict[str, Tensor]:
    mask = given()["attention_mask"].clone()
    mask[0, 0] = 0
    return changed(attention_mask=mask)


def long_text() -> dict[str, Tensor]:
    return ending(*[7] * 260, AUDIO_START)


@pytest.mark.parametrize(
    ("told", "message"),
    [
        (ending(7), r"its last id must open audio \(51\)"),
        (ending(AUDIO_START, 7, AUDIO_START), r"its last id must open audio \(51\)"),
        ({"input_ids": torch.tensor([[AUDIO_START]])}, r"its last id must open audio \(51\)"),
        (two_requests(), "2 requests at once"),
        (padded(), "attention_mask leaves positions out"),
        (long_text(), "266 positions, this model reads 256"),
    ],
)
def test_prompts_that_are_none(told: Mapping[str, Tensor], message: str) -> None:
    with pytest.raises(InputError, match=message):
        run(FAMILY, tiny(0), told, **greedy())


def test_a_recording_just_before_the_output() -> None:
    told = dict(given(0, 3))
    ids = torch.cat([told["input_ids"][:, :8], torch.tensor([[AUDIO_START]])], 1)
    told |= {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    with pytest.raises(InputError, match="it would end the output before it begins"):
        run(FAMILY, tiny(0), told, **greedy())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_new_tokens": BOOKS}, "4 new rows .* so 5 are needed"),
        ({"eos_token_id": 3}, r"eos_token_id: \[3\] doesn't end .*: it is 53"),
        ({"eos_token_id": [TEXT_END, DELAY]}, r"eos_token_id: \[53, 52\] doesn't end"),
        ({"num_beams": 2}, "not supported"),
        ({"repetition_penalty": 1.2}, "not compatible"),
        ({"guidance_scale": 3.0}, "not compatible"),
    ],
)
def test_options_that_cannot_be(options: Mapping[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        run(FAMILY, tiny(0), given(), **greedy(**options))


@pytest.mark.parametrize(
    ("window", "repeats", "sample", "message"),
    [
        (7, 2, False, "drawn at random, although do_sample=False"),
        (0, 2, True, "must both be at least 1"),
        (7, 0, True, "must both be at least 1"),
    ],
)
def test_redrawing_that_cannot_be(window: int, repeats: int, sample: bool, message: str) -> None:
    model = redrawing(0, window, repeats)
    with pytest.raises(OptionError, match=message):
        run(FAMILY, model, given(), max_new_tokens=NEW, do_sample=sample)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("audio_stream_bos_id", END, "must be two of the codebook_size 18 ids"),
        ("audio_stream_eos_id", 18, "audio_stream_eos_id 18 must be two of the codebook_size 18"),
        ("codebook_size", 19, "72 rows, but 4 codebooks of 19 ids need 76"),
        ("num_codebooks", 5, "72 rows, but 5 codebooks of 18 ids need 90"),
    ],
)
def test_a_configuration_that_contradicts_itself(name: str, value: int, message: str) -> None:
    model = tiny.__wrapped__(0)
    setattr(model.config, name, value)
    with pytest.raises(ModelError, match=message):
        FAMILY.descriptor(model)


def test_the_published_defaults_contradict_each_other() -> None:
    """The library's default codebook has no ids for the marks that it names."""
    model = tiny.__wrapped__(0)
    defaults = type(model.config)()
    for name in ("codebook_size", "audio_stream_bos_id", "audio_stream_eos_id"):
        setattr(model.config, name, getattr(defaults, name))
    with pytest.raises(ModelError, match="two of the codebook_size 1024 ids"):
        FAMILY.descriptor(model)


def test_drafters_that_do_not_fit() -> None:
    target, other = checkpoint(FAMILY, tiny(0)), tiny.__wrapped__(0)
    other.config.audio_delay_token_id = 55
    with pytest.raises(ModelError, match="audio_delay_token_id: the target has 52, the drafter 55"):
        ModelDraft(target, other)
    other = tiny.__wrapped__(0)
    other.config.audio_stream_bos_id, other.config.audio_stream_eos_id = END, START
    with pytest.raises(ModelError, match="the target writes"):
        ModelDraft(target, other)
    other = tiny.__wrapped__(0)
    other.config.vocab_size = 50
    with pytest.raises(ModelError, match="the prompt has id 51, the drafter knows 50 ids"):
        FAMILY.open_drafter(prepare(tiny(0), given(), **greedy()), other)


def test_the_words_are_dropped() -> None:
    prepared = prepare(tiny(0), given(0, 3), **greedy())
    before, after = prepared.input_ids[0], FAMILY.without_text(prepared).input_ids[0]
    words = before < AUDIO
    assert int(words.sum()) == 7
    assert set(after[words].tolist()) == {TEXT_PAD}
    assert torch.equal(after[~words], before[~words])


@pytest.mark.parametrize("frames", [1, 7])
def test_as_many_steps_as_frames_take(frames: int) -> None:
    model, told = tiny(0), given()
    new = FAMILY.new_tokens(FAMILY.descriptor(model), frames)
    rows = library_rows(model, told, **greedy(max_new_tokens=new))
    assert len(frames_of(rows, frames)) == len(rows) - BOOKS


def test_which_codes_are_alike() -> None:
    model = tiny(0)
    tables = FAMILY.code_embeddings(model)
    row = torch.tensor([[[3, 1, 4, 15]]])
    summed = torch.stack([t[u] for t, u in zip(tables, row[0, 0].tolist(), strict=True)]).sum(0)
    torch.testing.assert_close(model.model.embed_audio_tokens(row)[0, 0], summed)


class Conversing:
    """Writes words as numbers behind each other, as a processor with a chat template does."""

    def apply_chat_template(
        self, conversation: Sequence[Mapping[str, Any]], **how: Any
    ) -> dict[str, Tensor]:
        assert how["add_generation_prompt"]
        words = [part["text"] for turn in conversation for part in turn["content"]]
        ids = torch.tensor([[2 + len(word) % 40 for said in words for word in said.split()]])
        ids = torch.cat([ids, torch.tensor([[AUDIO_START]])], 1)
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def test_a_text_becomes_a_conversation() -> None:
    model = tiny(0)
    own = checkpoint(FAMILY, model)
    talking = type(own)(model, Conversing(), FAMILY, own.steps)
    told = FAMILY.text_inputs(talking, "so be it")
    rows = library_rows(model, told, **greedy())
    assert run(FAMILY, model, told, **greedy()).rows == rows
    with pytest.raises(InputError, match="the text is empty"):
        FAMILY.text_inputs(talking, "  ")

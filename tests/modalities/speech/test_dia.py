"""Dia: codes equal to transformers' own `generate`, whatever is drafted."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import StoppingCriteria
from transformers.generation import logits_process as hf

from mmspec.acceptance.frames import FREE
from mmspec.engine.frames import FRAME_FORMS, FrameProcessors
from mmspec.errors import InputError, ModelError, OptionError
from mmspec.modalities.speech.dia import FAMILY, DiaTarget
from mmspec.modalities.speech.draft import LookupDraft, ModelDraft
from mmspec.modalities.speech.preparation import prepare
from mmspec.prefix import Frame, FramePrefix

from .bed_dia import (
    CODES,
    DELAYS,
    END,
    PAD,
    START,
    Rows,
    inputs,
    library_codes,
    library_rows,
    processor,
    tiny,
    undelayed,
)
from .delayed_runs import GAMMAS, Telling, checkpoint, drafts, drawing, run

LATEST = max(DELAYS)
NEW = 20
PLAIN: dict[str, Any] = {}
GUIDED = {"guidance_scale": 3.0, "top_k": 1}
"""The best code under guidance."""
WIDER = {"guidance_scale": 3.0, "top_k": 4}
"""The best of the four that guidance leaves."""
CASES = [
    (0, "[S1] so be it", 0, PLAIN),  # as long as it may be
    (0, "[S2] no", 0, WIDER),  # four frames
    (1, "[S1] so be it", 0, GUIDED),  # ends before it begins
    (1, "[S1] hé [S2] ja", 5, PLAIN),  # behind a recording
    (2, "[S2] no", 5, WIDER),
    (3, "[S2] no", 0, GUIDED),
    (5, "[S2] no", 5, PLAIN),
]


@functools.cache
def given(text: str = "[S2] no", frames: int = 0) -> Mapping[str, Tensor]:
    return inputs(text, frames)


@functools.cache
def twin(seed: int) -> Any:
    """The same weights in a model of its own."""
    return tiny.__wrapped__(seed)


def greedy(options: Mapping[str, Any], new: int = NEW) -> dict[str, Any]:
    return {"max_new_tokens": new, "do_sample": False, **options}


@contextmanager
def opened(
    model: Any, told: Mapping[str, Tensor], **options: Any
) -> Iterator[tuple[DiaTarget, Tensor]]:
    """A target behind its prompt, and the row that reading it left."""
    prepared = prepare(model, told, **greedy(options))
    target = FAMILY.open(prepared, packed=False)
    try:
        yield target, target.read_prompt()
    finally:
        target.close()


@torch.no_grad()
def without_cache(model: Any, told: Mapping[str, Tensor], rows: Rows, guided: bool) -> Tensor:
    """Logits `[rows, R, V]` behind every row: a whole forward that remembers nothing."""
    ids, mask = told["input_ids"], told["attention_mask"]
    halves = [ids, torch.zeros_like(ids)] if guided else [ids]
    block = torch.tensor([rows]).expand(len(halves), -1, -1)
    logits = model(
        input_ids=torch.cat(halves),
        attention_mask=mask.expand(len(halves), -1),
        decoder_input_ids=block,
        use_cache=False,
    ).logits
    return logits.transpose(0, 1)  # the channels of a half side by side, half after half


@pytest.mark.parametrize("gamma", GAMMAS)
@pytest.mark.parametrize(("seed", "text", "frames", "options"), CASES)
def test_greedy_codes_are_the_librarys(
    seed: int, text: str, frames: int, options: Mapping[str, Any], gamma: int
) -> None:
    model, asked = tiny(seed), greedy(options)
    rows = library_rows(model, given(text, frames), **asked)
    codes = library_codes(model, given(text, frames), **asked)
    kinds = drafts(checkpoint(FAMILY, model), rows, twin(seed), tiny(seed + 1, layers=1), frames)
    for name, draft in kinds:
        found = run(FAMILY, model, given(text, frames), draft, gamma, **asked)
        assert found.rows == rows, (name, gamma)
        assert list(found.said.grid) == codes, (name, gamma)


def test_the_cases_end_in_every_way() -> None:
    lengths = [
        len(library_rows(tiny(seed), given(text, frames), **greedy(options))) - frames
        for seed, text, frames, options in CASES
    ]
    assert max(lengths) == NEW + 1
    assert min(lengths) == 2 + LATEST  # no frame at all
    assert len(set(lengths)) > 4


@pytest.mark.parametrize("gamma", GAMMAS)
@pytest.mark.parametrize("new", range(LATEST + 1, LATEST + 6))
@pytest.mark.parametrize("frames", [0, 5])
def test_the_shortest_outputs(new: int, frames: int, gamma: int) -> None:
    model, told, asked = tiny(0), given("[S1] so be it", frames), greedy(PLAIN, new)
    rows = library_rows(model, told, **asked)
    found = run(FAMILY, model, told, Telling(rows), gamma, **asked)
    assert found.rows == rows
    assert len(found.said.grid) == len(undelayed(rows)) == frames + new - LATEST - 1


@pytest.mark.parametrize("options", [PLAIN, GUIDED, WIDER])
@pytest.mark.parametrize("frames", [0, 5])
def test_a_copy_is_always_right(frames: int, options: Mapping[str, Any]) -> None:
    model, told = tiny(0), given("[S1] so be it", frames)
    draft = ModelDraft(checkpoint(FAMILY, model), twin(0))
    found = run(FAMILY, model, told, draft, 4, **greedy(options))
    trace = found.stats.tally.trace
    assert not any(done.rejected for done in trace)
    assert {len(done.emitted) for done in trace[:-1]} == {5}
    assert all(done.accepted == len(done.proposal) for done in trace[:-1])  # then the end cuts
    codes = found.stats.codes[0]
    assert codes.agreed == codes.judged


def test_a_copy_that_drafts_without_guidance_is_wrong_at_times() -> None:
    """It is judged by the guided distribution; guidance on one side only would hide that."""
    model, told, asked = tiny(0), given("[S1] so be it"), greedy(GUIDED)
    prepared = prepare(model, told, **asked)
    drafter = FAMILY.open_drafter(prepared, twin(0), inputs=told, guided=False)
    assert drafter.read_prompt().shape == (1, len(DELAYS), CODES + 4)
    drafter.close()
    unguided = library_rows(model, told, **greedy(PLAIN))
    guided = library_rows(model, told, **asked)
    found = run(FAMILY, model, told, Telling(unguided[: len(guided) - LATEST]), 4, **asked)
    assert found.rows == guided != unguided
    assert found.stats.tally.accepted < found.stats.tally.proposed


def test_target_forwards_are_counted() -> None:
    model, told, asked = tiny(0), given("[S1] so be it"), greedy(GUIDED)
    rows = library_rows(model, told, **asked)
    calls: list[int] = []
    hook = model.model.decoder.register_forward_pre_hook(
        lambda module, args, kwargs: calls.append(kwargs["input_ids"].shape[1]), with_kwargs=True
    )
    try:
        found = run(FAMILY, model, told, Telling(rows), 4, **asked)
    finally:
        hook.remove()
    rounds = -(-(len(rows) - 1) // 5)
    assert found.forwards == len(calls) == 1 + rounds  # the prompt, then blocks
    assert calls == [1, *(done.block for done in found.stats.tally.trace)]
    assert calls[1:4] == [4, 5, 5]  # at first nothing is pending
    assert found.stats.encoder_runs == 1


@pytest.mark.parametrize(("seed", "text", "frames", "options"), CASES)
def test_forced_cells_are_in_no_figure(
    seed: int, text: str, frames: int, options: Mapping[str, Any]
) -> None:
    model, told, asked = tiny(seed), given(text, frames), greedy(options)
    rows = library_rows(model, told, **asked)
    found = run(FAMILY, model, told, Telling(rows), 3, **asked)
    said = len(found.said.grid) - frames
    ended = found.stats.finish_reason == "stop"  # then the end was decided, and that only
    codes = found.stats.codes[0]
    assert codes.decided == said * len(DELAYS) + ended
    assert sum(codes.proposed) <= codes.decided
    assert codes.agreed == codes.judged


def test_what_a_draft_holds_in_forced_cells_is_never_read() -> None:
    model, told, asked = tiny(2), given("[S2] no", 5), greedy(PLAIN)
    rows = library_rows(model, told, **asked)

    def junk(row: int, frame: Frame) -> Frame:
        place = row - 1
        forced = [
            token >= CODES or place - late < 5 for token, late in zip(frame, DELAYS, strict=True)
        ]
        forced[0] &= frame[0] != END  # where speech ends is decided, by codebook 0
        return tuple(
            (row + k) % END if mark else u
            for k, (u, mark) in enumerate(zip(frame, forced, strict=True))
        )

    for gamma in GAMMAS:
        found = run(FAMILY, model, told, Telling(rows, junk), gamma, **asked)
        assert found.rows == rows
        assert found.stats.tally.accepted == found.stats.tally.proposed


@pytest.mark.parametrize("gamma", GAMMAS)
@pytest.mark.parametrize("codebook", range(len(DELAYS)))
def test_an_end_that_is_drafted_too_early_is_rejected(codebook: int, gamma: int) -> None:
    model, told, asked = tiny(0), given("[S1] so be it"), greedy(PLAIN)
    rows = library_rows(model, told, **asked)

    def early(row: int, frame: Frame) -> Frame:
        if row % 7 != 4 or frame[codebook] >= CODES:
            return frame
        return (*frame[:codebook], END, *frame[codebook + 1 :])

    found = run(FAMILY, model, told, Telling(rows, early), gamma, **asked)
    assert found.rows == rows
    assert found.stats.tally.accepted < found.stats.tally.proposed


@pytest.mark.parametrize("gamma", [2, 60])
@pytest.mark.parametrize("options", [{}, {"guidance_scale": 3.0}, {"temperature": 1.7}])
@pytest.mark.parametrize("frames", [0, 5])
def test_seeded_codes_are_the_librarys_for_every_drafter(
    frames: int, options: Mapping[str, Any], gamma: int
) -> None:
    model, told = tiny(3), given("[S1] so be it", frames)
    asked = {"max_new_tokens": NEW, "do_sample": True, "top_k": 9, **options}
    with drawing(11, 1 + frames):
        rows = library_rows(model, told, **asked)
    kinds = drafts(checkpoint(FAMILY, model), rows, twin(3), tiny(4, layers=1), frames)
    for name, draft in kinds:
        found = run(FAMILY, model, told, draft, gamma, seed=11, **asked)
        assert found.rows == rows, (name, gamma)
    other = run(FAMILY, model, told, seed=12, **asked)
    assert other.rows != rows


@pytest.mark.parametrize("rule", ["token", "frame", "block"])
def test_sampled_outputs_are_whole(rule: str) -> None:
    model, told = tiny(3), given("[S1] so be it", 5)
    draft = ModelDraft(checkpoint(FAMILY, model), tiny(4, layers=1))
    asked: dict[str, Any] = {"max_new_tokens": NEW, "do_sample": True, **WIDER}
    found = run(FAMILY, model, told, draft, 3, rule=rule, **asked)
    assert FAMILY.descriptor(model).from_grid(
        found.said.grid, ended=FAMILY.descriptor(model).has_ended(found.rows)
    ) == tuple(found.rows)


@pytest.mark.parametrize("options", [PLAIN, GUIDED, WIDER])
def test_laws_are_the_librarys(options: Mapping[str, Any]) -> None:
    """What is verified is what the library would have drawn from, guidance and all."""
    model, told = tiny.__wrapped__(0).double(), given("[S1] so be it", 5)  # rounding shows in float
    asked = greedy(options)
    kept = model.generate(**told, **asked, return_dict_in_generate=True, output_scores=True)
    rows = [tuple(row) for row in kept.sequences[0].tolist()]
    prepared = prepare(model, told, **asked)
    with opened(model, told, **options) as (target, first):
        prompt = len(target.prompt)
        raw = torch.cat([first, target.score(rows[prompt:-1], len(rows) - prompt - 1)])
        prefix = FramePrefix(rows[:prompt], len(rows), torch.device("cpu"), len(DELAYS))
        said: Any = rows[prompt:]
        prefix.show_draft(said)
        laws = FrameProcessors(prepared.processors, len(DELAYS))(raw, prefix, said)
        forced = torch.tensor(target.layout.forced(rows[:prompt], rows[prompt:-1]))
    free = forced == FREE
    expected = torch.stack(kept.scores).softmax(-1)
    near: dict[str, Any] = {
        "atol": 1e-5,
        "rtol": 1e-5,
        "equal_nan": True,
    }  # a best code that is none leaves none
    torch.testing.assert_close(laws.softmax(-1)[free], expected[free], **near)


@pytest.mark.parametrize("frames", [0, 5])
@pytest.mark.parametrize("options", [PLAIN, GUIDED])
def test_a_block_scores_as_frames_one_by_one(frames: int, options: Mapping[str, Any]) -> None:
    model, told = tiny(0, spread=0.2), given("[S1] so be it", frames)
    rows = library_rows(model, told, **greedy(options))
    expected = without_cache(model, told, rows, bool(options))
    with opened(model, told, **options) as (target, first):
        prompt = len(target.prompt)
        block = target.score(rows[prompt : prompt + 9], keep=9)
        target.state.rollback(prompt)
        target.state.poison_unused()
        single = [target.score([row], keep=1) for row in rows[prompt : prompt + 9]]
        states = target.hidden, target.hidden_from
    near: dict[str, Any] = {"atol": 1e-5, "rtol": 1e-5}
    torch.testing.assert_close(first[0], expected[prompt - 1], **near)
    torch.testing.assert_close(block, expected[prompt : prompt + 9], **near)
    torch.testing.assert_close(torch.cat(single), block, **near)
    assert states[0].shape == (1, 32)
    assert states[1] == prompt + 8


def test_conditioning_stays_where_it_is() -> None:
    model, told = tiny(0), given("[S1] so be it")
    rows = library_rows(model, told, **greedy(GUIDED))
    with opened(model, told, **GUIDED) as (target, _):

        def places() -> list[tuple[int, Tensor]]:
            layers = [target.state.conditioning(layer) for layer in range(2)]
            return [(m.data_ptr(), m.clone()) for la in layers for m in (la.keys, la.values)]

        before = places()
        target.score(rows[1:9], keep=8)
        target.state.rollback(4)
        target.score(rows[4:6], keep=1)
        after = places()
        assert target.state.frozen == len(target.prompt)
    assert [at for at, _ in before] == [at for at, _ in after]
    for (_, was), (_, now) in zip(before, after, strict=True):
        torch.testing.assert_close(now, was, atol=0, rtol=0)


@pytest.mark.parametrize(("seed", "text", "frames", "options"), CASES)
def test_the_layout_forces_the_ends_that_the_librarys_memory_forces(
    seed: int,
    text: str,
    frames: int,
    options: Mapping[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Cell by cell, also where an end is drafted in the middle of a block and is void later."""
    monkeypatch.delitem(FRAME_FORMS, hf.DiaEOSDelayPatternLogitsProcessor)
    rows = library_rows(tiny(seed), given(text, frames), **greedy(options))
    prepared = prepare(tiny(seed), given(text, frames), **greedy(options))
    own = [one for one in prepared.processors if type(one) is hf.DiaEOSDelayPatternLogitsProcessor]
    counting = FrameProcessors(own, len(DELAYS))
    assert counting.has_memory
    with opened(tiny(seed), given(text, frames), **options) as (target, _):
        layout, count = target.layout, len(target.prompt)
    prefix = FramePrefix(rows[:count], len(rows) + 8, torch.device("cpu"), len(DELAYS))
    last_chance = prepared.config.max_length - 1 - LATEST
    while count < len(rows):
        drafted, kept = rows[count : count + 5], min(2, len(rows) - count)
        if count % 2 and len(drafted) > 3:
            drafted[1], kept = (END, *drafted[1][1:]), 1  # void: what is before it is rejected
        forced = layout.forced(prefix.ids, drafted[:-1])
        ends = [tuple(END if token == END else FREE for token in frame) for frame in forced]
        assert ends == library_ends(counting, prefix, drafted, last_chance)
        counting.commit(kept)
        prefix.extend(rows[count : count + kept])
        count += kept


def library_ends(
    processors: FrameProcessors, prefix: FramePrefix, drafted: Any, last_chance: int
) -> list[Frame]:
    """The end marks that the library's processor forces where codebook 0 says what is drafted."""
    scores = torch.zeros(len(drafted), len(DELAYS), CODES + 4)
    said = torch.zeros(len(drafted), len(DELAYS), dtype=torch.long)
    for place, frame in enumerate(drafted):
        if frame[0] == END and len(prefix) + place != last_chance:
            said[place, 0] = END
    scores.scatter_(2, said[..., None], 1.0)
    prefix.show_draft(drafted)
    done = processors(scores, prefix, drafted).argmax(-1)
    return [tuple(row) for row in torch.where((done == END) & (said != END), END, FREE).tolist()]


def test_padding_stands_where_the_library_puts_it() -> None:
    rows = library_rows(tiny(0), given("[S2] no"), **greedy(WIDER))
    with opened(tiny(0), given("[S2] no"), **WIDER) as (target, _):
        forced = target.layout.forced(rows[:1], rows[1:-1])
    marks = {(row, k) for row, frame in enumerate(rows) for k, u in enumerate(frame) if u >= CODES}
    said = {(row + 1, k): u for row, frame in enumerate(forced) for k, u in enumerate(frame)}
    ended = min(row for row, frame in enumerate(rows) if frame[0] == END)
    assert {place for place, token in said.items() if token != FREE} == {
        (row, k) for row, k in marks if row and (row, k) != (ended, 0)
    }
    assert all(token in (FREE, rows[row][k]) for (row, k), token in said.items())


def test_finish_reasons() -> None:
    told = given("[S1] so be it")
    assert run(FAMILY, tiny(0), told, **greedy(PLAIN)).stats.finish_reason == "length"
    assert run(FAMILY, tiny(2), given("[S2] no"), **greedy(PLAIN)).stats.finish_reason == "stop"


class AtRow(StoppingCriteria):
    def __init__(self, row: int) -> None:
        self.row = row

    def __call__(self, input_ids: Tensor, scores: Any, **kwargs: Any) -> Tensor:
        return torch.full((len(input_ids),), input_ids.shape[1] >= self.row)


@pytest.mark.parametrize("row", [4, 8, 13])
def test_what_a_criterion_cuts_off_has_whole_frames(row: int) -> None:
    model, told = tiny(0), given("[S1] so be it")
    asked = {**greedy(PLAIN), "stopping_criteria": [AtRow(row)]}
    rows = library_rows(model, told, **asked)
    whole = library_rows(model, told, **greedy(PLAIN))
    found = run(FAMILY, model, told, Telling(whole), 4, **asked)
    assert found.rows == rows == whole[:row]
    assert list(found.said.grid) == undelayed(rows) == undelayed(whole)[: len(found.said.grid)]
    assert found.stats.finish_reason == "criterion"


def test_the_model_is_not_written_to() -> None:
    model, told = twin(0), given("[S1] so be it")
    before = {name: value for name, value in vars(model).items() if not name.startswith("_mod")}
    config, generation = model.config.to_dict(), model.generation_config.to_dict()
    run(FAMILY, model, told, LookupDraft(), 4, **greedy(GUIDED))
    assert vars(model).keys() == before.keys() | {"_modules"}
    assert "_uses_cfg" not in vars(model)
    assert model.config.to_dict() == config
    assert model.generation_config.to_dict() == generation


def test_a_text_becomes_its_bytes() -> None:
    own = checkpoint(FAMILY, tiny(0))
    told = FAMILY.text_inputs(type(own)(own.model, processor(), FAMILY, own.steps), "[S1] hé")
    for name, value in given("[S1] hé").items():
        assert torch.equal(told[name], value)


@pytest.mark.parametrize("options", [PLAIN, GUIDED])
def test_the_text_is_dropped_as_guidance_drops_it(options: Mapping[str, Any]) -> None:
    model, told = tiny(0), given("[S2] no", 5)
    prepared = prepare(model, told, **greedy(options))
    guided = prepare(model, told, **greedy(GUIDED)).inputs["encoder_outputs"][0]
    states = FAMILY.without_text(prepared).inputs["encoder_outputs"][0]
    for state in states:
        torch.testing.assert_close(state, guided[1])
    assert not torch.equal(guided[0], guided[1])
    assert prepared.inputs["encoder_outputs"][0].shape == states.shape


@pytest.mark.parametrize("frames", [1, 7])
def test_as_many_steps_as_frames_take(frames: int) -> None:
    model, told = tiny(0), given("[S1] so be it")
    new = FAMILY.new_tokens(FAMILY.descriptor(model), frames)
    assert len(library_codes(model, told, **greedy(PLAIN, new))) == frames


def test_which_codes_are_alike() -> None:
    model = tiny(0)
    tables = FAMILY.code_embeddings(model)
    row = torch.tensor([[[3, 1, 4, 15]]])
    summed = torch.stack([t[u] for t, u in zip(tables, row[0, 0].tolist(), strict=True)]).sum(0)
    torch.testing.assert_close(model.model.decoder.embeddings(row)[0, 0], summed)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (" \n", "the text is empty"),
        ("a\x01b", "control character 0x01"),
        ("é" * 21, "42 bytes, this model reads 1 to 40"),
    ],
)
def test_a_text_that_cannot_be_said(text: str, message: str) -> None:
    own = checkpoint(FAMILY, tiny(0))
    with_processor = type(own)(own.model, processor(), FAMILY, own.steps)
    with pytest.raises(InputError, match=message):
        FAMILY.text_inputs(with_processor, text)


def undelayed_prompt() -> dict[str, Tensor]:
    """A recording whose codebooks all begin at once."""
    told = dict(given("[S2] no", 5))
    rows = told["decoder_input_ids"].clone()
    for k, late in enumerate(DELAYS):
        rows[0, : len(rows[0]) - late, k] = told["decoder_input_ids"][0, late:, k]
    return {**told, "decoder_input_ids": rows}


def delayed_twice() -> dict[str, Tensor]:
    told = dict(given("[S2] no", 5))
    once = told["decoder_input_ids"][0]
    rows = torch.full((len(once) + LATEST, len(DELAYS)), START, dtype=once.dtype)
    for k, late in enumerate(DELAYS):
        rows[late : late + len(once), k] = once[:, k]
        rows[late + len(once) :, k] = PAD
    mask = torch.ones(1, len(rows), dtype=torch.long)
    return {**told, "decoder_input_ids": rows[None], "decoder_attention_mask": mask}


def two_requests() -> dict[str, Tensor]:
    return {name: value.repeat_interleave(2, 0) for name, value in given().items()}


def without_rows() -> dict[str, Tensor]:
    return {name: value for name, value in given().items() if not name.startswith("decoder")}


def padded() -> dict[str, Tensor]:
    told = dict(given("[S2] no", 5))
    mask = told["decoder_attention_mask"].clone()
    mask[0, 0] = 0
    return {**told, "decoder_attention_mask": mask}


def long_text() -> dict[str, Tensor]:
    ids = torch.full((1, 41), 65)
    return {**given(), "input_ids": ids, "attention_mask": torch.ones_like(ids)}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (undelayed_prompt, r"aren't delayed by \[0, 2, 3, 5\]"),
        (delayed_twice, r"aren't delayed by \[0, 2, 3, 5\]"),
        (without_rows, "aren't delayed by"),
        (two_requests, "2 requests at once"),
        (padded, "decoder_attention_mask leaves rows out"),
        (long_text, "41 bytes, this model reads 1 to 40"),
    ],
)
def test_inputs_that_are_none(make: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        run(FAMILY, tiny(0), make(), **greedy(PLAIN))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_new_tokens": LATEST}, "5 new rows .* so 6 are needed"),
        ({"eos_token_id": 3}, r"eos_token_id: \[3\] ends no output of this model: it is 16"),
        ({"pad_token_id": 3}, "pad_token_id: 3 is not this model's padding: it is 17"),
    ],
)
def test_options_that_cannot_be(options: Mapping[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        run(FAMILY, tiny(0), given(), **{**greedy(PLAIN), **options})


def test_what_the_library_refuses_stays_refused() -> None:
    with pytest.raises(OptionError, match="incompatible mode"):
        run(FAMILY, tiny(0), given(), **greedy({"num_beams": 2}))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c.delay_pattern.append(6), "5 delays .* 4 channels"),
        (lambda c: c.delay_pattern.__setitem__(0, 1), "not Dia's order"),
        (lambda c: c.delay_pattern.__setitem__(2, 0), "only channels later than the first"),
        (lambda c: setattr(c.decoder_config, "pad_token_id", 3), "pad 3"),
        (lambda c: setattr(c.decoder_config, "vocab_size", 19), "80 rows, .* 4 channels of 19 ids"),
        (lambda c: setattr(c.decoder_config, "num_channels", 3), "4 delays .* 3 channels"),
    ],
)
def test_a_configuration_that_contradicts_itself(change: Any, message: str) -> None:
    model = tiny.__wrapped__(0)
    change(model.config)
    with pytest.raises(ModelError, match=message):
        FAMILY.descriptor(model)


def test_a_drafter_of_another_order() -> None:
    with pytest.raises(ModelError, match="the target writes"):
        ModelDraft(checkpoint(FAMILY, tiny(0)), tiny(0, codes=8))

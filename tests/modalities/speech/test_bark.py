"""Bark: both chains and what the fine stage makes of them equal transformers' own `generate`."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import AlternatingCodebooksLogitsProcessor, LogitsProcessorList
from transformers.generation.logits_process import BarkEosPrioritizerLogitsProcessor

import mmspec
from mmspec.acceptance import derive_seed
from mmspec.engine import Processors
from mmspec.errors import InputError, ModelError, OptionError, StateError
from mmspec.factorizations import StagedCodes
from mmspec.modalities.speech.bark import FAMILY, sound
from mmspec.modalities.speech.bark_stages import Orders
from mmspec.modalities.speech.chain import ChainDraft, models
from mmspec.modalities.speech.checkpoint import SpeechCheckpoint
from mmspec.modalities.speech.preparation import prepare
from mmspec.prefix import Prefix

from . import bed_bark as bed
from .chain_runs import PAST_THE_END, chances, drafted_by, lookup, read_again, said_together, wrong
from .keyed import drawing

ENDS_EARLY, ENDS_AT_ONCE, GOES_ON = (1, 0), (1, 1), (2, 0)
"""Seeds of a model and a text whose semantic stage ends by its mark, with nothing, by length."""


def copied(target: SpeechCheckpoint) -> Any:
    return drafted_by(copy.deepcopy(target.model))(target)


def sibling(target: SpeechCheckpoint) -> Any:
    other = bed.tiny(seed=9, layers=1, width=8)
    return drafted_by(other)(target)


DRAFTERS: dict[str, Any] = {
    "none": None,
    "ngram": lookup,
    "copy": copied,
    "sibling": sibling,
    "wrong": wrong(24),
}

every_drafter = pytest.mark.parametrize("drafter", DRAFTERS)


def same(model: Any, given: dict[str, Any], drafter: str, gamma: Any = 4, **how: Any) -> Any:
    """What we say, having seen that the library says the same."""
    codes, report, stats = bed.said(model, given, DRAFTERS[drafter], gamma, **how)
    expected = bed.library(model, given, **how)
    assert list(codes.sequence[0]) == expected.semantic
    assert list(codes.sequence[1]) == expected.coarse
    assert list(codes.grid) == expected.grid
    assert report.faults == ()
    return codes, report, stats


@every_drafter
@pytest.mark.parametrize("case", [ENDS_EARLY, GOES_ON])
def test_greedy_codes_are_the_librarys(drafter: str, case: tuple[int, int]) -> None:
    model, given = bed.tiny(case[0]), bed.inputs(case[1])
    codes, report, _ = same(model, given, drafter)
    ended = case == ENDS_EARLY
    assert (codes.sequence[0][-1] == bed.END) == ended
    assert report.finish_reason == ("stop" if ended else "length")
    assert len(set(codes.sequence[1])) > 5


@pytest.mark.parametrize("gamma", [0, 1, 3, 6, PAST_THE_END])
@pytest.mark.parametrize("drafter", ["ngram", "copy", "wrong"])
def test_greedy_codes_are_the_librarys_however_much_is_drafted(drafter: str, gamma: int) -> None:
    same(bed.tiny(4), bed.inputs(0), drafter, gamma)


@pytest.mark.parametrize("longest", range(1, 9))
def test_odd_lengths(longest: int) -> None:
    model, given = bed.tiny(2), bed.inputs(0)
    codes, _, _ = same(model, given, "copy", semantic_max_new_tokens=longest)
    assert len(codes.grid) == int(longest * Fraction("75") / Fraction("49.9"))


def test_nothing_is_said_where_the_semantic_stage_ends_at_once() -> None:
    model, given = bed.tiny(ENDS_AT_ONCE[0]), bed.inputs(ENDS_AT_ONCE[1])
    codes, report, stats = same(model, given, "ngram")
    assert codes.sequence == ((bed.END,), (), (), (), ())
    assert codes.ended
    assert len(sound(model, codes.grid)) == 0
    assert (report.finish_reason, stats.tally.sessions) == ("stop", 1)


@pytest.mark.parametrize("frames", [1, 9, 30])
@pytest.mark.parametrize("drafter", ["ngram", "copy"])
def test_a_voice_to_go_on_from(frames: int, drafter: str) -> None:
    given = {**bed.inputs(3), "history_prompt": bed.voice(frames)}
    kept = copy.deepcopy(given["history_prompt"])
    with_it, _, _ = same(bed.tiny(0), given, drafter)
    for name, value in kept.items():
        assert torch.equal(given["history_prompt"][name], value)
    without, _, _ = bed.said(bed.tiny(0), bed.inputs(3))
    assert with_it.grid != without.grid


@pytest.mark.parametrize("min_eos_p", [0.01, 0.2])
@pytest.mark.parametrize("drafter", ["ngram", "copy", "wrong"])
def test_an_end_that_is_probable_enough(min_eos_p: float, drafter: str) -> None:
    """A probability, not a score: the rows of a block are judged one by one."""
    same(bed.tiny(2), bed.inputs(0), drafter, min_eos_p=min_eos_p)


def test_a_probable_end_ends_earlier() -> None:
    lengths = [
        len(bed.said(bed.tiny(2), bed.inputs(0), lookup, min_eos_p=p)[0].grid) for p in (0.9, 0.01)
    ]
    assert lengths[1] < lengths[0]


@pytest.mark.parametrize("gamma", [4, PAST_THE_END])
def test_the_last_unit_needs_no_position(gamma: int) -> None:
    """Prompt and output are one longer than the table of positions: the last token isn't read."""
    model = bed.made(3, longest=30)
    assert model.config.semantic_config.block_size + 1 == bed.READS + 1 + 30
    codes, _, _ = same(model, bed.inputs(0), "copy", gamma)
    assert len(codes.sequence[0]) == 30


SEEDED: dict[str, Any] = {
    "do_sample": True,
    "semantic_temperature": 1.3,
    "coarse_temperature": 0.9,
    "coarse_top_k": 7,
}


def seeds(seed: int) -> Iterator[int]:
    """Of the semantic stage, then of every coarse window."""
    yield seed
    yield from (derive_seed(seed, go << 32) for go in itertools.count(2))


@pytest.mark.parametrize("seed", [3, 11])
@every_drafter
def test_seeded_codes_are_the_librarys_under_the_same_noise(drafter: str, seed: int) -> None:
    model, given = bed.tiny(2), bed.inputs(1)
    with drawing(seeds(seed)):
        expected = bed.library(model, given, **SEEDED)
    codes, report, _ = bed.said(model, given, DRAFTERS[drafter], seed=seed, **SEEDED)
    assert list(codes.sequence[0]) == expected.semantic
    assert list(codes.grid) == expected.grid
    assert (report.parity, report.faults) == ("L1", ())


def test_seeds_and_windows_draw_noise_of_their_own() -> None:
    model, given = bed.tiny(2), bed.inputs(1)
    assert len({bed.said(model, given, seed=seed, **SEEDED)[0].grid for seed in range(4)}) == 4
    assert len(set(itertools.islice(seeds(3), 9))) == 9


def test_what_the_fine_stage_draws_follows_the_seed_and_nothing_else() -> None:
    model, given = bed.tiny(2), bed.inputs(1)
    before = torch.random.get_rng_state()
    one, again, other = (
        bed.said(model, given, draft, seed=seed, fine_temperature=1.7)[0]
        for seed, draft in ((5, None), (5, lookup), (6, None))
    )
    assert torch.equal(torch.random.get_rng_state(), before)
    assert one.grid == again.grid != other.grid
    assert one.sequence[:2] == other.sequence[:2]
    assert one.sampling.parity == "L1"


def test_without_a_seed_every_run_is_another() -> None:
    runs = {bed.said(bed.tiny(2), bed.inputs(1), lookup, **SEEDED)[0].grid for _ in range(4)}
    assert len(runs) > 1


@pytest.mark.parametrize("gamma", [1, 2, 3, 5])
def test_every_frame_of_a_copy_is_accepted(gamma: int) -> None:
    model, given = bed.tiny(2), bed.inputs(0)
    codes, report, stats = same(model, given, "copy", gamma)
    assert report.accepted == report.proposed > 0
    assert report.recovered == 0
    full = [done for done in stats.tally.trace if len(done.proposal) == gamma]
    assert len(full) > 3
    assert {len(done.emitted) for done in full} == {gamma + 1}
    windows = -(-len(codes.sequence[1]) // bed.WINDOW)
    chains = [len(codes.sequence[0]), *[bed.WINDOW] * (windows - 1)]
    chains.append(len(codes.sequence[1]) - bed.WINDOW * (windows - 1))
    assert report.rounds == sum(-(-length // (gamma + 1)) for length in chains)


@every_drafter
def test_forwards_are_counted(drafter: str) -> None:
    model, runs = copy.deepcopy(bed.tiny(2)), [0]

    def count(*_: Any) -> None:
        runs[0] += 1

    for part in (model.semantic, model.coarse_acoustics):
        part.register_forward_hook(count)
    _, report, stats = bed.said(model, bed.inputs(0), DRAFTERS[drafter])
    blocks = sum(count for block, count in stats.tally.blocks.items() if block)
    assert report.target_forwards == stats.tally.sessions + blocks
    if drafter != "copy":  # a copy of this model counts along
        assert report.target_forwards == runs[0]


def test_plain_decoding_costs_what_the_librarys_does() -> None:
    codes, report, _ = bed.said(bed.tiny(2), bed.inputs(0))
    assert report.target_forwards == len(codes.sequence[0]) + len(codes.sequence[1])


def test_what_is_filled_is_in_no_figure_of_acceptance() -> None:
    model, runs = copy.deepcopy(bed.tiny(2)), [0]
    fill = model.fine_acoustics.forward

    def counting(*args: Any, **kwargs: Any) -> Any:
        runs[0] += 1
        return fill(*args, **kwargs)

    model.fine_acoustics.forward = counting
    codes, report, stats = bed.said(model, bed.inputs(0), lookup)
    tokens, frames = len(codes.sequence[0]), len(codes.grid)
    steps = FAMILY.descriptor(model)
    assert report.tokens == tokens + bed.CHAINED * frames == steps.decisions(tokens)
    share = report.by_codebook
    assert share.decided == bed.CHAINED * frames
    assert share.proposed[bed.CHAINED :] == share.judged[bed.CHAINED :] == (0,) * 3
    reads = -(-max(0, frames - bed.FINE_READS) // bed.FINE_HISTORY) + 1
    assert runs[0] == reads * (bed.BOOKS - bed.CHAINED)
    assert stats.clock.seconds["post"] > 0
    with pytest.raises(OptionError, match="filled in one pass"):
        steps.check_axis("fine")
    assert FAMILY.filled


def test_acceptance_by_codebook_is_that_of_the_coarse_chain() -> None:
    _, report, stats = bed.said(bed.tiny(2), bed.inputs(0), copied, 3)
    share = report.by_codebook
    assert share.agreed == share.judged == share.proposed
    assert 0 < sum(share.proposed) < report.proposed  # the rest are semantic units
    _, report, stats = bed.said(bed.tiny(4), bed.inputs(0), wrong(56), 3)
    place, judged, agreed = 0, [0, 0], [0, 0]
    semantic = bed.LONGEST
    for done in stats.tally.trace:
        for offset in range(done.judged):
            if place >= semantic:
                judged[(place - semantic + offset) % 2] += 1
                agreed[(place - semantic + offset) % 2] += offset < done.accepted
        place += len(done.emitted)
    share = report.by_codebook
    assert (list(share.judged[:2]), list(share.agreed[:2])) == (judged, agreed)


def test_the_sound_is_the_librarys() -> None:
    model, given = bed.tiny(0), bed.inputs(0)
    codes, _, _ = bed.said(model, given, lookup)
    assert torch.equal(sound(model, codes.grid), bed.library(model, given).sound)
    assert len(sound(model, codes.grid)) == 8 * len(codes.grid)


def test_the_model_is_as_it_was() -> None:
    model = bed.made(2)
    settings = copy.deepcopy(model.generation_config.to_dict())
    parts, weights = dict(vars(model)), {k: v.clone() for k, v in model.state_dict().items()}
    inner = {name: set(vars(part)) for name, part in model.named_modules()}
    bed.said(model, bed.inputs(0), copied, semantic_max_new_tokens=5)
    assert model.generation_config.to_dict() == settings
    assert dict(vars(model)) == parts
    assert {name: set(vars(part)) for name, part in model.named_modules()} == inner
    assert all(torch.equal(weight, weights[name]) for name, weight in model.state_dict().items())


def test_packed_layers_say_the_same() -> None:
    model, given = bed.tiny(2), bed.inputs(0)
    codes, _, _ = bed.said(model, given, lookup, packed=True)
    assert list(codes.grid) == bed.library_codes(model, given)


# --- the chains' target


def opened(stage: str = "semantic") -> tuple[Any, Tensor, Any]:
    """A target behind its prompt, the row that it left, and what the prompt is in embeddings."""
    model = bed.tiny(2)
    chains = models(SpeechCheckpoint.of(model, packed=False, family=FAMILY))
    asked = Orders.of(model, **bed.inputs(0))
    if stage == "semantic":
        prepared = prepare(
            model.semantic, {"input_ids": bed.inputs(0)["input_ids"]} | asked.semantic
        )
        embedded = prepared.inputs["inputs_embeds"]
    else:
        tokens = torch.arange(8)[None]
        prepared = prepare(model.coarse_acoustics, {"semantic_output": tokens} | asked.coarse)
        embedded = model.coarse_acoustics.input_embeds_layer(prepared.input_ids)
    checkpoint = chains[stage]
    target = checkpoint.family.open(prepared, packed=False)
    return target, target.read_prompt(), (checkpoint.model, embedded)


def rows_without_memory(model: Any, embedded: Tensor, tokens: list[int]) -> Tensor:
    """Rows behind a prompt and each of some tokens: one forward that remembers nothing."""
    behind = model.input_embeds_layer(torch.tensor([tokens], dtype=torch.long))
    with torch.no_grad():
        rows = model(inputs_embeds=torch.cat([embedded, behind], 1), use_cache=False).logits[0]
    return rows[embedded.shape[1] - 1 :]


@pytest.mark.parametrize("stage", ["semantic", "coarse"])
def test_a_block_is_scored_as_step_by_step(stage: str) -> None:
    target, first, (model, embedded) = opened(stage)
    tokens = [3, 1, 4, 1, 5, 9, 2]
    expected = rows_without_memory(model, embedded, tokens)
    torch.testing.assert_close(first, expected[:1], atol=1e-5, rtol=0)
    torch.testing.assert_close(target.score(tokens, len(tokens)), expected[1:], atol=1e-5, rtol=0)
    target.close()


@pytest.mark.parametrize("stage", ["semantic", "coarse"])
def test_what_is_rolled_back_leaves_nothing(stage: str) -> None:
    target, _, (model, embedded) = opened(stage)
    start = target.state.length
    layer = target.state.growing(0)
    address, prompt = layer.keys.data_ptr(), layer.keys[:, :, :start].clone()
    target.score([7, 7, 7, 7], 1)
    target.state.rollback(start)
    target.state.poison_unused()
    expected = rows_without_memory(model, embedded, [3, 1, 4])
    torch.testing.assert_close(target.score([3, 1, 4], 3), expected[1:], atol=1e-5, rtol=0)
    assert layer.keys.data_ptr() == address
    assert torch.equal(layer.keys[:, :, :start], prompt)
    with pytest.raises(StateError, match="frozen"):
        target.state.rollback(start - 1)
    target.close()


@pytest.mark.parametrize("length", range(4))
@pytest.mark.parametrize("first", [20, 21])
def test_processors_over_a_block_are_the_librarys_row_by_row(first: int, length: int) -> None:
    processors = [
        AlternatingCodebooksLogitsProcessor(20, bed.UNITS, bed.CODES),
        BarkEosPrioritizerLogitsProcessor(bed.END, min_eos_p=0.05),
    ]
    size = bed.UNITS + 2 * bed.CODES
    rows = torch.randn(length + 1, size, generator=torch.Generator().manual_seed(length)) * 2
    prefix = Prefix(list(range(first)), 64, torch.device("cpu"))
    drafted = list(range(length))
    prefix.show_draft(drafted)
    expected = rows.clone()
    for processor in processors:
        each = [processor(prefix.tensor(first + i), expected[i : i + 1]) for i in range(length + 1)]
        expected = torch.cat(each)
    found = Processors(LogitsProcessorList(processors))(rows.clone(), prefix, drafted)
    assert torch.equal(found, expected)


# --- the descriptor


def test_the_descriptor_is_what_the_configs_say() -> None:
    steps = FAMILY.descriptor(bed.tiny(0))
    assert isinstance(steps, StagedCodes)
    assert [(book.first, book.codes) for book in steps.acoustic.codebooks] == [
        (bed.UNITS, bed.CODES),
        (bed.UNITS + bed.CODES, bed.CODES),
        *[(0, bed.CODES)] * 3,
    ]
    assert steps.stop_tokens == {bed.END}
    assert steps.frames_per_token == Fraction("75") / Fraction("49.9")


def test_frames_are_as_many_as_the_library_counts() -> None:
    """It counts with floats, the descriptor with fractions."""
    steps = FAMILY.descriptor(bed.tiny(0))
    ratio = 75 / 49.9 * 2
    for tokens in range(2000):
        assert steps.frames(tokens) == int(np.floor(np.float32(tokens * ratio / 2)))


def broken(part: str, **entries: Any) -> Any:
    """A model one of whose configs says something else."""
    model = bed.made(0)
    if part == "told":
        settings = model.generation_config
        for name, entry in entries.items():
            section, _, key = name.partition("__")
            if key:
                getattr(settings, section)[key] = entry
            else:
                setattr(settings, section, entry)
    else:
        for name, entry in entries.items():
            setattr(model.get_submodule(part).config, name, entry)
    return model


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (
            broken("told", fine_acoustics_config__n_fine_codebooks=4),
            "generation config has 4 codebooks, the fine model 5",
        ),
        (broken("told", codebook_size=12), "codebooks have 12 codes, the codec's 16"),
        (
            broken("told", coarse_acoustics_config__coarse_rate_hz=50),
            "makes 50 frames a second, the codec reads 75",
        ),
        (broken("told", sample_rate=16_000), "speaks at 16000 Hz, the codec at 600 Hz"),
        (
            broken("told", coarse_acoustics_config__n_coarse_codebooks=3),
            "has 3 codebooks, its processor alternates 2",
        ),
        (
            broken("told", coarse_acoustics_config__sliding_window_len=7),
            "window of 7 codes ends inside a frame of 2",
        ),
        (
            broken("coarse_acoustics", output_vocab_size=50),
            "says 50 ids; 24 semantic tokens and 2 codebooks of 16 codes are 56",
        ),
        (
            broken("told", semantic_config__eos_token_id=99),
            "token 99, outside the vocabulary of 28",
        ),
        (broken("told", semantic_config=None), "has no semantic_config"),
    ],
)
def test_parts_that_do_not_fit_are_both_named(model: Any, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        SpeechCheckpoint.of(model, family=FAMILY)


def test_a_codec_of_fewer_codebooks_is_named() -> None:
    model = bed.made(0)
    del model.codec_model.quantizer.layers[3:]
    with pytest.raises(ModelError, match="5 codebooks are written, the codec has 3"):
        FAMILY.descriptor(model)


def test_a_drafter_of_other_codes_is_named() -> None:
    target, other = SpeechCheckpoint.of(bed.tiny(0), family=FAMILY), bed.made(1)
    other.generation_config.semantic_config["semantic_rate_hz"] = 50
    with pytest.raises(
        ModelError, match="makes 750/499 frames of a semantic token, the drafter 3/2"
    ):
        ChainDraft(target, other)


# --- bad input


def text(**changes: Any) -> dict[str, Any]:
    return {**bed.inputs(0), **changes}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "no input_ids"),
        (text(input_ids=torch.zeros(1, 0, dtype=torch.long)), "the text is empty"),
        (bed.inputs(0, 3) | {"input_ids": torch.ones(1, 3).long()}, "has 3 ids.* reads 10: pad"),
        (text(input_ids=torch.ones(1, 11).long()), "has 11 ids, the model has positions for 10"),
        (text(input_ids=torch.full((1, 10), 24)), "id 24, the model knows 0 to 23"),
        (text(input_ids=torch.ones(2, 10).long()), r"shape \(2, 10\), expected one row"),
    ],
)
def test_texts_that_cannot_be_read(given: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        bed.said(bed.tiny(0), given)


def test_beams_are_refused() -> None:
    with pytest.raises(OptionError, match="beam"):
        bed.said(bed.tiny(0), bed.inputs(0), semantic_num_beams=2)


def test_dropout_is_refused() -> None:
    with pytest.raises(ModelError, match="training mode"):
        SpeechCheckpoint.of(copy.deepcopy(bed.tiny(0)).train(), family=FAMILY)


def test_a_mark_of_the_coarse_stage_is_never_clipped_to_a_code() -> None:
    """The library's processor lets the second codebook say marks, and its grid then wraps them."""
    model = bed.made(2)
    coarse, config = model.coarse_acoustics, model.config.coarse_acoustics_config
    head = torch.nn.Linear(16, bed.COARSE_PAD + 2, bias=False)
    head.weight.data[: bed.COARSE_PAD] = coarse.lm_head.weight.data
    head.weight.data[bed.COARSE_PAD :] = 3 * coarse.lm_head.weight.data[-3:-1]
    coarse.lm_head, config.output_vocab_size = head, bed.COARSE_PAD + 2
    coarse.config.output_vocab_size = bed.COARSE_PAD + 2
    expected = bed.library(model, bed.inputs(0))
    assert max(expected.coarse) >= bed.COARSE_PAD
    assert all(0 <= code < bed.CODES for frame in expected.grid for code in frame)
    with pytest.raises(InputError, match=r"codebook 1: 5[67] is"):
        bed.said(model, bed.inputs(0), lookup)


def test_the_text_may_be_dropped() -> None:
    model, given = bed.tiny(0), bed.inputs(0)
    without = {**given, "attention_mask": torch.zeros_like(given["input_ids"])}
    same(model, without, "ngram")
    codes, report, _ = bed.said(model, given)
    assert bed.said(model, without)[0].grid != codes.grid
    emitted = list(codes.sequence[0])
    for inputs, text in ((given, True), (without, False)):
        orders = Orders.of(model, **inputs)
        prepared = prepare(model.semantic, {"input_ids": inputs["input_ids"]} | orders.semantic)
        rows = rows_without_memory(model.semantic, prepared.inputs["inputs_embeds"], emitted)
        found = read_again(FAMILY, model, given, codes, text=text)
        assert found[: len(emitted)] == pytest.approx(chances(rows[:-1], emitted), abs=1e-4)
        assert set(found[len(emitted) :]) == {0.0}
        assert len(found) == report.tokens


def test_a_length_is_the_semantic_stages() -> None:
    model, given = bed.tiny(2), bed.inputs(0)
    steps = FAMILY.descriptor(model)
    for frames in (1, 7, 12):
        tokens = FAMILY.new_tokens(steps, frames)
        codes, _, _ = bed.said(model, given, max_new_tokens=tokens)
        assert frames <= len(codes.grid) <= frames + 1
        assert list(codes.grid) == bed.library_codes(model, given, semantic_max_new_tokens=tokens)


def test_what_the_voice_said_before_is_looked_up() -> None:
    model, given = bed.tiny(2), bed.inputs(0)
    plain, without, _ = bed.said(model, given, lookup)
    again, report, _ = bed.said(model, given, lookup, earlier=[plain.sequence])
    assert again.grid == plain.grid
    assert report.accepted > without.accepted


@pytest.mark.parametrize("width", [1, 3])
def test_requests_side_by_side_are_what_they_are_alone(width: int) -> None:
    model, several = bed.tiny(2), [bed.inputs(seed) for seed in range(4)]
    together = said_together(FAMILY, model, several, width)
    for given, said in zip(several, together, strict=True):
        assert list(said.grid) == bed.library_codes(model, given)


def test_approximate_acceptance_is_refused() -> None:
    with pytest.raises(OptionError, match="a step decides one token"):
        bed.said(bed.tiny(0), bed.inputs(0), lookup, approximate=object())


def test_a_speaker_says_what_the_library_says() -> None:
    model, given = bed.tiny(2), bed.inputs(0)
    expected = bed.library(model, given)
    with mmspec.load(model, draft="ngram", gamma=3) as speaker:
        speech = speaker.speak("as the ids say", inputs=given)
    assert [tuple(frame) for frame in speech.codes.tolist()] == expected.grid
    np.testing.assert_allclose(speech.samples, expected.sound.numpy(), atol=1e-6)

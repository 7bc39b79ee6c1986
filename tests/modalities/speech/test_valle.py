"""VALL-E's kind: equal first codes, equal grids; what is filled is drafted by nobody."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AutoConfig, AutoModel

from mmspec.errors import InputError, ModelError, OptionError
from mmspec.factorizations import Codebook, CodebookMajorStreams, FirstStream
from mmspec.modalities.speech.chain import ChainDraft
from mmspec.modalities.speech.checkpoint import SpeechCheckpoint
from mmspec.modalities.speech.valle import FAMILY
from mmspec.modalities.speech.valle_model import ValleConfig, ValleModel

from . import bed_valle as bed
from .chain_runs import PAST_THE_END, chances, drafted_by, lookup, read_again, said_together, wrong
from .keyed import drawing

ENDS, ENDS_AT_ONCE, GOES_ON = (5, "dead"), (4, "dead"), (3, "a bad cafe")
"""Seeds of a model and texts whose speech ends by its mark, with nothing, and by its length."""


def copied(target: SpeechCheckpoint) -> Any:
    return drafted_by(copy.deepcopy(target.model))(target)


def sibling(target: SpeechCheckpoint) -> Any:
    return drafted_by(bed.tiny(seed=9, layers=1, width=8))(target)


DRAFTERS: dict[str, Any] = {
    "none": None,
    "ngram": lookup,
    "copy": copied,
    "sibling": sibling,
    "wrong": wrong(bed.CODES + 9),
}

every_drafter = pytest.mark.parametrize("drafter", DRAFTERS)


def slow(model: ValleModel, text: Tensor, frames: int) -> list[tuple[int, ...]]:
    """Codes without memory, without `generate` and without rounds: each by a whole forward."""
    prompt, first = model.prompt(text)[0].tolist(), []
    while len(first) < frames:
        with torch.no_grad():
            row = model.first(torch.tensor([[*prompt, *first]]), use_cache=False).logits[0, -1]
        token = int(row[: bed.END + 1].argmax())
        if token == bed.END:
            break
        first.append(token)
    grid = [[token] for token in first]
    for _ in range(1, bed.BOOKS):
        with torch.no_grad():
            none = torch.zeros(1, 0, bed.BOOKS, dtype=torch.long)
            logits = model.rest(text, none, torch.tensor([grid]))
        for row, codes in zip(grid, logits[0].argmax(-1).tolist(), strict=True):
            row.append(codes)
    return [tuple(row) for row in grid]


@pytest.mark.parametrize("case", [ENDS, GOES_ON])
def test_the_models_own_generate_is_what_its_parts_say(case: tuple[int, str]) -> None:
    model, given = bed.tiny(case[0]), bed.inputs(case[1])
    assert bed.library_codes(model, given) == slow(model, given["input_ids"], bed.LENGTH)


def test_a_filling_pass_sees_all_of_time() -> None:
    model, text = bed.tiny(0), bed.inputs()["input_ids"]
    first = torch.tensor([[1, 2, 3, 4, 5, 6]])
    other = torch.tensor([[1, 2, 3, 4, 5, 9]])
    with torch.no_grad():
        none = torch.zeros(1, 0, bed.BOOKS, dtype=torch.long)
        rows = [model.rest(text, none, codes[..., None]) for codes in (first, other)]
    assert not torch.allclose(rows[0][0, 0], rows[1][0, 0])


@every_drafter
@pytest.mark.parametrize("case", [ENDS, GOES_ON])
def test_greedy_codes_are_the_librarys(drafter: str, case: tuple[int, str]) -> None:
    model, given = bed.tiny(case[0]), bed.inputs(case[1])
    said, report, _ = bed.said(model, given, DRAFTERS[drafter])
    assert list(said.grid) == bed.library_codes(model, given)
    assert len(said.grid) > 8
    assert said.ended == (case == ENDS)
    assert report.finish_reason == ("stop" if said.ended else "length")
    assert report.faults == ()


@pytest.mark.parametrize("gamma", [0, 1, 3, 10, 11, PAST_THE_END])
@pytest.mark.parametrize("drafter", ["ngram", "copy", "wrong"])
def test_greedy_codes_are_the_librarys_however_much_is_drafted(drafter: str, gamma: int) -> None:
    for seed, text in (ENDS, GOES_ON):
        model, given = bed.tiny(seed), bed.inputs(text)
        said, _, _ = bed.said(model, given, DRAFTERS[drafter], gamma)
        assert list(said.grid) == bed.library_codes(model, given)


@pytest.mark.parametrize("length", range(1, 7))
def test_odd_lengths(length: int) -> None:
    model, given = bed.tiny(GOES_ON[0]), bed.inputs(GOES_ON[1])
    said, _, _ = bed.said(model, given, copied, max_new_tokens=length)
    assert list(said.grid) == bed.library_codes(model, given, max_new_tokens=length)
    assert len(said.grid) == length


def test_nothing_is_said_where_it_ends_at_once() -> None:
    model, given = bed.tiny(ENDS_AT_ONCE[0]), bed.inputs(ENDS_AT_ONCE[1])
    said, _, _ = bed.said(model, given, lookup)
    assert said.sequence == ((bed.END,), (), (), ())
    assert (said.grid, said.ended, bed.library_codes(model, given)) == ((), True, [])


@pytest.mark.parametrize("frames", [1, 2, 5])
@every_drafter
def test_frames_to_go_on_from(drafter: str, frames: int) -> None:
    model, given = bed.tiny(GOES_ON[0]), bed.inputs(GOES_ON[1], frames)
    said, report, _ = bed.said(model, given, DRAFTERS[drafter])
    assert list(said.grid) == bed.library_codes(model, given)
    assert list(said.grid[:frames]) == [tuple(row) for row in given["prompt_codes"][0].tolist()]
    assert (said.prompt_length, said.first_step) == (frames, frames)
    assert report.by_codebook.decided == len(said.grid) - frames


def test_positions_end_an_output_that_has_no_length() -> None:
    model, given = bed.tiny(GOES_ON[0]), bed.inputs(GOES_ON[1])
    said, report, _ = bed.said(model, given, copied, max_new_tokens=None)
    prompt = given["input_ids"].shape[1] + 1
    assert len(said.grid) == bed.POSITIONS - prompt
    assert list(said.grid) == [tuple(row) for row in model.generate(**given)[0].tolist()]
    assert report.finish_reason == "length"


SAMPLED: dict[str, Any] = {"do_sample": True, "temperature": 1.3, "top_p": 0.9}


@pytest.mark.parametrize("seed", [3, 11])
@every_drafter
def test_seeded_codes_are_the_librarys_under_the_same_noise(drafter: str, seed: int) -> None:
    model, given = bed.tiny(GOES_ON[0]), bed.inputs(GOES_ON[1])
    with drawing(iter([seed])):
        expected = bed.library_codes(model, given, **SAMPLED)
    said, report, _ = bed.said(model, given, DRAFTERS[drafter], seed=seed, **SAMPLED)
    assert list(said.grid) == expected
    assert (report.parity, report.faults) == ("L1", ())


@pytest.mark.parametrize("gamma", [1, 2, 5, 7])
def test_every_frame_of_a_copy_is_accepted(gamma: int) -> None:
    model, given = bed.tiny(GOES_ON[0]), bed.inputs(GOES_ON[1])
    _, report, stats = bed.said(model, given, copied, gamma, max_new_tokens=24)
    assert report.accepted == report.proposed > 0
    assert report.rounds == -(-24 // (gamma + 1))
    full = [done for done in stats.tally.trace if len(done.proposal) == gamma]
    assert {len(done.emitted) for done in full} == {gamma + 1}


def test_what_is_filled_is_in_no_figure_of_acceptance() -> None:
    model, given = bed.tiny(ENDS[0]), bed.inputs(ENDS[1])
    said, report, stats = bed.said(model, given, copied)
    share = report.by_codebook
    assert share.decided == len(said.grid) == FAMILY.descriptor(model).decisions(len(said.grid))
    assert report.tokens == len(said.grid) + 1  # the end mark, which is no code
    assert share.proposed[1:] == share.judged[1:] == share.agreed[1:] == (0,) * (bed.BOOKS - 1)
    assert 0 < share.agreed[0] == share.judged[0]
    assert stats.clock.seconds["post"] > 0
    assert FAMILY.filled
    with pytest.raises(OptionError, match="filled in one pass each"):
        FAMILY.descriptor(model).check_axis("codebook")


@every_drafter
def test_forwards_are_counted(drafter: str) -> None:
    model, runs = copy.deepcopy(bed.tiny(GOES_ON[0])), {"first": 0, "rest": 0}
    draft = DRAFTERS[drafter]
    kind = None if draft is None else draft(SpeechCheckpoint.of(model, packed=False, family=FAMILY))
    for name, module in (("first", model.first.model), ("rest", model.rest)):
        module.register_forward_hook(lambda *_, of=name: runs.update({of: runs[of] + 1}))
    _, report, _ = bed.said(model, bed.inputs(), None if kind is None else lambda target: kind)
    assert report.target_forwards == runs["first"]
    assert runs["rest"] == bed.BOOKS - 1
    if draft is None:
        assert report.target_forwards == report.tokens


def test_packed_layers_say_the_same() -> None:
    model, given = bed.tiny(GOES_ON[0]), bed.inputs(GOES_ON[1])
    assert list(bed.said(model, given, lookup, packed=True)[0].grid) == bed.library_codes(
        model, given
    )


def test_a_model_is_saved_and_loaded(tmp_path: Path) -> None:
    model, given = bed.tiny(ENDS[0]), bed.inputs(ENDS[1])
    model.save_pretrained(tmp_path)
    loaded = AutoModel.from_pretrained(tmp_path).eval()
    assert type(loaded) is ValleModel
    assert AutoConfig.from_pretrained(tmp_path).alphabet == bed.LETTERS
    assert bed.library_codes(loaded, given) == bed.library_codes(model, given)
    assert list(bed.said(loaded, given, lookup)[0].grid) == bed.library_codes(model, given)


def test_the_same_grid_in_one_chain_of_codebooks() -> None:
    """Codebook after codebook over all of time is another order of the same grid."""
    model, given = bed.tiny(ENDS[0]), bed.inputs(ENDS[1])
    said, _, _ = bed.said(model, given, lookup)
    first = Codebook(bed.CODES + 1, bed.CODES, end=bed.END)
    streams = CodebookMajorStreams((first, *[Codebook(bed.CODES, bed.CODES)] * (bed.BOOKS - 1)))
    chain = [token for stream in said.sequence for token in stream]
    assert streams.to_grid(chain) == said.grid
    assert streams.from_grid(said.grid, ended=True) == tuple(chain)


class Heard:
    """A streamer that keeps what it gets."""

    def __init__(self) -> None:
        self.frames: list[tuple[int, ...]] = []
        self.ended = 0

    def put(self, value: Tensor) -> None:
        self.frames += map(tuple, value.tolist())

    def end(self) -> None:
        self.ended += 1


def test_frames_are_handed_over_when_they_are_whole() -> None:
    heard = Heard()
    said, _, _ = bed.said(bed.tiny(0), bed.inputs(), wrong(20), streamer=heard)
    assert (heard.frames, heard.ended) == (list(said.grid), 1)


def test_what_the_voice_said_before_is_looked_up() -> None:
    model, given = bed.tiny(GOES_ON[0]), bed.inputs(GOES_ON[1])
    plain, without, _ = bed.said(model, given, lookup)
    again, report, _ = bed.said(model, given, lookup, earlier=[plain.sequence])
    assert again.grid == plain.grid
    assert report.accepted > without.accepted


def test_a_length_is_in_frames() -> None:
    model, given = bed.tiny(GOES_ON[0]), bed.inputs(GOES_ON[1])
    tokens = FAMILY.new_tokens(FAMILY.descriptor(model), 9)
    assert len(bed.said(model, given, max_new_tokens=tokens)[0].grid) in (9, 10)


@pytest.mark.parametrize("frames", [0, 3])
def test_units_are_read_again_with_and_without_the_text(frames: int) -> None:
    model, given = bed.tiny(ENDS[0]), bed.inputs(ENDS[1], frames)
    said, report, _ = bed.said(model, given, lookup)
    emitted = said.sequence[0][frames:]
    for letters, text in ((given["input_ids"], True), (given["input_ids"][:, :0], False)):
        prompt = model.prompt(letters, given.get("prompt_codes"))
        whole = torch.cat([prompt, torch.tensor([emitted])], 1)
        with torch.no_grad():
            rows = model.first(whole, use_cache=False).logits[0, prompt.shape[1] - 1 : -1]
        found = read_again(FAMILY, model, given, said, text=text)
        assert found == pytest.approx(chances(rows, emitted), abs=1e-4)
        assert len(found) == report.tokens


# --- descriptor and bad input


def test_the_descriptor_is_what_the_configuration_says() -> None:
    steps = FAMILY.descriptor(bed.tiny(0))
    assert isinstance(steps, FirstStream)
    assert [book.codes for book in steps.codebooks] == [bed.CODES] * bed.BOOKS
    assert steps.stop_tokens == {bed.END}
    assert steps.reserved == {bed.START}


def broken(name: str, value: Any) -> ValleModel:
    model = bed.made(0)
    setattr(model.config, name, value)
    return model


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (broken("codebooks", 5), "configuration has 5 codebooks, the model 4"),
        (broken("codebooks", 1), "has 1 codebooks: one is written and at least one is filled"),
        (broken("codes", 20), "configuration has 29 ids, the model 25"),
        (broken("alphabet", "ab"), "configuration has 20 ids, the model 25"),
    ],
)
def test_parts_that_do_not_fit_are_both_named(model: ValleModel, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        SpeechCheckpoint.of(model, family=FAMILY)


def test_a_drafter_of_other_codes_or_characters_is_named() -> None:
    target = SpeechCheckpoint.of(bed.tiny(0), family=FAMILY)
    with pytest.raises(ModelError, match=r"codes=16.*codes=8"):
        ChainDraft(target, bed.made(1, codes=8))
    with pytest.raises(ModelError, match="characters 'abcdef ', the drafter 'abcdefg'"):
        ChainDraft(target, bed.made(1, alphabet="abcdefg"))


def test_a_text_is_read_by_its_characters() -> None:
    target = SpeechCheckpoint.of(bed.tiny(0), family=FAMILY)
    assert FAMILY.text_inputs(target, "bad")["input_ids"].tolist() == [[1, 0, 3]]
    for text, message in (
        ("", "empty"),
        (" ", "empty"),
        ("bäd", "character 'ä', which the model doesn't know: it reads 'abcdef '"),
        ("a" * 63, "63 ids, the model has positions for 62"),
    ):
        with pytest.raises(InputError, match=message):
            FAMILY.text_inputs(target, text)


GAP = torch.full((1, 2, bed.BOOKS), 3)
GAP[0, 1, 2] = -1


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "no input_ids"),
        ({"input_ids": torch.zeros(1, 0).long()}, "the text is empty"),
        ({"input_ids": torch.zeros(1, 63).long()}, "63 ids, the model has positions for 62"),
        ({"input_ids": torch.full((1, 3), 7)}, "id 7, the model knows 0 to 6"),
        ({"input_ids": torch.zeros(2, 3).long()}, r"shape \(2, 3\), expected one row"),
        (bed.inputs() | {"prompt_codes": GAP}, "frame 1, codebook 2: -1 is no code"),
        (bed.inputs() | {"prompt_codes": GAP[..., :3]}, "frame 0 has 3 codes, expected 4"),
        (bed.inputs() | {"prompt_codes": GAP[0]}, r"shape \(2, 4\), expected \(1, frames"),
        (bed.inputs("a bad cafe", 60), "take 71 positions, the model has 64"),
    ],
)
def test_inputs_that_cannot_be_read(given: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        bed.said(bed.tiny(0), given)


def test_beams_and_dropout_are_refused() -> None:
    with pytest.raises(OptionError, match="beam"):
        bed.said(bed.tiny(0), bed.inputs(), num_beams=2)
    with pytest.raises(ModelError, match="training mode"):
        SpeechCheckpoint.of(bed.made(0).train(), family=FAMILY)
    with pytest.raises(ValueError, match="found 2 texts"):
        bed.tiny(0).generate(torch.zeros(2, 3).long())


def test_the_default_shape_has_the_codecs_numbers() -> None:
    config = ValleConfig()
    assert (config.codes, config.codebooks, config.end, config.start) == (1024, 8, 1024, 1025)
    assert config.tokens == 1026 + len(config.alphabet)


@pytest.mark.parametrize("width", [1, 3])
def test_requests_side_by_side_are_what_they_are_alone(width: int) -> None:
    model, several = (
        bed.tiny(GOES_ON[0]),
        [bed.inputs(text) for text in ("dead", "a", "a bad cafe", "fade")],
    )
    for given, said in zip(
        several,
        said_together(FAMILY, model, several, width, max_new_tokens=bed.LENGTH),
        strict=True,
    ):
        assert list(said.grid) == bed.library_codes(model, given)


def test_approximate_acceptance_is_refused() -> None:
    with pytest.raises(OptionError, match="a step decides one token"):
        bed.said(bed.tiny(0), bed.inputs(), lookup, approximate=object())

"""The Orpheus layout: ids equal the library's `generate`, and only whole frames become codes."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import LogitsProcessor, PreTrainedTokenizerFast

from mmspec.errors import InputError, ModelError, OptionError
from mmspec.factorizations import TimeMajorFrames
from mmspec.modalities.speech.chain import ChainDraft
from mmspec.modalities.speech.checkpoint import SpeechCheckpoint
from mmspec.modalities.speech.orpheus import Orpheus, levels, sound
from mmspec.modalities.speech.seven_slots import SlotMask, SpecialTokens
from tests.proposals.scripted import ScriptedDrafter

from . import bed_orpheus as bed
from .chain_runs import PAST_THE_END, chances, drafted_by, lookup, read_again, said_together, wrong
from .keyed import drawing

ENDS, GOES_ON = (0, 0), (4, 0)
"""Seeds of a model and a text whose speech ends, and one that its length cuts inside a frame."""

STEPS = bed.STRICT.descriptor(bed.tiny(0))


def copied(target: SpeechCheckpoint) -> Any:
    return drafted_by(copy.deepcopy(target.model))(target)


def sibling(target: SpeechCheckpoint) -> Any:
    return drafted_by(bed.tiny(seed=1, layers=1))(target)


DRAFTERS: dict[str, Any] = {
    "none": None,
    "ngram": lookup,
    "copy": copied,
    "sibling": sibling,
    "wrong": wrong(bed.VOCAB),
}

every_drafter = pytest.mark.parametrize("drafter", DRAFTERS)


@every_drafter
@pytest.mark.parametrize("case", [ENDS, GOES_ON])
def test_greedy_codes_are_the_librarys(drafter: str, case: tuple[int, int]) -> None:
    model, given = bed.tiny(case[0]), bed.inputs(case[1])
    said, report, _ = bed.said(model, given, DRAFTERS[drafter])
    assert bed.behind(said) == bed.library_ids(model, given)
    assert list(said.grid) == bed.library_codes(model, given)
    assert len(said.grid) > 3
    assert said.ended == (case == ENDS)
    assert report.finish_reason == ("stop" if said.ended else "length")
    assert report.faults == ()


@pytest.mark.parametrize("gamma", [0, 1, 6, 7, PAST_THE_END])
@pytest.mark.parametrize("drafter", ["ngram", "copy", "wrong"])
def test_greedy_codes_are_the_librarys_however_much_is_drafted(drafter: str, gamma: int) -> None:
    for seed, text in (ENDS, GOES_ON):
        model, given = bed.tiny(seed), bed.inputs(text)
        said, _, _ = bed.said(model, given, DRAFTERS[drafter], gamma)
        assert bed.behind(said) == bed.library_ids(model, given)


@pytest.mark.parametrize("length", range(1, 18))
def test_a_length_that_is_no_multiple_of_seven_leaves_whole_frames(length: int) -> None:
    model, given = bed.tiny(GOES_ON[0]), bed.inputs(GOES_ON[1])
    said, _, _ = bed.said(model, given, copied, max_new_tokens=length)
    assert len(bed.behind(said)) == length
    assert len(said.grid) == max(0, length - 2) // 7  # two marks come first
    assert not said.ended


@every_drafter
def test_a_model_that_knows_no_order_says_what_the_library_says(drafter: str) -> None:
    model, given = bed.tiny(2, wild=True), bed.inputs(1)
    said, report, _ = bed.said(model, given, DRAFTERS[drafter], family=bed.LENIENT)
    assert bed.behind(said) == bed.library_ids(model, given)
    assert report.faults == ()


SAMPLED: dict[str, Any] = {"do_sample": True, "temperature": 1.4, "top_k": 12}


@pytest.mark.parametrize("seed", [3, 11])
@every_drafter
def test_seeded_ids_are_the_librarys_under_the_same_noise(drafter: str, seed: int) -> None:
    model, given = bed.tiny(GOES_ON[0]), bed.inputs(2)
    with drawing(iter([seed])):
        expected = bed.library_ids(model, given, **SAMPLED)
    said, report, _ = bed.said(
        model, given, DRAFTERS[drafter], family=bed.LENIENT, seed=seed, **SAMPLED
    )
    assert bed.behind(said) == expected
    assert (report.parity, report.faults) == ("L1", ())


@pytest.mark.parametrize("gamma", [1, 3, 6, 7, 13])
def test_every_frame_of_a_copy_is_accepted(gamma: int) -> None:
    _, report, stats = bed.said(
        bed.tiny(GOES_ON[0]), bed.inputs(GOES_ON[1]), copied, gamma, max_new_tokens=72
    )
    assert report.accepted == report.proposed > 0
    assert report.rounds == -(-72 // (gamma + 1))
    full = [done for done in stats.tally.trace if len(done.proposal) == gamma]
    assert {len(done.emitted) for done in full} == {gamma + 1}
    share = report.by_codebook
    assert share.agreed == share.judged == share.proposed
    assert share.decided == 70  # two marks are no codes


@every_drafter
def test_forwards_are_counted(drafter: str) -> None:
    model, runs = copy.deepcopy(bed.tiny(GOES_ON[0])), [0]
    draft = DRAFTERS[drafter]
    kind = (
        None
        if draft is None
        else draft(SpeechCheckpoint.of(model, packed=False, family=bed.STRICT))
    )
    model.model.register_forward_hook(lambda *_: runs.__setitem__(0, runs[0] + 1))
    _, report, _ = bed.said(model, bed.inputs(1), None if kind is None else lambda target: kind)
    assert report.target_forwards == runs[0]
    if draft is None:
        assert report.target_forwards == report.tokens


def test_the_model_is_as_it_was() -> None:
    model = bed.made(0)
    settings, entries = copy.deepcopy(model.generation_config.to_dict()), dict(vars(model))
    bed.said(model, bed.inputs(0), copied)
    assert model.generation_config.to_dict() == settings
    assert dict(vars(model)) == entries


def test_packed_layers_say_the_same() -> None:
    model, given = bed.tiny(4), bed.inputs(0)
    said, _, _ = bed.said(model, given, lookup, packed=True)
    assert bed.behind(said) == bed.library_ids(model, given)


# --- what is out of place


def frame(number: int) -> list[int]:
    """Seven ids in order."""
    return [bed.BASE + slot * bed.CODES + (number + slot) % bed.CODES for slot in range(7)]


def codes(number: int) -> tuple[int, ...]:
    """Their codes by SNAC's levels."""
    c = [(number + slot) % bed.CODES for slot in range(7)]
    return (c[0], c[1], c[4], c[2], c[3], c[5], c[6])


def followed(ids: Sequence[int], *, resync: bool = False) -> Any:
    slots = (bed.LENIENT if resync else bed.STRICT).slots(STEPS)
    slots.follow(ids)
    return slots


SPOKEN = [frame(0), frame(1), frame(2), frame(3)]


def spoken(*frames: Sequence[int], ended: bool = True) -> list[int]:
    return [1, 2, bed.START, *itertools.chain(*frames), *([bed.END] if ended else [])]


def test_whole_frames_become_codes_slot_by_slot() -> None:
    slots = followed(spoken(*SPOKEN))
    assert slots.frames == [codes(number) for number in range(4)]
    assert slots.frames == list(STEPS.to_grid([*itertools.chain(*SPOKEN), bed.END]))
    assert (slots.ended, slots.inside) == (True, False)


@pytest.mark.parametrize("cut", range(28))
def test_a_token_that_is_dropped_costs_its_frame_and_no_other(cut: int) -> None:
    flat = list(itertools.chain(*SPOKEN))
    ids = spoken(flat[:cut] + flat[cut + 1 :])
    kept = [codes(number) for number in range(4) if number != cut // 7]
    assert followed(ids, resync=True).frames == kept
    with pytest.raises(InputError, match=rf"frame {cut // 7}\b"):
        followed(ids)


@pytest.mark.parametrize("place", range(28))
@pytest.mark.parametrize("extra", [5, bed.START, bed.BASE + 3 * bed.CODES, bed.VOCAB - 1])
def test_a_token_too_many_shifts_no_later_frame(place: int, extra: int) -> None:
    flat = list(itertools.chain(*SPOKEN))
    slot = (extra - bed.BASE) // bed.CODES if extra in bed.MARKS.ids else None
    if slot == place % 7:
        return  # it is in its place, the one behind it is too many
    slots = followed(spoken([*flat[:place], extra, *flat[place:]]), resync=True)
    kept = [codes(number) for number in range(4) if number != place // 7 or place % 7 == 0]
    assert slots.frames == kept
    with pytest.raises(InputError, match=r"is no code of this place|is the end mark"):
        followed(spoken([*flat[:place], extra, *flat[place:]]))


def test_an_end_inside_a_frame_is_refused_and_length_may_cut_one() -> None:
    cut = [*frame(0), *frame(1)[:4]]
    with pytest.raises(InputError, match="ends inside frame 1, after 4 of 7 codes"):
        followed(spoken(cut))
    assert followed(spoken(cut, ended=False)).frames == [codes(0)]
    assert followed(spoken(cut), resync=True).frames == [codes(0)]


def test_only_what_stands_behind_the_last_start_is_said() -> None:
    """A prompt may hold another utterance, of the voice to be spoken in."""
    slots = followed([*spoken(frame(5)), 3, 4, *spoken(frame(1), frame(2))])
    assert slots.frames == [codes(1), codes(2)]
    assert followed([*frame(1), 7]).frames == []
    assert followed([*spoken(frame(1)), *frame(2)]).frames == [codes(1)]


@pytest.mark.parametrize("pieces", [1, 2, 3, 5, 7, 11])
def test_frames_are_the_same_however_the_units_come(pieces: int) -> None:
    ids = spoken(*SPOKEN)
    slots, seen = bed.STRICT.slots(STEPS), []
    for begin in range(0, len(ids), pieces):
        before = len(slots.frames)
        slots.follow(ids[begin : begin + pieces])
        seen += slots.frames[before:]
    assert seen == followed(ids).frames


def test_columns_say_what_each_unit_is() -> None:
    ids = [1, bed.START, *frame(0), *frame(1)[:2], 5, *frame(2)]
    slots = followed(ids, resync=True)
    order = [0, 1, 3, 4, 2, 5, 6]
    assert slots.columns == [None, None, *order, None, None, None, *order]
    assert [slots.column(len(ids) + ahead) for ahead in range(8)] == [*order, 0]
    assert followed(spoken(frame(0))).column(99) is None


def test_a_unit_out_of_place_refuses_the_output_and_names_it() -> None:
    model, given = bed.tiny(2, wild=True), bed.inputs(0, behind=[bed.MODEL, bed.START])
    with pytest.raises(InputError, match=r"frame 0, codebook \d: \d+ is no code of this place"):
        bed.said(model, given, lookup)
    said, _, _ = bed.said(model, given, lookup, family=bed.LENIENT)
    assert bed.behind(said) == bed.library_ids(model, given)


# --- regions that begin and end inside a block


class Regions(LogitsProcessor):
    """The same order as `SlotMask`, kept by an automaton that every call moves on."""

    def __init__(self) -> None:
        self.slot: int | None = None
        self.seen = 0

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        for token in input_ids[0, self.seen :].tolist():
            if token == bed.START:
                self.slot = 0
            elif token == bed.END:
                self.slot = None
            elif self.slot is not None:
                self.slot = (self.slot + 1) % 7
        self.seen = input_ids.shape[1]
        kept = torch.full_like(scores, -torch.inf)
        if self.slot is None:
            kept[:, : bed.END] = scores[:, : bed.END]
        else:
            first = bed.BASE + self.slot * bed.CODES
            kept[:, first : first + bed.CODES] = scores[:, first : first + bed.CODES]
            if self.slot == 0:
                kept[:, bed.END] = scores[:, bed.END]
        return kept


MASKS: dict[str, Any] = {"mask": lambda: SlotMask(bed.MARKS), "automaton": Regions}
UNENDING = {"eos_token_id": bed.VOCAB - 1, "max_new_tokens": 60}
"""Speech may end and begin again, all in one output."""


class Oracle:
    """Drafts what the library will say, but for a token that is wrong here and there."""

    name = "oracle"

    def __init__(self, prompt: int, truth: Sequence[int], spoiled: int) -> None:
        self._prompt, self._truth, self._spoiled = prompt, list(truth), spoiled

    def open(self, opening: Any) -> ScriptedDrafter:
        def script(ids: Sequence[int], limit: int) -> list[int]:
            at = len(ids) - self._prompt
            tokens = self._truth[at : at + limit]
            if self._spoiled and len(tokens) >= self._spoiled:
                tokens[self._spoiled - 1] = bed.BASE + tokens[self._spoiled - 1] % 56
            return tokens

        return ScriptedDrafter(script)


def restless(seed: int) -> Any:
    """A model that ends and begins speech all the time, wherever it is allowed to."""
    model = bed.made(seed, wild=True)
    head = model.get_output_embeddings().weight.data
    head[[bed.START, bed.END]] *= 3
    return model


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("spoiled", [0, 1, 4])
@pytest.mark.parametrize("gamma", [3, 12])
def test_regions_that_begin_and_end_inside_a_block(mask: str, spoiled: int, gamma: int) -> None:
    model, given = restless(6), bed.inputs(0)
    truth = bed.library_ids(model, given, logits_processor=[MASKS[mask]()], **UNENDING)
    marks = [place for place, token in enumerate(truth) if token in (bed.START, bed.END)]
    assert len(marks) > 3
    oracle = Oracle(given["input_ids"].shape[1], truth, spoiled)
    said, report, stats = bed.said(
        model, given, lambda _: oracle, gamma, logits_processor=[MASKS[mask]()], **UNENDING
    )
    assert bed.behind(said) == truth
    assert report.faults == ()
    drafted = [token for done in stats.tally.trace for token in done.proposal[:-1]]
    assert {bed.START, bed.END} & set(drafted)  # marks with something drafted behind them
    if not spoiled:
        assert report.accepted == report.proposed


@pytest.mark.parametrize("mask", MASKS)
@every_drafter
def test_a_mask_makes_whole_frames_of_any_model(mask: str, drafter: str) -> None:
    model = bed.tiny(2, wild=True)
    given = bed.inputs(0, behind=[bed.MODEL, bed.START])
    said, report, _ = bed.said(
        model, given, DRAFTERS[drafter], logits_processor=[MASKS[mask]()], max_new_tokens=35
    )
    asked = {"logits_processor": [MASKS[mask]()], "max_new_tokens": 35}
    assert bed.behind(said) == bed.library_ids(model, given, **asked)
    assert len(said.grid) == (len(bed.behind(said)) - said.ended) // 7
    assert report.faults == ()


def test_the_mask_and_the_automaton_agree() -> None:
    rows = torch.zeros(1, bed.VOCAB)
    for length in range(1, 3 + 14):
        ids = torch.tensor([spoken(frame(0), frame(1), ended=False)[:length]])
        inside = length >= 3
        free = [SlotMask(bed.MARKS)(ids, rows), Regions()(ids, rows)]
        kept = [(row[0] > -torch.inf).nonzero()[:, 0].tolist() for row in free]
        if inside:
            assert kept[0] == kept[1]
        assert bed.START in kept[0] or inside
        assert (bed.BASE in kept[0]) == (inside and (length - 3) % 7 == 0)


def test_a_mask_over_rows_sees_each_by_itself() -> None:
    ids = torch.tensor([[1, bed.START, bed.BASE], [1, 2, 3]])
    kept = SlotMask(bed.MARKS)(ids, torch.zeros(2, bed.VOCAB)) > -torch.inf
    assert kept[0].nonzero()[:, 0].tolist() == list(
        range(bed.BASE + bed.CODES, bed.BASE + 2 * bed.CODES)
    )
    assert not kept[1, bed.BASE]
    assert kept[1, 3]


# --- descriptor, text, sound


def test_the_descriptor_of_the_published_checkpoint() -> None:
    steps = TimeMajorFrames.seven_slots(156_940, SpecialTokens().base, SpecialTokens().end)
    assert [steps.codebooks[k].first for k in steps.slots] == [
        128_266 + 4096 * slot for slot in range(7)
    ]
    assert SpecialTokens().ids[-1] == 156_937
    assert steps.stop_tokens == {128_258}


def test_a_vocabulary_that_is_too_small_is_named() -> None:
    with pytest.raises(ModelError, match="has 60 ids, the layout's codes go up to 91"):
        SpeechCheckpoint.of(bed.made(0, vocab=60), family=bed.STRICT)
    with pytest.raises(ModelError, match="has 96 ids, the layout's codes go up to 156937"):
        SpeechCheckpoint.of(bed.tiny(0), family=Orpheus())


def test_a_drafter_of_another_vocabulary_is_named() -> None:
    target = SpeechCheckpoint.of(bed.tiny(0), family=bed.STRICT)
    with pytest.raises(ModelError, match=r"vocab_size=96.*vocab_size=120"):
        ChainDraft(target, bed.made(0, vocab=120))


def tokenizer() -> Any:
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = {chr(ord("a") + i): i for i in range(26)} | {"[UNK]": 26}
    made = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    return PreTrainedTokenizerFast(tokenizer_object=made, unk_token="[UNK]")


def test_a_text_stands_between_its_marks() -> None:
    target = SpeechCheckpoint.of(bed.tiny(0), tokenizer(), family=bed.STRICT)
    made = bed.STRICT.text_inputs(target, "cab")
    ids = [bed.HUMAN, 2, 0, 1, bed.TEXT_ENDS, bed.HUMAN_ENDS]
    assert made["input_ids"].tolist() == [ids]
    with pytest.raises(InputError, match="empty"):
        bed.STRICT.text_inputs(target, "  ")
    with pytest.raises(InputError, match="characters that the tokenizer doesn't know"):
        bed.STRICT.text_inputs(target, "Ä")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "no input_ids"),
        ({"input_ids": torch.zeros(1, 0).long()}, "the text is empty"),
        ({"input_ids": torch.zeros(1, 300).long()}, "300 ids, the model has positions for 256"),
        ({"input_ids": torch.full((1, 3), 96)}, "id 96, the model knows 0 to 95"),
        ({"input_ids": torch.zeros(2, 3).long()}, r"shape \(2, 3\), expected one row"),
        (
            {"input_ids": torch.ones(1, 3).long(), "attention_mask": torch.tensor([[0, 1, 1]])},
            "the text is padded",
        ),
    ],
)
def test_texts_that_cannot_be_read(given: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        bed.said(bed.tiny(0), given)


def test_beams_and_dropout_are_refused() -> None:
    with pytest.raises(OptionError, match="beam"):
        bed.said(bed.tiny(0), bed.inputs(0), num_beams=2)
    with pytest.raises(ModelError, match="training mode"):
        SpeechCheckpoint.of(copy.deepcopy(bed.tiny(0)).train(), family=bed.STRICT)


def test_what_the_voice_said_before_is_looked_up() -> None:
    model, given = bed.tiny(4), bed.inputs(0)
    plain, without, _ = bed.said(model, given, lookup)
    again, report, _ = bed.said(model, given, lookup, earlier=[plain.sequence])
    assert again.grid == plain.grid
    assert report.accepted > without.accepted


def test_units_are_read_again_with_and_without_the_text() -> None:
    model, given = bed.tiny(ENDS[0]), bed.inputs(ENDS[1])
    said, report, _ = bed.said(model, given, lookup)
    emitted = bed.behind(said)
    marks = [bed.HUMAN, bed.TEXT_ENDS, bed.HUMAN_ENDS]
    for prompt, text in ((given["input_ids"][0].tolist(), True), (marks, False)):
        with torch.no_grad():
            whole = torch.tensor([[*prompt, *emitted]])
            rows = model(whole, use_cache=False).logits[0, len(prompt) - 1 : -1]
        found = read_again(bed.STRICT, model, given, said, text=text)
        assert found == pytest.approx(chances(rows, emitted), abs=1e-4)
        assert len(found) == report.tokens


def test_a_prompt_without_marks_has_no_text_to_drop() -> None:
    model, given = bed.tiny(0), {"input_ids": torch.tensor([[1, 2, bed.MODEL, bed.START]])}
    said, _, _ = bed.said(model, given)
    with pytest.raises(OptionError, match="no text between 30 and 31"):
        read_again(bed.STRICT, model, given, said, text=False)


class Snac:
    """Decodes levels as SNAC does: 1, 2 and 4 codes a frame."""

    def decode(self, given: list[Tensor]) -> Tensor:
        frames = given[0].shape[1]
        assert [level.shape for level in given] == [(1, frames), (1, 2 * frames), (1, 4 * frames)]
        parts = [level.reshape(frames, -1).float() for level in given]
        return torch.cat(parts, 1).reshape(1, 1, -1)


def test_sound_is_made_of_levels() -> None:
    grid = [codes(0), codes(3)]
    assert levels(tuple(grid))[2] == [*codes(0)[3:], *codes(3)[3:]]
    assert sound(Snac(), grid).tolist() == [float(code) for row in grid for code in row]
    assert len(sound(Snac(), [])) == 0


class Heard:
    """A streamer that keeps what it gets."""

    def __init__(self) -> None:
        self.ids: list[int] = []
        self.ended = 0

    def put(self, value: Tensor) -> None:
        self.ids += value.flatten().tolist()

    def end(self) -> None:
        self.ended += 1


@pytest.mark.parametrize("gamma", [0, 3, 7])
def test_what_is_streamed_is_committed(gamma: int) -> None:
    model, given, heard = bed.tiny(4), bed.inputs(0), Heard()
    said, _, _ = bed.said(model, given, wrong(bed.VOCAB), gamma, streamer=heard)
    assert heard.ids == list(said.sequence)


@pytest.mark.parametrize("width", [1, 3])
def test_requests_side_by_side_are_what_they_are_alone(width: int) -> None:
    model, several = bed.tiny(0), [bed.inputs(seed) for seed in range(4)]
    for given, said in zip(
        several,
        said_together(bed.STRICT, model, several, width, max_new_tokens=bed.LENGTH),
        strict=True,
    ):
        assert bed.behind(said) == bed.library_ids(model, given)


def test_approximate_acceptance_is_refused() -> None:
    with pytest.raises(OptionError, match="a step decides one token"):
        bed.said(bed.tiny(0), bed.inputs(0), lookup, approximate=object())

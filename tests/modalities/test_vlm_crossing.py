"""Every family whose decoder attends across to an image says what `generate` says."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as hf

import mmspec
from mmspec.drafting import VisualTokenPruning
from mmspec.errors import InputError, ModelError
from mmspec.modalities import ADAPTERS, adapter_for
from mmspec.modalities.base.checkpoint import Checkpoint
from mmspec.modalities.base.preparation import prepare
from mmspec.report.trace import Round
from mmspec.state.layers import FrozenLayer

from . import tiny_prefix
from .crossing_runs import (
    DRAFTERS,
    NAMES,
    copied,
    decoding,
    given,
    model_of,
    plain,
    prepared_for,
    prompt_length,
    said,
    sibling_of,
    speculated,
    target_of,
    twin_of,
    without_cache,
)
from .test_vlm_prefix import attributes, counted
from .tiny_crossing import CASES, EOS, FAMILIES, TASK, VIT, tiny

GAMMAS = (1, 4, "adaptive")
WAYS = [(kind, gamma) for gamma in GAMMAS for kind in DRAFTERS]
TAKE_TREES = {"mllama", "blip", "blip-vqa", "vit-gpt2"}
"""Those whose decoder takes positions."""

every_family = pytest.mark.parametrize("name", NAMES)
every_case = pytest.mark.parametrize(("name", "case"), CASES)


def turn(name: str) -> int:
    """A family's number: what isn't tried with every family is tried with some."""
    return NAMES.index(name)


def family_of(name: str) -> Any:
    return adapter_for(model_of(name).config.model_type).FAMILY


def tower_of(name: str) -> str:
    return family_of(name).encoder_names[0]


@every_family
def test_an_adapter_names_its_model(name: str) -> None:
    family, model = family_of(name), model_of(name)
    assert model.config.model_type in family.model_types
    assert set(family.model_types) <= set(ADAPTERS)
    checkpoint = Checkpoint.of(model, packed=False)
    assert checkpoint.steps.vocab_size == without_cache(name, None, [9]).shape[-1]
    assert checkpoint.steps.stop_tokens == {FAMILIES[name].ids["eos_token_id"]}


@every_family
def test_a_checkpoint_says_which_class_loads_it(name: str, tmp_path: Path) -> None:
    model = twin_of(name)
    model.save_pretrained(tmp_path)
    config = hf.AutoConfig.from_pretrained(tmp_path)
    assert family_of(name).class_for(config) == type(model).__name__


WAYS_BY_CASE = [
    (name, case, *WAYS[(3 * number + step) % len(WAYS)])
    for number, (name, case) in enumerate(CASES)
    for step in range(3)
]


@pytest.mark.parametrize(("name", "case", "kind", "gamma"), WAYS_BY_CASE)
def test_ids_are_those_of_generate(name: str, case: str, kind: str, gamma: Any) -> None:
    """Every case meets three drafters, every drafter every γ with two cases or more."""
    prompt = given(name, case)
    want = plain(model_of(name), prompt)
    truth = said(name, case)[prompt_length(name, case) :]
    made = speculated(name, prompt, kind, gamma, hypothesis=truth)
    assert made.sequences.tolist() == want.tolist()
    assert made.report.encoder_runs == int(case != "text")


def test_every_drafter_met_every_gamma() -> None:
    assert {way[2:] for way in WAYS_BY_CASE} == set(WAYS)


def ending(name: str, token: int, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Options that declare an end; BLIP takes it from its configuration only."""
    if not name.startswith("blip"):
        return {"eos_token_id": token}
    for config in (model_of(name).config.text_config, model_of(name).text_decoder.config):
        monkeypatch.setattr(config, "sep_token_id", token)
    return {}


@every_family
def test_an_end_anywhere_in_a_block_ends_the_output(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks of five: a hypothesis that is right, and goes on behind the end."""
    length, base = prompt_length(name), said(name)
    for offset in range(turn(name) % 3, 6, 3):
        asked = ending(name, base[length + offset], monkeypatch)
        asked["suppress_tokens"] = [FAMILIES[name].ids["eos_token_id"]]
        want = plain(model_of(name), given(name), **asked)[0].tolist()
        assert len(want) <= length + offset + 1
        told = [*want[length:], 7, 8, 9]
        made = speculated(name, given(name), "hypothesis-right", hypothesis=told, **asked)
        assert made.sequences[0].tolist() == want
        assert made.report.finish_reason == "stop"


@every_family
def test_no_more_units_than_asked_for(name: str) -> None:
    length, base = prompt_length(name), said(name)
    for tokens in range(1 + turn(name) % 3, 7, 3):
        asked = {"max_new_tokens": tokens, "min_new_tokens": tokens}
        made = speculated(name, given(name), "hypothesis-right", hypothesis=base[length:], **asked)
        assert made.sequences[0].tolist() == list(base[: length + tokens])
        assert made.report.finish_reason == "length"


@pytest.mark.parametrize("name", ["trocr", "donut"])
def test_an_output_ends_with_the_decoders_positions(name: str) -> None:
    """A table of 16; `generate` would look beyond it and fail."""
    model, tokens = tiny(name, context=16), 16 - prompt_length(name)
    want = plain(model, given(name), tokens, min_new_tokens=tokens)
    asked = {"max_new_tokens": 20, "min_new_tokens": 20}
    for kind in ("none", "other"):
        made = speculated(name, given(name), kind, model=model, **asked)
        assert made.sequences.tolist() == want.tolist()
        assert made.report.finish_reason == "length"


@pytest.mark.parametrize(("name", "case"), CASES)
def test_a_batch_is_the_librarys_however_it_is_padded(name: str, case: str) -> None:
    """Not every encoder or decoder leaves out what a mask says: padding is read in its place."""
    model, batch = model_of(name), given(name, case, rows=3, seed=2, ragged=True)
    kept = copied(batch)
    made = speculated(name, batch, gamma=3, max_new_tokens=6)
    assert all(torch.equal(kept[key], batch[key]) for key in kept), "inputs were written to"
    assert made.sequences.tolist() == plain(model, batch, 6).tolist()
    assert made.reports


@pytest.mark.parametrize("first", [[1, 5], [5, 6]])
def test_prompts_that_begin_apart_are_one_batch(first: list[int]) -> None:
    """Where none begins with the start, `generate` puts it in front of all of them."""
    model, batch = model_of("vit-gpt2"), given("vit-gpt2", "prompted", rows=2)
    start = model.generation_config.decoder_start_token_id
    batch["decoder_input_ids"][:, 0] = torch.tensor([start if one == 1 else one for one in first])
    made = speculated("vit-gpt2", batch, gamma=3, max_new_tokens=6)
    assert made.sequences.tolist() == plain(model, batch, 6).tolist()


@pytest.mark.parametrize("name", NAMES[::2])
def test_an_even_batch_is_what_generate_makes_of_it(name: str) -> None:
    batch = given(name, rows=2)
    made = speculated(name, batch, "hypothesis-right", max_new_tokens=6, hypothesis=[9] * 4)
    assert made.sequences.tolist() == plain(model_of(name), batch, 6).tolist()
    assert [report.encoder_runs for report in made.reports] == [1, 1]


def test_rows_that_dont_belong_together_are_an_error() -> None:
    prompt = given("blip", "prompted", rows=2)
    fewer = {**prompt, "pixel_values": prompt["pixel_values"][:1]}
    with pytest.raises(InputError, match="attention_mask has 2 rows, pixel_values has 1"):
        speculated("blip", fewer)
    batch = given("trocr", rows=2)
    with pytest.raises(InputError, match="encoder_outputs: can't tell which part"):
        speculated("trocr", {**batch, "encoder_outputs": (batch["pixel_values"],)})


@every_family
def test_what_is_attended_to_is_counted(name: str) -> None:
    with target_of(name) as (target, _):
        held = conditioning(target)[0].get_seq_length()
    assert family_of(name).visual_tokens(prepared_for(name)) == held


@every_family
def test_seeded_samples_are_the_same_for_every_drafter(name: str) -> None:
    asked = {"do_sample": True, "temperature": 1.5, "seed": 3 + turn(name), "max_new_tokens": 7}
    made = [
        speculated(name, given(name), kind, **asked).sequences.tolist()
        for kind in ("none", "ngram", "other")
    ]
    assert made[0] == made[1] == made[2]


RULES = {"forced_bos_token_id": 40, "forced_eos_token_id": EOS, "no_repeat_ngram_size": 2}


@pytest.mark.parametrize("name", ["florence2", "donut", "pix2struct"])
@pytest.mark.parametrize("kind", ["ngram", "copy"])
def test_what_checkpoints_ask_for_by_themselves_is_done(name: str, kind: str) -> None:
    """Florence-2's generation config has these rules, Donut's configuration the second."""
    model = tiny(name, says={**RULES, "num_beams": 3})
    want = plain(model, given(name), num_beams=1)
    made = speculated(name, given(name), kind, model=model, num_beams=1)
    assert made.sequences.tolist() == want.tolist()
    tokens = made.sequences[0, prompt_length(name) :].tolist()
    assert tokens[-1] == EOS
    assert (tokens[0] == 40) == (prompt_length(name) == 1)


# Memory and towers


@dataclass
class Watched:
    """A request that was watched round by round."""

    sequence: list[int]
    rounds: list[Round]
    moved: list[str]
    changed: list[str]


def conditioning(target: Any) -> list[FrozenLayer]:
    cache = target.state.cache
    layers = getattr(cache, "cross_attention_cache", cache).layers
    return [layer for layer in layers if isinstance(layer, FrozenLayer)]


@functools.cache
def watched(name: str) -> Watched:
    """A copy of the model drafts; whatever lies behind the target's length is NaN."""
    moved: list[str] = []
    before = attributes(model_of(name))
    with decoding(name, twin_of(name)) as (session, _):
        target: Any = session._target
        layers = conditioning(target)
        kept = [
            (held, held.data_ptr(), held.clone())
            for layer in layers
            for held in (layer.keys, layer.values)
        ]
        if not kept:
            raise AssertionError("nothing is conditioned on")
        while session.finish_reason is None:
            target.state.poison_unused()
            session.round()
            now = [held for layer in conditioning(target) for held in (layer.keys, layer.values)]
            for (held, place, values), later in zip(kept, now, strict=True):
                moved += ["replaced"] * (later is not held)
                moved += ["re-allocated"] * (later.data_ptr() != place)
                moved += ["overwritten"] * (not torch.equal(later, values))
    after = attributes(model_of(name))
    return Watched(
        list(session.prefix.ids),
        list(session.tally.trace),
        moved,
        [key for key in before if before[key] != after.get(key)] + [*(after.keys() - before)],
    )


@every_family
def test_what_lies_behind_the_length_is_never_read(name: str) -> None:
    assert watched(name).sequence == list(said(name))


@every_family
def test_a_copy_of_the_target_is_accepted_whole(name: str) -> None:
    """No token of eleven is rejected; every round but the last says four and one more."""
    rounds = watched(name).rounds
    assert [len(round.proposal) for round in rounds] == [4, 4, 0]
    assert [len(round.emitted) for round in rounds] == [5, 5, 1]


@every_family
def test_conditioning_is_never_copied_or_computed_again(name: str) -> None:
    assert watched(name).moved == []


@every_family
def test_a_model_is_left_as_it_was(name: str) -> None:
    assert watched(name).changed == []


@every_family
def test_towers_run_once_for_each_model(name: str) -> None:
    """By hooks of the test's own, and by the report; text encoders likewise."""
    model, drafter = model_of(name), sibling_of(name)
    with counted(model) as runs, counted(drafter) as others:
        made = speculated(name, given(name), "other")
    assert (runs[tower_of(name)], others[tower_of(name)]) == (1, 1)
    assert (made.report.encoder_runs, made.report.drafter_encoder_runs) == (1, 1)
    for encoder in ("model.language_model.encoder", "text_encoder"):
        assert {runs[encoder], others[encoder]} <= {0, 1}
    with counted(model) as runs:
        made = speculated(name, given(name), "itself")
    assert runs[tower_of(name)] == 2
    assert (made.report.encoder_runs, made.report.drafter_encoder_runs) == (1, 1)


# Rows of blocks

UNSAID = [13, 41, 20, 58, 29, 55, 16]
"""Some tokens; whether a model would say them doesn't matter."""


@every_case
def test_rows_of_a_block_are_those_of_a_full_forward(name: str, case: str) -> None:
    want = without_cache(name, case, UNSAID)
    with target_of(name, case) as (target, first):
        rows = [first, target.score(UNSAID[:4], 4), target.score(UNSAID[4:], 3)]
        torch.testing.assert_close(torch.cat(rows), want, atol=1e-4, rtol=1e-4)
        target.state.rollback(target.state.frozen)  # the first block once more, otherwise cut
        target.state.poison_unused()
        rows = [first, target.score(UNSAID[:1], 1), target.score(UNSAID[1:], 6)]
        torch.testing.assert_close(torch.cat(rows), want, atol=1e-4, rtol=1e-4)


@every_family
def test_the_last_unit_of_a_block_moves_no_earlier_row(name: str) -> None:
    with target_of(name) as (target, _):
        start = target.state.length
        for first in (0, 2):
            if first:
                target.score(UNSAID[:first], 0)
            rows = target.score(UNSAID[first:], 7 - first)
            target.state.rollback(start + first)
            others = target.score([*UNSAID[first:-1], UNSAID[0]], 7 - first)
            assert torch.equal(rows[:-1], others[:-1])
            assert not torch.equal(rows[-1], others[-1])
            target.state.rollback(start)


@every_family
def test_branches_of_a_tree_are_scored_as_chains(name: str) -> None:
    """Behind one token two branches of three: [0, [1, 2, 3], [4, 5, 6]]."""
    parents = [-1, 0, 1, 2, 0, 4, 5]
    with target_of(name) as (target, _):
        assert target.takes_trees == (name in TAKE_TREES)
        if not target.takes_trees:
            return
        start = target.state.length
        tree = target.score(UNSAID, 7, parents)
        for branch in ([0, 1, 2, 3], [0, 4, 5, 6]):
            target.state.rollback(start)
            chain = target.score([UNSAID[node] for node in branch], 4)
            torch.testing.assert_close(tree[branch], chain, atol=1e-4, rtol=1e-4)


@every_family
def test_a_decoder_shared_with_its_beginning_stays_its_own(name: str) -> None:
    """An early exit reads the lender's memory; its rows are those of a model that ends there."""
    with target_of(name) as (target, _):
        shallow = target.early_exit(1)
        rows = shallow.score(UNSAID[:3], 3)
        again = target.score(UNSAID[:3], 3)
        target.state.rollback(target.state.frozen)
        shallow.state.follow_lender()
        torch.testing.assert_close(shallow.score(UNSAID[:3], 3), rows)
    assert not torch.equal(rows, again)
    with target_of(name) as (target, _):
        assert torch.equal(target.score(UNSAID[:3], 3), again)


# What only some of them do


@pytest.mark.parametrize("name", ["blip", "pix2struct", "vit-gpt2"])
def test_inside_generate(name: str) -> None:
    """The same through transformers' own call, by a loop that knows the inputs or needs none."""
    case = "prompted"
    want = plain(model_of(name), given(name, case))
    for draft in ("ngram", twin_of(name)):
        loop = mmspec.custom_generate(draft, gamma=4)
        loop.inputs = copied(given(name, case))
        got = plain(model_of(name), given(name, case), custom_generate=loop)
        assert got.tolist() == want.tolist()
        assert loop.report.faults == ()


def test_a_thinned_drafter_is_not_told_what_mllama_attends_to() -> None:
    """An image's place in its prompt says nothing of what is seen there."""
    model = tiny("mllama", says={"eos_token_id": tiny_prefix.EOS})
    drafter = tiny_prefix.tiny("llava")
    loop = mmspec.custom_generate(VisualTokenPruning(drafter, 0.5), gamma=2)
    loop.inputs = tiny_prefix.inputs("llava", drafter, "image")
    want = plain(model, given("mllama", "images"), 6)
    got = plain(model, given("mllama", "images"), 6, custom_generate=loop)
    assert got.tolist() == want.tolist()
    assert loop.report.faults == ()
    assert loop.report.proposed > 0


def test_scores_are_those_of_generate() -> None:
    asked = {"return_dict_in_generate": True, "output_logits": True, "max_new_tokens": 5}
    for name in ("florence2", "blip"):
        want: Any = plain(model_of(name), given(name), **{**asked, "tokens": 5})
        loop = mmspec.custom_generate("hypothesis", hypothesis=said(name)[prompt_length(name) :])
        got: Any = plain(model_of(name), given(name), 5, custom_generate=loop, **asked)
        assert type(got) is type(want)
        torch.testing.assert_close(torch.cat(got.logits), torch.cat(want.logits), atol=1e-4, rtol=0)


def test_a_decoder_without_an_adapter_is_named() -> None:
    encoder = hf.ViTConfig(**VIT, hidden_size=16)
    decoder = hf.BertConfig(
        vocab_size=20, hidden_size=16, num_hidden_layers=1, num_attention_heads=2
    )
    config = hf.VisionEncoderDecoderConfig.from_encoder_decoder_configs(encoder, decoder)
    model = hf.VisionEncoderDecoderModel(config).eval()
    with pytest.raises(ModelError, match="decoder of type bert; mmspec knows decoders of type"):
        Checkpoint.of(model)


def test_computed_positions_count_no_pads() -> None:
    """TrOCR with sinusoidal positions, where the pad is a token that comes up all the time."""
    encoder = hf.DeiTConfig(**VIT, hidden_size=16)
    decoder = hf.TrOCRConfig(
        vocab_size=6,
        d_model=32,
        decoder_layers=1,
        decoder_attention_heads=2,
        decoder_ffn_dim=32,
        max_position_embeddings=64,
        cross_attention_hidden_size=16,
        use_learned_position_embeddings=False,
        pad_token_id=3,
        eos_token_id=EOS,
    )
    config = hf.VisionEncoderDecoderConfig.from_encoder_decoder_configs(encoder, decoder)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = hf.VisionEncoderDecoderModel(config).eval()
        for weight in model.parameters():
            torch.nn.init.normal_(weight, std=0.4)
    model.generation_config = hf.GenerationConfig(
        decoder_start_token_id=TASK, pad_token_id=3, eos_token_id=EOS
    )
    images = {"pixel_values": torch.randn(1, 3, 8, 8, generator=torch.Generator().manual_seed(0))}
    asked = {"max_new_tokens": 24, "min_new_tokens": 24, "do_sample": False}
    want = plain(model, images, 24, min_new_tokens=24)
    truth = want[0, 1:].tolist()
    assert 3 in truth[:-4]
    assert set(truth) != {3}
    for draft in ({"draft": "ngram"}, {"draft": "hypothesis", "hypothesis": truth}):
        made = mmspec.generate(model, images, gamma=4, **draft, **asked)
        assert made.sequences.tolist() == want.tolist()
        assert made.report.proposed > 0
    target = Checkpoint.of(model).family.open(prepare(model, images, **asked), packed=False)
    rows = [target.read_prompt(), target.score(truth[:8], 8)]
    assert torch.cat(rows).argmax(-1).tolist() == truth[:9]
    target.state.rollback(1)
    torch.testing.assert_close(target.score(truth[:8], 3), rows[1][-3:])
    target.close()

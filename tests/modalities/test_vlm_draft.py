"""Drafters for models that look: what each of them sees decides acceptance, never the output."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

import mmspec
from mmspec.drafting import TextOnly, VisualTokenPruning, draft_for
from mmspec.errors import ModelError, OptionError
from mmspec.loading import load_model
from mmspec.modalities.base import position_subset as place_reading
from mmspec.modalities.base.checkpoint import Checkpoint
from mmspec.modalities.base.draft import NgramDraft
from mmspec.modalities.base.preparation import prepare
from mmspec.modalities.vlm.text_only import TextOnlyDraft, marks, without_images
from mmspec.modalities.vlm.token_pruning import PrunedDraft, kept
from mmspec.prefix import Prefix
from mmspec.report.report import Report

from . import tiny_crossing
from .tiny_prefix import CLOSE, MEDIA, OPEN, TEXT, VOCAB, inputs, tiny

FAMILIES = ("llava", "qwen2_vl", "gemma3", "idefics3")
"""Plain; positions in three axes; windows; marks between the parts of an image."""
every_family = pytest.mark.parametrize("name", FAMILIES)

UNITS = 14

model_of = functools.cache(tiny)
given_to = functools.cache(lambda name, case: inputs(name, model_of(name), case))
_twins: dict[str, Any] = {}


def twin_of(name: str) -> Any:
    """Another object that says the same: every draft of it is kept, if it sees the same."""
    if name not in _twins:
        _twins[name] = copy.deepcopy(model_of(name))
    return _twins[name]


def words_of(name: str) -> Any:
    """The decoder of LLaVA as a language model of its own."""
    config = LlamaConfig(**TEXT, num_hidden_layers=3)
    model, source = LlamaForCausalLM(config), model_of(name)
    model.model.load_state_dict(source.get_decoder().state_dict())
    model.lm_head.load_state_dict(source.get_output_embeddings().state_dict())
    model.generation_config = copy.deepcopy(source.generation_config)
    return model.eval()


@functools.cache
def ordinary(name: str, case: str) -> list[int]:
    said = model_of(name).generate(**given_to(name, case), max_new_tokens=UNITS, do_sample=False)
    return said[0].tolist()


def drafted(
    name: str,
    draft: Any,
    case: str = "image",
    *,
    seen: dict[str, Tensor] | None = None,
    **options: Any,
) -> Report:
    """Decode with a drafter, greedily, and compare; `seen` is what a drafting model is shown.

    Raises by itself: a bare `assert` in a helper is silent under `python -O`.
    """
    model, given = model_of(name), given_to(name, case)
    loop = mmspec.custom_generate(draft, gamma=4, **options)
    loop.inputs = given if seen is None else seen
    said = model.generate(**given, custom_generate=loop, max_new_tokens=UNITS, do_sample=False)
    if said[0].tolist() != ordinary(name, case):
        raise AssertionError((name, draft, said[0].tolist(), ordinary(name, case)))
    if loop.report.faults:
        raise AssertionError(loop.report.faults)
    return loop.report


def with_pixels(given: dict[str, Tensor], change: Callable[[Tensor], Tensor]) -> dict[str, Tensor]:
    return {**given, "pixel_values": change(given["pixel_values"])}


def blank(pixels: Tensor) -> Tensor:
    """Grey: where all is zero some families take the image for padding."""
    return torch.full_like(pixels, 0.1)


def kinds(name: str) -> dict[str, tuple[Any, str]]:
    """Every kind of drafter with what it knows."""
    return {
        "ngram": ("ngram", "none"),
        "hypothesis": ("hypothesis", "none"),
        "early exit": ("early-exit:2", "shared"),
        "model": (twin_of(name), "own"),
        "smaller": (model_of(name, 1, 1), "own"),
        "thinned": (VisualTokenPruning(twin_of(name), 0.5), "own"),
        "blind": (TextOnly(twin_of(name)), "none"),
        "several": (["hypothesis", "ngram", TextOnly(twin_of(name))], "none"),
    }


# Every kind


@every_family
@pytest.mark.parametrize("kind", kinds("llava"))
def test_the_output_is_the_ordinary_one_and_the_report_says_what_the_drafter_knew(
    name: str, kind: str
) -> None:
    draft, known = kinds(name)[kind]
    for case in ("images", "text") if name == "llava" else ("images",):
        prompt = given_to(name, case)["input_ids"].shape[1]
        expected = ordinary(name, case)[prompt:]
        report = drafted(name, draft, case, hypothesis=[*expected[:5], 7, *expected[5:]])
        assert {share.conditioning for share in report.drafters.values()} <= {known}
        if kind != "ngram":
            assert report.proposed > 0
        looked = kind in ("model", "smaller", "thinned") and case != "text"
        assert (report.drafter_encoder_runs > 0) == looked


@pytest.mark.parametrize("name", ["qwen2_vl", "gemma3"])
def test_a_seed_says_the_same_whatever_drafts(name: str) -> None:
    model, given = model_of(name), given_to(name, "images")
    options = {"gamma": 3, "seed": 5, "max_new_tokens": 10, "do_sample": True, "temperature": 1.5}
    expected = mmspec.generate(model, given, "none", **options).sequences.tolist()
    for kind in ("early exit", "thinned", "blind", "several"):
        draft = kinds(name)[kind][0]
        made = mmspec.generate(model, given, draft, hypothesis=[3, 4, 5], **options)
        assert made.sequences.tolist() == expected
        assert not made.report.faults


# Ablation: a drafter with other eyes


@every_family
@pytest.mark.parametrize("kind", ["model", "thinned"])
def test_a_blank_or_shuffled_image_changes_acceptance_only(name: str, kind: str) -> None:
    draft, given = kinds(name)[kind][0], given_to(name, "image")
    shuffled = torch.Generator().manual_seed(0)

    def shuffle(pixels: Tensor) -> Tensor:
        order = torch.randperm(pixels.numel(), generator=shuffled)
        return pixels.flatten()[order].view(pixels.shape)

    truly = drafted(name, draft)
    blinded = drafted(name, draft, seen=with_pixels(given, blank))
    mixed = drafted(name, draft, seen=with_pixels(given, shuffle))
    for other in (blinded, mixed):
        assert (truly.proposed, truly.accepted) != (other.proposed, other.accepted)
        assert kind == "thinned" or other.draft_acceptance_rate < 1 == truly.draft_acceptance_rate


@every_family
def test_a_blind_drafter_is_as_good_with_any_image_and_perfect_without(name: str) -> None:
    draft, given = TextOnly(twin_of(name)), given_to(name, "image")
    truly = drafted(name, draft)
    other = drafted(name, draft, seen=with_pixels(given, blank))
    assert (truly.proposed, truly.accepted) == (other.proposed, other.accepted)
    assert truly.draft_acceptance_rate < drafted(name, twin_of(name)).draft_acceptance_rate
    assert drafted(name, draft, "text").draft_acceptance_rate == 1


@every_family
def test_the_first_layers_look_through_the_targets_memory(name: str) -> None:
    model = model_of(name)
    target, given = Checkpoint.of(model), given_to(name, "image")
    laws = []
    for shown in (given, with_pixels(given, blank)):
        opened = target.family.open(prepare(model, shown, max_new_tokens=4), packed=False)
        opened.read_prompt()
        shallow = opened.early_exit(2)
        laws.append(shallow.score([5, 6], keep=1))
        assert shallow.state.length == opened.state.length + 2
        opened.close()
    assert not torch.allclose(*laws, atol=0.1)


# A part of the visual positions


def behind(name: str, places: Sequence[int] | None, case: str = "image") -> tuple[Any, Tensor]:
    """A target that has read some places of its prompt, and the law behind three more tokens."""
    model = model_of(name)
    prepared = prepare(model, given_to(name, case), max_new_tokens=8)
    opened = Checkpoint.of(model).family.open(prepared, packed=False)
    opened.read_prompt(None if places is None else torch.tensor(places))
    opened.score([5, 6], keep=0)
    return opened, opened.score([7], keep=1)


def hidden_from_all(name: str, left_out: Sequence[int], case: str = "image") -> Tensor:
    """The same distribution where the whole prompt was read, but nobody looked at some places."""
    model = model_of(name)
    opened, read = (
        Checkpoint.of(model).family.open,
        prepare(model, given_to(name, case), max_new_tokens=8),
    )
    target = opened(read, packed=False)
    hook = model.get_decoder().register_forward_pre_hook(
        functools.partial(_hide, left_out=left_out), with_kwargs=True
    )
    try:
        target.read_prompt()
        for token in (5, 6, 7):
            row = target.score([token], keep=1)
    finally:
        hook.remove()
        target.close()
    return row


def _hide(
    decoder: Any, given: Any, named: dict[str, Any], *, left_out: Sequence[int]
) -> tuple[Any, dict[str, Any]]:
    cache = named.get("cache", named.get("past_key_values"))
    start = cache.get_seq_length()
    block = named.get("inputs_embeds", named.get("input_ids"))
    size = block.shape[1]
    sees = torch.ones(size, start + size, dtype=torch.bool).tril(start)
    sees[:, left_out] = False
    sees[range(size), range(start, start + size)] = True
    mask = torch.zeros(sees.shape).masked_fill(~sees, -torch.inf)[None, None]
    return given, {**named, "attention_mask": mask}


@pytest.mark.parametrize("name", ["llava", "idefics3", "qwen3_vl", "internvl"])
def test_leaving_places_out_is_looking_away_from_them(name: str) -> None:
    prompt = given_to(name, "image")["input_ids"][0].tolist()
    visual = [place for place, token in enumerate(prompt) if token == MEDIA]
    left_out = [visual[0], visual[2]]
    read = [place for place in range(len(prompt)) if place not in left_out]
    opened, law = behind(name, read)
    assert opened.state.frozen == len(prompt) - 2
    opened.close()
    torch.testing.assert_close(law, hidden_from_all(name, left_out), atol=1e-3, rtol=1e-4)
    whole, same = behind(name, None)
    whole.close()
    assert not torch.allclose(law, same, atol=0.1)


@pytest.mark.parametrize("name", ["llava", "qwen3_vl"])
def test_a_renumbered_position_would_be_seen(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check above against its fault: kept places that move up to the front."""
    prune = place_reading._pruned

    def renumbered(named: dict[str, Any], places: Tensor) -> dict[str, Any]:
        made = prune(named, places)
        return {**made, "position_ids": made["position_ids"][..., :1] + torch.arange(len(places))}

    prompt = given_to(name, "image")["input_ids"][0].tolist()
    read = [place for place in range(len(prompt)) if place != prompt.index(MEDIA)]
    right, law = behind(name, read)
    monkeypatch.setattr(place_reading, "_pruned", renumbered)
    wrong, other = behind(name, read)
    right.close()
    wrong.close()
    assert not torch.allclose(law, other, atol=0.1)


def test_positions_of_three_axes_stay_where_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    """Qwen2-VL's decoder takes its masks by kind of layer, so its positions are looked at."""
    taken: list[Tensor] = []
    prune = place_reading._pruned

    def noted(named: dict[str, Any], places: Tensor) -> dict[str, Any]:
        taken.extend((named["position_ids"], (made := prune(named, places))["position_ids"]))
        return made

    monkeypatch.setattr(place_reading, "_pruned", noted)
    prompt = given_to("qwen2_vl", "middle")["input_ids"][0].tolist()
    read = [place for place in range(len(prompt)) if place % 3 or prompt[place] != MEDIA]
    opened, _ = behind("qwen2_vl", read, "middle")
    whole, some = taken
    assert len(read) < len(prompt)
    assert whole.shape[0] in (3, 4)
    torch.testing.assert_close(some, whole[..., read], rtol=0, atol=0)
    # What is said next stands behind the last position, not behind as many places.
    assert int(opened._behind.flatten()[0]) + len(read) == int(whole[..., -1].max()) + 1
    opened.close()


@every_family
def test_all_positions_are_the_whole_image(name: str) -> None:
    whole, full = (
        drafted(name, VisualTokenPruning(twin_of(name), 1.0)),
        drafted(name, twin_of(name)),
    )
    assert (whole.proposed, whole.accepted) == (full.proposed, full.accepted)
    assert whole.target_forwards == full.target_forwards  # nobody was asked what it looked at


@every_family
def test_more_of_the_image_is_worth_more_than_none(name: str) -> None:
    part = drafted(name, VisualTokenPruning(twin_of(name), 0.75)).draft_acceptance_rate
    assert drafted(name, TextOnly(twin_of(name))).draft_acceptance_rate < part <= 1


@every_family
def test_the_targets_attention_is_what_eager_attention_shows(name: str) -> None:
    model, given = model_of(name), given_to(name, "image")
    eager = copy.deepcopy(model)
    eager.set_attn_implementation("eager")
    layers = eager(**given, output_attentions=True).attentions
    expected = torch.stack([layer[0, :, -1].mean(0) for layer in layers]).mean(0)
    opened, law = behind(name, None)
    before, forwards = opened.state.length, opened.forwards
    torch.testing.assert_close(opened.prompt_attention(), expected.detach(), atol=1e-5, rtol=1e-4)
    assert (opened.state.length, opened.forwards) == (before, forwards + 1)
    assert model.get_decoder().config._attn_implementation == "sdpa"
    opened.state.rollback(before - 1)
    torch.testing.assert_close(opened.score([7], keep=1), law)
    opened.close()


def test_places_are_kept_by_attention_and_by_distance() -> None:
    visual = list(range(10, 20))
    weights = torch.tensor([0.0, 9, 0, 0, 0, 0, 0, 0, 8, 0])
    assert kept(visual, 2, weights)[0] == 11  # the best one
    assert {11, 18} <= set(kept(visual, 4, weights))
    assert kept(visual, 5, None) == [11, 13, 15, 17, 19]
    for count in range(1, 11):
        found = kept(visual, count, weights)
        assert len(set(found)) == count == len(found)
        assert found == sorted(found)
    assert kept(visual, 10, weights) == visual


def test_only_what_stands_in_a_prompt_can_be_left_out_of_it() -> None:
    target, across = Checkpoint.of(model_of("llava")), tiny_crossing.tiny("mllama")
    for draft, what in (
        (VisualTokenPruning(across), "be thinned"),
        (TextOnly(across), "be left out"),
    ):
        with pytest.raises(ModelError, match=f"beside the prompt, where it can't {what}"):
            draft_for(draft, target, False)


def test_a_language_model_has_nothing_to_thin() -> None:
    target = Checkpoint.of(model_of("llava"))
    with pytest.raises(ModelError, match="sees no image"):
        draft_for(VisualTokenPruning(words_of("llava")), target, False)
    for keep in (0, 0.0, 1.5, -1, float("nan"), True):
        with pytest.raises(OptionError, match="keep="):
            PrunedDraft(target, target, keep=keep)


# Words only


def test_what_stands_around_an_image_goes_with_it() -> None:
    assert without_images([1, 8, 7, 9, 9, 7, 7, 5, 8], {9}, {7, 8}) == [1, 5, 8]
    assert without_images([9, 9], {9}, {8}) == []
    assert without_images([], {9}, {8}) == []
    target = Checkpoint.of(model_of("qwen2_vl"))
    assert marks(target) == {OPEN, CLOSE}


def test_a_language_model_is_judged_by_its_own_configuration() -> None:
    """A target that looks with a drafter that doesn't: positions of one axis, ids of its own."""
    for name in FAMILIES:
        config = LlamaConfig(**{**TEXT, "vocab_size": VOCAB - 9}, num_hidden_layers=1)
        with torch.random.fork_rng():
            torch.manual_seed(3)
            drafter = LlamaForCausalLM(config).eval()
        drafter.generation_config = copy.deepcopy(model_of(name).generation_config)
        report = drafted(name, drafter)
        assert report.drafters["text-only"].conditioning == "none"
        assert report.drafter_forwards > 0
        assert report.drafter_encoder_runs == 0


def test_a_language_model_drafts_what_the_blind_one_does() -> None:
    """LLaVA's decoder is a Llama, so both read and say the same."""
    blind, words = drafted("llava", TextOnly(twin_of("llava"))), drafted("llava", words_of("llava"))
    assert (blind.proposed, blind.accepted) == (words.proposed, words.accepted)


class Strings:
    """As much of a tokenizer as a bridge needs."""

    bos_token_id = eos_token_id = pad_token_id = None

    def __init__(self, ids: Sequence[int]) -> None:
        self._ids = ids
        self.added_tokens_decoder: dict[int, Any] = {}

    def get_vocab(self) -> dict[str, int]:
        return {f"<{token}>": place for token, place in enumerate(self._ids)}


def test_a_language_model_is_found_by_name(tmp_path: Path) -> None:
    words = tmp_path / "words"
    words_of("llava").save_pretrained(words)
    strings = Tokenizer(WordLevel({f"w{token}": token for token in range(VOCAB)}, unk_token="w3"))
    PreTrainedTokenizerFast(tokenizer_object=strings).save_pretrained(words)
    target = Checkpoint.of(model_of("llava"))
    for spelling in (str(words), f"text-only:{words}"):
        found = draft_for(spelling, target, False)
        assert isinstance(found, TextOnlyDraft)
        assert found.name == "words"
        assert found.drafter.tokenizer.get_vocab()["w7"] == 7
    with pytest.raises(ModelError, match="sees no image"):
        draft_for(f"pruned:0.5:{words}", target, False)
    report = drafted("llava", str(words))
    expected = drafted("llava", TextOnly(twin_of("llava")))
    assert (report.proposed, report.accepted) == (expected.proposed, expected.accepted)
    with pytest.raises(ModelError, match="no adapter for model type 'llama'"):
        load_model(words)


def test_what_cant_draft_as_a_language_model_says_why() -> None:
    target = Checkpoint.of(model_of("llava"))
    eyes = model_of("llava").model.vision_tower
    with pytest.raises(ModelError, match="no vocabulary projection"):
        draft_for(eyes, target, False)


def test_another_tokenizer_is_bridged() -> None:
    order = torch.randperm(VOCAB, generator=torch.Generator().manual_seed(2))
    same, other = words_of("llava"), words_of("llava")
    with torch.no_grad():  # unit u has the id order[u] there
        for old, new in (
            (same.get_input_embeddings(), other.get_input_embeddings()),
            (same.lm_head, other.lm_head),
        ):
            new.weight[order] = old.weight
    other.generation_config.eos_token_id = int(order[1])
    target = Checkpoint.of(model_of("llava"), Strings(range(VOCAB)))
    with pytest.raises(ModelError, match="load both with their processors"):
        draft_for(other, target, False)
    bridged = draft_for(TextOnly(other, Strings(order.tolist())), target, False)
    assert isinstance(bridged, TextOnlyDraft)
    loop = {"processor": Strings(range(VOCAB))}
    there = drafted("llava", TextOnly(other, Strings(order.tolist())), **loop)
    here = drafted("llava", same)
    assert (there.proposed, there.accepted) == (here.proposed, here.accepted)


def test_a_drafter_that_looks_needs_something_to_look_at() -> None:
    model, given = model_of("llava"), given_to("llava", "image")
    loop = mmspec.custom_generate(twin_of("llava"), gamma=4)
    said = model.generate(**given, custom_generate=loop, max_new_tokens=UNITS, do_sample=False)
    assert said[0].tolist() == ordinary("llava", "image")
    assert "only the target's features were given" in loop.report.faults[0]
    blind = mmspec.custom_generate(TextOnly(twin_of("llava")), gamma=4)
    model.generate(**given, custom_generate=blind, max_new_tokens=UNITS, do_sample=False)
    assert not blind.report.faults


# Lookup


@pytest.mark.parametrize("name", ["llava", "qwen2_vl"])
def test_lookup_never_proposes_what_stands_for_an_image(name: str) -> None:
    target = Checkpoint.of(model_of(name))
    never = target.family.reserved(target.model) | target.steps.stop_tokens
    prompt = given_to(name, "images")["input_ids"][0].tolist()
    proposed = []
    for end in range(2, len(prompt)):  # the prompt once more, as far as the output has come
        drafter: Any = NgramDraft(target).open(None)
        prefix = Prefix([*prompt, *prompt[:end]], 512, torch.device("cpu"))
        proposed += drafter.propose(prefix, 8, None).ids
    assert set(prompt) - never <= {*proposed, *prompt[:2]}
    assert not never.intersection(proposed)


# Several at once


def test_each_of_several_says_what_it_knew_and_what_it_cost() -> None:
    expected = ordinary("qwen2_vl", "image")[given_to("qwen2_vl", "image")["input_ids"].shape[1] :]
    draft = ["hypothesis", twin_of("qwen2_vl"), "early-exit:2"]
    report = drafted("qwen2_vl", draft, hypothesis=expected[:5])
    assert report.drafters["hypothesis"].conditioning == "none"
    assert report.drafters["hypothesis"].forwards == 0
    others = {name: share for name, share in report.drafters.items() if share.forwards}
    assert sum(share.forwards for share in others.values()) == report.drafter_forwards
    known = {"hypothesis": "none", "model": "own", "early-exit:2": "shared"}
    assert all(share.conditioning == known[name] for name, share in report.drafters.items())
    assert len(report.drafters) > 1


def test_several_are_spelled_with_a_plus_or_listed() -> None:
    target = Checkpoint.of(model_of("llava"))
    assert draft_for("hypothesis+ngram", target, False).name == "hypothesis+ngram"
    twice = [twin_of("llava"), model_of("llava", 1, 1)]
    assert draft_for(twice, target, False).name == "model+model 2"
    for wrong in ("ngram+ngram", []):
        with pytest.raises(OptionError, match="at least one and none of them twice"):
            draft_for(wrong, target, False)


def test_a_wrong_spelling_says_what_was_expected() -> None:
    target = Checkpoint.of(model_of("llava"))
    for spelling, expected in {
        "pruned:x:model": "expected pruned:SHARE:MODEL",
        "pruned:0.5:": "names no model",
        "text-only:": "names no model",
        "early-exit:": "expected early-exit:N",
        "overlap": "only recordings",
    }.items():
        with pytest.raises(OptionError, match=expected):
            draft_for(spelling, target, False)
    with pytest.raises(ModelError, match="no such directory"):
        draft_for("text-only:nowhere", target, False)
    with pytest.raises(ModelError, match="1 to 2"):
        draft_for("early-exit:3", target, False)

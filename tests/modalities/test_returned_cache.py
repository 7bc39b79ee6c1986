"""The cache that `generate` returns, or fills for its caller: the library's, to go on from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers.cache_utils import Cache, DynamicCache, EncoderDecoderCache, StaticCache

import mmspec

from . import crossing_runs as crossing
from . import prefix_runs as prefix
from .tiny import features, shared, tiny
from .tiny_crossing import CASES
from .tiny_prefix import MEDIA, NAMES

KEPT = {"return_dict_in_generate": True, "do_sample": False}
DRAFTS = ("none", "ngram", "early-exit:1")


def memories(cache: Any) -> Iterator[Tensor | None]:
    if isinstance(cache, EncoderDecoderCache):
        yield from memories(cache.self_attention_cache)
        yield from memories(cache.cross_attention_cache)
        return
    for layer in cache.layers:
        yield from (layer.keys, layer.values)


def same_cache(got: Any, want: Any) -> None:
    """Raises where one isn't the other, but for the rounding of passes of another size."""
    if type(got) is not type(want) or got.get_seq_length() != want.get_seq_length():
        raise AssertionError((got, want))
    for mine, theirs in zip(memories(got), memories(want), strict=True):
        if mine is not None or theirs is not None:
            torch.testing.assert_close(mine, theirs, atol=1e-4, rtol=1e-4)


def a_turn_later(model: Any, first: Any, **more: Any) -> Tensor:
    """What the library's own loop says to three more words, the image known from the cache only."""
    ids = torch.cat([first.sequences, torch.tensor([[11, 12, 13]])], dim=1)
    asked = {"attention_mask": torch.ones_like(ids), "max_new_tokens": 6, **KEPT, **more}
    return model.generate(input_ids=ids, cache=first.cache, **asked).sequences


@pytest.mark.parametrize("name", NAMES)
def test_of_a_model_that_reads_a_prefix(name: str) -> None:
    model, prompt = prefix.model_of(name), prefix.given(name)
    asked = {**KEPT, "max_new_tokens": 9, "bad_words_ids": [[MEDIA]], "eos_token_id": None}
    for draft in DRAFTS:
        want = model.generate(**prompt, **asked)
        later = {"eos_token_id": None, "custom_generate": (again := mmspec.custom_generate(draft))}
        loop = mmspec.custom_generate(draft, gamma=3)
        got = model.generate(**prompt, **asked, custom_generate=loop)
        assert loop.ordinary is None
        assert torch.equal(got.sequences, want.sequences)
        same_cache(got.cache, want.cache)
        expected = a_turn_later(model, want, eos_token_id=None)
        if "token_type_ids" not in prompt:  # such a model asks for them in every turn
            assert torch.equal(a_turn_later(model, got, **later), expected)
            assert "cache" in str(again.ordinary)


@pytest.mark.parametrize(("name", "case"), CASES)
def test_of_a_model_that_attends_across(name: str, case: str) -> None:
    model, prompt = crossing.model_of(name), crossing.given(name, case)
    for draft in ("ngram", "early-exit:1"):
        want = crossing.plain(model, prompt, **KEPT)
        loop = mmspec.custom_generate(draft, gamma=3)
        got = crossing.plain(model, prompt, custom_generate=loop, **KEPT)
        assert torch.equal(got.sequences, want.sequences)
        if loop.ordinary is None:
            same_cache(got.cache, want.cache)


@pytest.mark.parametrize("rows", [1, 3])
def test_of_whisper(rows: int) -> None:
    """Its rows end one after the other: what follows an end is remembered as the library does."""
    model = tiny(1, says={"return_timestamps": False})
    batch = torch.cat([features(seed) for seed in (5, 6, 12)[:rows]])
    asked = {**KEPT, "language": "en", "force_unique_generate_call": True}
    said = model.generate(batch, **asked).sequences
    asked["eos_token_id"] = int(said[0, 9])
    want = model.generate(batch, **asked)
    pads = (want.sequences == model.generation_config.pad_token_id).sum(1).tolist()
    assert rows == 1 or len(set(pads)) > 1
    for draft in ("ngram", "early-exit:1", shared(11)):
        loop = mmspec.custom_generate(draft, gamma=3)
        got = model.generate(batch, custom_generate=loop, **asked)
        assert loop.ordinary is None
        assert torch.equal(got.sequences, want.sequences)
        same_cache(got.cache, want.cache)


def own_cache(kind: str, model: Any) -> Cache:
    if kind == "static":
        return StaticCache(config=model.config.text_config, max_cache_len=60)
    return DynamicCache(config=model.config.text_config)


@pytest.mark.parametrize("kind", ["dynamic", "static"])
def test_a_callers_own_is_filled(kind: str) -> None:
    model, prompt = prefix.model_of("llava"), prefix.given("llava")
    asked = {"do_sample": False, "max_new_tokens": 9, "eos_token_id": None}
    caches = [own_cache(kind, model) for _ in range(2)]
    model.generate(**prompt, cache=caches[0], **asked)
    loop = mmspec.custom_generate("ngram", gamma=3)
    model.generate(**prompt, cache=caches[1], custom_generate=loop, **asked)
    assert loop.ordinary is None
    assert int(caches[1].get_seq_length()) == prompt["input_ids"].shape[1] + 8
    same_cache(caches[1], caches[0])


def test_none_is_made_where_nobody_would_see_it(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    monkeypatch.setattr(mmspec.state.DecoderState, "copy_to", lambda self, cache: made.append(1))
    model, prompt = prefix.model_of("llava"), prefix.given("llava")
    for options in ({}, {"return_dict_in_generate": True, "use_cache": False}):
        loop = mmspec.custom_generate("ngram")
        model.generate(**prompt, max_new_tokens=4, custom_generate=loop, **options)
    model.generate(**prompt, max_new_tokens=4, custom_generate=loop, return_dict_in_generate=True)
    assert len(made) == 1


def test_as_asked_for_by_its_kind() -> None:
    model, prompt = prefix.model_of("gemma3"), prefix.given("gemma3", "long")
    asked = {**KEPT, "max_new_tokens": 9, "eos_token_id": None, "cache_implementation": "static"}
    want = model.generate(**prompt, **asked)
    got = model.generate(**prompt, custom_generate=mmspec.custom_generate("ngram"), **asked)
    same_cache(got.cache, want.cache)

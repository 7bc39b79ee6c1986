"""What `generate` may be given beside a prompt: a cache, embeddings, objects with a memory."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import DynamicCache, LogitsProcessor, StoppingCriteria

import mmspec
from mmspec.compat import cache_argument
from mmspec.errors import InputError, OptionError
from mmspec.modalities.base.preparation import prepare

from .tiny_prefix import inputs, tiny


@pytest.fixture(scope="module")
def model() -> Any:
    return tiny("qwen2_vl")


def named(model: Any, cache: Any) -> dict[str, Any]:
    """As this release of transformers calls it."""
    return cache_argument(type(model), cache)


def follow_up(model: Any, cache: Any) -> dict[str, Any]:
    """A turn of words behind an image and what was said of it, which the cache holds."""
    first = inputs("qwen2_vl", model, "image")
    said = model.generate(**first, max_new_tokens=8, **named(model, cache))
    ids = torch.cat([said, torch.tensor([[10, 11, 12]])], 1)
    kinds = torch.zeros_like(ids)
    kinds[:, : first["input_ids"].shape[1]] = first["mm_token_type_ids"]
    mask = torch.ones_like(ids)
    return {"input_ids": ids, "attention_mask": mask, "mm_token_type_ids": kinds}


class TestCaches:
    def test_a_filled_one_is_left_to_transformers(self, model: Any) -> None:
        ours, theirs = DynamicCache(), DynamicCache()
        turn = follow_up(model, ours)
        follow_up(model, theirs)
        want = model.generate(**turn, max_new_tokens=6, **named(model, theirs))
        loop = mmspec.custom_generate("ngram", gamma=3)
        made = model.generate(**turn, max_new_tokens=6, custom_generate=loop, **named(model, ours))
        assert made.tolist() == want.tolist()
        assert loop.ordinary == "a cache that holds positions already"
        assert ours.get_seq_length() == theirs.get_seq_length()

    def test_one_that_would_be_neither_read_nor_filled_is_refused(self, model: Any) -> None:
        first = inputs("qwen2_vl", model, "image")
        for given, options in (
            ({**first, **named(model, DynamicCache())}, {}),
            (first, named(model, DynamicCache())),
        ):
            with pytest.raises(OptionError, match="neither read nor filled: leave it out"):
                mmspec.generate(model, given, max_new_tokens=4, **options)

    def test_one_that_nobody_reads_is_refused(self, model: Any) -> None:
        cache = DynamicCache()
        turn = follow_up(model, cache)
        with pytest.raises(OptionError, match="found a filled cache"):
            prepare(model, turn, max_new_tokens=4, **named(model, cache))


class TestEmbeddings:
    def test_without_ids_they_are_left_to_transformers(self, model: Any) -> None:
        ids = inputs("qwen2_vl", model, "text")["input_ids"]
        given = {"inputs_embeds": model.get_input_embeddings()(ids).detach()}
        loop = mmspec.custom_generate("ngram", gamma=3)
        made = model.generate(**given, max_new_tokens=6, custom_generate=loop)
        assert made.tolist() == model.generate(**given, max_new_tokens=6).tolist()
        assert loop.ordinary == "a prompt of embeddings, without ids"
        with pytest.raises(InputError, match="expected input_ids"):
            mmspec.generate(model, given, max_new_tokens=6)


class NeverTheNth(LogitsProcessor):
    """Forbids another token at every step."""

    def __init__(self) -> None:
        self.steps = 0

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        self.steps += 1
        scores = scores.clone()
        scores[:, [3 + self.steps * factor % 80 for factor in range(30)]] = -torch.inf
        return scores


class StopAfter(StoppingCriteria):
    """Ends an output at a number of tokens; a lock can't be copied."""

    def __init__(self, steps: int, lock: Any = None) -> None:
        self.left, self.lock = steps, lock

    def __call__(self, input_ids: Tensor, scores: Any, **options: Any) -> bool:
        self.left -= 1
        return self.left <= 0


class TestMemories:
    @pytest.mark.parametrize("draft", ["none", "ngram"])
    def test_each_row_of_a_batch_has_its_own(self, model: Any, draft: str) -> None:
        given = inputs("qwen2_vl", model, "image", 3)

        def options() -> dict[str, Any]:
            own = {"logits_processor": [NeverTheNth()], "stopping_criteria": [StopAfter(7)]}
            return {**own, "max_new_tokens": 12, "eos_token_id": 99}

        want = model.generate(**given, **options())
        made = mmspec.generate(model, given, draft, gamma=3, **options())
        assert made.sequences.tolist() == want.tolist()
        assert [report.tokens for report in made.reports] == [7, 7, 7]

    def test_so_has_each_of_several_sequences(self, model: Any) -> None:
        given = inputs("qwen2_vl", model, "image")
        made = mmspec.generate(
            model,
            given,
            max_new_tokens=12,
            do_sample=True,
            eos_token_id=99,
            num_return_sequences=2,
            stopping_criteria=[StopAfter(5)],
        )
        assert [report.tokens for report in made.reports] == [5, 5]

    def test_what_cant_be_copied_is_called_as_it_is(self, model: Any) -> None:
        given = inputs("qwen2_vl", model, "image", 2)
        stop = StopAfter(30, threading.Lock())
        made = mmspec.generate(
            model, given, max_new_tokens=4, eos_token_id=99, stopping_criteria=[stop]
        )
        assert [report.tokens for report in made.reports] == [4, 4]
        assert stop.left == 22

    def test_a_single_rows_is_the_callers(self, model: Any) -> None:
        stop = StopAfter(5)
        given = inputs("qwen2_vl", model, "image")
        asked = {"max_new_tokens": 12, "eos_token_id": 99}
        mmspec.generate(model, given, stopping_criteria=[stop], **asked)
        assert stop.left == 0

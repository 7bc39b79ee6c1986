"""What `mmspec.generate` returns for several sequences of a prompt, and says of encoders."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import pytest
import torch
from transformers import GenerationConfig, MaxTimeCriteria

import mmspec
from mmspec.clock import Clock
from mmspec.errors import InputError, OptionError
from mmspec.modalities.base.encoder_runs import watched

from .tiny_prefix import EOS, PAD, inputs, tiny


@pytest.fixture(scope="module")
def model() -> Any:
    return tiny("qwen2_vl")


def sampled(model: Any, draft: Any, **options: Any) -> mmspec.Generation:
    given = inputs("qwen2_vl", model, "image")
    return mmspec.generate(model, given, draft, max_new_tokens=8, do_sample=True, seed=5, **options)


def test_several_sequences_of_a_prompt_are_drawn_apart(
    model: Any,
) -> None:
    alone = sampled(model, "none").sequences[0].tolist()
    three = sampled(model, "none", num_return_sequences=3)
    assert [len(three.sequences), len(three.reports)] == [3, 3]
    rows = [row.tolist() for row in three.sequences]
    assert rows[0][: len(alone)] == alone
    assert len({tuple(row) for row in rows}) == 3
    assert sampled(model, "ngram", num_return_sequences=3).sequences.tolist() == rows


def test_greedy_repeats_are_refused_as_generate_refuses_them(model: Any) -> None:
    given = inputs("qwen2_vl", model, "image")
    with pytest.raises(ValueError, match="num_return_sequences"):
        mmspec.generate(model, given, max_new_tokens=4, do_sample=False, num_return_sequences=2)


def test_an_encoder_run_before_the_loop_is_counted_and_timed(model: Any) -> None:
    given = inputs("qwen2_vl", model, "image")
    report = mmspec.generate(model, given, max_new_tokens=4).report
    assert report.encoder_runs == 1
    assert 0 < report.seconds["encode"] < report.total_seconds


def test_a_run_that_began_before_it_was_watched_is_not_counted() -> None:
    encoder, clock = torch.nn.Sequential(torch.nn.Identity()), Clock(torch.device("cpu"))
    with ExitStack() as stack:
        early = stack.enter_context(watched([encoder], clock))
        late = []
        hook = encoder[0].register_forward_hook(
            lambda *_: late.append(stack.enter_context(watched([encoder], clock)))
        )
        encoder(torch.zeros(1))
        hook.remove()
        encoder(torch.zeros(1))
    assert (early.count, late[0].count) == (2, 1)


def test_a_drafter_that_is_the_target_counts_its_own_runs(model: Any) -> None:
    given = inputs("qwen2_vl", model, "image")
    report = mmspec.generate(model, given, model, gamma=2, max_new_tokens=8).report
    assert (report.encoder_runs, report.drafter_encoder_runs) == (1, 1)


def test_a_drafter_with_another_mark_for_an_image_says_so(model: Any) -> None:
    drafter = tiny("qwen2_vl", seed=1, layers=1)
    drafter.config.image_token_id -= 40
    given = inputs("qwen2_vl", model, "image")
    plain = mmspec.generate(model, given, max_new_tokens=6)
    drafted = mmspec.generate(model, given, drafter, gamma=2, max_new_tokens=6)
    assert drafted.sequences.tolist() == plain.sequences.tolist()
    (fault,) = drafted.report.faults
    assert "which makes each its own" in fault
    assert str(model.config.image_token_id) in fault


@pytest.mark.parametrize(
    "options",
    [
        {"penalty_alpha": 0.6, "top_k": 4},
        {"dola_layers": "low"},
        {"force_words_ids": [[5]]},
        {"prefill_chunk_size": 4},
    ],
    ids=lambda options: next(iter(options)),
)
def test_what_is_no_choice_by_the_targets_law_is_refused(
    model: Any, options: dict[str, Any]
) -> None:
    given, name = inputs("qwen2_vl", model, "image"), next(iter(options))
    with pytest.raises(OptionError, match=f"set {name}=None"):
        mmspec.generate(model, given, "ngram", max_new_tokens=4, **options)


def test_prompts_stay_padded_with_what_they_were(model: Any) -> None:
    given = inputs("qwen2_vl", model, ["image", "middle"], 2)
    options = {"max_new_tokens": 8, "eos_token_id": 50, "pad_token_id": 7}
    want = model.generate(**given, **options)
    made = mmspec.generate(model, given, **options)
    assert made.sequences.tolist() == want.tolist()
    assert want[0, 0] == PAD


@pytest.mark.parametrize(
    "ids", [[[2, 5, 6]], torch.tensor([2, 5, 6]), torch.zeros(0, 3, dtype=torch.long)]
)
def test_ids_that_are_no_batch_of_prompts_are_refused(model: Any, ids: Any) -> None:
    with pytest.raises(InputError, match=r"input_ids: found .*return_tensors"):
        mmspec.generate(model, {"input_ids": ids}, max_new_tokens=4)


@pytest.mark.parametrize("as_config", [False, True])
@pytest.mark.parametrize("beyond", [{"max_length": 9}, {"max_length": 12, "min_length": 8}])
def test_limits_of_a_batch_count_its_padding(
    model: Any, as_config: bool, beyond: dict[str, int]
) -> None:
    given = inputs("qwen2_vl", model, ["image", "middle"], 2)
    width = given["input_ids"].shape[1]
    assert int((given["attention_mask"] == 0).sum()) > 9
    options: dict[str, Any] = {name: width + limit for name, limit in beyond.items()}
    if as_config:
        config = GenerationConfig(**options, pad_token_id=PAD, eos_token_id=EOS)
        options = {"generation_config": config}
    want = model.generate(**given, **options)
    made = mmspec.generate(model, given, "ngram", gamma=3, **options)
    assert made.sequences.tolist() == want.tolist()
    assert want.shape[1] == width + beyond["max_length"]
    if as_config:
        assert config.max_length == width + beyond["max_length"]


@pytest.mark.parametrize("draft", ["ngram", "early-exit:1", "itself"])
def test_a_limit_that_nobody_means_costs_nothing(model: Any, draft: str) -> None:
    given = inputs("qwen2_vl", model, "image")
    end = int(model.generate(**given, max_new_tokens=9)[0, -1])
    asked = {"max_new_tokens": 10**9, "eos_token_id": end}
    want = model.generate(**given, **asked)
    made = mmspec.generate(model, given, model if draft == "itself" else draft, gamma=3, **asked)
    assert made.sequences.tolist() == want.tolist()
    assert not made.report.faults


@pytest.mark.parametrize("as_config", [False, True])
def test_the_time_limit_is_one_for_all_rows(
    model: Any, as_config: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    left: list[float] = []
    real = MaxTimeCriteria.__init__

    def noted(self: MaxTimeCriteria, max_time: float, *args: Any) -> None:
        left.append(max_time)
        real(self, max_time, *args)

    monkeypatch.setattr(MaxTimeCriteria, "__init__", noted)
    given = inputs("qwen2_vl", model, ["image", "middle", "text"])
    options: dict[str, Any] = {"max_new_tokens": 3, "max_time": 60.0}
    if as_config:
        options = {"generation_config": GenerationConfig(**options, pad_token_id=PAD)}
    mmspec.generate(model, given, "ngram", **options)
    assert left[0] == 60.0 > left[1] > left[2] > 0
    left.clear()
    late = mmspec.generate(model, given, **(options if as_config else {**options, "max_time": 0.0}))
    assert as_config or late.sequences.shape[1] == given["input_ids"].shape[1] + 1

"""D, E, F, Z2 and Z5 where an image or a sound is read as a prefix."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import LogitsProcessor, LogitsProcessorList

import mmspec
from mmspec.errors import InputError
from mmspec.modalities.base.draft import NgramDraft
from tests.modalities.drafting import same_ids
from tests.modalities.prefix_runs import (
    decoding,
    emitted,
    given,
    model_of,
    plain,
    said,
    sibling_of,
    speculated,
    target_of,
    twin_of,
    without_cache,
    wrong,
)
from tests.modalities.tiny_prefix import MEDIA, NAMES, PAD, inputs, tiny

THREE = ("copy", "other", "ngram")
GRIDS = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "paddleocr_vl")

every_family = pytest.mark.parametrize("name", NAMES)
every_grid = pytest.mark.parametrize("name", GRIDS)


def equal(target: Any, prompt: Any, tokens: int, **how: Any) -> Any:
    """The ids are transformers' own, and the drafter was at work to the end."""
    options = {key: how.pop(key) for key in ("eos_token_id",) if key in how}
    want = target.generate(**prompt, max_new_tokens=tokens, do_sample=False, **options)
    made = mmspec.generate(
        target, prompt, packed=False, max_new_tokens=tokens, **{"gamma": 4, **how, **options}
    )
    same_ids(made.sequences, want)
    faults = [fault for report in made.reports for fault in report.faults]
    if faults:
        raise AssertionError(faults)
    return made


WINDOWED: dict[str, tuple[str, dict[str, Any]]] = {
    "Gemma 3": ("gemma3", {}),
    "Gemma 2": (
        "paligemma",
        {"model_type": "gemma2", "sliding_window": 14, "query_pre_attn_scalar": 8},
    ),
    "Mistral": ("llava", {"model_type": "mistral", "sliding_window": 14}),
    "Qwen 2": (
        "llava",
        {
            "model_type": "qwen2",
            "use_sliding_window": True,
            "sliding_window": 14,
            "max_window_layers": 1,
        },
    ),
}
"""Decoders that see no further back than a window, in all layers or some."""


def windowed(which: str, kernel: str) -> Any:
    name, changes = WINDOWED[which]
    model = tiny(name, **changes)
    if which == "Gemma 2":
        with torch.no_grad():
            model.get_input_embeddings().weight *= 0.2
    model.set_attn_implementation(kernel)
    return model


KERNELS = [
    (which, kernel)
    for which in WINDOWED
    for kernel in ("eager", "sdpa")
    if (which, kernel) != ("Gemma 2", "sdpa")  # transformers doesn't offer it
]


@pytest.mark.parametrize(("which", "kernel"), KERNELS)
def test_D1_a_window_is_passed_while_drafting(which: str, kernel: str) -> None:
    name = WINDOWED[which][0]
    model, prompt = windowed(which, kernel), given(name, "text")
    assert prompt["input_ids"].shape[1] < 14
    truth = plain(model, prompt, eos_token_id=None)
    drafts: list[dict[str, Any]] = [
        {"draft": model},
        {"draft": sibling_of(name)},
        {"draft": "hypothesis", "hypothesis": wrong(truth)},
    ]
    for draft in drafts:
        equal(model, prompt, 12, eos_token_id=None, **draft)


@pytest.mark.parametrize("which", WINDOWED)
def test_D1_blocks_and_trees_see_the_window_that_a_full_forward_sees(which: str) -> None:
    name = WINDOWED[which][0]
    model, prompt = windowed(which, "eager"), given(name, "long")
    tokens = [7, 40, 11, 60, 22, 35, 71, 9, 50]
    with target_of(name, prompt, model) as (target, first):
        rows = [first, target.score(tokens[:3], 3), target.score(tokens[3:], 6)]
        want = without_cache(name, prompt, tokens, model)
        torch.testing.assert_close(torch.cat(rows), want, atol=1e-4, rtol=1e-4)
        if target.takes_trees:
            target.state.rollback(target.state.length - 6)
            tree = target.score([*tokens[3:], 5, 6], 8, [*range(-1, 5), -1, 6])
            torch.testing.assert_close(tree[:6], want[-6:], atol=1e-4, rtol=1e-4)


ROTARY = ("llava", "qwen2_vl", "gemma3")


@pytest.mark.parametrize(("name", "kind"), list(zip(ROTARY, THREE, strict=True)))
def test_D9_an_output_goes_on_past_the_context_as_generate_does(name: str, kind: str) -> None:
    """Rotary positions have no end."""
    target = tiny(name, max_position_embeddings=20)
    draft = {"copy": target, "other": sibling_of(name), "ngram": "ngram"}[kind]
    equal(target, given(name), 12, draft=draft, eos_token_id=None)


@pytest.mark.parametrize("name", ROTARY)
def test_D9_a_drafters_context_may_be_shorter_than_the_prompt(name: str) -> None:
    short = tiny(name, seed=1, layers=1, max_position_embeddings=10)
    for gamma in (3, 40):
        made = equal(model_of(name), given(name), 8, draft=short, gamma=gamma, eos_token_id=None)
        assert made.report.proposed > 0


@every_grid
def test_D11_interleaved_requests_do_not_meet(name: str) -> None:
    """Round by round in turn: images, text alone, another image; the drafter has their module."""
    prompts = [given(name, case) for case in ("images", "text", "long")]
    with ExitStack() as stack:
        sessions = [
            stack.enter_context(decoding(name, prompt, model_of(name), gamma=3))[0]
            for prompt in prompts
        ]
        while any(session.finish_reason is None for session in sessions):
            for session in sessions:
                session.round()
    for session, case in zip(sessions, ("images", "text", "long"), strict=True):
        assert session.prefix.emitted == list(said(name, case))
        assert session.tally.accepted == session.tally.proposed > 0


@every_grid
@pytest.mark.parametrize("kind", THREE)
def test_D11_one_loop_serves_one_request_after_the_other(name: str, kind: str) -> None:
    """A, B, A, with the library's own calls in between."""
    case = dict(zip(THREE, ("images", "long", "middle"), strict=True))[kind]
    for prompt in (given(name, case), given(name, "text"), given(name, case)):
        want = plain(model_of(name), prompt, 6)
        made = speculated(name, prompt, "itself" if kind == "copy" else kind, max_new_tokens=6)
        assert emitted(made.sequences, prompt) == want


@pytest.mark.parametrize("name", [*GRIDS, "paligemma"])
def test_D12_F7_positions_are_those_of_a_full_forward(name: str) -> None:
    """Teacher forcing over the whole output, no cache: the same tokens (F7: PaliGemma)."""
    for case in ("images", "long"):
        with decoding(name, given(name, case), twin_of(name)) as (session, _):
            session.run()
        ids = session.prefix.emitted
        rows = without_cache(name, given(name, case), ids[:-1])
        assert rows.argmax(-1).tolist() == ids


@pytest.mark.parametrize("name", ["llava", "qwen2_vl", "paligemma", "gemma3"])
def test_D13_a_padded_prompt_is_masked(name: str) -> None:
    prompt, padded = given(name), {}
    shape = prompt["input_ids"].shape
    for key, value in prompt.items():
        fill = PAD if key == "input_ids" else -100 if key == "labels" else 0
        same = value.shape == shape
        padded[key] = torch.nn.functional.pad(value, (3, 0), value=fill) if same else value
    want = model_of(name).generate(**padded, max_new_tokens=4)
    for kind in THREE:
        same_ids(speculated(name, padded, kind, max_new_tokens=4).sequences, want)


KINDS = [
    ("paligemma", ("token_type_ids", "labels")),
    ("paligemma", ("labels",)),
    ("gemma3", ("token_type_ids",)),
    ("qwen2_vl", ("mm_token_type_ids",)),
    ("idefics3", ("pixel_attention_mask",)),
    ("llava_onevision", ("batch_num_images",)),
    ("llava", ("attention_mask",)),
]


@pytest.mark.parametrize(("name", "missing"), KINDS)
def test_D14_what_a_processor_adds_or_leaves_out_is_accepted(
    name: str, missing: Sequence[str]
) -> None:
    prompt = {key: value for key, value in given(name).items() if key not in missing}
    want = plain(model_of(name), prompt, 6)
    for kind in THREE:
        made = speculated(name, prompt, kind, max_new_tokens=6)
        assert emitted(made.sequences, prompt) == want


@pytest.mark.parametrize("sizes", [(104, 112), (112, 104), (100, 128)])
@pytest.mark.parametrize("name", ["llava_onevision", "qwen2_vl"])
def test_E1_E2_vocabularies_that_differ_by_padding(name: str, sizes: tuple[int, int]) -> None:
    target, draft = (
        tiny(name, seed=seed, layers=layers, vocab_size=size)
        for seed, layers, size in zip((0, 1), (3, 1), sizes, strict=True)
    )
    made = equal(target, given(name), 8, draft=draft, eos_token_id=None)
    assert made.report.proposed > 0
    seeded = [
        mmspec.generate(
            target,
            given(name),
            drafter,
            packed=False,
            gamma=4,
            seed=3,
            do_sample=True,
            max_new_tokens=8,
        )
        for drafter in ("none", draft)
    ]
    same_ids(seeded[0].sequences, seeded[1].sequences)
    assert not seeded[1].report.faults


@every_family
def test_F1_a_drafters_vocabulary_may_end_before_the_placeholder(name: str) -> None:
    draft = tiny(name, seed=1, layers=1, vocab_size=MEDIA - 3)
    made = equal(model_of(name), given(name), 6, draft=draft, eos_token_id=None)
    assert made.report.proposed > 0
    assert made.report.drafter_encoder_runs == 1


def beyond(model: Any, token: int) -> Any:
    """The same model with another id for an image."""
    model.config.image_token_id = token
    return model


@pytest.mark.parametrize("name", ["paligemma", "gemma3"])
def test_F2_a_placeholder_beyond_the_vocabulary(name: str) -> None:
    """These two are made for it."""
    token, prompt = 120, given(name)
    prompt["input_ids"][prompt["input_ids"] == MEDIA] = token
    target = beyond(tiny(name), token)
    for draft in ("none", "ngram", target, beyond(tiny(name, seed=1, layers=1), token)):
        equal(target, prompt, 8, draft=draft, eos_token_id=None)


@pytest.mark.parametrize("kind", THREE)
@pytest.mark.parametrize("case", ["image", "text"])
def test_F5_a_literal_placeholder_in_the_text_is_named(case: str, kind: str) -> None:
    for name in ("llava", "qwen2_vl", "idefics3", "voxtral"):
        prompt = given(name, case)
        prompt["input_ids"][0, 1] = MEDIA
        with pytest.raises(InputError, match=f"id {MEDIA}") as error:
            speculated(name, prompt, kind)
        assert "\n" not in str(error.value)


class Forced(LogitsProcessor):
    """The token at a position is a given one."""

    def __init__(self, position: int, token: int) -> None:
        self.position, self.token = position, token

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        if input_ids.shape[1] != self.position:
            return scores
        forced = torch.full_like(scores, -torch.inf)
        forced[:, self.token] = 0
        return forced


@every_family
def test_F6_a_placeholder_that_was_said_is_a_word(name: str) -> None:
    """The library embeds it as any other id; so does every block that holds it."""
    prompt = given(name)
    third = prompt["input_ids"].shape[1] + 2
    forced = LogitsProcessorList([Forced(third, MEDIA)])
    want = plain(model_of(name), prompt, 8, logits_processor=forced, eos_token_id=None)
    assert want[2] == MEDIA
    kind = THREE[NAMES.index(name) % 3]
    for drafter in (kind, "hypothesis-right"):
        asked = {"hypothesis": want, "logits_processor": forced, "eos_token_id": None}
        made = speculated(name, prompt, drafter, max_new_tokens=8, **asked)
        assert emitted(made.sequences, prompt) == want


@pytest.mark.parametrize("seed", [0, 5])
@pytest.mark.parametrize("typed", [True, False])
def test_Z2_paligemmas_blocks_are_causal(seed: int, typed: bool) -> None:
    prompt = given("paligemma", seed=seed)
    if not typed:
        del prompt["token_type_ids"]
    want = plain(model_of("paligemma"), prompt, 8, eos_token_id=None)
    for kind in (*THREE, "hypothesis-wrong"):
        asked = {"hypothesis": want, "max_new_tokens": 8, "eos_token_id": None}
        assert emitted(speculated("paligemma", prompt, kind, **asked).sequences, prompt) == want


def repeated(name: str) -> dict[str, Tensor]:
    """A prompt that ends as it stood before its image."""
    prompt = given(name)
    ids = prompt["input_ids"]
    at = int((ids[0] == MEDIA).nonzero()[0])
    ids[0, -2:] = ids[0, at - 2 : at]
    return prompt


@every_family
def test_Z5_lookup_does_not_propose_an_image(name: str) -> None:
    prompt = repeated(name)
    with decoding(name, prompt, NgramDraft) as (session, _):
        assert session._drafter is not None
        found = session._drafter.outlook(session.prefix)
        assert found.context == "match 2"
        assert not session._drafter.propose(session.prefix, 3, lambda *_: (0, None)).ids
        session.run()
    assert not any(MEDIA in done.proposal for done in session.tally.trace)
    assert session.prefix.emitted == plain(model_of(name), prompt, eos_token_id=None)


@pytest.mark.parametrize("name", ["llava", "qwen2_vl", "voxtral"])
def test_A11_the_target_drafts_for_itself(name: str) -> None:
    """The very same module: its tower runs once for each of the two."""
    made = speculated(name, given(name, "images"), "itself", eos_token_id=None)
    assert emitted(made.sequences, given(name, "images")) == list(said(name, "images"))
    assert made.report.accepted == made.report.proposed > 0
    assert (made.report.encoder_runs, made.report.drafter_encoder_runs) == (1, 1)


def test_C8_a_second_call_on_the_same_objects_is_the_first_again() -> None:
    prompt = inputs("qwen2_vl", model_of("qwen2_vl"), "images")
    before = {key: value.clone() for key, value in prompt.items()}
    loop = mmspec.custom_generate("ngram", gamma=4, packed=False)
    for _ in range(2):
        made = model_of("qwen2_vl").generate(**prompt, max_new_tokens=8, custom_generate=loop)
        assert emitted(made, prompt) == plain(model_of("qwen2_vl"), prompt, 8)
    assert all(torch.equal(prompt[key], before[key]) for key in before)
    assert loop.history[0].proposed == loop.history[1].proposed

"""Every family that reads an image or a sound as a prefix says what `generate` says."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from mmspec.errors import InputError
from mmspec.modalities import ADAPTERS, adapter_for
from mmspec.report.trace import Round

from .prefix_runs import (
    DRAFTERS,
    UNITS,
    decoding,
    emitted,
    given,
    model_of,
    padded_right,
    plain,
    said,
    speculated,
    target_of,
    twin_of,
    without_cache,
)
from .tiny_prefix import CASES, MEDIA, NAMES, WORDS, inputs

GAMMAS = (1, 4, "adaptive")

every_family = pytest.mark.parametrize("name", NAMES)
every_drafter = pytest.mark.parametrize("kind", DRAFTERS)


def turn(name: str) -> int:
    """A family's number: what isn't tried with every family is tried with some."""
    return NAMES.index(name)


def family_of(name: str) -> Any:
    return adapter_for(model_of(name).config.model_type).FAMILY


@every_family
def test_an_adapter_names_its_model(name: str) -> None:
    family = family_of(name)
    assert model_of(name).config.model_type in family.model_types
    assert type(model_of(name)).__name__ == family.model_class
    assert set(family.model_types) <= set(ADAPTERS)
    assert family.reserved(model_of(name)) >= {MEDIA}
    assert family.hears == (name in ("qwen2_audio", "voxtral"))


@every_family
@every_drafter
def test_ids_are_those_of_generate(name: str, kind: str) -> None:
    """Every drafter meets every case and every γ, each in some family."""
    number = turn(name) + DRAFTERS.index(kind)
    case, gamma = tuple(CASES)[number % len(CASES)], GAMMAS[number % len(GAMMAS)]
    prompt = given(name, case)
    want = model_of(name).generate(**prompt, max_new_tokens=UNITS, do_sample=False)
    made = speculated(name, prompt, kind, gamma, hypothesis=emitted(want, prompt))
    assert made.sequences.tolist() == want.tolist()


def test_every_drafter_met_every_case_and_every_gamma() -> None:
    numbers = {(kind, turn(name) + at) for at, kind in enumerate(DRAFTERS) for name in NAMES}
    assert len({(kind, number % len(CASES)) for kind, number in numbers}) == 6 * len(CASES)
    assert len({(kind, number % len(GAMMAS)) for kind, number in numbers}) == 6 * len(GAMMAS)


@every_family
def test_an_end_anywhere_in_a_block_ends_the_output(name: str) -> None:
    """Blocks of five: a hypothesis that is right."""
    base = said(name)
    for offset in range(turn(name) % 3, 6, 3):
        end = base[offset]
        want = base[: base.index(end) + 1]
        made = speculated(name, given(name), "hypothesis-right", hypothesis=base, eos_token_id=end)
        assert emitted(made.sequences, given(name)) == list(want)
        assert made.report.finish_reason == "stop"


@every_family
def test_no_more_units_than_asked_for(name: str) -> None:
    for tokens in range(1 + turn(name) % 3, 7, 3):
        asked = {"max_new_tokens": tokens, "eos_token_id": None}
        made = speculated(name, given(name), "hypothesis-right", hypothesis=said(name), **asked)
        assert emitted(made.sequences, given(name)) == list(said(name)[:tokens])
        assert made.report.finish_reason == "length"


def test_a_criterion_of_the_callers_ends_it_inside_a_block() -> None:
    base = said("llava")

    def ended(ids: Tensor, scores: Any, **options: Any) -> Tensor:
        return torch.tensor([bool((ids[0, -1] == base[3]).item())])

    made = speculated(
        "llava",
        given("llava"),
        "hypothesis-right",
        hypothesis=base,
        eos_token_id=None,
        stopping_criteria=[ended],
    )
    assert emitted(made.sequences, given("llava")) == list(base[: base.index(base[3]) + 1])


@every_family
def test_rows_of_a_batch_are_single_runs(name: str) -> None:
    cases = ("image", "text", "images")
    batch = inputs(name, model_of(name), cases, seed=4)
    singles = [given(name, case, seed=4 + row) for row, case in enumerate(cases)]
    rows = family_of(name).rows(model_of(name), batch)
    for row, single in zip(rows, singles, strict=True):
        assert set(row) == set(single)
        assert all(torch.equal(row[key], single[key]) for key in single)
    made = speculated(name, batch, gamma=3, max_new_tokens=6)
    width = batch["input_ids"].shape[1]
    assert torch.equal(made.sequences[:, :width], batch["input_ids"])
    for row, single in enumerate(singles):
        want = plain(model_of(name), single, 6)
        padding = made.sequences.shape[1] - width - len(want)
        assert made.sequences[row, width:].tolist() == [*want, *[0] * padding]


def wider(batch: Any, left: int, right: int) -> dict[str, Any]:
    """A batch with more padding on both sides."""
    shape = batch["input_ids"].shape
    return {
        key: torch.nn.functional.pad(value, (left, right)) if value.shape == shape else value
        for key, value in batch.items()
    }


def over_an_image(batch: Any) -> dict[str, Any]:
    mask = batch["attention_mask"].clone()
    mask[0, : int((batch["input_ids"][0] == MEDIA).nonzero()[0]) + 1] = 0
    return {**batch, "attention_mask": mask}


PADDINGS: dict[str, tuple[Any, int]] = {
    "left": (lambda batch: batch, 2),
    "left of all": (lambda batch: wider(batch, 3, 0), 2),
    "right": (padded_right, 1),
    "right of all": (lambda batch: wider(padded_right(batch), 0, 2), 0),
    "both": (lambda batch: wider(batch, 1, 2), 0),
    "over an image": (over_an_image, 1),
    "no mask": (lambda batch: {k: v for k, v in batch.items() if k != "attention_mask"}, 1),
}
"""Ways to pad a batch of two, and how many rows of it are ours to decode."""


@pytest.mark.parametrize(
    ("name", "padding"),
    [
        (name, padding)
        for name in ("llava", "qwen2_vl", "gemma3")
        for padding in PADDINGS
        if (name, padding) != ("qwen2_vl", "over an image")  # the library fails
    ],
)
def test_a_batch_is_the_librarys_however_it_is_padded(name: str, padding: str) -> None:
    pad, ours = PADDINGS[padding]
    batch = pad(inputs(name, model_of(name), ("image", "middle")))
    for asked in ({"max_new_tokens": 6}, {"max_length": batch["input_ids"].shape[1] + 5}):
        want = model_of(name).generate(**batch, **asked)
        made = speculated(name, batch, gamma=3, **{"max_new_tokens": None, **asked})
        assert made.sequences.tolist() == want.tolist()
        assert len(made.reports) == ours


@every_family
def test_an_image_without_a_place_or_a_place_without_an_image_is_an_error(name: str) -> None:
    prompt = given(name, "images")
    ids = prompt["input_ids"]
    at = (ids[0] == MEDIA).nonzero().flatten()
    fewer, more, none = ids.clone(), ids.clone(), ids.clone()
    fewer[0, at[0]] = WORDS[0]
    more[0, 1] = MEDIA
    none[0, at] = WORDS[0]
    for other, text in ((fewer, "positions"), (more, "positions"), (none, "no place")):
        with counted(model_of(name)) as runs, pytest.raises(InputError, match=text) as error:
            speculated(name, {**prompt, "input_ids": other})
        assert "\n" not in str(error.value)
        assert not runs
    blind = {key: value for key, value in prompt.items() if value.shape == ids.shape}
    with pytest.raises(InputError, match="takes none"):
        speculated(name, blind)


@every_family
def test_seeded_samples_are_the_same_for_every_drafter(name: str) -> None:
    asked = {"do_sample": True, "temperature": 1.5, "seed": 3 + turn(name), "max_new_tokens": 8}
    made = [
        speculated(name, given(name), kind, **asked).sequences.tolist()
        for kind in ("none", "ngram", "other")
    ]
    assert made[0] == made[1] == made[2]


@contextmanager
def counted(model: Any) -> Iterator[Counter[str]]:
    """How often each module of a model runs while this is open."""
    runs: Counter[str] = Counter()
    hooks = [
        module.register_forward_pre_hook(lambda *_, name=name: runs.update([name]))
        for name, module in model.named_modules()
    ]
    try:
        yield runs
    finally:
        for hook in hooks:
            hook.remove()


def attributes(model: Any) -> dict[str, str]:
    """All that a model's modules note of themselves, weights by place and version."""
    noted = {}
    for path, module in model.named_modules():
        for key, value in vars(module).items():
            if key in ("_parameters", "_buffers"):
                held = [(n, t is None or (t.data_ptr(), t._version)) for n, t in value.items()]
                noted[f"{path}.{key}"] = repr(held)
            elif key not in ("_modules", "rope_deltas"):
                noted[f"{path}.{key}"] = repr(value)
    return noted


@dataclass
class Watched:
    """A request that was watched round by round."""

    ids: list[int]
    rounds: list[Round]
    moved: list[str]
    encoders: tuple[int, int]
    reported: tuple[int, int]
    changed: list[str]


def memory(target: Any, frozen: int) -> list[tuple[int, Tensor]]:
    """Where the prefix is kept, and a copy of it."""
    layers = [target.state.growing(layer) for layer in range(len(target._decoder.layers))]
    return [
        (kept.data_ptr(), kept[:, :, :frozen].clone())
        for layer in layers
        for kept in (layer.keys, layer.values)
    ]


@functools.cache
def watched(name: str) -> Watched:
    """A copy of the model drafts; whatever lies behind the target's length is NaN."""
    model, twin, moved = model_of(name), twin_of(name), []
    encoder = family_of(name).encoder_names[0]
    before = attributes(model)
    with (
        counted(model) as runs,
        counted(twin) as drafters,
        decoding(name, given(name, "images"), twin) as (session, stats),
    ):
        target = session._target
        kept = memory(target, target.state.frozen)
        while session.finish_reason is None:
            target.state.poison_unused()
            session.round()
            for (place, values), (place_now, now) in zip(
                kept, memory(target, target.state.frozen), strict=True
            ):
                moved += ["re-allocated"] * (place != place_now)
                moved += ["overwritten"] * (not torch.equal(values, now))
    after = attributes(model)
    return Watched(
        session.prefix.emitted,
        list(session.tally.trace),
        moved,
        (runs[encoder], drafters[encoder]),
        (stats.encoder_runs, stats.drafter_encoder_runs),
        [key for key in before if before[key] != after.get(key)] + [*(after.keys() - before)],
    )


@every_family
def test_what_lies_behind_the_length_is_never_read(name: str) -> None:
    assert watched(name).ids == plain(
        model_of(name), given(name, "images"), UNITS, eos_token_id=None
    )


@every_family
def test_a_copy_of_the_target_is_accepted_whole(name: str) -> None:
    """No token of twelve is rejected; every round but the last says four and one more."""
    rounds = watched(name).rounds
    assert [len(round.proposal) for round in rounds] == [4, 4, 1]
    assert [len(round.emitted) for round in rounds] == [5, 5, 2]


@every_family
def test_towers_run_once_for_each_model(name: str) -> None:
    assert watched(name).encoders == (1, 1)
    # Images are encoded before the request begins, a sound when its prompt is read.
    assert watched(name).reported == (int(family_of(name).hears), 1)


@every_family
def test_the_prefix_stays_as_it_was(name: str) -> None:
    assert watched(name).moved == []


@every_family
def test_a_model_is_left_as_it_was(name: str) -> None:
    assert watched(name).changed == []


UNSAID = [WORDS[0] + step for step in (5, 33, 12, 60, 21, 47, 8)]
"""Some tokens; whether a model would say them doesn't matter."""


@every_family
def test_rows_of_a_block_are_those_of_a_full_forward(name: str) -> None:
    for case in ("images", "long"):
        prompt = given(name, case)
        want = without_cache(name, prompt, UNSAID)
        with target_of(name, prompt) as (target, first):
            rows = [first, target.score(UNSAID[:4], 4), target.score(UNSAID[4:], 3)]
            torch.testing.assert_close(torch.cat(rows), want, atol=1e-4, rtol=1e-4)
            target.state.rollback(target.state.frozen)  # the first block once more, otherwise cut
            rows = [first, target.score(UNSAID[:1], 1), target.score(UNSAID[1:], 6)]
            torch.testing.assert_close(torch.cat(rows), want, atol=1e-4, rtol=1e-4)


@every_family
def test_the_last_unit_of_a_block_moves_no_earlier_row(name: str) -> None:
    with target_of(name, given(name)) as (target, _):
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
    with target_of(name, given(name, "long")) as (target, _):
        assert target.takes_trees
        start = target.state.length
        tree = target.score(UNSAID, 7, parents)
        for branch in ([0, 1, 2, 3], [0, 4, 5, 6]):
            target.state.rollback(start)
            chain = target.score([UNSAID[node] for node in branch], 4)
            torch.testing.assert_close(tree[branch], chain, atol=1e-4, rtol=1e-4)

"""Approximate requests of a speech model: groups from its own embeddings, labelled figures."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch

from mmspec.errors import ModelError, OptionError
from mmspec.modalities.base.speculative_decoder import NoDraft
from mmspec.modalities.speech.checkpoint import SpeechCheckpoint
from mmspec.modalities.speech.draft import ModelDraft, RepeatDraft
from mmspec.modalities.speech.musicgen import FAMILY, Musicgen
from mmspec.modalities.speech.similar_codes import similar_codes
from mmspec.tasks.tts.speaker import Speaker

from .bed_musicgen import CODES, text, tiny

EVERYTHING = 0.0
"""A cosine that half of the pairs of random embeddings have."""


@functools.cache
def target() -> SpeechCheckpoint:
    return SpeechCheckpoint.of(tiny(), packed=False, family=FAMILY)


def speaker(kind: str = "other") -> Speaker:
    drafts: dict[str, Any] = {
        "none": NoDraft,
        "repeat": RepeatDraft,
        "copy": lambda: ModelDraft(target(), tiny()),
        "other": lambda: ModelDraft(target(), tiny(1)),
    }
    return Speaker(target(), drafts[kind](), 3)


def say(kind: str = "other", *, chance: int = 0, **options: Any) -> Any:
    torch.manual_seed(chance)
    asked = {"inputs": text(), "sound": False, "max_new_tokens": 16, "guidance": 1.0}
    return speaker(kind).speak("", **{**asked, "temperature": 1.0, **options})


def test_groups_are_those_of_the_targets_own_embeddings_and_made_once() -> None:
    groups = similar_codes(target(), 0.3)
    assert similar_codes(target(), 0.3) is groups
    assert similar_codes(target(), 0.6) is not groups
    tables = target().model.decoder.model.decoder.embed_tokens
    assert len(groups) == len(tables) == 4
    for of_one, table in zip(groups, tables, strict=True):
        for code in (0, 7, CODES - 1):
            cosines = torch.cosine_similarity(table.weight[code], table.weight[:CODES])
            alike = {code, *(cosines > 0.3).nonzero().flatten().tolist()}
            assert set(of_one.of(code).tolist()) == alike
        assert of_one.of(CODES).tolist() == [CODES], "the mark is by itself"


@pytest.mark.parametrize("guidance", [1.0, 3.0])
def test_more_is_kept_at_the_distance_that_the_report_says(guidance: float) -> None:
    exact = [say(chance=chance, guidance=guidance).report for chance in range(3)]
    near = [
        say(chance=chance, guidance=guidance, approximate=EVERYTHING).report for chance in range(3)
    ]
    rates = [sum(r.accepted for r in rs) / sum(r.proposed for r in rs) for rs in (exact, near)]
    assert rates[1] > rates[0]
    for report in near:
        assert (report.exact, report.parity) == (False, "L3")
        assert len(report.distance.by_step) == report.tokens
        assert report.distance.total > 0
    assert {(report.exact, report.distance) for report in exact} == {(True, None)}


def test_a_budget_holds() -> None:
    for chance in range(2):
        free = say(chance=chance, approximate=EVERYTHING).report.distance
        spent = say(chance=chance, approximate=EVERYTHING, budget=2).report.distance
        assert 0 < spent.total <= 2 < free.total
        assert spent.budget == 2


@pytest.mark.parametrize("kind", ["none", "copy"])
def test_what_is_the_targets_own_costs_nothing(kind: str) -> None:
    report = say(kind, approximate=EVERYTHING).report
    assert report.distance.total == pytest.approx(0.0, abs=1e-4)
    assert not report.exact


def test_a_whole_grid_comes_out() -> None:
    said = say("repeat", approximate=EVERYTHING)
    assert said.codes.shape[1] == 4
    assert ((said.codes >= 0) & (said.codes < CODES)).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"approximate": 0.5, "temperature": 0},
            "greedy decoding has no distribution to stay near to",
        ),
        ({"approximate": 0.5, "seed": 3}, "a seed promises the same codes for every drafter"),
        ({"approximate": 1.5}, "threshold of similar codes: found 1.5, expected -1 to 1"),
        ({"approximate": "much"}, "approximate: found 'much', expected a number"),
        ({"approximate": 0.5, "budget": -1}, "budget: found -1, expected a number, 0 or more"),
        ({"budget": 0.5}, "budget: only approximate acceptance spends one"),
    ],
)
def test_bad_requests_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        say(**options)


def test_families_that_say_nothing_of_their_codes_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(Musicgen, "code_embeddings")
    with pytest.raises(OptionError, match="MusicGen: which of its codes are alike isn't known"):
        similar_codes(target(), 0.123)


def test_tables_that_do_not_fit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Musicgen, "code_embeddings", lambda self, model: [torch.ones(9, 2)] * 3)
    with pytest.raises(ModelError, match="3 tables of embeddings for 4 codebooks"):
        similar_codes(target(), 0.123)

"""`mmspec.generate` with models that say codes: what their own `generate` returns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import (
    DynamicCache,
    LogitsProcessor,
    LogitsProcessorList,
    StoppingCriteria,
    StoppingCriteriaList,
)

import mmspec
from mmspec.compat import quiet
from mmspec.errors import MMSpecError, OptionError
from mmspec.modalities.speech import bark, csm, dia, higgs_audio, valle
from tests.modalities.speech import (
    bed_bark,
    bed_csm,
    bed_dia,
    bed_higgs_audio,
    bed_musicgen,
    bed_orpheus,
    bed_valle,
)
from tests.modalities.speech.chain_runs import said_by

CASES: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "musicgen": (bed_musicgen.tiny, bed_musicgen.text, {"max_new_tokens": 18}),
    "melody": (bed_musicgen.tiny_melody, bed_musicgen.text, {"max_new_tokens": 18}),
    "dia": (lambda: bed_dia.tiny(0), lambda: bed_dia.inputs("[S1] so"), {"max_new_tokens": 14}),
    "csm": (bed_csm.tiny, lambda: dict(bed_csm.text()), {"max_new_tokens": 6}),
}


@pytest.mark.parametrize("draft", ["none", "lookup", "itself"])
@pytest.mark.parametrize("name", CASES)
def test_it_returns_what_the_models_own_generate_returns(name: str, draft: str) -> None:
    make, given, options = CASES[name]
    model, inputs = make(), given()
    options = {**options, "do_sample": False}
    with quiet():
        own = model.generate(**inputs, **options)
        ours = mmspec.generate(
            model, inputs, model if draft == "itself" else draft, gamma=3, **options
        )
    assert ours.sequences.dtype == own.dtype
    torch.testing.assert_close(ours.sequences, own, rtol=0, atol=0)
    assert ours.report.faults == ()
    if draft == "itself":
        assert ours.report.accepted == ours.report.proposed > 0


@pytest.mark.parametrize("name", CASES)
def test_an_output_object_is_no_other_output(name: str) -> None:
    make, given, options = CASES[name]
    model, inputs = make(), given()
    options = {**options, "do_sample": False}
    with quiet():
        own = model.generate(**inputs, **options)
        ours = mmspec.generate(model, inputs, return_dict_in_generate=True, **options)
    torch.testing.assert_close(ours.sequences, own, rtol=0, atol=0)


BEDS: dict[str, tuple[Any, Any, Any]] = {
    "csm": (csm.FAMILY, bed_csm.tiny, bed_csm.text),
    "bark": (bark.FAMILY, bed_bark.tiny, bed_bark.inputs),
    "orpheus": (bed_orpheus.STRICT, bed_orpheus.made, bed_orpheus.inputs),
    "valle": (valle.FAMILY, bed_valle.made, bed_valle.inputs),
    "higgs": (higgs_audio.FAMILY, bed_higgs_audio.tiny, bed_higgs_audio.inputs),
    "dia": (dia.FAMILY, bed_dia.tiny, bed_dia.inputs),
}


@pytest.mark.parametrize("name", BEDS)
def test_a_cache_that_would_be_passed_over_is_refused(name: str) -> None:
    family, make, given = BEDS[name]
    with pytest.raises(OptionError, match="found a cache"):
        said_by(family, make(), given(), None, 0, past_key_values=DynamicCache())


class Leaning(LogitsProcessor):
    """Likes some codes better than others, as many as a head says."""

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        return scores + torch.linspace(0.0, 3.0, bed_musicgen.CODES)


class Watching(StoppingCriteria):
    """Ends nothing, and remembers what it was shown last."""

    def __init__(self) -> None:
        self.shown: list[list[int]] = []

    def __call__(self, input_ids: Tensor, scores: Any, **kwargs: Any) -> Tensor:
        self.shown = input_ids.tolist()
        return torch.zeros(len(input_ids), dtype=torch.bool)


PROCESSED: dict[str, Callable[[], dict[str, Any]]] = {
    "a score for each code": lambda: {"logits_processor": LogitsProcessorList([Leaning()])},
    # Guidance takes a difference of scores: one that is penalised in one half only grows by it.
    "a liking for what was said": lambda: {"repetition_penalty": 0.5},
    "a penalty on what was said": lambda: {"repetition_penalty": 1.5},
}


@pytest.mark.parametrize("how", PROCESSED)
@pytest.mark.parametrize("scale", [None, 3.0])
@pytest.mark.parametrize("draft", ["none", "itself"])
def test_processors_are_shown_what_generate_shows_them(
    how: str, scale: float | None, draft: str
) -> None:
    """Scores of the codes that a head says, and ids that were drawn where others read marks."""
    model, inputs = bed_musicgen.tiny(), bed_musicgen.text()
    options = {"max_new_tokens": 14, "do_sample": False, "guidance_scale": scale}
    with quiet():
        plain = model.generate(**inputs, **options)
        own = model.generate(**inputs, **options, **PROCESSED[how]())
        drafter = model if draft == "itself" else draft
        ours = mmspec.generate(model, inputs, drafter, gamma=3, **options, **PROCESSED[how]())
    assert own.shape != plain.shape or not torch.equal(own, plain)
    torch.testing.assert_close(ours.sequences, own, rtol=0, atol=0)
    assert ours.report.faults == ()
    if draft == "itself":
        assert ours.report.accepted == ours.report.proposed > 0


def test_criteria_are_shown_what_generate_shows_them() -> None:
    model, inputs = bed_musicgen.tiny(), bed_musicgen.text()
    options = {"max_new_tokens": 14, "do_sample": False}
    theirs, ours = Watching(), Watching()
    model.generate(**inputs, **options, stopping_criteria=StoppingCriteriaList([theirs]))
    mmspec.generate(model, inputs, **options, stopping_criteria=StoppingCriteriaList([ours]))
    assert ours.shown == theirs.shown
    assert max(max(row[1:]) for row in ours.shown) < bed_musicgen.CODES


def test_lists_of_processors_stay_the_callers() -> None:
    """transformers appends guidance to the one that it is given."""
    model, processors = bed_musicgen.tiny(), LogitsProcessorList([Leaning()])
    for _ in range(2):
        mmspec.generate(
            model, bed_musicgen.text(), max_new_tokens=8, do_sample=False, guidance_scale=3.0,
            logits_processor=processors,
        )  # fmt: skip
    assert len(processors) == 1


@pytest.mark.parametrize(("name", "scale"), [("musicgen", 0.5), ("melody", 0), ("csm", 3.0)])
def test_a_scale_that_guides_no_frames_is_refused(name: str, scale: float) -> None:
    """transformers' own loop reads the codes' ids as a text, and fails."""
    make, given, options = CASES[name]
    with pytest.raises(OptionError, match=rf"guidance_scale={scale}: .* isn't guided"):
        mmspec.generate(make(), given(), guidance_scale=scale, **{**options, "do_sample": False})


def test_a_chain_of_loops_is_not_for_this() -> None:
    with pytest.raises(OptionError, match=r"use mmspec\.load"):
        mmspec.generate(bed_valle.tiny(), bed_valle.inputs(), max_new_tokens=8)
    with pytest.raises(MMSpecError, match="expected what the processor makes, a mapping"):
        mmspec.generate(bed_musicgen.tiny(), torch.zeros(1, 3))

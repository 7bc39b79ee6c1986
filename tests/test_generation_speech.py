"""`mmspec.generate` with models that say codes: what their own `generate` returns."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import mmspec
from mmspec.compat import quiet
from mmspec.errors import MMSpecError, OptionError
from tests.modalities.speech import bed_csm, bed_dia, bed_musicgen, bed_valle

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


def test_a_chain_of_loops_is_not_for_this() -> None:
    with pytest.raises(OptionError, match=r"use mmspec\.load"):
        mmspec.generate(bed_valle.tiny(), bed_valle.inputs(), max_new_tokens=8)
    with pytest.raises(MMSpecError, match="expected what the processor makes, a mapping"):
        mmspec.generate(bed_musicgen.tiny(), torch.zeros(1, 3))

"""Criteria that answer codebook by codebook end an output where the library ends it."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import StoppingCriteria, StoppingCriteriaList

import mmspec
from mmspec.compat import quiet
from mmspec.errors import OptionError
from tests.modalities.speech import bed_dia as dia
from tests.modalities.speech import bed_musicgen as musicgen


class OneAfterTheOther(StoppingCriteria):
    """Codebook k ends at one width only, a step behind the one before it."""

    def __init__(self, first: int) -> None:
        self.first = first

    def __call__(self, ids: Tensor, scores: Any, **more: Any) -> Tensor:
        return torch.arange(len(ids)) + self.first == ids.shape[1]


class Even(OneAfterTheOther):
    """Codebooks with even numbers end at a width, whichever are asked."""

    def __call__(self, ids: Tensor, scores: Any, **more: Any) -> Tensor:
        return (torch.arange(len(ids)) % 2 == 0) & (ids.shape[1] >= self.first)


class Odd(OneAfterTheOther):
    def __call__(self, ids: Tensor, scores: Any, **more: Any) -> Tensor:
        return (torch.arange(len(ids)) % 2 == 1) & (ids.shape[1] >= self.first)


CRITERIA = {
    "one after the other": lambda: [OneAfterTheOther(6)],
    "each by a criterion of its own": lambda: [Even(7), Odd(9)],
    "never all of them": lambda: [Even(7)],
}


@pytest.mark.parametrize("draft", ["none", "repeat"])
@pytest.mark.parametrize("name", CRITERIA)
def test_an_ended_codebook_stays_ended(name: str, draft: str) -> None:
    def options() -> dict[str, Any]:
        criteria = StoppingCriteriaList(CRITERIA[name]())
        return {"stopping_criteria": criteria, "max_new_tokens": 14, "guidance_scale": 1.0}

    model, given = musicgen.tiny(), musicgen.text()

    def sound(generate: Any) -> Any:
        """Or its error: the library makes no sound of codes whose late codebooks are missing."""
        try:
            with quiet():
                return generate(do_sample=False, **options())
        except RuntimeError as error:
            return str(error)

    want = sound(partial(model.generate, **given))
    got = sound(lambda **asked: mmspec.generate(model, given, draft, **asked).sequences)
    assert type(got) is type(want)
    assert isinstance(want, str) == (name != "never all of them")
    assert got == want if isinstance(want, str) else torch.equal(got, want)


@pytest.mark.parametrize("name", CRITERIA)
def test_where_ended_codebooks_would_be_filled_up_it_is_refused(name: str) -> None:
    criteria = StoppingCriteriaList(CRITERIA[name]())
    asked: dict[str, Any] = {"stopping_criteria": criteria, "max_new_tokens": 20}
    with pytest.raises(OptionError, match="some codebooks and not the others"):
        mmspec.generate(dia.tiny(), dia.inputs(), do_sample=False, **asked)


def test_all_at_once_is_fine_for_both() -> None:
    class AtTwelve(StoppingCriteria):
        def __call__(self, ids: Tensor, scores: Any, **more: Any) -> Tensor:
            return torch.full((len(ids),), ids.shape[1] >= 12)

    def options() -> dict[str, Any]:
        return {"stopping_criteria": StoppingCriteriaList([AtTwelve()]), "max_new_tokens": 20}

    want = dia.tiny().generate(**dia.inputs(), do_sample=False, **options())
    got = mmspec.generate(dia.tiny(), dia.inputs(), do_sample=False, **options()).sequences
    torch.testing.assert_close(got, want)

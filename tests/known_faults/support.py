"""The three drafters that every fault is tried with, and the comparison."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from torch import Tensor

import mmspec
from tests.modalities.drafting import FORCED_HIT, THREE, drafter_options, no_faults, same_ids
from tests.modalities.tiny import features, shared

with_three = pytest.mark.parametrize("drafter", THREE)


def said(model: Any, **asked: Any) -> Tensor:
    """What transformers says."""
    return model.generate(features(), **{"language": "en", **asked})


def speculated(model: Any, drafter: str, gamma: int | str = 4, **asked: Any) -> Any:
    chosen = drafter_options(drafter, model, [])
    return mmspec.generate(model, features(), gamma=gamma, **chosen, **{"language": "en", **asked})


def equal(model: Any, drafter: str, gamma: int | str = 4, **asked: Any) -> Any:
    """The ids are the same, and the drafter was at work to the end."""
    made = speculated(model, drafter, gamma, **asked)
    same_ids(made.sequences, said(model, **asked))
    no_faults(made.reports)
    return made


def plain_ids(seed: int = 1, **asked: Any) -> Sequence[int]:
    return [int(token) for token in said(shared(seed), **asked)[0]]


def hit(**asked: Any) -> dict[str, Any]:
    """A prompt that makes n-gram lookup find something at once."""
    return {"prompt_ids": FORCED_HIT, **asked}

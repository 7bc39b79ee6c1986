"""What the target holds is its own: no drafter, of any kind or family, changes a bit of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor

import mmspec
from mmspec.engine import Session

from . import crossing_runs as crossing
from . import prefix_runs as prefix
from .drafting import DRAFTERS, drafter_options, emitted, no_faults
from .speech import bed_csm, csm_runs
from .speech.test_csm import drafts as csm_drafts
from .speech.test_musicgen import drafts as musicgen_drafts
from .speech.test_musicgen import says
from .tiny import features, shared
from .tiny_crossing import CASES
from .tiny_prefix import MEDIA, NAMES

ENDS = ("words", "medium")
"""What a prompt ends with."""


def held(state: Any) -> list[Tensor]:
    """Copies of the keys and values of every position that a state describes."""
    length = state.length + getattr(state, "before", 0)
    grown = [memory[:, :, :length] for one in state._growing for memory in (one.keys, one.values)]
    frozen = [one for one in (*state._layers, *state._conditioning) if one not in state._growing]
    kept = [memory for one in frozen for memory in (one.keys, one.values) if memory is not None]
    return [memory.clone() for memory in (*grown, *kept)]


@contextmanager
def watched() -> Iterator[list[int]]:
    """While this is open, drafters may change nothing in a target's memory.

    Yields:
        How many tokens each proposal held.
    """
    real, proposed = Session._propose, list[int]()

    def propose(self: Session) -> Any:
        before = held(self._target.state)
        outlook, proposal = real(self)
        proposed.append(len(proposal))
        after = held(self._target.state)
        if not all(torch.equal(*pair) for pair in zip(before, after, strict=True)):
            raise AssertionError(f"{outlook.context} has written to the target's memory")
        return outlook, proposal

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Session, "_propose", propose)
        yield proposed


def ending_with(given: Mapping[str, Tensor], end: str) -> dict[str, Tensor]:
    """A prompt as it is, or cut behind the last position that stands for an image or a sound."""
    ids = given["input_ids"]
    if end == "words":
        return dict(given)
    length = int((ids[0] == MEDIA).nonzero()[-1]) + 1
    return {
        name: value[:, :length] if value.shape == ids.shape else value
        for name, value in given.items()
    }


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("name", NAMES)
def test_of_models_that_read_a_prefix(name: str, end: str) -> None:
    prompt = ending_with(prefix.given(name), end)
    asked = {"eos_token_id": None, "bad_words_ids": [[MEDIA]]}
    truth = prefix.plain(prefix.model_of(name), prompt, **asked)
    for kind in (*prefix.DRAFTERS, "early-exit:1", "early-exit:2"):
        with watched() as proposed:
            made = prefix.speculated(name, prompt, kind, hypothesis=truth, **asked)
        assert prefix.emitted(made.sequences, prompt) == truth, kind
        assert (sum(proposed) > 0) == (kind != "none") or kind == "ngram"


@pytest.mark.parametrize(("name", "case"), CASES)
def test_of_models_that_attend_across(name: str, case: str) -> None:
    prompt = crossing.given(name, case)
    truth = crossing.plain(crossing.model_of(name), prompt)
    behind = truth[0, crossing.prompt_length(name, case) :].tolist()
    for kind in crossing.DRAFTERS:
        with watched() as proposed:
            made = crossing.speculated(name, prompt, kind, hypothesis=behind)
        assert torch.equal(made.sequences, truth), kind
        assert kind != "early-exit:1" or sum(proposed) > 0


@pytest.mark.parametrize("kind", DRAFTERS)
def test_of_whisper(kind: str) -> None:
    want = shared().generate(features(), language="en")
    options = drafter_options(kind, shared(), emitted(want))
    for packed in (True, False):
        with watched():
            made = mmspec.generate(
                shared(), features(), gamma=4, packed=packed, language="en", **options
            )
        no_faults(made.reports)
        assert torch.equal(made.sequences, want)


@pytest.mark.parametrize("kind", ["right", "wrong", "copy", "other", "decoder", "repeat"])
def test_of_musicgen(kind: str) -> None:
    for prompt in (0, 3):
        truth = says("mono", prompt=prompt)
        with watched() as proposed:
            drafted = says("mono", draft=musicgen_drafts(kind, "mono", truth.rows), prompt=prompt)
        assert drafted.said.grid == truth.said.grid
        assert sum(proposed) > 0


@pytest.mark.parametrize("kind", ["told", "wrong in 1", "copy", "another"])
def test_of_csm(kind: str) -> None:
    model = bed_csm.shared()
    truth = csm_runs.run(model, bed_csm.text())
    with watched() as proposed:
        drafted = csm_runs.run(model, bed_csm.text(), csm_drafts(kind, model, "text"))
    assert drafted.frames == truth.frames
    assert sum(proposed) > 0

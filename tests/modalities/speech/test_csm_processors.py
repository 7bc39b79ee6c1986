"""Processors of the caller's beside CSM: a rejection undoes what they remember, and only that."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import LogitsProcessor, LogitsProcessorList

from mmspec.modalities.base.speculative_decoder import Draft

from . import bed_csm as bed
from .csm_runs import Drafting, Telling, run
from .test_csm import spoilt_in

FRAMES = 10


class Counting(LogitsProcessor):
    """Each call forbids another code."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, ids: Tensor, scores: Tensor) -> Tensor:
        self.calls += 1
        at = torch.tensor([self.calls * 3 % bed.CODES])
        return scores.index_fill(-1, at, -torch.inf)


class Remembering(LogitsProcessor):
    """Its own best code of the step before is worth less; looks at the ids, too."""

    def __init__(self) -> None:
        self.best: list[int] = []

    def __call__(self, ids: Tensor, scores: Tensor) -> Tensor:
        scores = scores.clone()
        for code in self.best[-2:]:
            scores[..., code] -= 4.0
        scores[..., int(ids.sum()) % bed.CODES] += 2.0
        self.best.append(int(scores.argmax()))
        return scores


class HoldsAModel(Counting):
    """Refers to a model, which nobody is to copy."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model


def memories(processors: list[Any]) -> list[dict[str, Any]]:
    return [vars(one) for one in processors]


MAKES: dict[str, Callable[[], list[Any]]] = {
    "counting": lambda: [Counting()],
    "remembering": lambda: [Remembering()],
    "both": lambda: [Counting(), Remembering()],
    "a model": lambda: [HoldsAModel(bed.shared())],
}


def drafts(truth: Any) -> dict[str, Draft | None]:
    return {
        "nobody": None,
        "told": Telling(truth),
        "wrong in 0": Telling(truth, spoilt_in(0)),
        "wrong in 1, often": Telling(truth, spoilt_in(1, 2)),
        "wrong in 3": Telling(truth, spoilt_in(3)),
        "another": Drafting(bed.tiny(1, 1), bed.text()),
    }


@pytest.mark.parametrize("name", MAKES)
def test_frames_and_memories_are_the_librarys_after_rejections(name: str) -> None:
    model, theirs = bed.shared(), MAKES[name]()
    expected = bed.library_rows(
        model, bed.text(), max_new_tokens=FRAMES, logits_processor=LogitsProcessorList(theirs)
    )[0]
    assert expected != bed.library_rows(model, bed.text(), max_new_tokens=FRAMES)[0]
    rejected = 0
    for draft in drafts(expected).values():
        for gamma in (1, 4):
            ours = MAKES[name]()
            given = LogitsProcessorList(ours)
            got = run(
                model, bed.text(), draft, gamma, max_new_tokens=FRAMES, logits_processor=given
            )
            assert got.frames == expected
            assert memories(ours) == memories(theirs), "a caller may ask them afterwards"
            rejected += sum(drafted - kept for drafted, kept in got.kept)
    assert rejected > 10


def test_a_seeded_run_draws_the_same_frames_with_and_without_a_drafter() -> None:
    model = bed.shared()
    options: dict[str, Any] = {"do_sample": True, "max_new_tokens": FRAMES}

    def frames(draft: Draft | None) -> Any:
        processors = LogitsProcessorList([Counting(), Remembering()])
        return run(
            model, bed.text(), draft, 3, seed=4, logits_processor=processors, **options
        ).frames

    alone = frames(None)
    for draft in drafts(alone).values():
        assert frames(copy.copy(draft)) == alone

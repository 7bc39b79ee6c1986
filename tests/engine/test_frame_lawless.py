"""Frames are never drawn from scores that are no distribution, whichever rule draws them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor

from mmspec.acceptance.frames import FREE
from mmspec.engine import Sampling
from mmspec.errors import ModelError
from mmspec.prefix import Frame
from tests.acceptance.branching import Branching, integrated
from tests.engine.test_frame_choosing import BEGINS, KINDS, RULES, answered_by, law_of, small
from tests.frame_toys import (
    Case,
    FrameLaw,
    K,
    ScriptedFrames,
    case,
    garbage,
    model,
    open_session,
    ordinary,
    recalling,
)

AT = 9
"""Position of the frame that has no distribution."""


@dataclass(frozen=True)
class Broken:
    """A distribution that is none in some places.

    Attributes:
        distribution: the rest of it.
        score: what stands there instead.
        nowhere: (frames before, codebook, codes before it) to whether it is such a place.
    """

    law: FrameLaw
    score: float
    nowhere: Callable[[Sequence[Frame], int, Frame], bool]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.law, name)

    def row(
        self, frames: Sequence[Frame], codebook: int, before: Frame = (), half: int = 0
    ) -> Tensor:
        row = self.law.row(frames, codebook, before, half)
        broken = self.nowhere(frames, codebook, before if self.law.chain else ())
        return torch.full_like(row, self.score) if broken else row

    rows, pairs = FrameLaw.rows, FrameLaw.pairs


def broken_at(given: Case, codebook: int, score: float, frame: int = AT) -> Case:
    """The same without a distribution for one code."""
    nowhere: Any = lambda frames, k, before: len(frames) == frame and k == codebook  # noqa: E731
    return replace(given, law=Broken(given.law, score, nowhere))


def drafter(name: str, given: Case, whole: Case) -> Any:
    if name == "model":
        return model(given.law, given.prompt)
    if name == "garbage":
        return garbage()
    said = ordinary(whole, seed=3).frames if name == "right" else []
    return recalling(said, whole.prompt) if said else ScriptedFrames(lambda ids, limit: [])


SAMPLINGS = {
    "keyed": Sampling(sample=True, seed=3),
    **{rule: Sampling(sample=True, rule=rule) for rule in RULES},
}


@pytest.mark.parametrize("drafts", ["nobody", "right", "model", "garbage"])
@pytest.mark.parametrize("rule", SAMPLINGS)
@pytest.mark.parametrize("score", [-torch.inf, torch.nan])
@pytest.mark.parametrize(("order", "codebook"), [("known rows", 1), ("depth", 0), ("depth", 2)])
def test_nothing_is_drawn_from_a_frame_that_has_no_law(
    order: str, codebook: int, score: float, rule: str, drafts: str
) -> None:
    whole = case(order)
    given = broken_at(whole, codebook, score)
    opened = open_session(given, drafter(drafts, given, whole), 4, sampling=SAMPLINGS[rule])
    with pytest.raises(ModelError, match=f"nothing to draw from at position {AT}: "):
        opened.session.run()


@pytest.mark.parametrize("drafts", ["nobody", "right", "garbage"])
@pytest.mark.parametrize("score", [-torch.inf, torch.nan])
@pytest.mark.parametrize("order", ["known rows", "depth"])
def test_greedy_frames_are_the_first_codes_there(order: str, score: float, drafts: str) -> None:
    whole = case(order)
    given = broken_at(whole, 0, score)
    opened = open_session(given, drafter(drafts, given, whole), 4)
    assert opened.session.run() == ordinary(given).frames


def test_a_forced_code_needs_no_law() -> None:
    whole = case("known rows")
    given = broken_at(whole, K - 1, torch.nan, frame=1)
    assert whole.slow.forced(whole.prompt)[K - 1] != FREE
    opened = open_session(given, None, 0, sampling=Sampling(sample=True, seed=3))
    assert opened.session.run() == ordinary(whole, seed=3).frames


DEAD: Any = "dead"


def law_with_ends(given: Case) -> dict[Any, float]:
    """The law of what is said, code by code; what comes to a place without a law is dead."""
    said: dict[Any, float] = {given.prompt: 1.0}
    dead = 0.0
    for _ in range(given.max_length - len(given.prompt)):
        longer: dict[Any, float] = {}
        for frames, weight in said.items():
            begun: dict[Frame, float] = {(): weight}
            for k, mark in enumerate(given.slow.forced(frames)):
                going: dict[Frame, float] = {}
                for codes, chance in begun.items():
                    if mark != FREE:
                        going[(*codes, mark)] = chance
                        continue
                    row = given.law.row(frames, k, codes)
                    if not row.amax().isfinite():
                        dead += chance
                        continue
                    law = row.double().softmax(-1).tolist()
                    going |= {(*codes, c): chance * p for c, p in enumerate(law) if p > 0}
                begun = going
            longer |= {(*frames, codes): chance for codes, chance in begun.items()}
        said = longer
    found = {frames[len(given.prompt) :]: chance for frames, chance in said.items()}
    return {**found, DEAD: dead}


@pytest.mark.parametrize("rule", RULES)
@KINDS
def test_places_without_a_law_are_come_to_as_often_as_without_a_drafter(
    rule: str, chain: bool
) -> None:
    """A draft that runs into one changes nothing about what else is said, and how often."""
    whole = small(chain, BEGINS)
    likely = int(whole.law.row(whole.prompt, 0).argmax())

    def nowhere(frames: Sequence[Frame], k: int, before: Frame) -> bool:
        behind = len(frames) == 2 and frames[-1][0] == likely  # behind a code of the frame before
        inside = chain and len(frames) == 2 and k == 1 and before == (0,)
        return behind or inside

    given = replace(whole, law=Broken(whole.law, -torch.inf, nowhere))
    drafting = law_of(chain, BEGINS, likely=1)
    patch = pytest.MonkeyPatch()

    def run(chance: Branching) -> Any:
        with answered_by(chance, patch):
            drafts = model(drafting, given.prompt)
            opened = open_session(given, drafts, 2, sampling=Sampling(sample=True, rule=rule))
            try:
                return tuple(opened.session.run())
            except ModelError:
                return DEAD

    emitted, wanted = integrated(run).law, law_with_ends(given)
    assert 0.05 < wanted[DEAD] < 0.95
    for said in {*emitted, *wanted}:
        assert abs(emitted.get(said, 0.0) - wanted.get(said, 0.0)) < 1e-12

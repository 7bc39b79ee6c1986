"""The fuzz itself: it runs, it repeats itself, and it sees faults that are planted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import GenerationConfig

from mmspec import generation
from mmspec.engine import Processors, Stops
from mmspec.modalities.speech import generate as speaking

from . import running
from .__main__ import table
from .cases import WAYS, question, way
from .comparing import differences, first_difference
from .kinds import KINDS, _kinds
from .options import LEFT_OUT, OPTIONS
from .running import Outcome, in_words, run

FEW = 45
SEED = 7
QUICK = ("llava", "trocr", "whisper", "musicgen")
"""One of each group, to look for a planted fault with."""

Patch = pytest.MonkeyPatch


@pytest.fixture(autouse=True)
def _asked_anew() -> None:
    """Answers are kept from case to case; a planted fault is to be met by new ones."""
    running._plainly.cache_clear()


def outcomes(cases: int = FEW, kinds: tuple[str, ...] = QUICK) -> list[Outcome]:
    return [run(SEED, number, kinds) for number in range(cases)]


def test_a_few_cases() -> None:
    found = outcomes()
    assert [outcome for outcome in found if outcome.failed] == []
    assert sum(outcome.result == "equal" for outcome in found) > FEW // 3


def _drops_a_processor(patch: Patch) -> None:
    made: Callable[..., None] = Processors.__init__

    def without_the_first(self: Any, processors: Any = None) -> None:
        made(self, [*(processors or [])][1:])

    patch.setattr(Processors, "__init__", without_the_first)


def _ends_late(patch: Patch) -> None:
    made = Stops.__init__

    def one_later(self: Any, stop_tokens: Any, max_length: int, criteria: Any = ()) -> None:
        made(self, stop_tokens, max_length + 1, criteria)

    patch.setattr(Stops, "__init__", one_later)


def _is_wider(patch: Patch) -> None:
    padded = generation.padded

    def wider(*args: Any) -> Tensor:
        return torch.nn.functional.pad(padded(*args), (1, 0))

    patch.setattr(generation, "padded", wider)


def _raises(patch: Patch) -> None:
    def broken(*args: Any) -> Any:
        raise KeyError("encoder_outputs")

    patch.setattr(generation, "padded", broken)


def _speaks_otherwise(patch: Patch) -> None:
    made = speaking.generated

    def quieter(asked: Any) -> Any:
        output, sampling = made(asked)
        return output * 0.9, sampling

    patch.setattr(generation, "generated", quieter)


@pytest.mark.parametrize(
    ("plant", "kinds", "result"),
    [
        (_drops_a_processor, ("llava", "whisper"), "different"),
        (_ends_late, ("llava", "trocr"), "different"),
        (_is_wider, ("trocr",), "different"),
        (_raises, ("whisper",), "raw error"),
        (_speaks_otherwise, ("musicgen",), "different"),
    ],
)
def test_a_planted_fault_is_found(
    plant: Callable[[Patch], None], kinds: tuple[str, ...], result: str, monkeypatch: Patch
) -> None:
    assert not any(run(SEED, number, kinds).failed for number in range(18))
    running._plainly.cache_clear()
    plant(monkeypatch)
    assert result in {run(SEED, number, kinds).result for number in range(18)}


def test_a_case_can_be_run_alone() -> None:
    alone = run(SEED, 17)
    running._plainly.cache_clear()
    question.cache_clear()
    run(SEED, 16)
    again = run(SEED, 17)
    assert (alone.case, alone.result, alone.why) == (again.case, again.result, again.why)


def test_seeds_and_numbers_ask_differently() -> None:
    def words(seed: int, number: int) -> str:
        asked = question(seed, number // WAYS)
        return in_words(asked, way(seed, number, asked))

    assert len({words(seed, number) for seed in (1, 2) for number in range(30)}) > 55


def test_every_option_of_the_library_is_drawn_or_left_out_by_name() -> None:
    known = set(vars(GenerationConfig()))
    assert known - set(OPTIONS) - set(LEFT_OUT) == set()
    assert set(LEFT_OUT) - known == set(), "left out, but no option any more"


def test_every_kind_can_be_asked() -> None:
    assert {*KINDS} == {*_kinds()}
    for name in KINDS:
        assert question(SEED, 0, (name,)).kind == name


def test_what_counts_as_different() -> None:
    ids = torch.tensor([[1, 2, 3]])
    assert differences(ids, ids.clone(), 0.0) == []
    for other in (ids + 1, ids[:, :2], ids.float(), None, [1, 2, 3]):
        assert differences(ids, other, 1e-3)
    assert differences({"a": ids}, {"a": ids, "b": ids}, 0.0)
    assert differences((1.0, ids), (1.0, ids, ids), 0.0)
    assert differences(ids / 3, ids / 3 + 0.01, 1e-3)
    assert differences(ids / 3, ids / 3 + 1e-5, 1e-3) == []
    assert first_difference(ids, torch.tensor([[1, 2, 4]])) == (0, 2)


def test_the_table_counts_and_names() -> None:
    found = table([Outcome("equal", ""), Outcome("refused", "OptionError: 3 rows"), outcomes(1)[0]])
    assert "3  cases" in found
    assert "OptionError: N rows" in found

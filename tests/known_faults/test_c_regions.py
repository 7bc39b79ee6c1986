"""C7 where text turns to codes and back: regions of one output that begin and end inside a block.

The grammar is that of seven slots: outside speech no codes and no end; inside it only codes of the
slot that is due, and an end only where a frame is whole.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from mmspec.modalities.speech.seven_slots import SlotMask
from mmspec.report.trace import Round
from tests.modalities.speech import bed_orpheus as bed
from tests.modalities.speech.keyed import drawing
from tests.modalities.speech.test_orpheus import UNENDING, Regions, restless
from tests.proposals.scripted import ScriptedDrafter

GIVEN = bed.inputs(0)
PROMPT = GIVEN["input_ids"].shape[1]
TURNS = (bed.START, bed.END)
MASKS: dict[str, Callable[[], Any]] = {"mask": lambda: SlotMask(bed.MARKS), "automaton": Regions}
SAMPLED = {"do_sample": True, "temperature": 1.2, "top_k": 20}

with_masks = pytest.mark.parametrize("mask", MASKS)
model = functools.cache(lambda: restless(6))


@functools.cache
def truth(mask: str, seed: int | None = None) -> tuple[int, ...]:
    """What the library says under a mask; its draws, if any, are made by the noise of a seed."""
    asked: dict[str, Any] = {"logits_processor": [MASKS[mask]()], **UNENDING}
    if seed is None:
        return tuple(bed.library_ids(model(), GIVEN, **asked))
    with drawing(iter([seed])):
        return tuple(bed.library_ids(model(), GIVEN, **asked, **SAMPLED))


class Told:
    """Drafts what the target will say, changed or not.

    Args:
        tokens: what it will say.
        change: (place of the first drafted token, what is right there) to what is drafted.
    """

    name = "told"

    def __init__(
        self,
        tokens: Sequence[int],
        change: Callable[[int, list[int]], list[int]] = lambda at, right: right,
    ) -> None:
        self._tokens, self._change = tokens, change

    def open(self, opening: Any) -> ScriptedDrafter:
        def script(ids: Sequence[int], limit: int) -> list[int]:
            at = len(ids) - PROMPT
            return self._change(at, list(self._tokens[at : at + limit]))[:limit]

        return ScriptedDrafter(script)


def say(processor: Any, draft: Any, gamma: int, **how: Any) -> tuple[list[int], list[Round]]:
    """(what is said, its rounds); a drafter or processor that fails is a failure."""
    said, report, stats = bed.said(
        model(), GIVEN, lambda _: draft, gamma, bed.LENIENT,
        logits_processor=[processor], **UNENDING, **how,
    )  # fmt: skip
    assert report.faults == ()
    return bed.behind(said), stats.tally.trace


def allowed(tokens: Sequence[int], place: int) -> set[int]:
    """What the grammar lets stand at a place, read off everything before it."""
    before = list(tokens[:place])
    turns = [at for at, token in enumerate(before) if token in TURNS]
    if not turns or before[turns[-1]] == bed.END:
        return {*range(bed.VOCAB)} - {*bed.MARKS.ids, bed.END}
    slot = (place - turns[-1] - 1) % 7
    first = bed.BASE + slot * bed.CODES
    return {*range(first, first + bed.CODES), *([bed.END] if slot == 0 else [])}


@with_masks
@pytest.mark.parametrize("seed", [None, 3])
@pytest.mark.parametrize("gamma", [1, 2, 5, 60])
def test_C7_regions_turn_inside_a_block(gamma: int, seed: int | None, mask: str) -> None:
    right = truth(mask, seed)
    how = {} if seed is None else {"seed": seed, **SAMPLED}
    said, rounds = say(MASKS[mask](), Told(right), gamma, **how)
    assert said == list(right)
    assert all(token in allowed(said, place) for place, token in enumerate(said))
    assert {bed.START, bed.END} <= set(said)
    kept = [done.emitted[: done.accepted] for done in rounds]
    assert all(list(done.proposal)[: done.judged] == list(done.emitted[:-1]) for done in rounds)
    if gamma == 60:  # both ways, with units of the new region drafted behind the turn and kept
        assert {token for block in kept for token in block[:-1]} >= set(TURNS)


def free_choice(tokens: Sequence[int]) -> list[int]:
    """What the model likes best at each place, if nothing forbids it."""
    line = torch.cat([GIVEN["input_ids"], torch.tensor([tokens])], dim=1)
    with torch.no_grad():
        rows = model()(input_ids=line, use_cache=False).logits[0, PROMPT - 1 : -1]
    return [int(token) for token in rows.argmax(-1)]


@with_masks
@pytest.mark.parametrize("gamma", [1, 3, 4])
def test_C7_the_row_behind_the_last_draft_is_masked(gamma: int, mask: str) -> None:
    right = truth(mask)
    said, rounds = say(MASKS[mask](), Told(right), gamma)
    assert said == list(right)
    free = free_choice(said)
    ends = list(itertools.accumulate(len(done.emitted) for done in rounds))
    bonus = [end - 1 for end, done in zip(ends, rounds, strict=True) if done.accepted == gamma]
    needed = [place for place in bonus if free[place] not in allowed(said, place)]
    assert len(needed) > 1  # without a mask there, another unit would stand in these places


def turning(at: int, right: list[int]) -> list[int]:
    """One right token, then a turn where none is, and tokens of the region that it would begin."""
    if len(right) < 2 or right[1] == bed.START:
        return right
    return [right[0], bed.START, *[bed.BASE + i * bed.CODES for i in range(7)], bed.END, 3]


class Log(list[tuple[int, int | None]]):
    """What no snapshot takes back."""

    def __deepcopy__(self, memo: Any) -> Log:
        return self


class Watched(Regions):
    """Notes (tokens read, slot that is due) of each call."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = Log()

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        made = super().__call__(input_ids, scores)
        self.calls.append((self.seen, self.slot))
        return made


@pytest.mark.parametrize("gamma", [2, 4, 12])
def test_C7_an_automaton_is_back_where_it_was_after_a_rejection(gamma: int) -> None:
    right = truth("automaton")
    alone, watched = Watched(), Watched()
    want, _ = say(alone, Told([]), 0)
    said, rounds = say(watched, Told(right, turning), gamma)
    assert said == want == list(right)
    rejected = [done for done in rounds if bed.START in done.proposal[done.accepted : done.judged]]
    assert len(rejected) > 5
    assert all(done.accepted >= 1 for done in rejected)  # in the middle of a block
    assert (watched.slot, watched.seen) == (alone.slot, alone.seen)
    # Behind as many units as were said, it stood where it stands without a draft.
    states, last = dict(alone.calls), dict(watched.calls)
    assert states.keys() == last.keys()
    assert last == states
    assert len(watched.calls) > len(alone.calls)  # and it had been elsewhere

"""A case is run: what transformers answers, what mmspec answers, and whether that is the same."""

from __future__ import annotations

import copy
import functools
import signal
import traceback
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import LogitsProcessorList

import mmspec
from mmspec.compat import quiet

from .cases import MODELS, WAYS, Question, Way, question, reference, way
from .comparing import differences, first_difference
from .kinds import KINDS, model_of
from .pieces import Recording, Streamer

ROOT = Path(__file__).parents[2]
TIE = 1e-3
"""Two tokens whose logits are closer than that are a tie, in float32."""
PATIENCE_S = 60
FAILURES = ("different", "raw error", "not refused")


@dataclass
class Answer:
    """What a call gave: an output or an error.

    Attributes:
        output: what came back.
        error: what was raised in its place.
        streamer: what heard it, if anything.
        ordinary: why the call was left to transformers' own loop.
        faults: of drafters.
    """

    output: Any = None
    error: Exception | None = None
    streamer: Streamer | None = None
    ordinary: str | None = None
    faults: tuple[str, ...] = ()
    trace: str = ""


@dataclass
class Outcome:
    """How a case went.

    Attributes:
        result: "equal", "ordinary", "refused", "raised" (by both), "tie"; or one of `FAILURES`.
        why: a reason, a message, or the first differences.
        case: in words.
        trace: of a raw error.
    """

    result: str
    why: str
    case: str = ""
    trace: str = field(default="", repr=False)

    @property
    def failed(self) -> bool:
        return self.result in FAILURES


class TooLong(Exception):
    """A call took longer than anybody waits."""


@contextmanager
def _patience() -> Iterator[None]:
    def ring(*_: Any) -> None:
        raise TooLong(f"took longer than {PATIENCE_S} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(PATIENCE_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def _settings_kept(model: Any) -> Iterator[None]:
    """Some `generate`s write options into the model, where they would stay for the next call."""
    parts = [part for part in model.modules() if "generation_config" in vars(part)]
    before = [(part, part.generation_config) for part in parts]
    for part, config in before:
        part.generation_config = copy.deepcopy(config)
    try:
        yield
    finally:
        for part, config in before:
            part.generation_config = config


@contextmanager
def _calling(asked: Question) -> Iterator[Answer]:
    answer, model = Answer(streamer=Streamer() if asked.streams else None), asked.model
    torch.manual_seed(1)
    try:
        with _patience(), _settings_kept(model), quiet(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield answer
    except Exception as error:
        answer.error, answer.trace = error, traceback.format_exc()


def plain(asked: Question, *processors: Any, **changes: Any) -> Answer:
    """What transformers answers."""
    # Its own speculation calls processors more often, and takes one row; the output is meant to be
    # the same without.
    inputs, options = asked.given(without=("prompt_lookup_num_tokens",))
    options |= changes
    if processors:
        given = [*(options.get("logits_processor") or []), *processors]
        options["logits_processor"] = LogitsProcessorList(given)
    with _calling(asked) as answer:
        heard = {} if answer.streamer is None else {"streamer": answer.streamer}
        answer.output = asked.model.generate(**inputs, **options, **heard)
    return answer


def _drafter(asked: Question, draft: str, said: Any) -> dict[str, Any]:
    """Arguments that select a drafter; `said` is what transformers answered."""
    if draft in MODELS:
        drafter = model_of(asked.kind, draft)
        if asked.change in ("float64", "bfloat16"):
            drafter = model_of(asked.kind, draft, asked.change)
        return {"draft": drafter}
    if draft != "hypothesis":
        return {"draft": draft}
    ids = _sequences(said)
    row = ids[0].tolist() if isinstance(ids, Tensor) and ids.dim() == 2 else []
    first, last = KINDS[asked.kind].words
    expected = [token for token in row if first <= token <= last]
    return {"draft": draft, "hypothesis": [*expected[:2], *expected[3:]]}


def ours(asked: Question, how: Way, said: Any = None) -> Answer:
    """What mmspec answers; `said` is what transformers did."""
    inputs, options = asked.given()
    with _calling(asked) as answer:
        chosen = _drafter(asked, how.draft, said)
        heard = {} if answer.streamer is None else {"streamer": answer.streamer}
        shared = {"gamma": how.gamma, "seed": how.seed, "packed": how.packed, **chosen}
        if how.door == "generate":
            made = mmspec.generate(asked.model, inputs, **shared, **heard, **options)
            answer.output, reports = made.sequences, made.reports
        else:
            loop = mmspec.custom_generate(**shared)
            for again in range(1 + how.twice):
                loop.inputs = inputs
                last = again == how.twice
                answer.output = asked.model.generate(
                    **inputs, **options, **(heard if last else {}), custom_generate=loop
                )
                if not last:
                    inputs, options = asked.given()
            answer.ordinary, reports = loop.ordinary, tuple(loop.history)
        answer.faults = tuple(fault for report in reports for fault in report.faults)
    return answer


def _sequences(output: Any) -> Any:
    return output["sequences"] if isinstance(output, Mapping) else output


def _in_short(error: Exception | None) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def _raised_here(error: Exception) -> bool:
    """Whether a line of ours raised an error, rather than the library's or torch's own."""
    frames = traceback.extract_tb(error.__traceback__)
    return Path(frames[-1].filename).is_relative_to(ROOT)


def _judged_errors(theirs: Answer, mine: Answer) -> Outcome | None:
    """How a case went in which somebody raised, None where nobody did."""
    error = mine.error
    if isinstance(error, mmspec.MMSpecError):
        if "\n" in str(error):
            return Outcome("raw error", f"of several lines: {_in_short(error)}")
        return Outcome("refused", _in_short(error))
    if error is not None:
        if theirs.error is not None and not _raised_here(error):
            return Outcome("raised", _in_short(error))  # of several faults, either may be named
        than = (
            "" if theirs.error is None else f" where transformers raises {_in_short(theirs.error)}"
        )
        return Outcome("raw error", _in_short(error) + than, trace=mine.trace)
    if theirs.error is not None:
        return Outcome("not refused", f"transformers raises {_in_short(theirs.error)}")
    return None


def _judged(asked: Question, how: Way, theirs: Answer, mine: Answer) -> Outcome:
    found = _judged_errors(theirs, mine)
    if found is not None:
        return found
    want, got = theirs.output, mine.output
    if how.door == "generate":
        want, got = _sequences(want), _sequences(got)
    differing = differences(want, got, _tolerance(asked))
    if differing:
        gap = _gap(asked, how, _sequences(want), _sequences(got))
        if gap is not None:
            return Outcome("tie", f"gap {gap:.1e}")
        return Outcome("different", "; ".join(differing[:3]))
    if mine.faults:
        return Outcome("different", f"a drafter failed: {mine.faults[0]}")
    if theirs.streamer is not None and mine.streamer is not None:
        want, got = vars(theirs.streamer), vars(mine.streamer)
        if asked.group == "voice":  # some of the library's tell theirs nothing, or undelayed
            want = {"ids": got["ids"], "ends": 1}
        if want != got and len(_rows(theirs.output)) == 1:  # of a batch, it gets row after row
            return Outcome("different", f"streamer: {want} but {got}")
    return Outcome("ordinary" if mine.ordinary else "equal", mine.ordinary or "")


def _rows(output: Any) -> Any:
    found = _sequences(output)
    return found if isinstance(found, Tensor) else [found]


def _tolerance(asked: Question) -> float:
    rough = 0.25 if asked.change in ("bfloat16", "int8") else TIE
    heat = asked.options.get("temperature")  # scores are divided by it
    return rough / heat if asked.mode == "cold" and isinstance(heat, float) and heat else rough


def _gap(asked: Question, how: Way, want: Any, got: Any) -> float | None:
    """The gap between the two best tokens where two answers part, None where it is no tie."""
    where = first_difference(want, got)
    if where is None or asked.mode == "keyed":
        return None
    row, position = where
    before = [int(token) for token in want[row, :position]]
    recording = Recording()
    plain(asked, recording, do_sample=False, temperature=None)
    gaps = []
    for ids, scores in recording.steps:
        shown = min(len(ids), len(before))
        if ids[len(ids) - shown :] == before[len(before) - shown :]:
            best = scores.sort(descending=True).values[:2]
            limit = TIE
            if asked.change in ("bfloat16", "int8"):  # 8 digits of 2, or fewer
                limit = 0.125 * max(1.0, float(best.abs().max()))
            gaps += [float(best[0] - best[1])] if float(best[0] - best[1]) < limit else []
    return min(gaps, default=None)


@functools.lru_cache(2)
def _plainly(seed: int, number: int, kinds: tuple[str, ...]) -> Answer:
    return plain(question(seed, number, kinds))


def in_words(asked: Question, how: Way) -> str:
    """A case, to be read."""
    shapes = {
        name: [*value.shape] if isinstance(value, Tensor) else type(value).__name__
        for name, value in asked.inputs.items()
    }
    options = {
        name: [type(one).__name__ for one in value]
        if name in ("logits_processor", "stopping_criteria")
        else type(value).__name__
        if callable(value)
        else value
        for name, value in asked.options.items()
    }
    asked_as = f"{asked.mode}{', streams' * asked.streams}{', as config' * asked.as_config}"
    return f"{asked.kind} ({asked.change or 'plain'}) {asked_as} {options} {shapes} by {how}"


def run(seed: int, number: int, kinds: tuple[str, ...] = ()) -> Outcome:
    """Run one case.

    Args:
        seed: of all cases.
        number: of this one.
        kinds: ask only these; none: all.
    """
    asked = question(seed, number // WAYS, kinds)
    how = way(seed, number, asked)
    theirs = _plainly(seed, number // WAYS, kinds)
    wanted = theirs
    if asked.mode == "keyed":
        wanted = ours(asked, reference(how))
    mine = ours(asked, how, theirs.output)
    outcome = _judged(asked, how, wanted, mine)
    outcome.case = in_words(asked, how)
    return outcome

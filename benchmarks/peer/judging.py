"""One call of `generate`, made by transformers' loop and by ours: what came of it, and the counts.

A call is made twice on equal inputs and random state. What is refused by name hands transformers'
own result on, so that the test around it goes on.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mmspec.errors import MMSpecError

VERDICTS = ("passed", "refused", "other ids", "other result", "raw error")
"""What a test can come to, from best to worst: it is its worst call."""

TOLERANCE = 1e-4
"""Of scores, relative to the largest of them: blocks and single rows sum in another order."""


@dataclass
class Call:
    """A call and what came of it.

    Attributes:
        test: where it was made.
        family: whose model it was.
        verdict: one of VERDICTS.
        ours: rows (or goes at windows) that our loop decoded; 0 where transformers' own did.
        said: the differences, the refusal, the error, or why transformers' own loop ran.
    """

    test: str
    family: str
    verdict: str
    ours: int = 0
    said: list[str] = field(default_factory=list)


@dataclass
class Ours:
    """What our side of a call gave: the result, rows decoded by our loop, why none were."""

    result: Any
    rows: int
    ordinary: str | None = None


class Judge:
    """Makes calls twice and writes down what came of them."""

    def __init__(self, log: Path) -> None:
        self._log = log

    def write(self, **record: Any) -> None:
        with self._log.open("a") as log:
            log.write(json.dumps(record) + "\n")

    def call(
        self,
        test: str,
        family: str,
        theirs: Callable[[], Any],
        ours: Callable[[], Ours],
        *,
        sampled: bool = False,
        going_on: bool = False,
    ) -> Any:
        """The result of our side; theirs where ours refused.

        Args:
            test: where the call is made.
            family: whose model it is.
            theirs: makes it by transformers.
            ours: makes it by us.
            sampled: whether the outputs may differ.
            going_on: return nothing where a side raises.

        Raises:
            Exception: whatever transformers' side raises, or ours where it breaks.
        """
        start = torch.get_rng_state()
        plain, plain_error = _tried(theirs)
        end = torch.get_rng_state()
        torch.set_rng_state(start)
        found, error = _tried(ours)
        torch.set_rng_state(end)
        call = Call(test, family, "passed")
        if error is not None:
            call.said = [f"{type(error).__name__}: {error}"[:300]]
            if plain_error is not None:
                call.said.append(
                    f"as transformers does: {type(plain_error).__name__}: {plain_error}"[:300]
                )
            if isinstance(error, MMSpecError):
                call.verdict = "refused" if plain_error is None else "passed"
            elif type(error) is not type(plain_error):
                call.verdict = "raw error"
        elif plain_error is not None:
            call.verdict = "other result"
            call.said = [f"taken, where transformers raises {type(plain_error).__name__}"]
        else:
            call.ours = found.rows
            call.said = differences(plain, found.result, sampled=sampled)
            if call.said:
                call.verdict = "other ids" if _about_ids(call.said) else "other result"
            elif found.ordinary is not None:
                call.said = [found.ordinary]
        self.write(what="call", **asdict(call))
        if going_on and error is not None:
            return None
        if isinstance(error, MMSpecError):
            if plain_error is not None:
                raise plain_error
            return plain
        if error is not None:
            raise error
        return found.result


def _tried(make: Callable[[], Any]) -> tuple[Any, Exception | None]:
    try:
        return make(), None
    except Exception as error:
        return None, error


def _about_ids(said: Iterable[str]) -> bool:
    return any(": ids" in line or "sequences: shape" in line for line in said)


def differences(theirs: Any, ours: Any, where: str = "sequences", *, sampled: bool) -> list[str]:
    """Where two results of `generate` differ; of sampled ones only what they are made of.

    Whole numbers are held to the unit, scores to `TOLERANCE`, caches to their positions.
    """
    if _positions(theirs) is not None or _positions(ours) is not None:
        a, b = _positions(theirs), _positions(ours)
        return [] if a == b else [f"{where}: a cache of {a} positions, ours of {b}"]
    if type(theirs) is not type(ours):
        return [f"{where}: a {type(theirs).__name__}, ours a {type(ours).__name__}"]
    if isinstance(theirs, Tensor):
        return _tensors(theirs, ours, where, sampled)
    if isinstance(theirs, Mapping):
        return [
            line
            for key in [*theirs, *(key for key in ours if key not in theirs)]
            for line in _entry(theirs, ours, key, sampled)
        ]
    if isinstance(theirs, tuple | list):
        if len(theirs) != len(ours):
            return [] if sampled else [f"{where}: {len(theirs)} of them, ours {len(ours)}"]
        return [
            line
            for at, (a, b) in enumerate(zip(theirs, ours, strict=True))
            for line in differences(a, b, f"{where}[{at}]", sampled=sampled)
        ]
    return [] if sampled or theirs == ours else [f"{where}: {theirs!r}, ours {ours!r}"]


def _entry(theirs: Any, ours: Any, key: str, sampled: bool) -> list[str]:
    if key not in ours or key not in theirs:
        return [f"{key}: {'missing' if key in theirs else 'extra'}"]
    return differences(theirs[key], ours[key], key, sampled=sampled)


def _positions(value: Any) -> int | None:
    count = getattr(value, "get_seq_length", None)
    return None if count is None else int(count())


def _tensors(theirs: Tensor, ours: Tensor, where: str, sampled: bool) -> list[str]:
    if theirs.dtype != ours.dtype:
        return [f"{where}: {theirs.dtype}, ours {ours.dtype}"]
    if theirs.shape != ours.shape:
        others = sum(a != b for a, b in zip(theirs.shape, ours.shape, strict=False))
        if sampled and theirs.ndim == ours.ndim and others == 1:
            return []  # a sample may end earlier than another
        return [f"{where}: shape {tuple(theirs.shape)}, ours {tuple(ours.shape)}"]
    if sampled:
        return []
    if not theirs.is_floating_point():
        return (
            []
            if torch.equal(theirs, ours)
            else [f"{where}: ids {theirs.tolist()}, ours {ours.tolist()}"]
        )
    finite = theirs[torch.isfinite(theirs)].abs()
    room = TOLERANCE * max(1.0, float(finite.max()) if finite.numel() else 1.0)
    if torch.allclose(theirs.float(), ours.float(), atol=room, rtol=TOLERANCE, equal_nan=True):
        return []
    gap = (theirs.float() - ours.float()).abs()
    return [f"{where}: off by up to {float(gap[torch.isfinite(gap)].max()):.3g}"]


@dataclass
class Count:
    """Of one family, or of all: tests by verdict, calls, and how many of them our loop decoded."""

    tests: Counter[str] = field(default_factory=Counter)
    calls: int = 0
    ours: int = 0

    def __add__(self, other: Count) -> Count:
        return Count(self.tests + other.tests, self.calls + other.calls, self.ours + other.ours)


def tally(
    records: Iterable[Mapping[str, Any]], *, known: Iterable[str] | None = None
) -> dict[str, Count]:
    """Counts by family.

    Args:
        records: what a `Judge` wrote: calls, and `what="test"` with the outcome of each test.
        known: the tests that pass without us; None: all. A test of these that fails although its
            calls are equal has met another result.
    """
    wanted = None if known is None else set(known)
    calls, failed = defaultdict(list), set()
    for record in records:
        if wanted is not None and record["test"] not in wanted:
            continue
        if record["what"] == "call":
            calls[record["test"]].append(record)
        elif record["outcome"] == "failed":
            failed.add(record["test"])
    counts: dict[str, Count] = defaultdict(Count)
    for test, made in calls.items():
        worst = max((call["verdict"] for call in made), key=VERDICTS.index)
        if test in failed and worst in ("passed", "refused"):
            worst = "other result"
        count = counts[made[0]["family"]]
        count.tests[worst] += 1
        count.calls += len(made)
        count.ours += sum(call["ours"] > 0 for call in made)
    return dict(counts)

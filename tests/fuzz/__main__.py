"""The command: `python -m tests.fuzz --cases 5000 --seconds 120`."""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections import Counter
from datetime import date

import torch

from .kinds import KINDS
from .running import FAILURES, Outcome, run

RESULTS = {
    "equal": "equal",
    "ordinary": "equal, left to transformers' own loop",
    "refused": "refused in a line",
    "raised": "raised by transformers, and so here",
    "tie": "ties: the two best tokens closer than 1e-3",
    "different": "other than transformers'",
    "not refused": "answered where transformers raises",
    "raw error": "raw errors",
}
SHOWN = 40


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--cases", type=int, default=5000, help="at most so many")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="at most so long")
    today = int(date.today().strftime("%Y%m%d"))
    parser.add_argument("--seed", type=int, default=today, help="of all cases; today's by default")
    parser.add_argument("--case", type=int, help="only this one, in full")
    parser.add_argument("--kinds", default="", help=f"only of these: {','.join(KINDS)}")
    return parser.parse_args()


def _of_words(why: str) -> str:
    """A message without what differs from case to case."""
    words = re.sub(r"-?\d+(\.\d+)?(e-?\d+)?", "N", why)
    return re.sub(r"\[[\[\]N, ]*\](\.\.\.)?", "[N]", words)[:150]


def table(outcomes: list[Outcome]) -> str:
    """How many went how, and why."""
    counts = Counter(outcome.result for outcome in outcomes)
    lines = [f"{counts[result]:7}  {words}" for result, words in RESULTS.items()]
    lines.insert(0, f"{len(outcomes):7}  cases")
    for result in ("ordinary", "refused", "raised", *FAILURES):
        reasons = Counter(_of_words(o.why) for o in outcomes if o.result == result)
        lines += ["", f"{RESULTS[result]}:"]
        lines += [f"{count:7}  {why}" for why, count in reasons.most_common(SHOWN)]
    return "\n".join(lines)


def one(seed: int, number: int, kinds: tuple[str, ...]) -> int:
    """Run one case and show all of it."""
    outcome = run(seed, number, kinds)
    print(f"{outcome.case}\n{outcome.result}: {outcome.why}\n{outcome.trace}")
    return int(outcome.failed)


def main() -> int:
    """Run cases; 1 where any failed."""
    asked = arguments()
    torch.set_num_threads(1)
    kinds = tuple(filter(None, asked.kinds.split(",")))
    if asked.case is not None:
        return one(asked.seed, asked.case, kinds)
    outcomes, start = [], time.monotonic()
    print(f"seed {asked.seed}", flush=True)
    for number in range(asked.cases):
        if time.monotonic() - start > asked.seconds:
            break
        outcome = run(asked.seed, number, kinds)
        outcomes.append(outcome)
        if outcome.failed:
            again = f" --kinds {asked.kinds}" if kinds else ""
            print(
                f"{RESULTS[outcome.result]}: {outcome.why}\n    {outcome.case}\n"
                f"    python -m tests.fuzz --seed {asked.seed} --case {number}{again}",
                flush=True,
            )
    print(f"\nseed {asked.seed}, {time.monotonic() - start:.0f} s\n{table(outcomes)}")
    return int(any(outcome.result in FAILURES for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())

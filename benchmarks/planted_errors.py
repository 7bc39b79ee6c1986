"""Word errors planted in a hypothesis: trees of continuations against the best guess alone.

    python benchmarks/planted_errors.py MODEL AUDIO... [--rate 0.05] [--seeds 8] [--json FILE]

Each recording is decoded once without a draft; its own transcript, with words replaced, left out
and added, is the hypothesis. Three ways back after a mismatch decode the same hypotheses,
interleaved, in one process:

    guess   go on behind the unit if it stands within the next four, else behind the mismatch
    chain   line up everything since the last agreement by edit distance, follow the best place
    tree    the same, the best places side by side where the measured costs say so

Set OMP_NUM_THREADS=1 on a shared machine.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
from pathlib import Path
from typing import Any

import mmspec
from mmspec.modalities.base.drafts import HypothesisDraft
from mmspec.modalities.media.audio import load_audio
from mmspec.modalities.whisper.checkpoint import SAMPLING_RATE
from mmspec.modalities.whisper.draft import Window
from mmspec.proposals import HypothesisDrafter
from mmspec.tasks.asr.transcriber import Transcriber


def spoilt(text: str, rate: float, chance: random.Random) -> str:
    """A text with a share of its words replaced, left out, or preceded by another one."""
    words = text.split()
    made: list[str] = []
    for word in words:
        if chance.random() >= rate:
            made.append(word)
            continue
        other = chance.choice(words)
        made += chance.choice(([other], [], [other, word]))
    return " ".join(made)


class Guess(HypothesisDrafter):
    """Realignment that looks at one unit at a time and never reconsiders."""

    def _realign(self) -> None:
        for token in self._tail:
            near = self._tokens[self._at : self._at + 4]
            self._at += near.index(token) + 1 if token in near else 1
        self._tail, self._next = [], [self._at]


class GuessDraft(HypothesisDraft):
    def open(self, window: Window) -> HypothesisDrafter | None:
        return Guess(window.hypothesis) if window.hypothesis else None


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("audio", nargs="+", type=Path)
    parser.add_argument("--rate", type=float, default=0.05)
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--gamma", default="adaptive")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()

    plain = mmspec.load(given.model, dtype="float32")
    whisper = plain.checkpoint
    drafts = {
        "guess": GuessDraft(whisper),
        "chain": HypothesisDraft(whisper, branches=1),
        "tree": HypothesisDraft(whisper),
    }
    kinds = {name: Transcriber(whisper, draft, given.gamma) for name, draft in drafts.items()}
    forwards = dict.fromkeys(kinds, 0)
    tokens = 0
    ratios: dict[str, list[float]] = {"guess": [], "chain": []}
    for path in given.audio:
        samples = load_audio(path)
        asked: dict[str, Any] = {"sampling_rate": SAMPLING_RATE, "language": "en"}
        want = plain.transcribe(samples, **asked)
        for seed in range(-1, given.seeds):  # the first one warms up
            text = spoilt(want.text, given.rate, random.Random(f"{path.name} {seed}"))
            seconds = {}
            for name, kind in kinds.items():
                said = kind.transcribe(samples, hypothesis=text, **asked)
                if said.ids != want.ids:
                    raise SystemExit(f"{path} {name}: other ids")
                seconds[name] = said.report.decode_seconds
                forwards[name] += said.report.rounds if seed >= 0 else 0
            if seed >= 0:
                tokens += len(want.ids)
                for name, seen in ratios.items():
                    seen.append(seconds[name] / seconds["tree"])
    result = {
        "model": given.model.rstrip("/").rpartition("/")[2],
        "word_error_rate": given.rate,
        "gamma": given.gamma,
        "runs": len(ratios["chain"]),
        "tokens": tokens,
        "forwards": forwards,
        **{
            f"tree_against_{name}": {
                "forwards": round(forwards["tree"] / forwards[name], 3),
                "decode_speed_median": round(statistics.median(seen), 3),
                "quartiles": [round(edge, 3) for edge in statistics.quantiles(seen, n=4)[::2]],
            }
            for name, seen in ratios.items()
        },
    }
    print(json.dumps(result, indent=2))
    if given.json:
        given.json.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()

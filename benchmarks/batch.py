"""Several recordings side by side against one after the other, from samples to text.

    python benchmarks/batch.py MODEL AUDIO... [--batch 5] [--threads 2] [--pairs 5] [--json FILE]

Interleaved in one process after a warm-up pass: mmspec one by one, mmspec side by side,
transformers' `generate` one by one and as a padded batch. Ids must be equal throughout. Says how
busy the machine was, because two threads on two busy cores measure the other processes.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import mmspec
from mmspec.modalities.media.audio import load_audio
from mmspec.modalities.whisper.checkpoint import SAMPLING_RATE

PHASES = ("encode", "prefill", "decode", "total")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("audio", nargs="+", type=Path)
    parser.add_argument("--draft", default="none")
    parser.add_argument("--batch", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)

    recogniser = mmspec.load(given.model, given.draft, dtype="float32")
    model, processor = recogniser.model, recogniser.processor
    clips = [load_audio(path) for path in given.audio]
    asked: dict[str, Any] = {"sampling_rate": SAMPLING_RATE, "language": "en"}

    def features(some: list[Any]) -> torch.Tensor:
        return processor(some, sampling_rate=SAMPLING_RATE, return_tensors="pt").input_features

    def generated(some: list[Any]) -> list[tuple[int, ...]]:
        with torch.no_grad():
            rows = model.generate(features(some), language="en").tolist()
        end = model.generation_config.eos_token_id
        return [tuple(token for token in row if token != end) for row in rows]

    def ids(said: list[mmspec.Transcription]) -> list[tuple[int, ...]]:
        end = model.generation_config.eos_token_id
        for one in said:
            for phase in PHASES:
                spent[phase] += one.report.to_dict()["seconds"][phase]
        return [tuple(token for token in one.ids if token != end) for one in said]

    ways: dict[str, Callable[[], list[tuple[int, ...]]]] = {
        "side by side": lambda: ids(recogniser.transcribe_batch(clips, batch=given.batch, **asked)),
        "one by one": lambda: ids([recogniser.transcribe(clip, **asked) for clip in clips]),
        "transformers one by one": lambda: [generated([clip])[0] for clip in clips],
        "transformers batch": lambda: generated(clips),
    }
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    phases: dict[str, dict[str, list[float]]] = {name: {} for name in ways}
    load = os.getloadavg()[0]
    for number in range(given.pairs + 1):
        heard = {}
        for name, way in ways.items():
            spent = dict.fromkeys(PHASES, 0.0)
            start = time.perf_counter()
            heard[name] = way()
            if number:  # the first pass warms up
                seconds[name].append(time.perf_counter() - start)
                for phase, value in spent.items():
                    phases[name].setdefault(phase, []).append(value)
        if any(got != heard["one by one"] for got in heard.values()):
            raise SystemExit(f"other ids: {heard}")

    result: dict[str, Any] = {
        "model": Path(given.model).name,
        "draft": given.draft,
        "recordings": len(clips),
        "batch": given.batch,
        "threads": given.threads,
        "pairs": given.pairs,
        "load_average_before": round(load, 2),
        "load_average_after": round(os.getloadavg()[0], 2),
    }
    ours = seconds["side by side"]
    for name in list(ways)[1:]:
        ratios = [theirs / mine for theirs, mine in zip(seconds[name], ours, strict=True)]
        result[f"side_by_side_against_{name.replace(' ', '_')}"] = {
            "end_to_end_median": round(statistics.median(ratios), 3),
            "least": round(min(ratios), 3),
            "most": round(max(ratios), 3),
        }
    mine, single = phases["side by side"], phases["one by one"]
    result["one_by_one_over_side_by_side_by_phase"] = {
        phase: round(statistics.median(single[phase]) / statistics.median(mine[phase]), 3)
        for phase in PHASES
    }
    result["share_of_one_by_one"] = {
        phase: round(statistics.median(single[phase]) / statistics.median(single["total"]), 3)
        for phase in PHASES
    }
    print(json.dumps(result, indent=2))
    if given.json:
        given.json.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()

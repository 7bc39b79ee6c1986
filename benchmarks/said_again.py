"""Lookup over what a voice has said before: the same sentence again, and others that begin alike.

    python benchmarks/said_again.py [--pairs N] [--json FILE]

Each of the voice sample's held-out sentences is said by ordinary decoding and with lookup: knowing
all the other sentences, and knowing this one as well. Decoding only; ratios in one process,
interleaved, one thread, median of N passes.
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

import numpy as np
import torch

import mmspec
from mmspec.compat import quiet
from mmspec.loading import sample_path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    lines = sample_path("voice-sample", "sentences.txt").read_text().splitlines()
    sentences = [(text, float(seconds)) for text, seconds in (line.split("\t") for line in lines)]
    with quiet():
        plain = mmspec.load("voice-sample")
    expected = [plain.speak(text, seconds=seconds, sound=False) for text, seconds in sentences]
    results: dict[str, Any] = {}
    for name in ("others", "itself"):
        ratios, passes, frames = [], 0, 0
        for _ in range(arguments.pairs):
            ours = ordinary = 0.0
            passes = frames = 0
            for number, (text, seconds) in enumerate(sentences):
                known = expected if name == "itself" else expected[:number] + expected[number + 1 :]
                with quiet():  # a new one each time: it remembers what it was told
                    speaker = mmspec.load(plain.model, "lookup", processor=plain.processor)
                said = speaker.speak(text, seconds=seconds, sound=False, earlier=known)
                again = plain.speak(text, seconds=seconds, sound=False)
                if not np.array_equal(said.codes, expected[number].codes):
                    raise SystemExit(f"{text}: the codes differ")
                ours += said.report.decode_seconds
                ordinary += again.report.decode_seconds
                passes += said.report.target_forwards
                frames += said.report.tokens
            ratios.append(ordinary / ours)
        results[name] = {"ratios": ratios, "passes": passes, "steps": frames}
        print(
            f"knows {name}: {statistics.median(ratios):.2f}x ({min(ratios):.2f}-{max(ratios):.2f}) "
            f"of ordinary decoding, {passes} passes for {frames} steps, codes equal"
        )
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()

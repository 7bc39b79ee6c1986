"""What a drafter costs where the policy isn't allowed to switch it off.

    python benchmarks/fixed_gamma.py TARGET AUDIO... --draft DRAFT [--draft DRAFT] [--gamma 3]

Interleaved pairs against mmspec's own ordinary decoding, after a warm-up pass; one thread.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path

import torch

import mmspec


def seconds(transcriber: mmspec.Transcriber, clips: list[str]) -> tuple[float, float, list]:
    """(decoding, end to end, ids) of one pass over all clips."""
    decode, ids, start = 0.0, [], time.perf_counter()
    for clip in clips:
        said = transcriber.transcribe(clip, language="en")
        decode += said.report.decode_seconds
        ids.append(said.ids)
    return decode, time.perf_counter() - start, ids


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("target")
    parser.add_argument("clips", nargs="+")
    parser.add_argument("--draft", action="append", required=True)
    parser.add_argument("--gamma", type=int, default=3)
    parser.add_argument("--pairs", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    plain = mmspec.load(options.target)
    print("| drafter | decode | end to end | accepted |\n|---|---|---|---|")
    for draft in options.draft:
        drafted = mmspec.load(options.target, draft, gamma=options.gamma)
        ratios: list[tuple[float, float]] = []
        for number in range(options.pairs + 1):
            ours, theirs = seconds(drafted, options.clips), seconds(plain, options.clips)
            if ours[2] != theirs[2]:
                raise SystemExit(f"{draft}: the ids differ")
            if number:  # the first pass warms up
                ratios.append((theirs[0] / ours[0], theirs[1] / ours[1]))
        reports = [drafted.transcribe(clip, language="en").report for clip in options.clips]
        proposed = sum(report.proposed for report in reports)
        accepted = sum(report.accepted for report in reports)
        share = f"{100 * accepted / proposed:.0f} %" if proposed else "-"
        cells = [
            f"{statistics.median(column):.2f}× ({min(column):.2f}-{max(column):.2f})"
            for column in zip(*ratios, strict=True)
        ]
        print(f"| {Path(draft).name} | {cells[0]} | {cells[1]} | {share} |", flush=True)


if __name__ == "__main__":
    main()

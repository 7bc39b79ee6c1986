"""Drafts from the sound against ordinary decoding, clip by clip.

    python benchmarks/sound.py TARGET HEAD CLIP... [--language en] [--pairs 5] [--wrong]

HEAD is what stands behind `ctc:`. One thread, float32, pairs of both in one process, medians. Ids
are equal or the script stops. With --wrong the head says other characters than it hears, as sure of
them as before: what the worst drafter costs.
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

import torch

import mmspec
from mmspec.compat import quiet
from mmspec.modalities.whisper.ctc_head import CHARACTERS
from mmspec.proposals import Alphabet

COLUMNS = ["tokens", "rows", "proposed", "kept", "decode", "whole", "drafting_ms", "step_ms"]


def measured(plain: Any, drafted: Any, clip: Path, language: str | None) -> list[float]:
    """One pair: tokens and rows a round, drafted and kept, ratios, ms of drafting and of a step."""
    ordinary, ours = (one.transcribe(str(clip), language=language) for one in (plain, drafted))
    if ordinary.ids != ours.ids or ours.report.faults:
        raise SystemExit(f"{clip}: ids differ, or a fault: {ours.report.faults}")
    was, now = ordinary.report, ours.report
    rows = now.rounds + now.proposed
    return [
        now.tokens / now.rounds,
        rows / now.rounds,
        now.proposed,
        now.accepted,
        was.decode_seconds / now.decode_seconds,
        was.total_seconds / now.total_seconds,
        1e3 * now.seconds["draft"] / now.rounds,
        1e3 * was.seconds["verify"] / was.rounds,
    ]


def main() -> None:
    """Prints a row for each clip, and the totals."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    options.add_argument("target")
    options.add_argument("head")
    options.add_argument("clips", type=Path, nargs="+")
    options.add_argument("--language")
    options.add_argument("--pairs", type=int, default=5)
    options.add_argument("--wrong", action="store_true")
    options.add_argument("--json", type=Path)
    asked = options.parse_args()
    torch.set_num_threads(1)
    with quiet():
        plain = mmspec.load(asked.target, device="cpu", dtype="float32")
        drafted = mmspec.load(
            plain.model, f"ctc:{asked.head}", processor=plain.processor, device="cpu"
        )
    if asked.wrong:
        others = CHARACTERS[:1] + CHARACTERS[2:27] + CHARACTERS[1] + CHARACTERS[27:]
        drafted.draft._alphabet = Alphabet(["", *others])
    for clip in asked.clips:  # kernels are made, and the policy has seen a recording
        measured(plain, drafted, clip, asked.language)
    results = {
        clip.name: [measured(plain, drafted, clip, asked.language) for _ in range(asked.pairs)]
        for clip in asked.clips
    }
    print(" ".join(f"{name:>11}" for name in ("clip", *COLUMNS)))
    medians = {
        name: [statistics.median(column) for column in zip(*runs, strict=True)]
        for name, runs in results.items()
    }
    everywhere = [statistics.fmean(column) for column in zip(*medians.values(), strict=True)]
    for name, row in (*medians.items(), ("mean", everywhere)):
        print(f"{name[-11:]:>11} " + " ".join(f"{value:11.2f}" for value in row))
    if asked.json:
        asked.json.write_text(json.dumps({"columns": COLUMNS, "runs": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()

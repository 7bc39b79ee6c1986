"""What it costs to compare packed weights with the model's own, at each opening.

    OMP_NUM_THREADS=1 python benchmarks/packed_weights.py CHECKPOINT CLIP...

A weight can change without a trace, so whoever opens packed layers has them read again (see
`mmspec/kernels/packed.py`). Here every such reading is timed while recordings are transcribed,
after a first one that packs; the share is of the whole transcription, median of `--repeat`.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path

import torch
from torch import Tensor

import mmspec
from mmspec.kernels import packed
from mmspec.modalities.media.audio import load_audio

real_digest = packed.digest


class Readings:
    """Stands in for the digest, and keeps the seconds and bytes that it takes."""

    def __init__(self) -> None:
        self.seconds, self.bytes, self.count = 0.0, 0, 0

    def __call__(self, weight: Tensor) -> object:
        start = time.perf_counter()
        found = real_digest(weight)
        self.seconds += time.perf_counter() - start
        self.bytes += weight.nbytes
        self.count += 1
        return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkpoint")
    parser.add_argument("clips", nargs="+", type=Path)
    parser.add_argument("--repeat", type=int, default=3)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    print("| recording | weights compared | MB | ms | of decoding | of the transcription |")
    print("|---|---|---|---|---|---|")
    with mmspec.load(asked.checkpoint, dtype="float32", device="cpu") as transcriber:
        for clip in asked.clips:
            samples = load_audio(clip)
            transcriber.transcribe(samples, sampling_rate=16_000)
            rows = []
            for _ in range(asked.repeat):
                packed.digest = readings = Readings()
                start = time.perf_counter()
                result = transcriber.transcribe(samples, sampling_rate=16_000)
                rows.append((readings, time.perf_counter() - start, result.report.decode_seconds))
                packed.digest = real_digest
            ms = statistics.median(readings.seconds for readings, _, _ in rows) * 1e3
            decode = statistics.median(readings.seconds / d for readings, _, d in rows)
            whole = statistics.median(readings.seconds / total for readings, total, _ in rows)
            first = rows[0][0]
            print(
                f"| {clip.name} | {first.count} | {first.bytes / 1e6:.0f} | {ms:.1f} | "
                f"{decode:.1%} | {whole:.1%} |"
            )


if __name__ == "__main__":
    main()

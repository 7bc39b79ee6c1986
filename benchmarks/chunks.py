"""A long recording in chunks: are the ids right, how good is the text, what does an overlap cost?

    python benchmarks/chunks.py TARGET AUDIO... --reference TSV [--chunk 15] [--overlap 3]

The clips are joined, silence between, and repeated. Each chunk's ids are held against transformers'
`generate`; the merged text is scored beside the text of decoding in sequence and the one of
transformers' pipeline with the same chunks. Times: interleaved pairs after a warm-up, one thread.
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path
from typing import Any

import numpy as np
import torch

import mmspec
from mmspec.bench.cases import read_references, word_error_rate
from mmspec.modalities.media.audio import load_audio

RATE = 16_000


def recording(options: argparse.Namespace) -> tuple[np.ndarray, str]:
    """(samples, what is said in them)."""
    references = read_references(options.reference, options.clips)
    silence = np.zeros(round(options.gap * RATE), np.float32)
    parts = [part for clip in options.clips for part in (load_audio(clip), silence)]
    said = " ".join(references[clip.name] for clip in options.clips)
    return np.tile(np.concatenate(parts), options.repeats), " ".join([said] * options.repeats)


def equal_chunks(whole: mmspec.Transcriber, samples: np.ndarray, said: Any, times: bool) -> int:
    """How many chunks' ids are transformers' own."""
    equal, ends = 0, set(np.atleast_1d(whole.model.generation_config.eos_token_id).tolist())
    for chunk in said.chunks:
        part = samples[round(chunk.start_s * RATE) : round(chunk.end_s * RATE)]
        features = whole.processor(part, sampling_rate=RATE, return_tensors="pt").input_features
        ids = whole.model.generate(features, language="en", return_timestamps=times)[0].tolist()
        equal += [token for token in ids if token not in ends] == list(chunk.ids)
    return equal


def pipeline_text(whole: mmspec.Transcriber, samples: np.ndarray, **asked: Any) -> str:
    """What transformers' pipeline makes of the same chunks."""
    from transformers import pipeline

    pipe = pipeline(
        "automatic-speech-recognition",
        model=whole.model,
        tokenizer=whole.processor.tokenizer,
        feature_extractor=whole.processor.feature_extractor,
        chunk_length_s=asked["chunk_s"],
        stride_length_s=asked["overlap_s"] / 2,
    )
    given = {"raw": samples, "sampling_rate": RATE}
    times = asked["timestamps"] or None
    return pipe(given, return_timestamps=times, generate_kwargs={"language": "en"})["text"]


def score(text: str, truth: str) -> str:
    return f"{100 * (word_error_rate([(truth, text)]) or 0.0):.1f} %"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("target")
    parser.add_argument("clips", nargs="+", type=Path)
    parser.add_argument("--reference", type=Path)
    parser.add_argument("--chunk", action="append", type=float)
    parser.add_argument("--overlap", type=float, default=3.0)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--gap", type=float, default=0.8)
    parser.add_argument("--pairs", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    samples, truth = recording(options)
    plain, drafted = (mmspec.load(options.target, draft) for draft in ("none", "overlap"))
    asked: dict[str, Any] = {"sampling_rate": RATE, "language": "en"}
    sequence = score(plain.transcribe(samples, **asked).text, truth)
    print(f"{len(samples) / RATE:.1f} s; in sequence: WER {sequence}\n")
    print("| chunk, overlap | times | equal | WER | pipeline's | tokens per round | decode |")
    print("|---|---|---|---|---|---|---|")
    for chunk_s in options.chunk or [15.0, 30.0]:
        for timestamps in (False, True):
            cut = {"chunk_s": chunk_s, "overlap_s": options.overlap, "timestamps": timestamps}
            ratios: list[float] = []
            for number in range(options.pairs + 1):
                before, said = (one.transcribe(samples, **asked, **cut) for one in (plain, drafted))
                if before.chunks != said.chunks or said.report.faults:
                    raise SystemExit(f"{cut}: the ids differ, or {said.report.faults}")
                if number:  # the first pass warms up
                    ratios.append(before.report.decode_seconds / said.report.decode_seconds)
            equal = equal_chunks(plain, samples, said, timestamps)
            report = said.report
            cells = [
                f"{chunk_s:g} s, {options.overlap:g} s",
                "yes" if timestamps else "no",
                f"{equal} of {len(said.chunks)}",
                score(said.text, truth),
                score(pipeline_text(plain, samples, **cut), truth),
                f"{report.tokens}/{report.rounds} = {report.tokens / report.rounds:.2f}",
                f"{statistics.median(ratios):.2f}× ({min(ratios):.2f}-{max(ratios):.2f})",
            ]
            print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()

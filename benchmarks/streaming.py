"""A live stream against decoding each of its buffers afresh.

    python benchmarks/streaming.py TARGET AUDIO... [--language en] [--step 1.0] [--trim S]
        [--no-prompt] [--reference TSV] [--json FILE] [--passes 1]

The recordings are joined and fed step by step. Every buffer that the stream decodes is decoded by
transformers' `generate` and by mmspec without a drafter as well, right after it in the same
process, one thread; ids are compared and decoding times (first token to last) added up.
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
from mmspec.modalities.media.audio import duration_s, load_audio
from mmspec.modalities.whisper.request import TranscriptionRequest
from mmspec.output.formats import dump_json
from mmspec.tasks.asr.peers import MMSpecPeer, TransformersPeer, plain_of

RATE = 16_000


def one_pass(recogniser: mmspec.Transcriber, audio: np.ndarray, asked: Any) -> dict[str, Any]:
    """Feed the stream; repeat each of its decodes with the others."""
    hf = TransformersPeer(recogniser.model, recogniser.processor, "hf")
    plain = MMSpecPeer(plain_of(recogniser), "plain")
    step, stop = round(asked.step * RATE), hf.end
    session = recogniser.live(
        step_s=asked.step,
        trim_s=asked.trim,
        condition_on_committed=not asked.no_prompt,
        language=asked.language,
    )
    decodes, committed = [], ""
    for update in session.run(np.split(audio, range(step, len(audio), step))):
        if not update.committed.startswith(committed):
            raise SystemExit(f"committed text was taken back at {update.heard_s} s")
        committed = update.committed
        for decode in update.decodes:
            buffer = audio[round(decode.start_s * RATE) : round(decode.end_s * RATE)]
            request = TranscriptionRequest(asked.language, timestamps=True, prompt=decode.previous)
            theirs, ours = hf.run(buffer, request), plain.run(buffer, request)
            want = tuple(token for token in theirs.ids if token != stop)
            decodes.append(
                {
                    "start_s": decode.start_s,
                    "end_s": decode.end_s,
                    "tokens": decode.report.tokens,
                    "rounds": decode.report.rounds,
                    "encoder_runs": decode.report.encoder_runs,
                    "ids_equal": decode.ids == want,
                    "plain_ids_equal": ours.ids == decode.ids,
                    "decode_s": decode.report.decode_seconds,
                    "plain_decode_s": ours.decode_s,
                    "hf_decode_s": theirs.decode_s,
                    "new": update.new,
                    "tentative": update.tentative,
                }
            )
            print(
                f"{update.heard_s:6.1f} s  {decode.report.tokens:4} tokens  "
                f"{decode.report.rounds:3} rounds  {decode.report.decode_seconds:.3f} s  "
                f"hf {theirs.decode_s:.3f} s  "
                f"{'equal' if decode.ids == want else 'DIFFER'}",
                flush=True,
            )
    return {"decodes": decodes, "totals": session.totals.to_dict(), "text": session.text}


def summary(run: dict[str, Any], reference: str | None) -> dict[str, Any]:
    """What the table shows of a pass."""
    spent = {
        name: sum(one[name] for one in run["decodes"])
        for name in ("decode_s", "plain_decode_s", "hf_decode_s")
    }
    return {
        **spent,
        "hf_over_stream": spent["hf_decode_s"] / spent["decode_s"],
        "plain_over_stream": spent["plain_decode_s"] / spent["decode_s"],
        "ids_equal": sum(one["ids_equal"] for one in run["decodes"]),
        "word_error_rate": word_error_rate([(reference, run["text"])]) if reference else None,
        **run["totals"],
    }


def table(runs: list[dict[str, Any]]) -> str:
    """Medians over the passes, in Markdown."""

    def middle(name: str) -> float:
        return statistics.median(run["summary"][name] for run in runs)

    last = runs[-1]["summary"]
    wer = last["word_error_rate"]
    rows = {
        "audio": f"{last['audio_s']:.1f} s in {last['decodes']} decodes",
        "ids equal to `generate`'s": f"{last['ids_equal']} of {last['decodes']} decodes",
        "decoding, transformers over stream": f"{middle('hf_over_stream'):.2f}×",
        "decoding, mmspec without drafter over stream": f"{middle('plain_over_stream'):.2f}×",
        "tokens per round": f"{middle('mean_acceptance_length'):.2f}",
        "word error rate": "-" if wer is None else f"{100 * wer:.1f} %",
        "share of the audio encoded more than once": f"{100 * last['encoded_again_share']:.0f} %",
        "a second of audio was encoded": f"{last['encoded_times']:.1f} times",
        "encoder": f"{middle('encode_seconds'):.1f} s",
        "decoding": f"{middle('decode_s'):.2f} s",
    }
    return "\n".join(
        ["| | |", "|---|---|", *(f"| {name} | {cell} |" for name, cell in rows.items())]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("target")
    parser.add_argument("clips", nargs="+", type=Path)
    parser.add_argument("--language")
    parser.add_argument("--step", type=float, default=1.0)
    parser.add_argument("--trim", type=float)
    parser.add_argument("--no-prompt", action="store_true")
    parser.add_argument("--reference", type=Path)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--passes", type=int, default=1)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    audio = np.concatenate([load_audio(clip) for clip in asked.clips])
    said = read_references(asked.reference, asked.clips)
    known = [said.get(clip.name) for clip in asked.clips]
    reference = " ".join(text for text in known if text) if all(known) else None
    recogniser = mmspec.load(asked.target, device="cpu", dtype="float32")
    recogniser.transcribe(audio[: 2 * RATE], sampling_rate=RATE)  # warms up
    runs = [one_pass(recogniser, audio, asked) for _ in range(asked.passes)]
    for run in runs:
        run["summary"] = summary(run, reference)
    print(table(runs))
    if asked.json is not None:
        settings = {name: value for name, value in vars(asked).items() if name != "json"}
        settings |= {"clips": [clip.name for clip in asked.clips], "seconds": duration_s(audio)}
        settings |= {"target": Path(asked.target).name, "reference": reference}
        asked.json.write_text(dump_json({"settings": settings, "passes": runs}), encoding="utf-8")


if __name__ == "__main__":
    main()

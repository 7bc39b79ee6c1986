"""Word error rate of a sample model on held-out sentences, by voice.

    python samples/recipe/evaluate.py samples/whisper-sample/target --work WORK

Greedy decoding by transformers' own `generate`; words are compared in lower case, without
punctuation.
"""

import argparse
import time
from pathlib import Path

import jiwer
import torch
from batches import Batches
from checkpoint import build_tokenizer
from grammar import normalize
from speech import VOICES
from transformers import WhisperForConditionalGeneration, WhisperProcessor


def by_voice(held_out: Batches, per_voice: int) -> dict[str, list[int]]:
    """Indices of the first `per_voice` held-out clips of each voice."""
    chosen: dict[str, list[int]] = {voice: [] for voice in VOICES}
    for index in range(len(held_out)):
        indices = chosen[held_out.clip(index).voice]
        if len(indices) < per_voice:
            indices.append(index)
    return chosen


@torch.no_grad()
def transcribe(
    model: WhisperForConditionalGeneration,
    processor: WhisperProcessor,
    held_out: Batches,
    indices: list[int],
    *,
    timestamps: bool,
) -> list[str]:
    """Texts of held-out clips, normalized."""
    features = held_out.plain(indices, timestamps=timestamps).features
    ids = model.generate(
        features, language="en", task="transcribe", return_timestamps=timestamps, do_sample=False
    )
    return [normalize(text) for text in processor.batch_decode(ids, skip_special_tokens=True)]


def main() -> None:
    """Prints one line a voice and one for all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--per-voice", type=int, default=37)
    parser.add_argument("--timestamps", action="store_true")
    parser.add_argument("--errors", type=int, default=0, help="wrong transcripts to show a voice")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    started = time.monotonic()
    model = WhisperForConditionalGeneration.from_pretrained(arguments.model, dtype=torch.float32)
    processor = WhisperProcessor.from_pretrained(arguments.model)
    held_out = Batches(arguments.work, "heldout", build_tokenizer(), seed=0)
    all_said: list[str] = []
    all_heard: list[str] = []
    for voice, indices in by_voice(held_out, arguments.per_voice).items():
        said = [
            normalize(" ".join(text for _, _, text in held_out.clip(i).segments)) for i in indices
        ]
        heard = transcribe(model, processor, held_out, indices, timestamps=arguments.timestamps)
        print(f"{voice:24} {len(said):4} clips  WER {100 * jiwer.wer(said, heard):5.1f} %")
        wrong = [pair for pair in zip(said, heard, strict=True) if pair[0] != pair[1]]
        for pair in wrong[: arguments.errors]:
            print("   said  {}\n   heard {}".format(*pair))
        all_said += said
        all_heard += heard
    score = 100 * jiwer.wer(all_said, all_heard)
    print(f"{'all':24} {len(all_said):4} clips  WER {score:5.1f} %", end="")
    print(f"  ({time.monotonic() - started:.0f} s)")


if __name__ == "__main__":
    main()

"""How well the voice sample is understood: what a Whisper of OpenAI's hears, and what it predicts.

    python samples/recipe/voice_evaluate.py --work WORK --whisper FOLDER

prints word error rates on held-out sentences for the source voice, for the codec (encode, decode)
and for generated speech, and how often the next code is right with the true codes before it.
"""

import argparse
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import jiwer
import numpy as np
import torch
from grammar import normalize
from safetensors.torch import load_file
from transformers import (
    AutoProcessor,
    MusicgenForCausalLM,
    MusicgenForConditionalGeneration,
    WhisperForConditionalGeneration,
    WhisperProcessor,
)
from voice_batches import IGNORED, Batches
from voice_codec import decode as decode_codes
from voice_codec import encode, hasten
from voice_model import CODEBOOKS, FRAME_SAMPLES, START, FrameHeads, delayed
from voice_own import say
from voice_speech import SAMPLE_RATE_HZ, load
from voice_train import SAMPLE, accuracy, decode, read_text, reading

_DIGITS = {"2": "two", "3": "three", "4": "four", "7": "seven", "9": "nine", "10": "ten"}
_BATCH = 8
_MARGIN_FRAMES = 5


class Listener:
    """A Whisper checkpoint that writes down what it hears."""

    def __init__(self, folder: Path) -> None:
        self.processor = WhisperProcessor.from_pretrained(folder)
        self.model = WhisperForConditionalGeneration.from_pretrained(folder, dtype=torch.float32)

    def transcribe(self, clips: list[np.ndarray]) -> list[str]:
        """Transcripts, lower case, words only, of float32 clips at 16 kHz."""
        heard: list[str] = []
        for begin in range(0, len(clips), _BATCH):
            inputs = self.processor(
                clips[begin : begin + _BATCH], sampling_rate=SAMPLE_RATE_HZ, return_tensors="pt"
            )
            ids = self.model.generate(
                inputs.input_features, language="en", task="transcribe", max_new_tokens=40
            )
            heard += self.processor.batch_decode(ids, skip_special_tokens=True)
        return [_words(text) for text in heard]


def _words(text: str) -> str:
    return normalize(re.sub(r"\d+", lambda digits: f" {_DIGITS.get(digits[0], '')} ", text))


def word_errors(name: str, said: list[str], heard: list[str], show: bool = False) -> float:
    """Prints and returns the word error rate in percent."""
    score = 100 * jiwer.wer(said, heard)
    print(f"{name}: {len(said)} sentences, WER {score:.1f} %", flush=True)
    if show:
        for one, other in zip(said, heard, strict=True):
            if one != other:
                print(f"  {one}\n    {other}", flush=True)
    return score


@torch.no_grad()
def generate(folder: Path, texts: list[str], frames: list[int], **options: Any) -> list[np.ndarray]:
    """Speech from transformers' own `generate`, each clip cut to its number of frames."""
    processor = AutoProcessor.from_pretrained(folder)
    model = MusicgenForConditionalGeneration.from_pretrained(folder, dtype=torch.float32)
    hasten(model.audio_encoder)
    clips: list[np.ndarray] = []
    for begin in range(0, len(texts), _BATCH):
        rows = slice(begin, begin + _BATCH)
        inputs = processor(text=texts[rows], padding=True, return_tensors="pt")
        steps = max(frames[rows]) + CODEBOOKS - 1
        audio = model.generate(**inputs, max_new_tokens=steps, **options).numpy()[:, 0]
        clips += [
            clip[: count * FRAME_SAMPLES]
            for clip, count in zip(audio, frames[rows], strict=True)
        ]  # fmt: skip
    return clips


@torch.no_grad()
def _predictions(sample: Path, work: Path, count: int) -> None:
    target = MusicgenForConditionalGeneration.from_pretrained(
        sample / "target", dtype=torch.float32
    )
    drafter = MusicgenForCausalLM.from_pretrained(sample / "drafter", dtype=torch.float32)
    heads = FrameHeads()
    heads.load_state_dict(load_file(sample / "heads" / "model.safetensors"))
    held_out = Batches(work, "heldout", target.audio_encoder)
    for name, scores in reading(target, held_out, count).items():
        print(f"next code of the source right, {name}: {_shares(scores)}")
    batch = held_out.plain(list(range(count)))
    codes = say(target, batch.text, batch.text_mask, batch.inputs.shape[-1] - CODEBOOKS + 1)
    inputs, wanted = delayed(codes)
    labels = wanted.masked_fill(wanted == START, IGNORED)
    own = replace(batch, inputs=inputs, labels=labels)
    states = read_text(target, own)
    _, hidden, _ = decode(target.decoder, own, states)
    drafted = decode(drafter, own, states)[0]
    whole = ((drafted.argmax(-1) == labels) | (labels == IGNORED)).all(1).float().mean().item()
    print("what the target says greedily, foreseen from what it has said so far:")
    print(f"  by the drafter: {_shares(accuracy(drafted, labels))}; columns {_shares([whole])}")
    for offset, guessed in enumerate(heads(hidden).unbind(1), start=1):
        scores = accuracy(guessed[:, :, :-offset], labels[..., offset:])
        print(f"  by the heads, {offset} after the next: {_shares(scores)}", flush=True)


def _shares(scores: list[float]) -> str:
    return " ".join(f"{100 * score:.1f}" for score in scores) + " %"


def main() -> None:
    """Prints the scores of the sample."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, default=Path("build/voice"))
    parser.add_argument("--sample", type=Path, default=SAMPLE)
    parser.add_argument("--whisper", type=Path, required=True)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--skip", type=int, default=0, help="sentences left out at the beginning")
    parser.add_argument("--only", choices=["source", "codec", "speech", "codes"])
    parser.add_argument("--guidance", type=float, nargs="*", default=[])
    parser.add_argument("--seeded", action="store_true", help="sample, too")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    sample, wanted = arguments.sample, arguments.only
    if wanted in (None, "codes"):
        _predictions(sample, arguments.work, arguments.count)
    if wanted == "codes":
        return
    held_out = load(arguments.work, "heldout")[arguments.skip :][: arguments.count]
    texts = [spoken.text for _, spoken in held_out]
    clips: dict[str, list[np.ndarray]] = {}
    if wanted in (None, "source"):
        clips["source"] = [audio for audio, _ in held_out]
    if wanted in (None, "codec"):
        codec = MusicgenForConditionalGeneration.from_pretrained(
            sample / "target", dtype=torch.float32
        ).audio_encoder
        hasten(codec)
        clips["codec"] = [decode_codes(codec, encode(codec, audio)) for audio, _ in held_out]
    if wanted in (None, "speech"):
        frames = [math.ceil(len(audio) / FRAME_SAMPLES) + _MARGIN_FRAMES for audio, _ in held_out]
        clips["generated"] = generate(sample / "target", texts, frames)
        for scale in arguments.guidance:
            clips[f"generated, guidance {scale}"] = generate(
                sample / "target", texts, frames, guidance_scale=scale
            )
        if arguments.seeded:
            clips["sampled"] = generate(sample / "target", texts, frames, do_sample=True)
    listener = Listener(arguments.whisper)
    said = [normalize(text) for text in texts]
    for name, spoken_clips in clips.items():
        level = np.mean([np.sqrt(np.mean(clip**2)) for clip in spoken_clips])
        print(f"{name}: level {level:.3f}")
        word_errors(name, said, listener.transcribe(spoken_clips), show=True)


if __name__ == "__main__":
    main()

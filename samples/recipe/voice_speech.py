"""Synthetic speech of one voice (Debian's `flite`, voice slt), and when each of its words is said.

    python samples/recipe/voice_speech.py --work WORK

writes `WORK/{train,heldout}.{npy,json}`: all samples in a row (int16), and what is known of each
sentence. flite says a sentence the same way every time, so there is nothing to draw.
"""

import argparse
import json
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

import numpy as np
import soundfile
from grammar import normalize
from voice_grammar import sentences

SAMPLE_RATE_HZ = 16_000
SENTENCES = {"train": 3600, "heldout": 160}
LEVEL = 0.08  # root mean square of every sentence
_LEAD_S, _TAIL_S = 0.06, 0.08


@dataclass(frozen=True, slots=True)
class Spoken:
    """One sentence: where its samples lie, and the (start, end) of each word in seconds."""

    text: str
    offset: int
    samples: int
    words_s: tuple[tuple[float, float], ...]


def _flite(text: str, out: str) -> list[tuple[str, float]]:
    command = ["flite", "-voice", "slt", "-psdur", "-t", text, "-o", out]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    return [(phone, float(end)) for phone, end in (item.split(":") for item in printed)]


@cache
def _phones_in(word: str) -> int:
    return sum(phone != "pau" for phone, _ in _flite(f"{word} ", "none"))


def speak(text: str) -> tuple[np.ndarray, tuple[tuple[float, float], ...]]:
    """Says `text` at the fixed level, silence at both ends cut short.

    Returns:
        float32 samples at 16 kHz of shape [samples], and each word's (start, end) in seconds.

    Raises:
        ValueError: If flite pronounces a word with another number of phones inside the sentence.
    """
    with tempfile.NamedTemporaryFile(suffix=".wav") as file:
        phones = _flite(text, file.name)
        audio, rate_hz = soundfile.read(file.name, dtype="float32")
    if rate_hz != SAMPLE_RATE_HZ:
        raise ValueError(f"flite wrote {rate_hz} Hz, expected {SAMPLE_RATE_HZ}")
    starts = [0.0, *(end for _, end in phones[:-1])]
    spans = [(start, end) for start, (phone, end) in zip(starts, phones, strict=True)
             if phone != "pau"]  # fmt: skip
    words: list[tuple[float, float]] = []
    used = 0
    for word in normalize(text).split():
        phone_spans = spans[used : used + _phones_in(word)]
        words.append((phone_spans[0][0], phone_spans[-1][1]))
        used += len(phone_spans)
    if used != len(spans):
        raise ValueError(f"{text!r} has {len(spans)} phones, its words alone {used}")
    begin = max(0.0, spans[0][0] - _LEAD_S)
    audio = audio[int(begin * rate_hz) : int((spans[-1][1] + _TAIL_S) * rate_hz)]
    audio = audio * (LEVEL / np.sqrt(np.mean(audio**2)))
    return audio, tuple((start - begin, end - begin) for start, end in words)


def load(work: Path, split: str) -> list[tuple[np.ndarray, Spoken]]:
    """All sentences of a split: float32 samples of shape [samples], and what is known of them."""
    samples = np.load(work / f"{split}.npy")
    loaded: list[tuple[np.ndarray, Spoken]] = []
    for entry in json.loads((work / f"{split}.json").read_text()):
        words_s = tuple((start, end) for start, end in entry.pop("words_s"))
        spoken = Spoken(**entry, words_s=words_s)
        audio = samples[spoken.offset : spoken.offset + spoken.samples]
        loaded.append((audio.astype(np.float32) / 2**15, spoken))
    return loaded


def _write(work: Path, split: str, count: int) -> None:
    texts = sentences(count, held_out=split == "heldout")
    with ThreadPoolExecutor(2) as pool:
        spoken = list(pool.map(speak, texts))
    known: list[Spoken] = []
    offset = 0
    for text, (audio, words_s) in zip(texts, spoken, strict=True):
        known.append(Spoken(text, offset, len(audio), words_s))
        offset += len(audio)
    samples = np.concatenate([audio for audio, _ in spoken])
    np.save(work / f"{split}.npy", (samples * 2**15).clip(-(2**15), 2**15 - 1).astype(np.int16))
    (work / f"{split}.json").write_text(json.dumps([asdict(entry) for entry in known]))
    print(f"{split}: {count} sentences, {offset / SAMPLE_RATE_HZ / 60:.0f} min, "
          f"peak {np.abs(samples).max():.2f}")  # fmt: skip


def main() -> None:
    """Writes both splits."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, default=Path("build/voice"))
    arguments = parser.parse_args()
    arguments.work.mkdir(parents=True, exist_ok=True)
    for split, count in SENTENCES.items():
        _write(arguments.work, split, count)


if __name__ == "__main__":
    main()

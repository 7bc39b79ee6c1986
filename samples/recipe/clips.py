"""Writes the held-out example clips of `samples/audio` and their transcripts.

python samples/recipe/clips.py
"""

import csv
from pathlib import Path

import numpy as np
import soundfile
from speech import SAMPLE_RATE_HZ, make_clip

_AUDIO = Path(__file__).parents[1] / "audio"
# Voice, and the number of sentences wanted.
_CLIPS = [
    ("flite-slt", 1),
    ("flite-slt", 2),
    ("flite-rms", 1),
    ("flite-rms", 2),
    ("flite-awb", 2),
    ("flite-kal16", 1),
    ("espeak-en-us", 1),
]
_REAL_CLIP = ("austen-0880.wav", "LibriVox", "he was not an ill disposed young man")


def main() -> None:
    """Draws clips until each has the number of sentences wanted, and a length worth hearing."""
    _AUDIO.mkdir(exist_ok=True)
    rows = []
    for number, (voice, sentences) in enumerate(_CLIPS, start=1):
        attempt = 0
        while True:
            audio, _, segments = make_clip(f"clip-{number}-{attempt}", held_out=True, voice=voice)
            if len(segments) == sentences and len(audio) > 2.5 * sentences * SAMPLE_RATE_HZ:
                break
            attempt += 1
        name = f"{number}-{voice.removeprefix('flite-')}.flac"
        samples = np.clip(audio * 32767, -32768, 32767).astype(np.int16)
        soundfile.write(_AUDIO / name, samples, SAMPLE_RATE_HZ, subtype="PCM_16")
        rows.append((name, voice, " ".join(text for _, _, text in segments)))
    with (_AUDIO / "transcripts.tsv").open("w", newline="") as file:
        table = csv.writer(file, delimiter="\t", lineterminator="\n")
        table.writerows([("file", "voice", "text"), *rows, _REAL_CLIP])


if __name__ == "__main__":
    main()

"""Synthetic speech from Debian's `flite` and `espeak-ng`, and its log-mel features on disk.

    python samples/recipe/speech.py --work WORK

writes `WORK/features/{train,heldout}-NNN.{npy,json}`, a shard at a time; a shard that is already
there is kept, so a killed run goes on where it stopped.
"""

import argparse
import json
import random
import subprocess
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import soundfile
from grammar import utterance
from scipy.signal import resample_poly
from transformers import WhisperFeatureExtractor

SAMPLE_RATE_HZ = 16_000
WINDOW_S = 8
MEL_FRAMES_PER_S = 100
WINDOW_FRAMES = WINDOW_S * MEL_FRAMES_PER_S

# Weights: a Whisper of OpenAI's understands flite's voices better than espeak-ng's (7-12 % against
# 21 % of the words wrong), so espeak-ng is here for variety only.
VOICES = {
    "flite-slt": 6,
    "flite-rms": 6,
    "flite-awb": 5,
    "flite-kal16": 4,
    "espeak-en-us": 2,
    "espeak-en-gb": 1,
    "espeak-en-gb-scotland": 1,
}
TRAIN_SHARDS, HELD_OUT_SHARDS, SHARD_CLIPS = 18, 1, 1000
_NOISE_SHARE = 0.02
_LONGEST_S = WINDOW_S - 0.4


@dataclass(frozen=True, slots=True)
class Clip:
    """What is known of one clip; `segments` holds (start, end, text), times in seconds."""

    voice: str
    offset_frames: int
    frames: int
    segments: tuple[tuple[float, float, str], ...]


def feature_extractor() -> WhisperFeatureExtractor:
    """Whisper's own features, 80 mels, over the window of the sample models."""
    return WhisperFeatureExtractor(feature_size=80, chunk_length=WINDOW_S)


def synthesize(text: str, voice: str, rng: random.Random) -> np.ndarray:
    """Speaks `text`; speed, pitch and (espeak-ng) the speaker variant are drawn from `rng`.

    Returns:
        float32 samples at 16 kHz, of shape [samples].
    """
    engine, name = voice.split("-", 1)
    with tempfile.NamedTemporaryFile(suffix=".wav") as file:
        if engine == "flite":
            stretch = f"duration_stretch={rng.uniform(0.85, 1.2):.3f}"
            command = ["flite", "-voice", name, "--setf", stretch, "-t", text, "-o", file.name]
        else:
            name += rng.choice(["", "+m3", "+m7", "+f2", "+f4"])
            speed, pitch = str(rng.randint(125, 170)), str(rng.randint(35, 65))
            command = ["espeak-ng", "-v", name, "-s", speed, "-p", pitch, "-w", file.name, text]
        subprocess.run(command, check=True, capture_output=True)
        audio, rate_hz = soundfile.read(file.name, dtype="float32")
    if rate_hz != SAMPLE_RATE_HZ:
        audio = resample_poly(audio, SAMPLE_RATE_HZ, rate_hz).astype(np.float32)
    return audio


def speak(
    segments: list[str], voice: str, rng: random.Random
) -> tuple[np.ndarray, tuple[tuple[float, float, str], ...]]:
    """Speaks one segment after another with a short pause; returns the audio and the times."""
    pieces: list[np.ndarray] = []
    timed: list[tuple[float, float, str]] = []
    samples = 0
    for text in segments:
        if pieces:
            pause = np.zeros(int(rng.uniform(0.1, 0.3) * SAMPLE_RATE_HZ), np.float32)
            pieces.append(pause)
            samples += len(pause)
        audio = synthesize(text, voice, rng)
        pieces.append(audio)
        timed.append((samples / SAMPLE_RATE_HZ, (samples + len(audio)) / SAMPLE_RATE_HZ, text))
        samples += len(audio)
    return np.concatenate(pieces), tuple(timed)


def make_clip(
    key: str, *, held_out: bool, voice: str | None = None
) -> tuple[np.ndarray, str, tuple[tuple[float, float, str], ...]]:
    """The clip of this key: audio, voice, timed segments; what outlasts the window is redrawn."""
    rng = random.Random(key)
    voice = voice or rng.choices(list(VOICES), list(VOICES.values()))[0]
    while True:
        audio, segments = speak(utterance(rng, held_out=held_out), voice, rng)
        if len(audio) <= _LONGEST_S * SAMPLE_RATE_HZ:
            return audio, voice, segments


def _noise(key: str) -> np.ndarray:
    rng = np.random.default_rng(hash_of(key))
    samples = int(rng.uniform(1, WINDOW_S) * SAMPLE_RATE_HZ)
    level = 0.0 if rng.random() < 0.3 else 10 ** rng.uniform(-4, -1)
    return (level * rng.standard_normal(samples)).astype(np.float32)


def hash_of(key: str) -> int:
    """A seed from a text, the same in every process."""
    return random.Random(key).getrandbits(62)


def _write_shard(path: Path, split: str, shard: int, clips: int) -> None:
    extract = feature_extractor()
    features: list[np.ndarray] = []
    known: list[Clip] = []
    offset = 0
    for index in range(clips):
        key = f"{split}-{shard}-{index}"
        segments: tuple[tuple[float, float, str], ...] = ()
        if split == "train" and random.Random(f"{key}-noise").random() < _NOISE_SHARE:
            audio, voice = _noise(key), "noise"
        else:
            audio, voice, segments = make_clip(key, held_out=split != "train")
        mel = extract(audio, sampling_rate=SAMPLE_RATE_HZ, return_tensors="np").input_features[0]
        # Two frames more than the audio: the analysis window reaches past its end.
        frames = min(WINDOW_FRAMES, len(audio) * MEL_FRAMES_PER_S // SAMPLE_RATE_HZ + 2)
        features.append(mel[:, :frames].T.astype(np.float16))
        known.append(Clip(voice, offset, frames, segments))
        offset += frames
    partial = path.with_suffix(".partial.npy")
    np.save(partial, np.concatenate(features))
    path.with_suffix(".json").write_text(json.dumps([asdict(clip) for clip in known]))
    partial.rename(path)  # last, so that a shard with its .npy is a whole one


def load(work: Path, split: str) -> list[tuple[np.ndarray, Clip]]:
    """All clips of a split, memory-mapped: float16 features of shape [frames, mels]."""
    clips: list[tuple[np.ndarray, Clip]] = []
    for path in sorted((work / "features").glob(f"{split}-???.npy")):
        features = np.load(path, mmap_mode="r")
        for entry in json.loads(path.with_suffix(".json").read_text()):
            segments = tuple((start, end, text) for start, end, text in entry.pop("segments"))
            clip = Clip(**entry, segments=segments)
            clips.append((features[clip.offset_frames : clip.offset_frames + clip.frames], clip))
    return clips


def main() -> None:
    """Writes the shards that are missing."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--shards", type=int, default=TRAIN_SHARDS)
    arguments = parser.parse_args()
    folder = arguments.work / "features"
    folder.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    for split, shards in (("heldout", HELD_OUT_SHARDS), ("train", arguments.shards)):
        for shard in range(shards):
            path = folder / f"{split}-{shard:03}.npy"
            if not path.exists():
                _write_shard(path, split, shard, SHARD_CLIPS)
                print(f"{path.name}: {time.monotonic() - started:.0f} s", flush=True)


if __name__ == "__main__":
    main()

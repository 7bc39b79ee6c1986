"""Training batches: window, augmentation, and the token sequences Whisper is trained on.

A batch is a function of the seed and the step alone, so a resumed run sees what the killed run
would have seen.

Shapes: B clips, W mel frames (two to an encoder position), L tokens.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from grammar import normalize
from speech import WINDOW_FRAMES, Clip, load
from torch import Tensor
from transformers import WhisperTokenizer

CHARACTERS = " abcdefghijklmnopqrstuvwxyz"  # CTC class 0 is the blank, then these
IGNORED = -100
_FRAMES_PER_POSITION = 2
_POOL = 4  # batches drawn at once and sorted by length, so that short clips get short windows
_LONGEST_LEAD_POSITIONS = 20
_MELS = 80


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Features [B, mels, W]; decoder inputs and labels [B, L]; CTC targets, concatenated."""

    features: Tensor
    decoder_ids: Tensor
    labels: Tensor
    ctc_targets: Tensor
    ctc_lengths: Tensor
    speech_positions: Tensor


class Batches:
    """Draws batches of one split of the synthetic speech."""

    def __init__(self, work: Path, split: str, tokenizer: WhisperTokenizer, *, seed: int) -> None:
        """Opens the features that `speech.py` wrote to `work`."""
        self._clips = load(work, split)
        self._frames = np.array([clip.frames for _, clip in self._clips])
        self._tokenizer = tokenizer
        self._seed = seed
        ids = tokenizer.convert_tokens_to_ids
        self._prompt = [ids(t) for t in ("<|startoftranscript|>", "<|en|>", "<|transcribe|>")]
        self._no_timestamps = ids("<|notimestamps|>")
        self._no_speech = ids("<|nospeech|>")
        self._end = tokenizer.eos_token_id
        # Power of a noise in a mel band is close to gamma-distributed; drawing it per cell at
        # every step would cost as much as a decoder layer.
        table = np.random.default_rng(seed).gamma(4.0, 0.25, 1 << 21)
        self._noise = table.astype(np.float32)

    def __len__(self) -> int:
        """The number of clips."""
        return len(self._clips)

    def training(self, step: int, size: int, full_window_share: float) -> Batch:
        """The augmented batch of this step; all of it has one window length."""
        rng = np.random.default_rng([self._seed, step])
        pool = rng.integers(len(self._clips), size=size * _POOL)
        pool = pool[np.argsort(self._frames[pool], kind="stable")]
        first = rng.integers(_POOL) * size
        chosen = pool[first : first + size]
        leads = rng.integers(1, _LONGEST_LEAD_POSITIONS, size=size) * (rng.random(size) < 0.5)
        room = (WINDOW_FRAMES - self._frames[chosen]) // _FRAMES_PER_POSITION
        leads = np.minimum(leads, room)
        longest = int((self._frames[chosen] + _FRAMES_PER_POSITION * leads).max())
        window = WINDOW_FRAMES
        if rng.random() >= full_window_share:
            window = min(window, 2 * ((longest + int(rng.integers(60)) + 1) // 2))
        rows = [self._row(i, int(lead), window) for i, lead in zip(chosen, leads, strict=True)]
        features = np.stack([self._augment(row, rng) for row in rows])
        timestamps = rng.random(size) < 0.5
        return self._pack(chosen, leads, features, timestamps, rng)

    def plain(self, indices: Sequence[int], *, timestamps: bool) -> Batch:
        """Clips in the full window, unaugmented."""
        chosen = np.array(indices)
        leads = np.zeros(len(chosen), int)
        features = np.stack([self._row(index, 0, WINDOW_FRAMES) for index in chosen])
        flags = np.full(len(chosen), timestamps)
        return self._pack(chosen, leads, features, flags, np.random.default_rng(0))

    def clip(self, index: int) -> Clip:
        """What is known of one clip."""
        return self._clips[index][1]

    def _row(self, index: int, lead: int, window: int) -> np.ndarray:
        mel, clip = self._clips[index]
        start = _FRAMES_PER_POSITION * lead
        row = np.full((window, _MELS), mel.min(), np.float32)
        row[start : start + clip.frames] = mel
        return row

    def _augment(self, row: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        if rng.random() < 0.35:
            loudest = row.max()
            # Whisper's features are log10(power) / 4 + 1, floored at 8 decades under the loudest.
            power = 10 ** (4 * (row - loudest))
            start = int(rng.integers(len(self._noise) - row.size))
            noise = self._noise[start : start + row.size].reshape(row.shape)
            tilt = 10 ** (np.linspace(0, rng.uniform(-2, 0.5), _MELS, dtype=np.float32))
            power += noise * tilt * np.float32(10 ** rng.uniform(-7, -2.5))
            row = loudest + np.maximum(np.log10(power), -8) / 4
        row = row + np.float32(rng.uniform(-0.4, 0.15))
        mean = row.mean()
        for _ in range(2):
            first, width = int(rng.integers(_MELS)), int(rng.integers(10))
            row[:, first : first + width] = mean
            first, width = int(rng.integers(len(row))), int(rng.integers(12))
            row[first : first + width] = mean
        return row

    def _sequence(
        self, clip: Clip, lead: int, timestamps: bool, rng: np.random.Generator
    ) -> tuple[list[int], int]:
        """Token ids, and the number of leading ids that are prompt, not decided."""
        if not clip.segments and rng.random() < 0.33:
            return [self._prompt[0], self._no_speech, self._end], 1
        prompt = self._prompt if timestamps else [*self._prompt, self._no_timestamps]
        ids = list(prompt)
        for start, end, text in clip.segments:
            words = self._tokenizer.encode(f" {text}", add_special_tokens=False)
            if timestamps:
                words = [self._timestamp(start, lead), *words, self._timestamp(end, lead)]
            ids += words
        if timestamps and not clip.segments:
            ids.append(self._no_timestamps + 1)
        return [*ids, self._end], len(prompt)

    def _timestamp(self, seconds: float, lead: int) -> int:
        return self._no_timestamps + 1 + min(round(50 * seconds) + lead, WINDOW_FRAMES // 2)

    def _pack(
        self,
        chosen: np.ndarray,
        leads: np.ndarray,
        features: np.ndarray,
        timestamps: np.ndarray,
        rng: np.random.Generator,
    ) -> Batch:
        inputs, labels, targets, lengths = [], [], [], []
        for index, lead, timed in zip(chosen, leads, timestamps, strict=True):
            clip = self._clips[index][1]
            ids, prompt_len = self._sequence(clip, int(lead), bool(timed), rng)
            label = torch.tensor(ids[1:])
            # The first decision (language or no speech) is learned, the rest of the prompt given.
            label[1 : prompt_len - 1] = IGNORED
            inputs.append(torch.tensor(ids[:-1]))
            labels.append(label)
            text = normalize(" ".join(text for _, _, text in clip.segments))
            targets += [1 + CHARACTERS.index(character) for character in text]
            lengths.append(len(text))
        pad = torch.nn.utils.rnn.pad_sequence
        speech = (self._frames[chosen] + 1) // _FRAMES_PER_POSITION + leads
        return Batch(
            features=torch.from_numpy(features).transpose(1, 2).contiguous(),
            decoder_ids=pad(inputs, batch_first=True, padding_value=self._end),
            labels=pad(labels, batch_first=True, padding_value=IGNORED),
            ctc_targets=torch.tensor(targets, dtype=torch.long),
            ctc_lengths=torch.tensor(lengths),
            speech_positions=torch.from_numpy(np.minimum(speech, features.shape[1] // 2)),
        )

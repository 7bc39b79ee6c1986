"""The corpus as the language model reads it: codes, text, and where in the text each frame is."""

import random
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from transformers import EncodecModel
from voice_codec import encode
from voice_model import CODEBOOKS, CODES, FRAMES_PER_S, START, build_tokenizer, delayed
from voice_speech import Spoken, load

IGNORED = -100
_SILENCE_FRAMES = (5, 25)  # after a sentence: what follows its end must be silence
# Of the code cells read, replaced by chance: generated codes aren't perfect. Those of the target's
# own speech are what it will read.
_NOISE_SHARE, _OWN_NOISE_SHARE = 0.06, 0.02
_NO_TEXT_SHARE = 0.1


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """B sentences in MusicGen's delayed layout of L columns, with texts of S characters.

    `inputs` and `labels` are [B, K, L]; `text` and `text_mask` [B, S]; `places` [B, L] holds the
    character that each column's frame says, `IGNORED` where padding.
    """

    inputs: Tensor
    labels: Tensor
    text: Tensor
    text_mask: Tensor
    places: Tensor


def _places(spoken: Spoken, frames: int) -> Tensor:
    """The character said in each frame; its own place in a word is interpolated."""
    times, places = [0.0], [0.0]
    position = 0
    for (start, end), word in zip(spoken.words_s, spoken.text.split(), strict=True):
        times += [start, end]
        places += [position, position + len(word.rstrip(".")) - 0.5]
        position += len(word) + 1
    times.append(spoken.words_s[-1][1] + 0.1)
    places.append(len(spoken.text) - 1)
    middle = (np.arange(frames) + 0.5) / FRAMES_PER_S
    return torch.from_numpy(np.interp(middle, times, places))


class Batches:
    """A split of the corpus, encoded once and kept in `WORK/<split>-codes.pt`."""

    def __init__(self, work: Path, split: str, codec: EncodecModel) -> None:
        sentences = load(work, split)
        self.spoken = [spoken for _, spoken in sentences]
        self.tokenizer = build_tokenizer()
        path = work / f"{split}-codes.pt"
        if not path.exists():
            codes = [encode(codec, audio, _SILENCE_FRAMES[1]) for audio, _ in sentences]
            torch.save([grid.to(torch.uint8) for grid in codes], path)
        self.codes = [grid.long() for grid in torch.load(path, weights_only=True)]
        self.drawn = list(range(len(self.codes)))
        self.noise_share = _NOISE_SHARE

    def exchange(self, path: Path) -> None:
        """From now on draws only the sentences in this file, as the target itself says them."""
        own = torch.load(path, weights_only=True)
        self.drawn, self.noise_share = sorted(own), _OWN_NOISE_SHARE
        for number, grid in own.items():
            self.codes[number] = grid.long()

    def training(self, seed: int, step: int, size: int) -> Batch:
        """The batch of this step: sentences and length of the silence after them drawn at random,
        a few codes exchanged, the text of some dropped."""
        rng = random.Random(f"voice-{seed}-{step}")
        chosen = rng.sample(self.drawn, size)
        cut = [rng.randint(0, _SILENCE_FRAMES[1] - _SILENCE_FRAMES[0]) for _ in chosen]
        batch = self.plain(chosen, cut)
        generator = torch.Generator().manual_seed(rng.getrandbits(62))
        noisy = torch.rand(batch.inputs.shape, generator=generator) < self.noise_share
        noisy &= batch.inputs != START
        noise = torch.randint(CODES, batch.inputs.shape, generator=generator)
        batch.inputs[noisy] = noise[noisy]
        dropped = torch.rand(size, generator=generator) < _NO_TEXT_SHARE
        batch.text_mask[dropped] = 0
        batch.places[dropped] = IGNORED
        return batch

    def plain(self, chosen: list[int], cut: list[int] | None = None) -> Batch:
        """The sentences of these numbers, `cut` frames of silence less after each."""
        cut = cut or [0] * len(chosen)
        grids = [
            self.codes[number][:, : self.codes[number].shape[1] - less]
            for number, less in zip(chosen, cut, strict=True)
        ]
        columns = max(grid.shape[1] for grid in grids) + CODEBOOKS - 1
        inputs = torch.full((len(grids), CODEBOOKS, columns), START)
        labels = torch.full_like(inputs, IGNORED)
        places = torch.full((len(grids), columns), IGNORED)
        for row, (number, grid) in enumerate(zip(chosen, grids, strict=True)):
            read, wanted = (part[0] for part in delayed(grid[None]))
            inputs[row, :, : read.shape[1]] = read
            labels[row, :, : wanted.shape[1]] = wanted.masked_fill(wanted == START, IGNORED)
            places[row, : grid.shape[1]] = (
                _places(self.spoken[number], grid.shape[1]).round().long()
            )
        texts = [self.spoken[number].text for number in chosen]
        encoded = self.tokenizer(texts, padding=True, return_tensors="pt")
        return Batch(inputs, labels, encoded.input_ids, encoded.attention_mask, places)

"""Has the half-trained target say the training sentences itself, greedily.

    python samples/recipe/voice_own.py --work WORK

writes `WORK/own-codes.pt`, which `voice_train.py` goes on with. The finer codebooks of recorded
speech are close to noise: a law learned from them is flat, and nobody guesses what its greedy
choice will be. The target's own speech has one way to say a sentence, which it and its drafter
learn to foresee (sequence-level distillation, Kim and Rush 2016).
"""

import argparse
import time
from pathlib import Path

import torch
from torch import Tensor
from transformers import MusicgenForConditionalGeneration
from voice_batches import Batches
from voice_model import CODEBOOKS
from voice_train import start

_SENTENCES = 3600
_BATCH = 64
_KEPT_SHARE = 0.75


@torch.no_grad()
def say(
    target: MusicgenForConditionalGeneration, text: Tensor, mask: Tensor, frames: int
) -> Tensor:
    """Greedy codes of shape [B, codebooks, frames], by transformers' `generate`."""
    spoken: list[Tensor] = []

    def keep(codes: Tensor, **_: object) -> object:
        spoken.append(codes[0])
        raise StopIteration

    decode = target.audio_encoder.decode
    target.audio_encoder.decode = keep
    try:
        target.generate(input_ids=text, attention_mask=mask, max_new_tokens=frames + CODEBOOKS - 1)
    except StopIteration:
        pass
    finally:
        target.audio_encoder.decode = decode
    return spoken[0]


def main() -> None:
    """Says the sentences, the misread ones left out."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, default=Path("build/voice"))
    parser.add_argument("--sentences", type=int, default=_SENTENCES)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    started = time.monotonic()
    target = start(arguments.work).target.eval()
    target.decoder.set_attn_implementation("sdpa")
    corpus = Batches(arguments.work, "train", target.audio_encoder)
    order = sorted(range(arguments.sentences), key=lambda number: corpus.codes[number].shape[1])
    codes: dict[int, Tensor] = {}
    distances: dict[int, float] = {}
    quantizer = target.audio_encoder.quantizer
    for begin in range(0, len(order), _BATCH):
        numbers = order[begin : begin + _BATCH]
        batch = corpus.plain(numbers)
        frames = batch.inputs.shape[-1] - CODEBOOKS + 1
        said = say(target, batch.text, batch.text_mask, frames)
        for number, grid in zip(numbers, said, strict=True):
            source = corpus.codes[number]
            grid = grid[:, : source.shape[1]]
            codes[number] = grid.to(torch.uint8)
            # The voice has one tempo, so a misread word shows as a distance from the source.
            apart = quantizer.decode(grid[:, None]) - quantizer.decode(source[:, None])
            distances[number] = apart.square().mean().item()
        print(f"{len(codes)} sentences, {time.monotonic() - started:.0f} s", flush=True)
    kept = sorted(codes, key=distances.__getitem__)[: int(_KEPT_SHARE * len(codes))]
    torch.save({number: codes[number] for number in sorted(kept)}, arguments.work / "own-codes.pt")
    farthest, worst = distances[kept[-1]], max(distances.values())
    print(f"kept {len(kept)}, at most {farthest:.4f} from the source; the worst is {worst:.4f}")


if __name__ == "__main__":
    main()

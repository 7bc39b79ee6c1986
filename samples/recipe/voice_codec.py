"""Trains the codec of the voice sample on one CPU thread.

    python samples/recipe/voice_codec.py --work WORK

goes on from `WORK/codec.pt`, at most `_SAVE_EVERY` steps old. The encoder and the codebooks stand
still from `_FROZEN_STEP` on; what is trained after it is the decoder alone, so the codes of the
corpus, and whatever was learned from them, stay valid.
"""

import argparse
import math
import random
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import EncodecModel
from transformers.audio_utils import mel_filter_bank
from voice_model import CODEBOOKS, CODES, FRAME_SAMPLES, build_codec
from voice_speech import SAMPLE_RATE_HZ, load

_SEED = 5
_BATCH = 8
_CROP_SAMPLES = SAMPLE_RATE_HZ
_STEPS = 9600
_PLAIN_STEPS = 300  # without quantiser
_FROZEN_STEP = 5000
_WARMUP_STEPS = 50
_ALONE_SHARE = 0.4  # of the decoder's rate while it is trained alone
_ENCODER_RATE, _DECODER_RATE = 5e-4, 1.5e-3
_COMMITMENT = 0.5
_SAVE_EVERY, _LOG_EVERY = 150, 50
_DECAY = 0.98
_RESOLUTIONS = ((256, 64, 32), (400, 160, 80), (1024, 256, 80))  # window, hop, mel bands
_SHARES = (0.25, 0.5, 0.25)
_FLOOR = 1e-3
_SILENCE_S = 0.5


class _QuickElu(torch.autograd.Function):
    """The same function as `nn.ELU`, whose exponential torch computes one number at a time."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor) -> Tensor:
        output = torch.maximum(inputs, inputs.clamp(max=0).exp_().sub_(1))
        ctx.save_for_backward(output)
        return output

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        (output,) = ctx.saved_tensors
        return gradients[0] * output.clamp(max=0).add_(1)


def hasten(model: EncodecModel) -> None:
    """Puts the quick function in the place of every `nn.ELU`: a step takes half the time."""
    for module in model.modules():
        if isinstance(module, nn.ELU):
            module.forward = _QuickElu.apply  # type: ignore[method-assign]


class MelDistance(nn.Module):
    """How far two mel spectra lie apart at three resolutions; the second is Whisper's."""

    def __init__(self) -> None:
        super().__init__()
        for index, (window, _, bands) in enumerate(_RESOLUTIONS):
            bank = mel_filter_bank(
                num_frequency_bins=window // 2 + 1,
                num_mel_filters=bands,
                min_frequency=0.0,
                max_frequency=SAMPLE_RATE_HZ / 2,
                sampling_rate=SAMPLE_RATE_HZ,
                mel_scale="slaney",
            )
            bank = bank / np.maximum(bank.sum(0, keepdims=True), 1e-6)
            self.register_buffer(f"bank{index}", torch.tensor(bank, dtype=torch.float32))
            self.register_buffer(f"window{index}", torch.hann_window(window))

    def mel(self, audio: Tensor, index: int) -> Tensor:
        """Magnitudes in the mel bands of one resolution, of shape [B, frames, bands]."""
        window, hop, _ = _RESOLUTIONS[index]
        shape = getattr(self, f"window{index}")
        spectrum = torch.stft(audio, window, hop, window=shape, return_complex=True)
        magnitude = (torch.view_as_real(spectrum).square().sum(-1) + 1e-9).sqrt()
        return magnitude.transpose(1, 2) @ getattr(self, f"bank{index}")

    def forward(self, decoded: Tensor, audio: Tensor) -> tuple[Tensor, Tensor]:
        """Distances of two batches of shape [B, samples].

        Returns:
            The mean absolute difference of natural logarithms, and that of the magnitudes in parts
            of the mean magnitude: the first hears quiet sounds, the second keeps the level.
        """
        logarithmic, linear = [], []
        for index, share in enumerate(_SHARES):
            ours, theirs = self.mel(decoded, index), self.mel(audio, index)
            logarithmic.append(share * F.l1_loss((ours + _FLOOR).log(), (theirs + _FLOOR).log()))
            linear.append(share * F.l1_loss(ours, theirs) / theirs.mean())
        return torch.stack(logarithmic).sum(), torch.stack(linear).sum()


def crops(sentences: list[np.ndarray], step: int) -> Tensor:
    """The batch of this step: one-second crops, silence after a sentence included."""
    rng = random.Random(f"codec-{_SEED}-{step}")
    batch = np.zeros((_BATCH, _CROP_SAMPLES), np.float32)
    for row in batch:
        audio = rng.choice(sentences)
        last = len(audio) + int(_SILENCE_S * SAMPLE_RATE_HZ) - _CROP_SAMPLES
        begin = rng.randint(0, last)
        piece = audio[begin : begin + _CROP_SAMPLES]
        row[: len(piece)] = piece
    return torch.from_numpy(batch)


@torch.no_grad()
def unit_variance(model: EncodecModel, audio: Tensor) -> None:
    """Scales each convolution so that its output has unit deviation over time on a real batch.

    With the library's initial weights the signal dies on its way through the encoder.
    """

    def scale(module: Any, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
        factor = 1 / output.std(-1).mean().clamp_min(1e-6)
        module.parametrizations.weight.original0.mul_(factor)
        module.bias.zero_()
        return module.forward(*inputs)

    hooks = [
        module.register_forward_hook(scale)
        for module in model.modules()
        if isinstance(module, nn.Conv1d | nn.ConvTranspose1d)
    ]
    model.decoder(model.encoder(audio[:, None]))
    for hook in hooks:
        hook.remove()
    # The last layer speaks at the level of speech, not at one.
    last: Any = model.decoder.layers[-1]
    last.conv.parametrizations.weight.original0.mul_(audio.std())


@torch.no_grad()
def k_means(model: EncodecModel, latents: Tensor, rounds: int = 12) -> None:
    """Sets the codebooks, one residual after the other, from latents of shape [N, width]."""
    generator = torch.Generator().manual_seed(_SEED)
    residual = latents
    for layer in model.quantizer.layers:
        book = layer.codebook
        book.embed.copy_(residual[torch.randperm(len(residual), generator=generator)[:CODES]])
        for _ in range(rounds):
            chosen = F.one_hot(book.quantize(residual), CODES).float()
            count = chosen.sum(0)
            mean = chosen.T @ residual / count.clamp_min(1)[:, None]
            book.embed.copy_(torch.where(count[:, None] > 0, mean, book.embed))
        book.cluster_size.fill_(len(latents) / CODES / 100)
        book.embed_avg.copy_(book.embed * book.cluster_size[:, None])
        residual = residual - book.embed[book.quantize(residual)]


def quantize(model: EncodecModel, latents: Tensor, step: int, learn: bool) -> tuple[Tensor, Tensor]:
    """Residual quantisation with straight-through gradients.

    Args:
        model: Its codebooks follow the latents by moving averages where `learn` is set.
        latents: Of shape [B, width, T].
        step: Seeds the choice of the latents that dead codes are put on.
        learn: Whether the codebooks move.

    Returns:
        Quantised latents of shape [B, width, T], and the commitment loss.
    """
    flat = latents.transpose(1, 2).flatten(0, 1)
    residual = flat.detach()
    summed = torch.zeros_like(residual)
    commitment = flat.new_zeros(())
    generator = torch.Generator().manual_seed(_SEED + step)
    for layer in model.quantizer.layers:
        book = layer.codebook
        ids = book.quantize(residual)
        chosen = book.embed[ids]
        commitment = commitment + F.mse_loss(flat - summed, chosen)
        if learn:
            _follow(book, residual, ids, generator)
        summed = summed + chosen
        residual = residual - chosen
    return latents + (summed.view_as(flat) - flat).detach().view(
        latents.shape[0], -1, latents.shape[1]
    ).transpose(1, 2), commitment / CODEBOOKS


@torch.no_grad()
def _follow(book: Any, residual: Tensor, ids: Tensor, generator: torch.Generator) -> None:
    chosen = F.one_hot(ids, CODES).float()
    book.cluster_size.lerp_(chosen.sum(0), 1 - _DECAY)
    book.embed_avg.lerp_(chosen.T @ residual, 1 - _DECAY)
    dead = book.cluster_size < 0.05 * len(ids) / CODES
    if dead.any():
        picks = torch.randint(len(residual), (int(dead.sum()),), generator=generator)
        fresh = len(ids) / CODES
        book.cluster_size[dead] = fresh
        book.embed_avg[dead] = residual[picks] * fresh
    book.embed.copy_(book.embed_avg / book.cluster_size.clamp_min(1e-5)[:, None])


@torch.no_grad()
def encode(model: EncodecModel, audio: np.ndarray, silence_frames: int = 0) -> Tensor:
    """The codes of one sentence, of shape [codebooks, frames]; whole frames, silence after it."""
    frames = math.ceil(len(audio) / FRAME_SAMPLES) + silence_frames
    padded = np.zeros(frames * FRAME_SAMPLES, np.float32)
    padded[: len(audio)] = audio
    return model.encode(torch.from_numpy(padded)[None, None]).audio_codes[0, 0]


@torch.no_grad()
def decode(model: EncodecModel, codes: Tensor) -> np.ndarray:
    """The samples of codes of shape [codebooks, frames]."""
    return model.decode(codes[None, None], [None]).audio_values[0, 0].numpy()


def _rate(step: int) -> float:
    """The share of the peak rates: two cosines, the second for the decoder alone."""
    alone = step >= _FROZEN_STEP
    begin, end = (_FROZEN_STEP, _STEPS) if alone else (0, _FROZEN_STEP)
    if step - begin < _WARMUP_STEPS:
        return (step - begin + 1) / _WARMUP_STEPS
    done = (step - begin - _WARMUP_STEPS) / (end - begin - _WARMUP_STEPS)
    return (_ALONE_SHARE if alone else 1.0) * (
        0.03 + 0.97 * 0.5 * (1 + math.cos(math.pi * min(1.0, done)))
    )


def _save(path: Path, model: EncodecModel, optimizer: torch.optim.Optimizer, known: dict) -> None:
    partial = path.with_suffix(".partial")
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), **known}, partial)
    partial.rename(path)


def load_codec(work: Path) -> EncodecModel:
    """The codec of the last checkpoint."""
    model = build_codec()
    model.load_state_dict(torch.load(work / "codec.pt", weights_only=True)["model"])
    hasten(model)
    return model.eval()


def train(work: Path, steps: int) -> None:
    """Trains to `steps`, from the last checkpoint in `work` if there is one."""
    torch.manual_seed(_SEED)
    model, distance = build_codec(), MelDistance()
    hasten(model)
    # The codebooks must be able to follow the encoder; the decoder has more to learn.
    rates = {model.encoder: _ENCODER_RATE, model.decoder: _DECODER_RATE}
    groups = [{"params": list(part.parameters()), "peak": peak} for part, peak in rates.items()]
    optimizer = torch.optim.AdamW(groups, betas=(0.9, 0.99), weight_decay=0.0)
    path = work / "codec.pt"
    sentences = [audio for audio, _ in load(work, "train")]
    step, seconds = 0, 0.0
    if path.exists():
        state = torch.load(path, weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        step, seconds = state["step"], state["seconds"]
        print(f"resumed at step {step}, {seconds:.0f} s", flush=True)
    else:
        unit_variance(model, crops(sentences, -1))
    parameters = sum(value.numel() for value in model.parameters())
    books = CODEBOOKS * CODES * model.config.hidden_size
    print(f"{parameters:,} parameters and {books:,} numbers in codebooks", flush=True)
    sums = torch.zeros(3)
    while step < steps:
        started = time.monotonic()
        if step == _PLAIN_STEPS:
            with torch.no_grad():
                seen = [model.encoder(crops(sentences, -2 - i)[:, None]) for i in range(40)]
            k_means(model, torch.cat(seen).transpose(1, 2).flatten(0, 1))
        for group in optimizer.param_groups:
            group["lr"] = group["peak"] * _rate(step)
        audio = crops(sentences, step)
        frozen = step >= _FROZEN_STEP
        with torch.set_grad_enabled(not frozen):
            latents = model.encoder(audio[:, None])
        commitment = torch.zeros(())
        if step >= _PLAIN_STEPS:
            latents, commitment = quantize(model, latents, step, learn=not frozen)
        decoded = model.decoder(latents)[:, 0, :_CROP_SAMPLES]
        mel, level = distance(decoded, audio)
        loss = mel + level + (0.0 if frozen else _COMMITMENT) * commitment
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        step += 1
        seconds += time.monotonic() - started
        sums += torch.tensor([mel.item(), level.item(), commitment.item()])
        if step % _LOG_EVERY == 0:
            mel_mean, level_mean, commitment_mean = (sums / _LOG_EVERY).tolist()
            sums.zero_()
            print(f"step {step}/{steps} mel {mel_mean:.3f} level {level_mean:.3f} "
                  f"commitment {commitment_mean:.4f} time {seconds:.0f} s", flush=True)  # fmt: skip
        if step % _SAVE_EVERY == 0 or step == steps:
            _save(path, model, optimizer, {"step": step, "seconds": seconds})


def main() -> None:
    """Trains the codec."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, default=Path("build/voice"))
    parser.add_argument("--steps", type=int, default=_STEPS)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    train(arguments.work, arguments.steps)


if __name__ == "__main__":
    main()

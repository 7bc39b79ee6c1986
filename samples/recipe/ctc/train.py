"""Trains the head on the shards of `states.py`, on one thread; the data may grow meanwhile.

    python samples/recipe/ctc/train.py --data DATA --target TARGET --out OUT --seconds 1200

A run goes on from `OUT/checkpoint.pt`. A batch is a function of the position in the data and of the
list of shards that its pass began with, the chance in a step one of its number; both are in the
checkpoint, so that a run that was killed gives the same losses again. `OUT/head.safetensors` is the
mean of the last weights, in float16.
"""

import argparse
import itertools
import json
import math
import random
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

import jiwer
import numpy as np
import torch
from safetensors import safe_open
from states import Listener, quickest
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from mmspec.modalities.whisper.ctc_head import Head, Shape, encode, greedy, save

_BATCH_STATES = 6400  # 128 s with padding
_PADDED = 128  # lengths are multiples of it: every new shape costs the library time
_POOL_SHARDS = 4
_PEAK_RATE = 1.5e-3
_WARMUP_STEPS = 200
_MEAN_OF = 400  # steps
_FIRST_GUESS = 0.4  # weight of its loss
_SINGLE_STEPS = 800  # single sentences first: CTC gets off the ground sooner
_SAVE_EVERY, _LOG_EVERY = 100, 50


@dataclass(frozen=True)
class Piece:
    """A span of a window: eight-bit states [T, C], their scale [C], and the text said in it."""

    codes: Tensor
    scale: Tensor
    units: list[int]
    text: str


@dataclass
class Position:
    """Where a run stands in the data."""

    shards: list[str] = field(default_factory=list)
    turn: int = 0  # how often the shards were gone through
    pool: int = 0
    batch: int = 0
    single: bool = True


def windows(path: Path) -> Iterator[tuple[Tensor, Tensor, list[list], str]]:
    """States, scale, lines and session of each window of a shard."""
    with safe_open(path, "pt") as shard:
        codes, scales = shard.get_tensor("codes"), shard.get_tensor("scales")
        ends = shard.get_tensor("ends").tolist()
        facts = [json.loads(shard.metadata()[name]) for name in ("lines", "sessions")]
    for number, (lines, session) in enumerate(zip(*facts, strict=True)):
        yield codes[ends[number] : ends[number + 1]], scales[number], lines, session


def pieces(path: Path, single: bool, draw: random.Random) -> Iterator[Piece]:
    """Each window once: as it is, or cut into spans of a few lines."""
    for codes, scale, lines, _ in windows(path):
        whole, at = not single and draw.random() < 0.3, 0
        while at < len(lines):
            count = len(lines) if whole else 1 if single else draw.choice((1, 1, 2, 3))
            span = lines[at : at + count]
            start = 0 if whole else max(0, span[0][1] - draw.randint(0, 12))
            end = len(codes) if whole else min(len(codes), span[-1][2] + draw.randint(2, 16))
            text = " ".join(line[0] for line in span)
            units = encode(text)
            twice = sum(a == b for a, b in itertools.pairwise(units))
            if end - start > len(units) + twice:
                yield Piece(codes[start:end], scale, units, text)
            at += count


def batches(data: Path, at: Position) -> list[list[Piece]]:
    """The batches of the pool that the position is in: pieces of like length together."""
    draw = random.Random(f"pool {at.turn} {at.pool}")
    names = at.shards[at.pool * _POOL_SHARDS : (at.pool + 1) * _POOL_SHARDS]
    found = [piece for name in names for piece in pieces(data / name, at.single, draw)]
    found.sort(key=lambda piece: len(piece.codes) * draw.uniform(0.85, 1.18))
    full: list[list[Piece]] = [[]]
    for piece in found:
        longest = max(len(other.codes) for other in [*full[-1], piece])
        if full[-1] and (len(full[-1]) + 1) * _padded(longest) > _BATCH_STATES:
            full.append([])
        full[-1].append(piece)
    draw.shuffle(full)
    return [batch for batch in full if batch]


def _padded(states: int) -> int:
    return -(-states // _PADDED) * _PADDED


def joined_states(parts: list[Tensor]) -> tuple[Tensor, Tensor]:
    """States [B, T, C] of B recordings [·, C], padded with zeros, and lengths [B]."""
    lengths = torch.tensor([len(part) for part in parts])
    states = torch.zeros(len(parts), _padded(int(lengths.max())), parts[0].shape[1])
    for row, part in zip(states, parts, strict=True):
        row[: len(part)] = part
    return states, lengths


def masked(states: Tensor, lengths: Tensor, draw: random.Random) -> Tensor:
    """Leaves out moments and channels, so that the head doesn't lean on single ones."""
    for row, length in zip(states, lengths.tolist(), strict=True):
        for _ in range(1 + length // 150):
            start = draw.randrange(length)
            row[start : start + draw.randint(1, 12)] = 0
        start = draw.randrange(row.shape[1])
        row[:, start : start + draw.randint(1, 60)] = 0
    return states


class Run:
    """Everything that a checkpoint holds, and a step."""

    def __init__(self, shape: Shape, steps: int, dropout: float = 0.1) -> None:
        torch.manual_seed(0)
        self.head, self.steps, self.step = Head(shape, dropout), steps, 0
        averaging = get_ema_multi_avg_fn(1 - 1 / _MEAN_OF)
        self.mean = AveragedModel(self.head, multi_avg_fn=averaging)
        self.optimizer = torch.optim.AdamW(
            self.head.parameters(), lr=_PEAK_RATE, betas=(0.9, 0.98), weight_decay=0.02
        )
        self.at, self.hours = Position(), 0.0

    def save(self, path: Path) -> None:
        """Writes the checkpoint so that a kill while writing leaves the old one."""
        parts = {part: getattr(self, part).state_dict() for part in ("head", "mean", "optimizer")}
        facts = {"step": self.step, "hours": self.hours, "at": asdict(self.at)}
        torch.save({**parts, **facts}, path.with_suffix(".partial"))
        path.with_suffix(".partial").rename(path)

    def load(self, path: Path) -> None:
        """Goes on from a checkpoint."""
        saved = torch.load(path, weights_only=True)
        for part in ("head", "mean", "optimizer"):
            getattr(self, part).load_state_dict(saved[part])
        self.step, self.hours, self.at = saved["step"], saved["hours"], Position(**saved["at"])

    def learn(self, batch: list[Piece]) -> float:
        """One step of AdamW; the loss is in nats a character."""
        torch.manual_seed(self.step)
        done = min(1.0, self.step / self.steps)
        warm = min(1.0, (self.step + 1) / _WARMUP_STEPS)
        rate = warm * (0.02 + 0.98 * math.cos(done * math.pi / 2) ** 2)
        for group in self.optimizer.param_groups:
            group["lr"] = _PEAK_RATE * rate
        states, lengths = joined_states([piece.codes * piece.scale for piece in batch])
        states = masked(states, lengths, random.Random(f"step {self.step}"))
        with torch.autocast("cpu", torch.bfloat16, enabled=quickest() is torch.bfloat16):
            guesses = self.head.guesses(states, lengths)
        units = torch.tensor([unit for piece in batch for unit in piece.units])
        counts = torch.tensor([len(piece.units) for piece in batch])
        first, loss = (
            nn.functional.ctc_loss(
                logits.float().log_softmax(-1).transpose(0, 1),
                units,
                lengths,
                counts,
                zero_infinity=True,
            )
            for logits in guesses
        )
        self.optimizer.zero_grad()
        (_FIRST_GUESS * first + loss).backward()
        nn.utils.clip_grad_norm_(self.head.parameters(), 1.0)
        self.optimizer.step()
        self.mean.update_parameters(self.head)
        self.step += 1
        self.hours += lengths.sum().item() / 50 / 3600
        return loss.item()

    def losses(self, data: Path) -> Iterator[float]:
        """Steps for ever; between two of them the position is that of the next."""
        while True:
            if self.at.pool * _POOL_SHARDS >= len(self.at.shards):
                turn = self.at.turn + 1
                names = sorted(p.name for p in data.glob("[0-9]*.safetensors"))
                random.Random(f"turn {turn}").shuffle(names)
                self.at = Position(names, turn, single=self.step < _SINGLE_STEPS)
            pool = batches(data, self.at)
            while self.at.batch < len(pool):
                batch = pool[self.at.batch]
                self.at.batch += 1
                yield self.learn(batch)
            self.at = Position(
                self.at.shards, self.at.turn, self.at.pool + 1, single=self.step < _SINGLE_STEPS
            )


def plain(text: str) -> str:
    """Lower case without punctuation, for error rates."""
    kept = "".join(c if c.isalnum() or c == "'" else " " for c in text.lower())
    return " ".join(kept.split())


@torch.inference_mode()
def error_rates(head: nn.Module, data: Path, most: int = 6) -> dict[str, tuple[float, float]]:
    """CER and WER of held-out voices saying held-out lines, by engine."""
    head.eval()
    texts: dict[str, tuple[list[str], list[str]]] = {}
    for path in sorted(data.glob("held-*.safetensors"))[:most]:
        for codes, scale, lines, session in windows(path):
            states, lengths = joined_states([codes * scale])
            with torch.autocast("cpu", torch.bfloat16, enabled=quickest() is torch.bfloat16):
                said = greedy(head(states, lengths)[0, : lengths[0]].float())
            truth, heard = texts.setdefault(session[7:].split("-")[0], ([], []))
            truth.append(plain(" ".join(line[0] for line in lines)))
            heard.append(plain(said))
    head.train()
    return {name: (jiwer.cer(*pair), jiwer.wer(*pair)) for name, pair in sorted(texts.items())}


def main() -> None:
    """Trains for some seconds, or until the last step."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--data", type=Path, required=True)
    options.add_argument("--target", required=True)
    options.add_argument("--out", type=Path, required=True)
    options.add_argument("--seconds", type=float, required=True)
    options.add_argument("--steps", type=int, default=12_000)
    asked = options.parse_args()
    torch.set_num_threads(1)
    listen = Listener(asked.target)
    data, config = asked.data / f"states-{listen.digest[:12]}", listen.encoder.config
    asked.out.mkdir(parents=True, exist_ok=True)
    run = Run(Shape(states=config.d_model), asked.steps)
    checkpoint = asked.out / "checkpoint.pt"
    if checkpoint.exists():
        run.load(checkpoint)
    began, recent = time.monotonic(), []
    for loss in run.losses(data):
        recent.append(loss)
        last = run.step >= asked.steps or time.monotonic() - began > asked.seconds
        if run.step % _LOG_EVERY == 0 or last:
            seen = f"step {run.step} turn {run.at.turn} shards {len(run.at.shards)}"
            print(f"{seen} {run.hours:.2f} h loss {np.mean(recent):.4f}", flush=True)
            recent = []
        if run.step % _SAVE_EVERY == 0 or last:
            run.save(checkpoint)
        if last:
            break
    rates = error_rates(run.mean.module, data)
    shown = "  ".join(f"{name} {cer:.3f} {wer:.3f}" for name, (cer, wer) in rates.items())
    print(f"step {run.step} held-out CER WER: {shown}", flush=True)
    facts = {"step": run.step, "hours": round(run.hours, 2), "middle": listen.middle}
    save(run.mean.module, asked.out / "head.safetensors", listen.digest, facts)


if __name__ == "__main__":
    main()

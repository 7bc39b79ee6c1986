"""A CTC head: characters heard in a Whisper encoder's states, and its file.

It reads what the encoder makes of a window anyway: the states of a middle layer and of the end. A
file names the encoder that its head was trained for.

Shapes: B recordings, T states (50 a second), W width of the encoder, S symbols (the blank is 0).
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional as F

from mmspec.errors import ModelError

CHARACTERS = " abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789,.?!'-"


def encode(text: str) -> list[int]:
    """Tokens of a text; characters that the head doesn't know are left out."""
    return [CHARACTERS.index(c) + 1 for c in text if c in CHARACTERS]


def greedy(logits: Tensor) -> str:
    """The text of the best path of logits [T, S]."""
    tokens = torch.unique_consecutive(logits.argmax(-1)).tolist()
    return "".join(CHARACTERS[token - 1] for token in tokens if token)


def encoder_digest(encoder: nn.Module) -> str:
    """SHA-256 of an encoder's weights, rounded to bfloat16: equal whatever type holds them."""
    total = hashlib.sha256()
    for name, value in sorted(encoder.state_dict().items()):
        total.update(name.encode())
        total.update(value.to("cpu", torch.bfloat16).contiguous().view(torch.uint8).numpy())
    return total.hexdigest()


@dataclass(frozen=True, slots=True)
class Shape:
    """What a head is built from."""

    states: int = 512
    layers: int = 2
    width: int = 256
    inner: int = 640
    kernel: int = 15
    blocks: int = 5
    attentive: tuple[int, ...] = (1, 3)
    guess_after: int = 3
    symbols: int = len(CHARACTERS) + 1


class Block(nn.Module):
    """A look at the whole recording where asked for, one at the neighbourhood, then a wide map."""

    def __init__(self, shape: Shape, attentive: bool, dropout: float) -> None:
        super().__init__()
        width = shape.width
        self.heads = width // 64 if attentive else 0
        if attentive:
            self.before = nn.LayerNorm(width)
            self.queries_keys_values, self.out = (
                nn.Linear(width, 3 * width),
                nn.Linear(width, width),
            )
        self.near = nn.Conv1d(width, width, shape.kernel, padding=shape.kernel // 2, groups=width)
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, shape.inner), nn.Linear(shape.inner, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, inside: Tensor) -> Tensor:
        """Maps [B, T / 2, width], `inside` [B, T / 2] being true within each recording."""
        if self.heads:
            parts = self.queries_keys_values(self.before(x)).unflatten(-1, (3, self.heads, 64))
            queries, keys, values = parts.permute(2, 0, 3, 1, 4)
            seen = F.scaled_dot_product_attention(queries, keys, values, inside[:, None, None])
            x = x + self.dropout(self.out(seen.transpose(1, 2).flatten(2)))
        near = self.near((x * inside[..., None]).transpose(1, 2)).transpose(1, 2)
        return x + self.dropout(self.down(F.gelu(self.up(self.norm(near)))))


class Head(nn.Module):
    """States of some of the encoder's layers → logits of characters.

    It works at 25 frames a second, each made of two states, and says two characters (or blanks) a
    frame. A first guess, made after some blocks, is read by the later ones: CTC itself has no
    character know of its neighbours (self-conditioned CTC, Nozaki and Komatsu 2021).
    """

    def __init__(self, shape: Shape, dropout: float = 0.0) -> None:
        super().__init__()
        self.shape = shape
        self.norms = nn.ModuleList(nn.LayerNorm(shape.states) for _ in range(shape.layers))
        self.enter = nn.Linear(2 * shape.layers * shape.states, shape.width)
        self.blocks = nn.ModuleList(
            Block(shape, number in shape.attentive, dropout) for number in range(shape.blocks)
        )
        self.last = nn.LayerNorm(shape.width)
        self.leave = nn.Linear(shape.width, 2 * shape.symbols)
        self.guess = nn.Linear(2 * shape.symbols, shape.width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, states: Tensor, lengths: Tensor) -> Tensor:
        """Logits [B, T, S] of states [B, T, layers × W]; T is even, `lengths` [B] are in states."""
        return self.guesses(states, lengths)[-1]

    def guesses(self, states: Tensor, lengths: Tensor) -> list[Tensor]:
        """The first guess's logits and the last ones, each [B, T, S]."""
        parts = states.unflatten(-1, (self.shape.layers, -1)).unbind(-2)
        x = torch.cat([norm(part) for norm, part in zip(self.norms, parts, strict=True)], -1)
        x = self.dropout(self.enter(x.unflatten(1, (-1, 2)).flatten(2)))
        inside = 2 * torch.arange(x.shape[1]) < lengths[:, None]
        said = []
        for number, block in enumerate(self.blocks):
            if number == self.shape.guess_after:
                said.append(self._say(x))
                x = x + self.guess(said[0].softmax(-1).flatten(2))
            x = block(x, inside)
        return [logits.flatten(1, 2) for logits in (*said, self._say(x))]

    def _say(self, x: Tensor) -> Tensor:
        return self.leave(self.last(x)).unflatten(-1, (2, -1))


def save(head: Head, path: Path, digest: str, facts: dict[str, object]) -> None:
    """Writes weights (float16) with what they are for."""
    config = {"shape": asdict(head.shape), "characters": CHARACTERS, "encoder": digest, **facts}
    weights = {name: value.half().contiguous() for name, value in head.state_dict().items()}
    partial = path.with_suffix(".partial")
    save_file(weights, partial, {"config": json.dumps(config)})
    partial.rename(path)


def load(path: Path) -> tuple[Head, dict[str, Any]]:
    """A head and its config.

    Raises:
        ModelError: the file is missing or damaged, or holds no head.
    """
    try:
        with safe_open(path, "pt") as file:
            config: dict[str, Any] = json.loads((file.metadata() or {})["config"])
            weights = {name: file.get_tensor(name).float() for name in file.keys()}  # noqa: SIM118
        shape = config["shape"]
        head = Head(Shape(**{**shape, "attentive": tuple(shape["attentive"])}))
        head.load_state_dict(weights)
    except (OSError, SafetensorError) as error:
        raise ModelError(f"{path}: no head can be read: {error}") from None
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        why = " ".join(str(error).split())
        raise ModelError(f"{path}: holds no CTC head: {type(error).__name__} {why}") from None
    if len(config.get("characters", "")) + 1 != head.shape.symbols or "encoder" not in config:
        raise ModelError(f"{path}: holds no CTC head: its characters or its encoder aren't named")
    return head.eval(), config

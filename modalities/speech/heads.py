"""Heads on a target's final hidden state: what the frames behind the next one may be."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from mmspec.errors import ModelError

WEIGHTS, CONFIG = "model.safetensors", "config.json"


@dataclass(frozen=True, slots=True)
class HeadsConfig:
    """The shape of heads.

    Attributes:
        hidden: width D of the state that they read.
        offsets: how many frames behind the next one they give.
        codebooks: K.
        vocab: codes V that a codebook's row scores.
        rank: width of the block that shifts the state by an offset.
    """

    hidden: int
    offsets: int
    codebooks: int
    vocab: int
    rank: int


class FrameHeads(nn.Module):
    """A block of low rank per offset shifts the state; one map per codebook reads it.

    Args:
        config: the shape.
    """

    def __init__(self, config: HeadsConfig) -> None:
        super().__init__()
        self.config = config
        hidden, rank = config.hidden, config.rank
        self.down = nn.ModuleList(nn.Linear(hidden, rank) for _ in range(config.offsets))
        self.up = nn.ModuleList(nn.Linear(rank, hidden) for _ in range(config.offsets))
        self.maps = nn.ModuleList(
            nn.Linear(hidden, config.vocab, bias=False) for _ in range(config.codebooks)
        )

    def forward(self, hidden: Tensor) -> Tensor:
        """States `[..., D]` to logits `[..., offsets, K, V]`."""
        shifted = torch.stack(
            [
                hidden + up(nn.functional.gelu(down(hidden)))
                for down, up in zip(self.down, self.up, strict=True)
            ],
            dim=-2,
        )
        return torch.stack([read(shifted) for read in self.maps], dim=-2)

    def save_pretrained(self, folder: str | Path) -> None:
        """Write weights and shape into a folder, which is made."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        save_file(self.state_dict(), folder / WEIGHTS)
        config = json.dumps(asdict(self.config), indent=2)
        (folder / CONFIG).write_text(config + "\n", encoding="utf-8")

    @classmethod
    def from_pretrained(cls, folder: str | Path, dtype: torch.dtype = torch.float32) -> FrameHeads:
        """Read heads that `save_pretrained` wrote.

        Raises:
            ModelError: there are none, or their files contradict each other.
        """
        folder = Path(folder)
        try:
            known: dict[str, Any] = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
            names = HeadsConfig.__dataclass_fields__
            heads = cls(HeadsConfig(**{name: int(known[name]) for name in names}))
            heads.load_state_dict(load_file(folder / WEIGHTS))
        except Exception as error:  # files make libraries raise whatever they like
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise ModelError(f"{folder}: holds no heads ({reason})") from None
        return heads.to(dtype).eval()

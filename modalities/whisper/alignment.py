"""When each token of a decoded window was spoken, read from the decoder's cross-attention.

Some heads look at the audio that they are writing down. Their weights, smoothed and averaged, are
a map of tokens over time; the cheapest monotonic path through it says when one token ends and the
next begins. This is transformers' `_extract_token_timestamps` and the reference implementation's
`find_alignment` (openai/whisper, `timing.py`), from one teacher-forced pass.

Legend: A alignment heads, n tokens, T encoder positions with audio.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from mmspec.errors import ModelError
from mmspec.modalities.base.decoder import DecoderTarget
from mmspec.modalities.whisper.checkpoint import Whisper

Heads = tuple[tuple[int, int], ...]
"""(layer, head) pairs."""


def alignment_heads(whisper: Whisper) -> Heads:
    """The heads that follow the audio: those that the checkpoint's generation config names.

    Where it names none, every head of the upper half of the layers, as the reference
    implementation does.

    Raises:
        ModelError: it names heads that the model doesn't have.
    """
    config = whisper.model.config
    layers, heads = config.decoder_layers, config.decoder_attention_heads
    named = getattr(whisper.model.generation_config, "alignment_heads", None)
    if not named:
        return tuple((layer, head) for layer in range(layers // 2, layers) for head in range(heads))
    pairs = tuple((int(layer), int(head)) for layer, head in named)
    for layer, head in pairs:
        if not (0 <= layer < layers and 0 <= head < heads):
            raise ModelError(
                f"word times: the generation config's alignment_heads name head {head} of layer "
                f"{layer}; the decoder has {layers} layers of {heads} heads"
            )
    return pairs


class Watch:
    """What the alignment heads of a target ask for while it reads.

    Args:
        layers: the decoder's.
        target: a decoder over them.
        heads: which ones.
    """

    def __init__(self, layers: Sequence[Any], target: DecoderTarget, heads: Heads) -> None:
        self._layers, self._target, self._heads = layers, target, heads
        self._queries: dict[int, list[Tensor]] = {layer: [] for layer, _ in heads}

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Take down queries as long as this is open; the modules are as before afterwards."""
        with ExitStack() as hooks:
            for layer, taken in self._queries.items():
                hooks.enter_context(_taking(self._layers[layer].encoder_attn.q_proj, taken))
            yield

    def weights(self, rows: int, positions: int) -> Tensor:
        """Attention of the last `rows` tokens read, `[A, rows, positions]`, float32.

        The softmax runs over all encoder positions; then those behind the audio are cut off.
        """
        return torch.stack([self._of_head(layer, head, rows) for layer, head in self._heads])[
            ..., :positions
        ]

    def _of_head(self, layer: int, head: int, rows: int) -> Tensor:
        attention = self._layers[layer].encoder_attn
        width = slice(head * attention.head_dim, (head + 1) * attention.head_dim)
        query = torch.cat(self._queries[layer], dim=1)[0, -rows:, width].float()
        keys = self._target.state.conditioning(layer).keys[0, head].float()
        return (query * attention.scaling @ keys.T).softmax(-1)


@contextmanager
def _taking(projection: torch.nn.Module, taken: list[Tensor]) -> Iterator[None]:
    """Keep what a module returns while this is open."""

    def take(module: torch.nn.Module, given: Any, made: Tensor) -> None:
        taken.append(made)

    handle = projection.register_forward_hook(take)
    try:
        yield
    finally:
        handle.remove()


def boundaries(weights: Tensor, filter_width: int) -> np.ndarray:
    """Where each row of attention starts, as an encoder position.

    Args:
        weights: `[A, n, T]`, a row per token.
        filter_width: of the median filter along time; odd.

    Returns:
        int positions `[n]`, rising from 0.
    """
    mean = weights.mean(-2, keepdim=True)
    spread = weights.std(-2, keepdim=True, unbiased=False)
    # Of a single row nothing stands out: all zeros, not 0/0.
    normed = torch.where(spread > 0, (weights - mean) / spread, 0.0)
    matrix = smooth(normed, filter_width).mean(0)
    rows, positions = warping_path(-matrix.double().cpu().numpy())
    first = np.diff(rows, prepend=-1).astype(bool)
    return positions[first]


def smooth(weights: Tensor, width: int) -> Tensor:
    """Median filter over the last dimension, reflected at its ends; a shorter one is left alone.

    Example:
        >>> smooth(torch.tensor([[[5.0, 0.0, 0.0, 7.0, 1.0]]]), 3).tolist()
        [[[0.0, 0.0, 0.0, 1.0, 7.0]]]
    """
    half = width // 2
    if weights.shape[-1] <= half:
        return weights
    padded = pad(weights, (half, half), mode="reflect")
    return padded.unfold(-1, width, 1).sort().values[..., half]


def warping_path(costs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The cheapest monotonic path from the first to the last cell (dynamic time warping).

    A step goes one row down, one column on, or both. Cells are worked out one anti-diagonal at a
    time, each of which depends on the two before it only. Sums are kept in float32 and ties go to
    the next column, as in transformers, so that the path is the same one.

    Args:
        costs: `[n, T]`, float64.

    Returns:
        (rows, columns) of the path's cells.

    Example:
        >>> rows, columns = warping_path(np.array([[0.0, 0.0, 9.0], [9.0, 9.0, 0.0]]))
        >>> rows.tolist(), columns.tolist()
        ([0, 0, 1], [0, 1, 2])
    """
    n, columns = costs.shape
    # By row, one more at the top for "outside": sums on the last two diagonals.
    older, last = np.full((2, n + 1), np.inf, np.float32)
    older[0] = 0.0
    moves = np.empty((n, columns), np.int8)
    for diagonal in range(n + columns - 1):
        row = np.arange(max(0, diagonal - columns + 1), min(n, diagonal + 1))
        column = diagonal - row
        both, down, on = older[row], last[row], last[row + 1]
        move = np.where((both < down) & (both < on), 0, 2)
        move[(down < both) & (down < on)] = 1
        before = np.where(move == 0, both, np.where(move == 1, down, on))
        sums = np.full(n + 1, np.inf, np.float32)
        sums[row + 1] = costs[row, column] + before
        moves[row, column] = move
        older, last = last, sums
    return _walk_back(moves)


def _walk_back(moves: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    row, column = moves.shape[0] - 1, moves.shape[1] - 1
    path = [(row, column)]
    while row > 0 or column > 0:
        move = moves[row, column]
        row, column = row - (move != 2), column - (move != 1)
        path.append((row, column))
    rows, columns = zip(*reversed(path), strict=True)
    return np.array(rows), np.array(columns)

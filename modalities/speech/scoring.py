"""Rows of several codebooks, scored in blocks behind one head for all of them.

Legend: n frames of a block, B rows that are decoded side by side, K codebooks, V ids of each, D
width.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from mmspec.engine.frames import Chain, Layout
from mmspec.modalities.base.decoder import BlockTarget
from mmspec.prefix import Frame


class FrameScoring(BlockTarget):
    """A decoder of frames whose codes are independent given its last hidden state.

    Its head has the ids of all codebooks behind one another.

    Attributes:
        prompt: frames that are read first.
        layout: what is forced.
        codebooks: K.
        said: None: a head says every id, marks too.
        max_rows: frames of the longest output, the prompt's included.
        hidden: final hidden states `[n, D]` behind the frames of the last block, of the first of
            the rows side by side.
        hidden_from: position of the first of these frames.
        chain: None: no code of a frame depends on another.
    """

    prompt: Sequence[Frame]
    layout: Layout
    codebooks: int
    said: int | None = None
    max_rows: int
    hidden: Tensor
    hidden_from: int
    chain: Chain | None = None
    side_by_side: int = 1
    """B: 2 where guidance needs the same frames without their conditioning."""

    @property
    def takes_trees(self) -> bool:
        """Never: a step is a frame."""
        return False

    @torch.no_grad()
    def score(self, ids: Sequence[Any], keep: int, parents: Sequence[int] | None = None) -> Tensor:
        """Append frames; float32 logits `[keep, B K, V]` behind the last `keep` of them."""
        block = torch.tensor([list(ids)], dtype=torch.long, device=self.device)
        start = self.state.length
        with self.state.block(len(ids)):
            hidden = self._hidden(block.expand(self.side_by_side, -1, -1), None)
            scores = self._scores(hidden, start, keep)
        self.forwards += 1
        return scores

    def _scores(self, hidden: Tensor, start: int, keep: int) -> Tensor:
        """Float32 logits `[keep, B K, V]` of the last of a block's hidden states `[B, n, D]`."""
        self.hidden, self.hidden_from = hidden[0], start
        logits = self._logits(hidden[:, hidden.shape[1] - keep :])
        apart = logits.view(*logits.shape[:2], self.codebooks, self.vocab_size)
        return apart.transpose(0, 1).flatten(1, 2).float()

"""Delayed rows whose pattern is known before anything is decided, and a decoder of such rows.

Legend: K codebooks (of all channels), R rows of scores (K, or 2 K in pairs for guidance), B batch
rows (2 under guidance, else 1), D width, S positions of conditioning, V codes in a codebook.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from mmspec.acceptance.frames import FREE
from mmspec.compat import cache_argument
from mmspec.engine.frames import Chain, Layout
from mmspec.errors import OptionError
from mmspec.factorizations import DelayedFrames
from mmspec.kernels import PackedLinears
from mmspec.modalities.base.decoder import BlockTarget, block_layers
from mmspec.modalities.speech.fast_decoder import FastRows, function_of, why_not_fast
from mmspec.modalities.speech.state import BehindConditioning
from mmspec.prefix import Frame

NEVER = torch.finfo(torch.float32).min
"""The score of the mark, which no head can say: an id like any other, whose chance is 0. Finite, so
that guidance, which takes the difference of two such scores, makes no NaN of it."""


class PatternLayout:
    """Rows as a delay pattern prescribes them.

    Args:
        rows: every row of the output, `FREE` where a distribution decides.
        pad: what stands behind the last one.

    Example:
        >>> layout = PatternLayout([(8, 8), (-1, 8), (-1, -1), (8, -1)], pad=8)
        >>> layout.forced([(8, 8)], [(1, 8), (3, 2)])
        [(-1, 8), (-1, -1), (8, -1)]
    """

    def __init__(self, rows: Sequence[Frame], pad: int) -> None:
        self._rows, self._behind = list(rows), (pad,) * len(rows[0])

    def forced(self, frames: Sequence[Frame], drafted: Sequence[Frame]) -> list[Frame]:
        """Marks, and codes of the prompt that their codebook is late with."""
        start, end = len(frames), len(frames) + len(drafted) + 1
        return self._rows[start:end] + [self._behind] * (end - max(start, len(self._rows)))

    def ends(self, frames: Sequence[Frame], more: Sequence[Frame]) -> bool:
        """Never: there is no end mark, the number of rows is a limit."""
        return False


class Unforced:
    """Rows none of whose cells are forced; no mark ends them.

    Args:
        codebooks: K.
    """

    def __init__(self, codebooks: int) -> None:
        self._free = (FREE,) * codebooks

    def forced(self, frames: Sequence[Frame], drafted: Sequence[Frame]) -> list[Frame]:
        """Nothing."""
        return [self._free] * (len(drafted) + 1)

    def ends(self, frames: Sequence[Frame], more: Sequence[Frame]) -> bool:
        """Never."""
        return False


@dataclass(frozen=True, eq=False)
class Rows:
    """What is known of a request's rows before anything is decided.

    Attributes:
        steps: the descriptor.
        pattern: int64 `[K, rows]`: marks and given codes, `FREE` where a distribution decides.
        prompt: rows that the decoder reads before the first distribution.
        guided: whether conditional and unconditional scores come in pairs.
    """

    steps: DelayedFrames
    pattern: Tensor
    prompt: int
    guided: bool

    @property
    def count(self) -> int:
        """Rows of the whole output."""
        return self.pattern.shape[1]


class RowsTarget(BlockTarget):
    """A decoder of delayed rows, opened for one request.

    Args:
        model: the language model of the codes: decoder and a head for each codebook.
        rows: the request's rows.
        states: conditioning `[B, S, D]` as the decoder takes it.
        mask: which of its positions count `[B, S]`; None: all.
        packed: whether its layers run packed.

    Attributes:
        codebooks: K.
        said: ids that a head says: all but the mark.
        prompt: the frames that `read_prompt` reads.
        layout: what later rows are forced to.
        chain: None: the codes of a row are independent.
        max_rows: rows of the whole output, the prompt's included.
        hidden: final hidden states `[keep, D]` behind the frames that were scored last, of the
            conditional half.
        hidden_from: position of the first of these frames.
    """

    crosses = True
    """The decoder attends across to its conditioning; else that stands in front of the rows."""

    def __init__(
        self, model: Any, rows: Rows, states: Tensor, mask: Tensor | None, *, packed: bool = False
    ) -> None:
        decoder, heads = model.model.decoder, model.lm_heads
        weight = heads[0].weight
        states = states.to(weight)
        mask = None if mask is None else mask.to(weight.device)
        rows = replace(rows, pattern=rows.pattern.to(weight.device))
        before = 0 if self.crosses else states.shape[1]
        check_positions(model, before, rows.count)
        super().__init__(
            decoder,
            heads,
            BehindConditioning(
                len(decoder.layers), rows.count, before=before, cross_attention=self.crosses
            ),
            states.device,
            PackedLinears(block_layers(decoder, heads)).open() if packed else None,
            rows.steps.vocab_size,
        )
        self._rows, self._states, self._mask, self._before = rows, states, mask, before
        self.codebooks = len(rows.steps.codebooks)
        self.said: int | None = rows.steps.codebooks[0].codes
        table = [tuple(row) for row in rows.pattern.t().tolist()]
        self.prompt: Sequence[Frame] = table[: rows.prompt]
        self.layout: Layout = PatternLayout(table, pad=self.vocab_size - 1)
        self.chain: Chain | None = None
        self.max_rows = rows.count
        self.hidden = states.new_empty(0, states.shape[-1])
        self.hidden_from = 0
        why_not = why_not_fast(decoder)
        self._lean = FastRows(decoder, self.state) if why_not is None else None
        if why_not is not None:
            self.note = f"the library's own forward ran: {why_not}"
        self._says = [function_of(head) for head in heads]
        self._sees = None if mask is None or bool(mask.all()) else mask.bool()[:, None, None]

    @property
    def takes_trees(self) -> bool:
        """Never: a step decides a row."""
        return False

    @torch.no_grad()
    def read_prompt(self) -> Tensor:
        """Read conditioning and prompt, and freeze them; the scores behind them `[1, R, V]`."""
        rows = self._rows
        scores = self._score(rows.pattern[:, : rows.prompt], rows.prompt - self.state.length, 1)
        self.state.freeze()
        return scores

    @torch.no_grad()
    def score(self, ids: Sequence[Any], keep: int, parents: Sequence[int] | None = None) -> Tensor:
        """Append frames; float32 scores `[keep, R, V]` behind the last `keep` of them.

        A forced cell may hold anything: the decoder reads what the pattern has there.
        """
        drafted = torch.tensor(ids, dtype=torch.long, device=self.device).t()
        start = self.state.length
        given = self._rows.pattern[:, start : start + len(ids)]
        return self._score(torch.where(given == FREE, drafted, given), len(ids), keep)

    def _score(self, block: Tensor, size: int, keep: int) -> Tensor:
        """Scores behind the last of `size` positions, of which a block `[K, n]` are the last."""
        with self.state.block(size):
            hidden = self._hidden(block.repeat(2, 1) if self._rows.guided else block, None)
            kept = hidden[:, hidden.shape[1] - keep :]
            scores = torch.stack([says(kept) for says in self._says], dim=1).float()
        self.forwards += 1
        self.hidden, self.hidden_from = kept[0], self.state.length - keep
        return nn.functional.pad(scores.permute(2, 0, 1, 3).flatten(1, 2), (0, 1), value=NEVER)

    def _hidden(self, block: Tensor, parents: Sequence[int] | None) -> Tensor:
        """The decoder's last hidden states `[B, n, D]` for a block of ids `[B K, n]`."""
        if self._lean is not None and self.state.frozen > 0:  # conditioning and prompt were read
            return self._lean.hidden(block, self.state.length + self._before, self._sees)
        return self._read(block)

    def _read(self, block: Tensor) -> Tensor:
        """The same by transformers' own forward, conditioning included at the first time."""
        return self._decoder(
            input_ids=block,
            encoder_hidden_states=self._states,
            encoder_attention_mask=self._mask,
            use_cache=True,
            **cache_argument(type(self._decoder), self.state.cache),
        )[0]


def check_positions(model: Any, before: int, rows: int) -> None:
    """Raise where rows would stand beyond the positions that a model was made for.

    Raises:
        OptionError: says how many there are.
    """
    limit = model.config.max_position_embeddings
    if before + rows - 1 > limit:
        raise OptionError(
            f"{rows} rows don't fit: {type(model).__name__} has {limit} positions, {before} of "
            "them taken by conditioning: lower max_new_tokens"
        )


def whole_rows(steps: DelayedFrames, rows: Sequence[Frame]) -> list[Frame]:
    """Rows as far as whole frames go: padding where a late codebook didn't come to a frame.

    Rows of an output that was not cut short come back as they are.

    Example:
        >>> from mmspec.factorizations import Codebook
        >>> steps = DelayedFrames((Codebook(9, codes=8, start=8, pad=8),) * 2, delays=(0, 1))
        >>> whole_rows(steps, [(8, 8), (1, 8), (3, 2)])
        [(8, 8), (1, 8), (8, 2)]
    """
    frames = len(rows) - 1 - max(steps.delays)
    late = [(delay, book.pad) for delay, book in zip(steps.delays, steps.codebooks, strict=True)]
    return [
        tuple(
            token if pad is None or index - 1 - delay < frames else pad
            for token, (delay, pad) in zip(row, late, strict=True)
        )
        for index, row in enumerate(rows)
    ]

"""CSM's two decoders, opened for one request.

Legend: P positions of the prompt, K codebooks, V ids in a codebook, D width of the backbone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from mmspec.compat import cache_argument
from mmspec.engine import frames
from mmspec.engine.frames import DepthLayout, Layout
from mmspec.errors import OptionError
from mmspec.factorizations import DepthFrames
from mmspec.kernels import PackedLinears
from mmspec.modalities.base.decoder import BlockTarget, block_layers
from mmspec.modalities.base.preparation import Prepared
from mmspec.modalities.speech.csm_request import CsmPrepared
from mmspec.modalities.speech.depth import PLACE, Chain, Inside
from mmspec.modalities.speech.depth_guesses import Guess
from mmspec.modalities.speech.state import BehindConditioning
from mmspec.prefix import Frame
from mmspec.state import DecoderState


class CsmDepth:
    """CSM's depth decoder. Position 0 of a frame is the backbone's state, then come its codes."""

    def __init__(self, model: Any) -> None:
        self._decoder = model.depth_decoder
        config = self._decoder.config
        self.codebooks: int = config.num_codebooks
        self.vocab_size: int = config.vocab_size
        self.layers: int = config.num_hidden_layers

    def score(self, hidden: Tensor | None, codes: Tensor, state: DecoderState | None) -> Tensor:
        """Float32 logits `[n, m, V]` behind codes `[n, m]`: see `Depth`."""
        first = 0 if state is None or hidden is not None else state.length - 1
        count = codes.shape[1]
        cache = None if state is None else state.cache
        ids = codes if hidden is None else pad(codes, (1, 0), value=PLACE)
        found = self._decoder.model(
            input_ids=ids,
            backbone_last_hidden_state=hidden,
            # Without one, transformers takes as many frames as positions for a packed batch.
            attention_mask=torch.ones_like(ids) if state is None else None,
            use_cache=state is not None,
            **cache_argument(type(self._decoder.model), cache),
        ).last_hidden_state[:, -count:]
        # Each place has a head of its own: a view of them, where the library's module copies them.
        heads = self._decoder.codebooks_head.weight[first : first + count]
        return torch.bmm(found.transpose(0, 1), heads).transpose(0, 1).float()


class CsmTarget(BlockTarget):
    """CSM's backbone, opened for one request.

    Args:
        prepared: the request.
        steps: the model's descriptor.
        guess: how frames may go on behind their first code; None: no guess.
        packed: whether the layers of both decoders run packed.

    Attributes:
        hidden: final states behind the frames that were scored last, `[keep, D]`; behind the
            prompt, `[1, D]`, if none were.
        hidden_from: position of the first of these frames.
        first_hidden: the final state behind the prompt, `[D]`.
        states: final states that the frames of this round stand behind, `[m, D]`: `hidden`; where
            nothing is committed yet, with that in front which the first scored frame is behind.
        behind: the m frames in front of these frames; None for the last position of a text.
        depth: the codebooks behind the first; counts its passes.
        chain: the same, as a session is given it.
        layout: nothing is forced; a frame of end marks ends the output.
        prompt: frames that the output goes on from.
        max_rows: frames, the prompt's included, that the output never exceeds.
        codebooks: K.
        said: None: a head says every id.
    """

    takes_trees = False
    said: int | None = None

    def __init__(
        self,
        prepared: CsmPrepared,
        steps: DepthFrames,
        *,
        guess: Guess | None = None,
        packed: bool = False,
    ) -> None:
        model = prepared.model
        backbone, head, depth = model.backbone_model, model.lm_head, CsmDepth(model)
        self.prompt: Sequence[Frame] = prepared.prompt
        self.max_rows, self.codebooks = prepared.max_rows, len(steps.codebooks)
        before = int(_there(prepared).sum()) - len(self.prompt)
        state = BehindConditioning(
            len(backbone.layers), self.max_rows, before=before, cross_attention=False
        )
        layers = [*block_layers(backbone, head), *block_layers(model.depth_decoder, head)]
        packs = PackedLinears(list(dict.fromkeys(layers))).open() if packed else None
        super().__init__(backbone, head, state, head.weight.device, packs)
        self.layout: Layout = DepthLayout(steps)
        best_only = prepared.config.do_sample and not prepared.depth.config.do_sample
        inside = Inside(prepared.depth.processors, best_only=best_only)
        self.depth = Chain(depth, self, inside, guess)
        self.chain: frames.Chain | None = self.depth
        self._prepared = prepared
        self.hidden = self.states = head.weight.new_empty(0, head.in_features)
        self.hidden_from = 0
        self.first_hidden = head.weight.new_empty(head.in_features)
        self.behind: Sequence[Frame | None] = ()
        self._ends: dict[int, tuple[Tensor, Frame | None]] = {}
        self._uncommitted = -1

    @torch.no_grad()
    def read_prompt(self) -> Tensor:
        """Read text, recordings and frames and freeze them; the row behind them `[1, 1, V]`.

        Raises:
            OptionError: positions of the request's own.
        """
        prepared, there = self._prepared, _there(self._prepared)
        inputs = prepared.model.prepare_inputs_for_generation(
            prepared.input_ids, is_first_iteration=True, **prepared.inputs
        )
        embedded = inputs.get("inputs_embeds")
        if embedded is None:
            embedded = self._decoder.embed_tokens(inputs["input_ids"])
        count, places = int(there.sum()), inputs.get("position_ids")
        if places is not None and places[0, there].tolist() != list(range(count)):
            raise OptionError("position_ids of your own: CSM counts its positions itself")
        # What the mask hides takes no position, so it can as well not be there.
        with self.state.block(count):
            found = self._read(inputs_embeds=embedded[:, there])
        self.state.freeze()
        self.forwards += 1
        self._uncommitted = self.state.mark().epoch
        self.first_hidden = found[0, -1]
        self.states, self.behind = found[0, -1:], [self.prompt[-1] if self.prompt else None]
        self._ends = {self.state.length: (self.first_hidden, self.behind[0])}
        return self._logits(self.states).float().unsqueeze(1)

    @torch.no_grad()
    def score(self, ids: Sequence[Any], keep: int, parents: Sequence[int] | None = None) -> Tensor:
        """Append frames; float32 logits `[keep, 1, V]` of the first code behind the last `keep`."""
        start = self.state.length
        logits = super().score(ids, keep, parents)
        self.hidden = self.hidden[:keep]  # nothing where nothing was kept
        self.hidden_from = self.state.length - keep
        self.states, self.behind = self.hidden, list(ids[len(ids) - keep :])
        # A committed frame is fed with the block. Before there is one, nothing in it is what the
        # first frame of the round stands behind.
        if keep == len(ids) and self.state.mark().epoch == self._uncommitted:
            last, before = self._ends[start]
            self._ends[self.state.length] = self.hidden[-1], ids[-1]
            self.states, self.behind = torch.cat([last[None], self.hidden]), [before, *ids]
        return logits.unsqueeze(1)

    def _hidden(self, block: Tensor, parents: Sequence[int] | None) -> Tensor:
        return self._read(input_ids=block)

    def _logits(self, hidden: Tensor) -> Tensor:
        self.hidden = hidden
        return super()._logits(hidden)

    def _read(self, **block: Tensor) -> Tensor:
        cache = cache_argument(type(self._decoder), self.state.cache)
        return self._decoder(**block, use_cache=True, **cache).last_hidden_state

    def close(self) -> None:
        """Release the states and the packed layers."""
        self.depth.close()
        super().close()


def _there(prepared: Prepared) -> Tensor:
    """Which positions of a prompt are no padding, bool `[P]`."""
    mask = prepared.inputs.get("attention_mask")
    if mask is not None:
        return mask[0] != 0
    embedded = prepared.inputs.get("inputs_embeds")
    read = prepared.input_ids if embedded is None else embedded
    return torch.ones(read.shape[1], dtype=torch.bool, device=read.device)

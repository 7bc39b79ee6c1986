"""A compact model of VALL-E's kind: codebook 0 code by code, then a pass for each other codebook.

The first codebook is written by a causal language model behind the text, and ends by a mark. Each
other codebook is filled in one pass over text and frames that sees all of time and every codebook
before its own: the likeliest code everywhere, so it follows from what it sees. Left out are its
phonemes, and layer norms that know the codebook: an embedding tells it here.

Source:
    Wang et al. 2023, "Neural Codec Language Models are Zero-Shot Text to Speech Synthesizers",
    section 4.2.

Legend: P given frames, F new frames, K codebooks, T text ids, D width, N codes per codebook.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from transformers import (
    AutoConfig,
    AutoModel,
    GenerationConfig,
    LlamaConfig,
    LlamaForCausalLM,
    PretrainedConfig,
    PreTrainedModel,
)

LETTERS = " abcdefghijklmnopqrstuvwxyz'.,?!-"


class ValleConfig(PretrainedConfig):
    """The shape of a model.

    Args:
        alphabet: the characters that a text may have; a character's id is its place.
        codes: N.
        codebooks: K, at least 2.
        hidden_size: D of both parts.
        num_hidden_layers: of each part.
        num_attention_heads: of each part.
        max_position_embeddings: positions of the first part: text, a mark and frames.
        frame_rate: frames per second, of the codec that its codes are of.
        sampling_rate: of that codec's sound, in Hz.
        **kwargs: what every configuration has.
    """

    model_type = "mmspec_valle"

    def __init__(
        self,
        alphabet: str = LETTERS,
        codes: int = 1024,
        codebooks: int = 8,
        hidden_size: int = 256,
        num_hidden_layers: int = 6,
        num_attention_heads: int = 4,
        max_position_embeddings: int = 2048,
        frame_rate: float = 75,
        sampling_rate: int = 24_000,
        **kwargs: Any,
    ) -> None:
        self.alphabet, self.codes, self.codebooks = alphabet, codes, codebooks
        self.hidden_size, self.num_hidden_layers = hidden_size, num_hidden_layers
        self.num_attention_heads = num_attention_heads
        self.max_position_embeddings = max_position_embeddings
        self.frame_rate, self.sampling_rate = frame_rate, sampling_rate
        super().__init__(**kwargs)

    @property
    def end(self) -> int:
        """The id behind the first codebook's last code."""
        return self.codes

    @property
    def start(self) -> int:
        """The id between the text and the first code."""
        return self.codes + 1

    @property
    def tokens(self) -> int:
        """Ids of the first part: codes, end, start, then the characters."""
        return self.codes + 2 + len(self.alphabet)

    def chain(self) -> LlamaConfig:
        """The first part's."""
        return LlamaConfig(
            vocab_size=self.tokens,
            hidden_size=self.hidden_size,
            intermediate_size=4 * self.hidden_size,
            num_hidden_layers=self.num_hidden_layers,
            num_attention_heads=self.num_attention_heads,
            max_position_embeddings=self.max_position_embeddings,
            bos_token_id=None,
            eos_token_id=self.end,
            pad_token_id=self.end,
        )


class Filler(nn.Module):
    """Fills a codebook in one pass: text and frames side by side, everything sees everything."""

    def __init__(self, config: ValleConfig) -> None:
        super().__init__()
        width, places = config.hidden_size, config.max_position_embeddings
        self.text = nn.Embedding(len(config.alphabet), width)
        self.codes = nn.ModuleList(
            nn.Embedding(config.codes, width) for _ in range(config.codebooks)
        )
        self.text_positions = nn.Embedding(places, width)
        self.frame_positions = nn.Embedding(places, width)
        self.codebook = nn.Embedding(config.codebooks, width)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(
                width,
                config.num_attention_heads,
                4 * width,
                dropout=0.0,
                activation="gelu",
                batch_first=True,
                norm_first=True,
            )
            for _ in range(config.num_hidden_layers)
        )
        self.norm = nn.LayerNorm(width)
        self.heads = nn.ModuleList(
            nn.Linear(width, config.codes) for _ in range(config.codebooks - 1)
        )

    def forward(self, text: Tensor, given: Tensor, known: Tensor) -> Tensor:
        """Logits of the next codebook of the new frames.

        Args:
            text: `[1, T]`.
            given: all codebooks of the frames that were given, `[1, P, K]`.
            known: the codebooks so far of the new ones, `[1, F, k]`.

        Returns:
            `[1, F, N]`, of codebook k.
        """
        codebook = known.shape[-1]
        frames = torch.cat([self._embedded(given), self._embedded(known)], 1)
        states = torch.cat(
            [_placed(self.text(text), self.text_positions), _placed(frames, self.frame_positions)],
            1,
        )
        states = states + self.codebook.weight[codebook]
        for layer in self.layers:
            states = layer(states)
        new = states[:, states.shape[1] - known.shape[1] :]
        return self.heads[codebook - 1](self.norm(new))

    def _embedded(self, codes: Tensor) -> Tensor:
        """The codebooks of each frame, added up `[1, n, D]`."""
        books = [self.codes[k](codes[..., k]) for k in range(codes.shape[-1])]
        return torch.stack(books).sum(0)


def _placed(states: Tensor, places: nn.Embedding) -> Tensor:
    return states + places.weight[: states.shape[1]]


class ValleModel(PreTrainedModel):
    """Text to codes of speech."""

    config_class = ValleConfig
    main_input_name = "input_ids"

    def __init__(self, config: ValleConfig) -> None:
        super().__init__(config)
        self.first = LlamaForCausalLM(config.chain())
        self.first.generation_config = GenerationConfig(
            eos_token_id=config.end,
            pad_token_id=config.end,
            suppress_tokens=list(range(config.start, config.tokens)),  # a prompt's only
        )
        self.rest = Filler(config)
        self.post_init()

    def prompt(self, text: Tensor, given: Tensor | None = None) -> Tensor:
        """What the first part reads, `[1, T + 1 + P]`: text, start, first codes of given frames.

        Args:
            text: ids of characters `[1, T]`.
            given: frames to go on from `[1, P, K]`.
        """
        config = self.config
        start = torch.full((len(text), 1), config.start, device=text.device)
        first = text[:, :0] if given is None else given[..., 0]
        return torch.cat([text + config.codes + 2, start, first], 1)

    def limited(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Options of `generate`; where they set no length, the positions do."""
        if any(options.get(name) is not None for name in ("max_new_tokens", "max_length")):
            return dict(options)
        return {**options, "max_length": self.config.max_position_embeddings}

    @torch.no_grad()
    def fill(self, text: Tensor, given: Tensor | None, first: Tensor) -> Tensor:
        """All codebooks of new frames whose first is known `[1, F]`: `[1, F, K]`."""
        none = first.new_empty(len(first), 0, self.config.codebooks)
        known = first[..., None]
        while known.shape[-1] < self.config.codebooks and first.shape[1]:
            logits = self.rest(text, none if given is None else given, known)
            known = torch.cat([known, logits.argmax(-1, keepdim=True)], -1)
        return known if first.shape[1] else none

    @torch.no_grad()
    def generate(
        self, input_ids: Tensor, prompt_codes: Tensor | None = None, **options: Any
    ) -> Tensor:
        """Codes `[1, P + F, K]`, those that were given in front.

        Args:
            input_ids: ids of characters `[1, T]`.
            prompt_codes: frames to go on from `[1, P, K]`, of a voice that has said the beginning
                of the text.
            **options: of transformers' `generate`, for the first codebook.

        Raises:
            ValueError: several texts.
        """
        if len(input_ids) != 1:
            raise ValueError(f"found {len(input_ids)} texts: their frames would need masks")
        prompt, options = self.prompt(input_ids, prompt_codes), self.limited(options)
        ids = self.first.generate(prompt, attention_mask=torch.ones_like(prompt), **options)
        first = ids[:, prompt.shape[1] :]
        first = first[:, : int((first[0] != self.config.end).sum())]
        filled = self.fill(input_ids, prompt_codes, first)
        return filled if prompt_codes is None else torch.cat([prompt_codes, filled], 1)


AutoConfig.register(ValleConfig.model_type, ValleConfig)
AutoModel.register(ValleConfig, ValleModel)

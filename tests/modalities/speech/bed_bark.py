"""Tiny Bark models with random weights, and all the codes that transformers makes them say."""

from __future__ import annotations

import copy
import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
import transformers as hf
from torch import Tensor
from transformers.models.bark import generation_configuration_bark as settings

from mmspec.engine.stats import RequestStats
from mmspec.modalities.speech.bark import FAMILY
from mmspec.modalities.speech.contract import CodesResult
from mmspec.report.report import Report

from .chain_runs import said_by

UNITS, CODES, CHAINED, BOOKS = 24, 16, 2, 5
END = UNITS
TEXT, OFFSET, TEXT_PAD, INFER = 20, 28, 50, 51
READS = 10
"""Positions of a text, and of what a coarse window sees of the semantic tokens."""
COARSE_PAD, COARSE_INFER = UNITS + CHAINED * CODES, UNITS + CHAINED * CODES + 1
WINDOW, HISTORY, LONGEST = 6, 16, 14
RATE, UNIT_RATE = 75, 49.9
FINE_READS, FINE_HISTORY = 16, 8

SHAPE = {"num_heads": 2, "hidden_size": 16, "bias": False}


def configs(layers: int = 2, width: int = 16) -> hf.BarkConfig:
    """Three stages and a codec that fit each other."""
    shape = {**SHAPE, "num_layers": layers, "hidden_size": width}
    codec = hf.EncodecConfig(
        target_bandwidths=[RATE * 4 * BOOKS / 1000],
        sampling_rate=RATE * 8,
        num_filters=4,
        hidden_size=8,
        codebook_size=CODES,
        codebook_dim=8,
        num_residual_layers=1,
        upsampling_ratios=[4, 2],
        num_lstm_layers=1,
    )
    return hf.BarkConfig(
        semantic_config=hf.BarkSemanticConfig(
            block_size=40, input_vocab_size=52, output_vocab_size=UNITS + 4, **shape
        ),
        # No logits for marks: random weights would say them, and a code they are not.
        coarse_acoustics_config=hf.BarkCoarseConfig(
            block_size=40,
            input_vocab_size=COARSE_INFER + 1,
            output_vocab_size=UNITS + CHAINED * CODES,
            **shape,
        ),
        fine_acoustics_config=hf.BarkFineConfig(
            block_size=FINE_READS,
            input_vocab_size=CODES + 1,
            output_vocab_size=CODES + 1,
            n_codes_total=BOOKS,
            **shape,
        ),
        codec_config=codec,
    )


def told(longest: int = LONGEST, **more: Any) -> dict[str, Any]:
    """What a `generation_config.json` says of the stages."""
    return {
        "semantic_config": settings.BarkSemanticGenerationConfig(
            eos_token_id=END,
            max_new_tokens=longest,
            text_encoding_offset=OFFSET,
            text_pad_token=TEXT_PAD,
            semantic_infer_token=INFER,
            semantic_vocab_size=UNITS,
            max_input_semantic_length=READS,
            semantic_rate_hz=UNIT_RATE,
        ).to_dict(),
        "coarse_acoustics_config": settings.BarkCoarseGenerationConfig(
            coarse_semantic_pad_token=COARSE_PAD,
            coarse_infer_token=COARSE_INFER,
            coarse_rate_hz=RATE,
            max_coarse_input_length=READS,
            max_coarse_history=HISTORY,
            sliding_window_len=WINDOW,
        ).to_dict(),
        "fine_acoustics_config": settings.BarkFineGenerationConfig(
            max_fine_history_length=FINE_HISTORY,
            max_fine_input_length=FINE_READS,
            n_fine_codebooks=BOOKS,
        ).to_dict(),
        "codebook_size": CODES,
        "sample_rate": RATE * 8,
        **more,
    }


def made(seed: int = 0, layers: int = 2, width: int = 16, longest: int = LONGEST) -> Any:
    """A model of its own."""
    torch.manual_seed(seed)
    model = hf.BarkModel(configs(layers, width)).eval()
    for name, parameter in model.named_parameters():
        if parameter.ndim > 1 and not name.startswith("codec_model"):
            parameter.data.normal_(0.0, 0.35)  # as drawn, all units are about as likely
    model.generation_config = hf.GenerationConfig(**told(longest))
    return model


tiny = functools.cache(made)


def inputs(seed: int = 0, words: int = 7) -> dict[str, Tensor]:
    """What the processor makes of a text: ids, padded to what the semantic stage reads."""
    ids = torch.randint(0, TEXT, (1, READS), generator=torch.Generator().manual_seed(seed))
    return {"input_ids": ids, "attention_mask": (torch.arange(READS) < words).long()[None]}


def voice(frames: int = 9, seed: int = 5) -> dict[str, Tensor]:
    """A voice to go on from: what the processor calls a history prompt."""
    generator = torch.Generator().manual_seed(seed)
    tokens = round(frames * UNIT_RATE / RATE)
    fine = torch.randint(0, CODES, (BOOKS, frames), generator=generator)
    return {
        "semantic_prompt": torch.randint(0, UNITS, (tokens,), generator=generator),
        "coarse_prompt": fine[:CHAINED].clone(),
        "fine_prompt": fine,
    }


@dataclass(frozen=True)
class Library:
    """All that transformers' own `generate` decided.

    Attributes:
        semantic: ids, the end included.
        coarse: the chain of ids.
        grid: codes, frames × codebooks.
        sound: the waveform.
    """

    semantic: list[int]
    coarse: list[int]
    grid: list[tuple[int, ...]]
    sound: Tensor


def library(model: Any, given: Mapping[str, Any], **options: Any) -> Library:
    """What the library says; its stages are watched, nothing else is done to them."""
    seen: dict[str, Tensor] = {}
    twin = copy.copy(model)
    twin._modules = {name: copy.copy(part) for name, part in model._modules.items()}

    def watched(name: str) -> Any:
        stage = twin._modules[name]
        run = stage.generate

        def generate(*args: Any, **kwargs: Any) -> Tensor:
            seen[name] = run(*args, **kwargs)
            return seen[name].clone()  # the next stage writes to it

        return generate

    for name in ("semantic", "coarse_acoustics", "fine_acoustics"):
        twin._modules[name].__dict__["generate"] = watched(name)
    # Of no frames its codec can't make anything.
    twin.__dict__["codec_decode"] = lambda codes, lengths: (
        model.codec_decode(codes) if codes.numel() else torch.zeros(1, 0)
    )
    sound = twin.generate(**given, **options)
    return Library(
        seen["semantic"][0].tolist(),
        seen["coarse_acoustics"][0].tolist(),
        [tuple(frame) for frame in seen["fine_acoustics"][0].T.tolist()],
        sound[0],
    )


def library_codes(model: Any, given: Mapping[str, Any], **options: Any) -> list[tuple[int, ...]]:
    """Codes of transformers' own `generate`, frames × codebooks."""
    return library(model, given, **options).grid


def said(
    model: Any, given: Mapping[str, Any], draft: Any = None, gamma: int = 4, **how: Any
) -> tuple[CodesResult, Report, RequestStats]:
    """What we say, and the account of it.

    Args:
        model: a Bark.
        given: its inputs.
        draft: makes a kind of drafter for a checkpoint; None: nothing is drafted.
        gamma: tokens drafted per round.
        **how: `seed`, `rule`, `earlier` or `streamer` of a request, and options of `generate`.
    """
    return said_by(FAMILY, model, given, draft, gamma, **how)

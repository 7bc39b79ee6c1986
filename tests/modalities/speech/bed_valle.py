"""Tiny models of VALL-E's kind with random weights, and what they say by themselves."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from mmspec.engine.stats import RequestStats
from mmspec.modalities.speech.contract import CodesResult
from mmspec.modalities.speech.valle import FAMILY
from mmspec.modalities.speech.valle_model import ValleConfig, ValleModel
from mmspec.report.report import Report

from .chain_runs import said_by

LETTERS, CODES, BOOKS = "abcdef ", 16, 4
END, START = CODES, CODES + 1
POSITIONS, LENGTH = 64, 18


def made(seed: int = 0, layers: int = 2, width: int = 16, **shape: Any) -> ValleModel:
    """A model of its own."""
    config = ValleConfig(
        **{
            "alphabet": LETTERS,
            "codes": CODES,
            "codebooks": BOOKS,
            "hidden_size": width,
            "num_hidden_layers": layers,
            "num_attention_heads": 2,
            "max_position_embeddings": POSITIONS,
            **shape,
        }
    )
    torch.manual_seed(seed)
    model = ValleModel(config).eval()
    for parameter in model.parameters():
        if parameter.ndim > 1:  # as drawn, all codes are about as likely
            parameter.data.normal_(0.0, 0.4)
    return model


tiny = functools.cache(made)


def inputs(text: str = "a bad cafe", frames: int = 0) -> dict[str, Tensor]:
    """Ids of a text and, where frames > 0, codes to go on from."""
    given = {"input_ids": torch.tensor([[LETTERS.index(char) for char in text]])}
    if frames:
        generator = torch.Generator().manual_seed(frames)
        given["prompt_codes"] = torch.randint(0, CODES, (1, frames, BOOKS), generator=generator)
    return given


def library_codes(model: Any, given: Mapping[str, Any], **options: Any) -> list[tuple[int, ...]]:
    """Codes of the model's own `generate`, whose loop is transformers', frames × codebooks."""
    asked = {"max_new_tokens": LENGTH, "do_sample": False, **options}
    return [tuple(frame) for frame in model.generate(**given, **asked)[0].tolist()]


def said(
    model: Any, given: Mapping[str, Any], draft: Any = None, gamma: int = 4, **how: Any
) -> tuple[CodesResult, Report, RequestStats]:
    """What we say; see `chain_runs.said_by`."""
    return said_by(FAMILY, model, given, draft, gamma, **{"max_new_tokens": LENGTH, **how})

"""Processors, criteria and streamers of a caller's own, and prompts of Whisper's."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers import (
    LogitsProcessor,
    LogitsProcessorList,
    StoppingCriteria,
    StoppingCriteriaList,
)
from transformers.generation.streamers import BaseStreamer

from tests.modalities import tiny as whisper


class Counting(LogitsProcessor):
    """Has a memory: each call forbids another token."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, ids: Tensor, scores: Tensor) -> Tensor:
        self.calls += 1
        scores = scores.clone()
        scores[:, (self.calls * 5) % scores.shape[1]] = -torch.inf
        return scores


class NotTwice(LogitsProcessor):
    """Looks at the prefix: what was said last isn't said again. Works in place."""

    def __call__(self, ids: Tensor, scores: Tensor) -> Tensor:
        if ids.dim() == 2 and ids.shape[1] > 0 and len(ids) == len(scores):
            scores[torch.arange(len(ids)), ids[:, -1].clamp(0, scores.shape[1] - 1)] -= 9.0
        return scores


class Remembering(LogitsProcessor):
    """Looks at its own last answer: the best token of the step before is worth less now."""

    def __init__(self) -> None:
        self.best: Tensor | None = None

    def __call__(self, ids: Tensor, scores: Tensor) -> Tensor:
        before, self.best = self.best, scores.argmax(-1, keepdim=True)
        if before is None or len(before) != len(scores):
            return scores
        return scores.scatter_add(1, before, scores.new_full(before.shape, -6.0))


class ByWidth(LogitsProcessor):
    """Looks at how long a row has become, padding included."""

    def __call__(self, ids: Tensor, scores: Tensor) -> Tensor:
        scores = scores.clone()
        scores[:, ids.shape[1] % scores.shape[1]] += 4.0
        return scores


class Recording(LogitsProcessor):
    """Keeps what a token was chosen from; changes nothing."""

    def __init__(self) -> None:
        self.steps: list[tuple[list[int], Tensor]] = []

    def __call__(self, ids: Tensor, scores: Tensor) -> Tensor:
        if ids.dim() == 2 and len(ids) == len(scores):
            self.steps += zip(ids.tolist(), scores.detach().float().clone(), strict=True)
        return scores


class AfterSeven(StoppingCriteria):
    """A row ends behind a token that 7 divides."""

    def __call__(self, ids: Tensor, scores: Any, **more: Any) -> Tensor:
        return ids[:, -1] % 7 == 0


class AtWidth(StoppingCriteria):
    """All rows end at a width. Answers as criteria did once: by a bool."""

    def __init__(self, width: int) -> None:
        self.width = width

    def __call__(self, ids: Tensor, scores: Any, **more: Any) -> bool:
        return ids.shape[1] >= self.width


class AfterCalls(StoppingCriteria):
    """Has a memory."""

    def __init__(self, calls: int) -> None:
        self.calls = calls

    def __call__(self, ids: Tensor, scores: Any, **more: Any) -> Tensor:
        self.calls -= 1
        return torch.full((len(ids),), self.calls <= 0, device=ids.device)


class Allowed:
    """Every row has a list of its own, which changes from step to step."""

    def __init__(self, first: int, last: int) -> None:
        self.first, self.last = first, last

    def __call__(self, row: int, ids: Tensor) -> list[int]:
        return list(range(self.first + (row + len(ids)) % 3, self.last, 2))


class Streamer(BaseStreamer):
    """Keeps what it gets."""

    def __init__(self) -> None:
        self.ids: list[int] = []
        self.ends = 0

    def put(self, value: Tensor) -> None:
        self.ids += value.flatten().tolist()

    def end(self) -> None:
        self.ends += 1


def processors(d: Any) -> LogitsProcessorList:
    """One or two, as a caller would give them."""
    kinds = (Counting, NotTwice, Remembering, ByWidth)
    return LogitsProcessorList([d.one(*kinds)() for _ in range(d.one(1, 1, 2))])


def criteria(d: Any) -> StoppingCriteriaList:
    """One, as a caller would give it."""
    one = d.one(AfterSeven(), AtWidth(d.prompt + 5), AfterCalls(4))
    return StoppingCriteriaList([one])


def prompt_ids(d: Any) -> Tensor:
    """Text before a recording, as Whisper's processor makes it."""
    return torch.tensor([whisper.PREVIOUS, *d.few(1, 5)])


def decoder_input_ids(d: Any) -> Tensor:
    """A prompt of one's own."""
    marks = [whisper.START, whisper.EN, whisper.TRANSCRIBE, whisper.NO_TIMES]
    return torch.tensor([marks + d.few(0, 3)])

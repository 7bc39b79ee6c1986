"""Every kind of drafter, by name, for a target and what it is known to say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .tiny import EOS, NO_TIMES, PREVIOUS, TRANSCRIBE, shared, tiny, tiny_decoder

GAMMAS: tuple[int | str, ...] = ("adaptive", 0, 1, 3, 4, 40)
"""The last one is beyond the end of any output."""


def with_errors(ids: Sequence[int]) -> list[int]:
    """A token wrong, one too many and one missing: what a recogniser's transcript is like."""
    changed = list(ids)
    if len(changed) > 8:
        changed[2] = (changed[2] + 1) % EOS
        changed.insert(5, 7)
        del changed[8]
    return changed


def _larger() -> Any:
    """Other depth, other width, own ears."""
    return tiny(9, layers=5, width=24)


def _same_ears(target: Any) -> Any:
    """Another decoder on the very encoder of the target (distil-Whisper style)."""
    drafter = tiny(4, layers=1, positions=target.config.max_source_positions)
    drafter.get_encoder().load_state_dict(target.get_encoder().state_dict())
    return drafter


DRAFTERS = (
    "none",
    "ngram",
    "hypothesis-right",
    "hypothesis-wrong",
    "hypothesis-empty",
    "early-exit:1",
    "early-exit:2",
    "same-weights",
    "other-seed",
    "larger",
    "decoder-only",
    "shared-encoder",
)

THREE = ("same-weights", "other-seed", "ngram")
"""All accepted, nearly all rejected, and lookup: several faults show with only one of them."""

FORCED_HIT = torch.tensor([PREVIOUS, TRANSCRIBE, NO_TIMES, 5, 6, 7])
"""Previous text after which the prompt's last two marks have been seen: lookup proposes 5, 6, 7."""


def drafter_options(name: str, target: Any, truth: Sequence[int]) -> dict[str, Any]:
    """Arguments of `mmspec.generate` that select a drafter.

    `truth`: the ids that the target says (what a perfect hypothesis would be).
    """
    hypotheses = {"right": [*truth, EOS], "wrong": with_errors(truth), "empty": []}
    if name.startswith("hypothesis-"):
        return {"draft": "hypothesis", "hypothesis": hypotheses[name.removeprefix("hypothesis-")]}
    models = {
        "same-weights": lambda: target,
        "other-seed": lambda: shared(11),
        "larger": _larger,
        "decoder-only": lambda: tiny_decoder(2, layers=1),
        "shared-encoder": lambda: _same_ears(target),
    }
    return {"draft": models[name]() if name in models else name}


def emitted(sequences: Tensor) -> list[int]:
    return [int(token) for token in sequences[0]]


def same_ids(sequences: Tensor, expected: Tensor) -> None:
    """Raises by itself: a bare `assert` in a helper is silent under `python -O`."""
    if not torch.equal(sequences, expected):
        raise AssertionError((sequences.tolist(), expected.tolist()))


def no_faults(reports: Sequence[Any]) -> None:
    """The drafter was at work to the end."""
    faults = [fault for report in reports for fault in report.faults]
    if faults:
        raise AssertionError(faults)

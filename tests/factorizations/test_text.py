"""Text steps, and what every descriptor has in common: frozen, hashable, checked."""

from __future__ import annotations

import pickle
from dataclasses import FrozenInstanceError
from typing import Any

import pytest

from mmspec.factorizations import TextSteps, WhisperSteps

WHISPER = WhisperSteps(
    vocab_size=60,
    context=16,
    start=50,
    stop_tokens=frozenset({49}),
    languages=(("<|en|>", 51), ("<|de|>", 52)),
    tasks=(("transcribe", 53), ("translate", 54)),
    no_timestamps=56,
    previous_text=55,
)


@pytest.mark.parametrize("steps", [TextSteps(10, frozenset({9})), WHISPER])
def test_a_descriptor_is_a_value(steps: Any) -> None:
    twin = pickle.loads(pickle.dumps(steps))
    assert twin == steps
    assert hash(twin) == hash(steps)
    assert {steps: 1}[twin] == 1
    with pytest.raises(FrozenInstanceError, match="vocab_size"):
        steps.vocab_size = 3
    sequence = [3, 4, 9]
    assert list(steps.from_grid(steps.to_grid(sequence))) == sequence
    assert not steps.stop_tokens & steps.reserved


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"vocab_size": 0}, r"vocab_size must be positive, got 0"),
        ({"vocab_size": 4, "stop_tokens": frozenset({4})}, r"stop_tokens has token 4, outside the"),
        ({"vocab_size": 4, "reserved": frozenset({-1})}, r"reserved has token -1, outside the"),
    ],
)
def test_text_steps_outside_their_vocabulary(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TextSteps(**given)

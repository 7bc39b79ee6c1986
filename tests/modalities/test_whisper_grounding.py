"""What a window's tokens owe to the audio: against the slow definition, and what it costs."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import Any

import pytest
import torch
from torch import Tensor

from mmspec.modalities.whisper.checkpoint import Whisper
from mmspec.modalities.whisper.grounding import Silence
from mmspec.modalities.whisper.second_pass import SecondPass

from .test_whisper_state import counting
from .tiny import (
    EN,
    FIRST_TIME,
    NO_TIMES,
    START,
    TRANSCRIBE,
    features,
    shared,
    tiny,
    tiny_processor,
)

PROMPT = (START, EN, TRANSCRIBE, NO_TIMES)
IDS = (7, 31, 4, FIRST_TIME + 3, FIRST_TIME + 3, 12, 9)


def heard(model: Any, packed: bool = True) -> Whisper:
    return Whisper.of(model, tiny_processor(), packed=packed)


def looked(
    whisper: Whisper, states: Tensor, *windows: Sequence[int], silence: Silence, times: bool = False
) -> SecondPass:
    look = SecondPass(whisper, times=times, silence=silence)
    for number, ids in enumerate(windows):
        with closing(whisper.open(states)) as target:
            target.score(PROMPT, 1)
            look(target, PROMPT, states, ids, float(number), 80)
    return look


def slow_log_probs(model: Any, mel: Tensor, ids: Sequence[int]) -> list[float]:
    """One full forward without any cache per token, the distribution of the next one each."""
    found = []
    for index, token in enumerate(ids):
        read = torch.tensor([[*PROMPT, *ids[:index]]])
        with torch.no_grad():
            row = model(mel, decoder_input_ids=read, use_cache=False).logits[0, -1]
        found.append(float(row.double().log_softmax(-1)[token]))
    return found


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("times", [True, False])
def test_drops_are_the_definition(packed: bool, times: bool) -> None:
    model, mel = shared(), features()
    whisper = heard(model, packed)
    silence = torch.full_like(mel, float(whisper.features(torch.zeros(16_000).numpy()).min()))
    with_audio, without = (slow_log_probs(model, given, IDS) for given in (mel, silence))
    want = [one - other for one, other in zip(with_audio, without, strict=True)]
    look = looked(whisper, whisper.encode(mel), IDS, silence=Silence(whisper), times=times)
    assert len(look.spans) == times * len(IDS)
    torch.testing.assert_close(look.drops, want, rtol=1e-4, atol=1e-4)
    assert max(map(abs, want)) > 0.5  # these random ears hear something


def test_of_silence_nothing_is_grounded() -> None:
    """The same conditioning on both sides: a drop of exactly 0 each."""
    whisper = heard(shared())
    silence = Silence(whisper)
    assert looked(whisper, silence.states, IDS, silence=silence).drops == [0.0] * len(IDS)


def test_silence_is_encoded_once_and_each_window_read_once_more_and_once_without_audio() -> None:
    model = tiny(3)
    whisper = heard(model)
    states = whisper.encode(features())
    silence = Silence(whisper)
    with counting([model.get_encoder().layers[0]]) as encoded:
        with counting([model.get_decoder().layers[0].fc1]) as read:
            first = looked(whisper, states, IDS, IDS[:3], IDS[:5], silence=silence)
            assert read[0] == 3 * (1 + 2)  # a prompt, the look with audio, the look without
        again = looked(whisper, states, IDS, (), silence=silence)
        assert encoded[0] == 1
    assert len(first.drops) == 15
    assert again.drops == first.drops[: len(IDS)]


def test_a_window_without_units_costs_nothing() -> None:
    model = tiny(3)
    whisper = heard(model)
    states, silence = whisper.encode(features()), Silence(whisper)
    with counting([model.get_encoder().layers[0], model.get_decoder().layers[0].fc1]) as calls:
        assert looked(whisper, states, (), silence=silence, times=True).drops == []
    assert calls[0] == 1  # the prompt that was read before


def test_nothing_stays_on_the_model() -> None:
    model = tiny(3)
    whisper = heard(model)
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    looked(whisper, whisper.encode(features()), IDS, silence=Silence(whisper), times=True)
    assert all(torch.equal(weight, before[name]) for name, weight in model.state_dict().items())
    assert not any("forward" in vars(module) for module in model.modules())
    assert not any(module._forward_hooks for module in model.modules())

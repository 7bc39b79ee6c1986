"""Word times and grounding of released checkpoints on real speech."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
import torch
from transformers import WhisperForConditionalGeneration

from mmspec.modalities.media.audio import load_audio
from mmspec.modalities.whisper.decode import Recognition
from mmspec.modalities.whisper.request import TranscriptionRequest
from mmspec.modalities.whisper.second_pass import SecondPass
from tests.checkpoints.real import BASE, CLIPS, RATE, TINY, loaded

pytestmark = [pytest.mark.checkpoint, pytest.mark.slow]

LONG = len(CLIPS)
"""All clips in a row, longer than a window."""


@functools.cache
def samples_of(number: int) -> np.ndarray:
    if number < LONG:
        return load_audio(CLIPS[number])
    clips = [load_audio(clip) for clip in CLIPS]
    return np.concatenate(clips * 40)[: 40 * RATE]


@functools.cache
def eager(checkpoint: str) -> Any:
    """transformers takes attention weights from this implementation only."""
    return WhisperForConditionalGeneration.from_pretrained(
        checkpoint, dtype=torch.float32, attn_implementation="eager"
    ).eval()


def by_transformers(checkpoint: str, samples: np.ndarray, **asked: Any) -> list[tuple[int, float]]:
    """Every id with its time, segment after segment; the time is where the id ends."""
    whole = {"truncation": False, "padding": "longest"} if len(samples) > 30 * RATE else {}
    inputs = loaded(checkpoint, "none").processor(
        samples, sampling_rate=RATE, return_tensors="pt", return_attention_mask=True, **whole
    )
    model = eager(checkpoint)
    said = model.generate(
        **inputs,
        **asked,
        return_timestamps=True,
        return_token_timestamps=True,
        return_segments=True,
    )
    return [
        (token, time_s)
        for segment in said["segments"][0]
        for token, time_s in zip(
            segment["tokens"].tolist(), segment["token_timestamps"].tolist(), strict=True
        )
        if token != model.generation_config.eos_token_id
    ]


@pytest.mark.parametrize("number", range(LONG + 1))
@pytest.mark.parametrize("checkpoint", [BASE, TINY], ids=["base", "tiny.en"])
def test_times_are_transformers_own(checkpoint: str, number: int) -> None:
    samples = samples_of(number)
    asked: dict[str, Any] = {"language": "en"} if checkpoint == BASE else {}
    want = by_transformers(checkpoint, samples, **asked)
    whole = loaded(checkpoint, "ngram")
    look = SecondPass(whole.checkpoint, times=True, silence=None)
    request = TranscriptionRequest(timestamps=True, **asked)
    seconds = len(samples) / RATE
    heard = Recognition(whole._pair, whole._hear(samples), request, seconds, look).run()
    assert heard.ids == tuple(token for token, _ in want)
    ends = [end_s for _, end_s in look.spans]
    np.testing.assert_allclose(ends, [time_s for _, time_s in want], atol=1e-4)


@pytest.mark.parametrize("number", range(min(3, LONG)))  # read without a pause inside
def test_words_are_heard_and_full_stops_are_not(number: int) -> None:
    said = loaded(BASE, "ngram").transcribe(
        samples_of(number), sampling_rate=RATE, language="en", grounding=True, word_timestamps=True
    )
    assert said.grounding is not None
    assert said.words is not None
    assert said.grounding.classes[-1] == "syntactic"
    assert said.text.endswith(".")
    assert said.grounding.classes.count("grounded") > 0.7 * len(said.ids)
    assert max(said.grounding.drops) > 7
    # Read aloud, a word takes some time and a second at most.
    lengths = [word.end_s - word.start_s for word in said.words]
    assert min(lengths) > 0.05
    assert max(lengths) < 1.0

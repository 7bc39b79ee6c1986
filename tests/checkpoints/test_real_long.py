"""Released checkpoints on more than a minute of real speech; see `test_real_whisper`."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

from mmspec.modalities.media.audio import load_audio
from mmspec.tasks.asr.peers import quiet
from tests.checkpoints.real import BASE, CLIPS, RATE, TINY, loaded

pytestmark = [pytest.mark.checkpoint, pytest.mark.slow]

DRAFTS = (
    ("none", "adaptive"),
    ("ngram", "adaptive"),
    ("early-exit:3", "adaptive"),
    ("early-exit:3", 3),
    (TINY, 3),
    (TINY, "adaptive"),
    ("hypothesis", "adaptive"),
)


@functools.cache
def minute() -> np.ndarray:
    """The clips again and again with half a second to two of faint noise between them."""
    noise, parts = np.random.default_rng(0), []
    while sum(map(len, parts)) < 62 * RATE:
        pause = noise.standard_normal(int(RATE * noise.uniform(0.5, 2.0)))
        parts += [load_audio(CLIPS[len(parts) // 2 % len(CLIPS)]), 1e-4 * pause]
    return np.concatenate(parts).astype(np.float32)


def reference(samples: np.ndarray, **asked: Any) -> tuple[int, ...]:
    whole = loaded(BASE, "none")
    long = {"truncation": False, "padding": "longest"} if len(samples) > 30 * RATE else {}
    inputs = whole.processor(samples, sampling_rate=RATE, return_tensors="pt", **long)
    with quiet():
        ids = whole.model.generate(inputs.input_features, language="en", **asked)[0].tolist()
    return tuple(token for token in ids if token != 50257)


@functools.cache
def minute_reference(shown: bool) -> tuple[int, ...]:
    return reference(minute(), return_timestamps=True, condition_on_prev_tokens=shown)


@functools.cache
def rough() -> str:
    return loaded(TINY, "none").transcribe(minute(), sampling_rate=RATE).text


@pytest.mark.parametrize("shown", [False, True])
@pytest.mark.parametrize(("draft", "gamma"), DRAFTS)
def test_a_minute_has_the_ids_of_transformers(draft: str, gamma: int | str, shown: bool) -> None:
    heard = loaded(BASE, draft, gamma).transcribe(
        minute(),
        sampling_rate=RATE,
        language="en",
        condition_on_prev_tokens=shown,
        hypothesis=rough() if draft == "hypothesis" else None,
    )
    assert heard.ids == minute_reference(shown)
    assert heard.report.encoder_runs >= 3
    assert not heard.report.faults


def test_another_models_long_transcript_serves_all_windows() -> None:
    heard = loaded(BASE, "hypothesis").transcribe(
        minute(), sampling_rate=RATE, language="en", hypothesis=rough()
    )
    assert heard.report.rounds < heard.report.tokens / 3


@pytest.mark.parametrize("shown", [False, True])
def test_thresholds_decide_alike(shown: bool) -> None:
    """On a recording whose last window is nearly silent: one is skipped, the others are kept."""
    samples = np.concatenate([minute()[: 29 * RATE], 1e-5 * minute()[: 34 * RATE]])
    asked: dict[str, Any] = {
        "temperature": (0.0,),
        "logprob_threshold": -0.5,
        "compression_ratio_threshold": 1.35,
        "no_speech_threshold": 0.3,
        "condition_on_prev_tokens": shown,
    }
    heard = loaded(BASE, "ngram").transcribe(samples, sampling_rate=RATE, language="en", **asked)
    assert heard.ids == reference(samples, return_timestamps=True, **asked)
    plain = loaded(BASE, "ngram").transcribe(samples, sampling_rate=RATE, language="en")
    assert len(heard.ids) < len(plain.ids)


@pytest.mark.parametrize("seconds", [29.99, 30.0, 30.01])
def test_lengths_around_a_window(seconds: float) -> None:
    """The cut is wherever it falls, in the middle of a word as well."""
    samples = minute()[: round(seconds * RATE)]
    asked = {"return_timestamps": True} if seconds > 30 else {}
    for draft, gamma in (("none", "adaptive"), (TINY, 3)):
        heard = loaded(BASE, draft, gamma).transcribe(samples, sampling_rate=RATE, language="en")
        assert heard.ids == reference(samples, **asked)


def test_fallback_samples_alike_whatever_drafts() -> None:
    asked: dict[str, Any] = {"temperature": (0.0, 0.4, 0.8), "logprob_threshold": -0.1, "seed": 5}
    samples = minute()[: 34 * RATE]
    said = {
        loaded(BASE, draft, 3)
        .transcribe(samples, sampling_rate=RATE, language="en", max_new_tokens=60, **asked)
        .ids
        for draft in ("none", "ngram", "early-exit:3", TINY)
    }
    assert len(said) == 1


def test_music_like_noise() -> None:
    time = np.arange(34 * RATE) / RATE
    chord = sum(np.sin(2 * np.pi * pitch * time) for pitch in (220, 277.2, 329.6))
    samples = (0.2 * chord * (1 + np.sin(4 * np.pi * time))).astype(np.float32)
    heard = loaded(BASE, "ngram").transcribe(samples, sampling_rate=RATE, language="en")
    assert heard.ids == reference(samples, return_timestamps=True)

"""A stream of real speech through a released checkpoint (see `test_real_whisper` for where)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mmspec.modalities.media.audio import load_audio
from tests.checkpoints.real import BASE, CLIPS, END, RATE, loaded

pytestmark = [pytest.mark.checkpoint, pytest.mark.slow]


def speech(clips: int) -> np.ndarray:
    return np.concatenate([load_audio(clip) for clip in CLIPS[:clips]])


def generated(audio: np.ndarray, decode: Any) -> tuple[int, ...]:
    """What transformers makes of the same buffer."""
    whole = loaded(BASE, "none")
    buffer = audio[round(decode.start_s * RATE) : round(decode.end_s * RATE)]
    features = whole.processor(buffer, sampling_rate=RATE, return_tensors="pt").input_features
    asked: dict[str, Any] = {"language": "en", "return_timestamps": True}
    if decode.previous is not None:
        asked["prompt_ids"] = whole.processor.get_prompt_ids(decode.previous, return_tensors="pt")
    ids = whole.model.generate(features, **asked)[0].tolist()
    return tuple(token for token in ids if token != END)


def test_every_decode_is_generates_and_most_of_it_is_drafted() -> None:
    audio = speech(2)
    session = loaded(BASE, "none").live(language="en", trim_s=6.0)
    committed, starts = "", set()
    for update in session.run(np.split(audio, range(RATE, len(audio), RATE))):
        assert update.committed == committed + update.new
        committed = update.committed
        for decode in update.decodes:
            assert decode.ids == generated(audio, decode)
            assert not decode.report.faults
            starts.add(decode.start_s)
    said = loaded(BASE, "none").transcribe(
        audio, sampling_rate=RATE, language="en", timestamps=True
    )
    words = {word.strip(".,").lower() for word in said.text.split()}
    heard = [word.strip(".,").lower() for word in committed.split()]
    assert sum(word in words for word in heard) > 0.8 * len(words)
    assert session.totals.mean_acceptance_length > 2
    assert len(starts) <= 3


@pytest.mark.parametrize("level", [0.0, 1e-3, 3e-2])
def test_silence_and_noise_bring_no_text(level: float) -> None:
    noise = np.random.default_rng(0).standard_normal(7 * RATE) * level
    session = loaded(BASE, "none").live(language="en", step_s=2.0, trim_s=4.0)
    updates = list(session.run(np.split(noise.astype(np.float32), range(RATE, len(noise), RATE))))
    assert session.text == ""
    assert updates[-1].decode is not None
    assert updates[-1].decode.start_s > 0


def test_a_word_that_a_step_cuts_in_two_is_said_once() -> None:
    audio = speech(1)
    said = {}
    for step_s in (0.7, 1.3):
        session = loaded(BASE, "none").live(language="en", step_s=step_s)
        list(session.run(np.split(audio, range(800, len(audio), 800))))
        said[step_s] = session.text
    assert said[0.7] == said[1.3]

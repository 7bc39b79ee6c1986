"""J: audio arrays that feature extractors take without a word."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import mmspec
from tests.modalities.tiny import saved, speech, tiny, tiny_processor
from tests.test_generation import one_line


@pytest.fixture(scope="module")
def thirty(tmp_path_factory: pytest.TempPathFactory) -> mmspec.Transcriber:
    """A model with the released checkpoints' window of 30 s."""
    folder = tmp_path_factory.mktemp("thirty")
    saved(folder, tiny(5, positions=1500, vocab=1600), tiny_processor(seconds=30))
    return mmspec.load(folder, "ngram")


def test_J_audio_beyond_the_window_is_not_cut_silently(thirty: mmspec.Transcriber) -> None:
    asked = {"language": "en", "max_new_tokens": 3}
    heard = thirty.transcribe(speech(seconds=45), sampling_rate=16_000, **asked)
    assert heard.segments[-1].start_s >= 30
    assert heard.report.encoder_runs >= 2


def test_J_audio_that_just_fits_is_heard(thirty: mmspec.Transcriber) -> None:
    heard = thirty.transcribe(
        speech(seconds=30), sampling_rate=16_000, language="en", max_new_tokens=3
    )
    assert heard.report.encoder_runs >= 1


@pytest.mark.parametrize("samples", [np.zeros(0), np.zeros(0, dtype=np.float32), np.zeros((2, 0))])
def test_J_an_empty_array_is_not_silence(thirty: mmspec.Transcriber, samples: np.ndarray) -> None:
    with pytest.raises(mmspec.MMSpecError, match="no samples") as error:
        thirty.transcribe(samples, sampling_rate=16_000, language="en")
    one_line(error.value)


def test_J_one_sample_is_no_recording(thirty: mmspec.Transcriber, tmp_path: Path) -> None:
    with pytest.raises(mmspec.MMSpecError, match="1 sample at 16000 Hz") as error:
        thirty.transcribe(np.ones(1), sampling_rate=16_000, language="en")
    one_line(error.value)

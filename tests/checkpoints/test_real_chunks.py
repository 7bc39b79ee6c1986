"""Long recordings in chunks, with a released checkpoint (folders as in `test_real_whisper`)."""

from __future__ import annotations

import functools
import itertools
from difflib import SequenceMatcher
from typing import Any

import numpy as np
import pytest

import mmspec
from mmspec.modalities.media.audio import load_audio
from tests.checkpoints.real import BASE, CLIPS, RATE, ends_off, loaded

pytestmark = [pytest.mark.checkpoint, pytest.mark.slow]


@functools.cache
def recording() -> Any:
    """The clips one after the other, some silence between, twice."""
    silence = np.zeros(round(0.8 * RATE), np.float32)
    parts = [part for clip in CLIPS for part in (load_audio(clip), silence)]
    return np.tile(np.concatenate(parts), 2)


@functools.cache
def chunked(draft: str, timestamps: bool, chunk_s: float) -> mmspec.Transcription:
    return loaded(BASE, draft).transcribe(
        recording(),
        sampling_rate=RATE,
        language="en",
        timestamps=timestamps,
        chunk_s=chunk_s,
        overlap_s=3.0,
    )


@pytest.mark.parametrize("timestamps", [False, True])
@pytest.mark.parametrize("chunk_s", [10.0, 15.0])
def test_each_chunks_ids_are_transformers_own(timestamps: bool, chunk_s: float) -> None:
    plain, said = (chunked(draft, timestamps, chunk_s) for draft in ("none", "overlap"))
    assert said.chunks == plain.chunks
    assert not said.report.faults
    whole = loaded(BASE, "none")
    for chunk in said.chunks:
        part = recording()[round(chunk.start_s * RATE) : round(chunk.end_s * RATE)]
        inputs = whole.processor(part, sampling_rate=RATE, return_tensors="pt")
        options = {"language": "en", "return_timestamps": timestamps}
        want = whole.model.generate(inputs.input_features, **options)[0].tolist()
        assert chunk.ids == ends_off(tuple(want))


@pytest.mark.skipif(len(CLIPS) < 3, reason="one short clip fits one chunk: nothing is merged")
@pytest.mark.parametrize("timestamps", [False, True])
def test_the_merged_text_is_what_the_clips_say(timestamps: bool) -> None:
    whole = loaded(BASE, "none")
    clips = [whole.transcribe(clip, language="en").text for clip in CLIPS] * 2
    one, other = (text.lower().split() for text in (" ".join(clips), text_of(timestamps)))
    assert SequenceMatcher(None, one, other, autojunk=False).ratio() > 0.9


def text_of(timestamps: bool) -> str:
    return chunked("overlap", timestamps, 15.0).text


def test_the_overlap_drafts_its_own_repetition() -> None:
    plain, said = (chunked(draft, False, 10.0) for draft in ("none", "overlap"))
    assert said.report.tokens == plain.report.tokens
    assert said.report.rounds < 0.95 * plain.report.rounds
    for before, after in itertools.pairwise(said.chunks):
        assert after.start_s < before.end_s

"""Released checkpoints on real speech. `MMSPEC_CHECKPOINTS` names the folder with whisper-base and
whisper-tiny.en; `MMSPEC_SPEECH` one with clips (else the sample's)."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest

import mmspec
from mmspec.modalities.media.audio import load_audio
from tests.checkpoints.real import BASE, RATE, TINY, ends_off, loaded
from tests.checkpoints.real import CLIPS as EVERY_CLIP

pytestmark = [pytest.mark.checkpoint, pytest.mark.slow]

CLIPS = EVERY_CLIP[:3]


@functools.cache
def reference(target: str, clip: Path, **asked: Any) -> tuple[int, ...]:
    whole = loaded(target, "none")
    inputs = whole.processor(load_audio(clip), sampling_rate=RATE, return_tensors="pt")
    return tuple(whole.model.generate(inputs.input_features, **asked)[0].tolist())


@functools.cache
def other_transcript(clip: Path) -> str:
    return loaded(TINY, "none").transcribe(clip).text


@pytest.mark.parametrize("clip", CLIPS, ids=lambda clip: clip.stem)
@pytest.mark.parametrize("timestamps", [False, True])
@pytest.mark.parametrize("draft", ["none", "ngram", "early-exit:3", TINY, "hypothesis"])
def test_the_ids_are_transformers_own(clip: Path, timestamps: bool, draft: str) -> None:
    want = reference(BASE, clip, language="en", return_timestamps=timestamps)
    hypothesis = other_transcript(clip) if draft == "hypothesis" else None
    heard = loaded(BASE, draft).transcribe(
        clip, language="en", timestamps=timestamps, hypothesis=hypothesis
    )
    assert heard.ids == ends_off(want)
    assert not heard.report.faults
    assert heard.text


@pytest.mark.parametrize("clip", CLIPS[:1], ids=lambda clip: clip.stem)
@pytest.mark.parametrize("gamma", [0, 1, 4, 16])
@pytest.mark.parametrize("draft", ["early-exit:3", TINY])
def test_the_ids_are_the_same_for_every_gamma(clip: Path, gamma: int, draft: str) -> None:
    want = reference(BASE, clip, language="en", return_timestamps=False)
    heard = loaded(BASE, draft, gamma).transcribe(clip, language="en", timestamps=False)
    assert heard.ids == ends_off(want)


@pytest.mark.parametrize("clip", CLIPS[:1], ids=lambda clip: clip.stem)
def test_languages_detection_and_previous_text(clip: Path) -> None:
    whole = loaded(BASE, "ngram", 4)
    assert whole.transcribe(clip).ids == ends_off(reference(BASE, clip))
    assert whole.transcribe(clip).language == "en"
    prompt = whole.processor.get_prompt_ids("Chapter one. It was late.", return_tensors="pt")
    inputs = whole.processor(load_audio(clip), sampling_rate=RATE, return_tensors="pt")
    want = whole.model.generate(inputs.input_features, language="en", prompt_ids=prompt)
    heard = whole.transcribe(clip, language="en", prompt="Chapter one. It was late.")
    assert heard.ids == ends_off(tuple(want[0].tolist()))


@pytest.mark.parametrize("clip", CLIPS[:1], ids=lambda clip: clip.stem)
def test_the_english_only_checkpoint(clip: Path) -> None:
    heard = loaded(TINY, "early-exit:2", 4).transcribe(clip)
    want = tuple(token for token in reference(TINY, clip) if token != 50256)
    assert heard.ids == want


@pytest.mark.parametrize("clip", CLIPS[:1], ids=lambda clip: clip.stem)
def test_a_drop_in_for_generate(clip: Path) -> None:
    whole = loaded(BASE, "none")
    inputs = whole.processor(load_audio(clip), sampling_rate=RATE, return_tensors="pt")
    want = whole.model.generate(inputs.input_features, language="en")
    for draft in ("ngram", "early-exit:3"):
        loop = mmspec.custom_generate(draft, gamma=4)
        got = whole.model.generate(inputs.input_features, language="en", custom_generate=loop)
        assert got.tolist() == want.tolist()


@pytest.mark.parametrize("clip", CLIPS[:1], ids=lambda clip: clip.stem)
def test_seeded_sampling_is_the_same_for_every_drafter(clip: Path) -> None:
    said = {
        loaded(BASE, draft, 4).transcribe(clip, language="en", temperature=0.7, seed=11).ids
        for draft in ("none", "ngram", "early-exit:3", TINY)
    }
    assert len(said) == 1


@pytest.mark.parametrize("clip", CLIPS[:2], ids=lambda clip: clip.stem)
def test_a_right_hypothesis_is_kept_nearly_whole(clip: Path) -> None:
    first = loaded(BASE, "none").transcribe(clip, language="en")
    heard = loaded(BASE, "hypothesis").transcribe(clip, language="en", hypothesis=first.text)
    assert heard.ids == first.ids
    assert heard.report.target_forwards < first.report.target_forwards / 3


@pytest.mark.parametrize("clip", CLIPS[:1], ids=lambda clip: clip.stem)
def test_streamed_text_is_the_text(clip: Path) -> None:
    whole = loaded(BASE, "early-exit:3", 4)
    for timestamps in (False, True):
        asked: dict[str, Any] = {"language": "en", "timestamps": timestamps}
        text = "".join(whole.stream(clip, **asked))
        assert text.strip() == whole.transcribe(clip, **asked).text

"""Word times and grounding as users ask for them: nothing else changes by asking."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mmspec
from mmspec.errors import OptionError
from mmspec.loading import sample_path
from mmspec.modalities.media.audio import load_audio
from tests.cli_support import Here
from tests.modalities.test_whisper_state import counting
from tests.modalities.tiny import speech, tiny, tiny_processor

RATE = 16_000
CLIP = sample_path("audio", "2-slt.flac")
DURATION_S = len(load_audio(CLIP)) / RATE


@pytest.fixture(scope="module", params=["none", "ngram", "sample"])
def recogniser(request: pytest.FixtureRequest) -> Iterator[mmspec.Transcriber]:
    with mmspec.load("sample", request.param, device="cpu", gamma=3) as loaded:
        yield loaded


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Here:
    return Here(capsys)


def check_times(said: mmspec.Transcription, duration_s: float) -> None:
    """Aligned, inside the recording, never running backwards, and spelling the transcript."""
    assert said.token_times is not None
    assert said.words is not None
    assert len(said.token_times) == len(said.ids)
    assert all(0 <= time_s <= duration_s for time_s in said.token_times)
    assert all(time_s <= later_s for time_s, later_s in pairwise(said.token_times))
    at_s = 0.0
    for segment in said.segments:
        assert segment.words is not None
        assert "".join(word.text for word in segment.words).strip() == segment.text
        for word in segment.words:
            assert at_s <= word.start_s <= word.end_s <= segment.end_s <= duration_s
            at_s = word.end_s
    starts = dict.fromkeys(said.token_times)
    assert all(word.start_s in starts for word in said.words)


def same_decoding(said: mmspec.Transcription, plain: mmspec.Transcription) -> None:
    """Ids, how they came about, and what the report says of decoding."""
    assert said.ids == plain.ids
    assert said.origins == plain.origins
    for fact in ("tokens", "rounds", "target_forwards", "drafter_forwards", "encoder_runs"):
        assert getattr(said.report, fact) == getattr(plain.report, fact), fact


@pytest.mark.parametrize("timestamps", [False, True])
class TestTranscribe:
    def test_words(self, recogniser: mmspec.Transcriber, timestamps: bool) -> None:
        plain = recogniser.transcribe(CLIP, timestamps=timestamps)
        said = recogniser.transcribe(CLIP, timestamps=timestamps, word_timestamps=True)
        same_decoding(said, plain)
        check_times(said, DURATION_S)
        assert said.words is not None
        assert len(said.words) == len(said.text.split())
        assert len({word.start_s for word in said.words}) > 8
        assert plain.words is plain.token_times is said.grounding is said.report.by_class is None
        assert all(segment.words is None for segment in plain.segments)

    def test_grounding(self, recogniser: mmspec.Transcriber, timestamps: bool) -> None:
        plain = recogniser.transcribe(CLIP, timestamps=timestamps)
        said = recogniser.transcribe(CLIP, timestamps=timestamps, grounding=True)
        same_decoding(said, plain)
        assert plain.grounding is plain.report.by_class is said.words is said.token_times is None
        grounding, shares = said.grounding, said.report.by_class
        assert grounding is not None
        assert shares is not None
        assert grounding.threshold == 1.0
        assert len(grounding.drops) == len(said.ids)
        for kind in ("accepted", "recovered", "bonus"):
            here = [origin.kind for origin in said.origins].count(kind)
            assert sum(getattr(share, kind) for share in shares.values()) == here
        assert shares["grounded"].tokens > shares["syntactic"].tokens > 0  # the sample listens

    def test_both(self, recogniser: mmspec.Transcriber, timestamps: bool) -> None:
        asked: dict[str, Any] = {"timestamps": timestamps}
        words = recogniser.transcribe(CLIP, word_timestamps=True, **asked)
        nats = recogniser.transcribe(CLIP, grounding=2.5, **asked)
        both = recogniser.transcribe(CLIP, word_timestamps=True, grounding=2.5, **asked)
        assert (both.words, both.token_times) == (words.words, words.token_times)
        assert both.grounding == nats.grounding
        assert both.report.by_class == nats.report.by_class


def test_a_higher_threshold_grounds_fewer_units() -> None:
    with mmspec.load("sample", device="cpu") as recogniser:
        said = [recogniser.transcribe(CLIP, grounding=nats).report.by_class for nats in (0, 3, 99)]
    tokens = [shares and shares["grounded"].tokens for shares in said]
    assert tokens == sorted(tokens, reverse=True)  # type: ignore[type-var]
    assert tokens[-1] == 0


def test_looking_again_is_post_processing_and_nothing_else() -> None:
    """Whatever time passes while it looks is in `post`."""
    with mmspec.load("sample", device="cpu") as recogniser:
        plain = recogniser.transcribe(CLIP).report.seconds
        said = recogniser.transcribe(CLIP, word_timestamps=True, grounding=True).report.seconds
    assert said["post"] > 20 * plain["post"]
    assert set(said) == set(plain)


def test_silence_is_heard_once_per_model() -> None:
    model = tiny(5)
    with mmspec.load(model, processor=tiny_processor()) as recogniser:
        with counting([model.get_encoder().layers[0]]) as runs:
            reports = [
                recogniser.transcribe(
                    speech(seed), sampling_rate=RATE, grounding=True, timestamps=True
                ).report
                for seed in (7, 8)
            ]
        assert runs[0] == 1 + sum(report.encoder_runs for report in reports)


@pytest.mark.parametrize("seed", range(1, 5))
@pytest.mark.parametrize("seconds", [0.4, 0.9, 2.7])
def test_several_windows_stay_aligned(seed: int, seconds: float) -> None:
    """Random models say anything: pairs of times, dropped tails, windows without a word."""
    samples = np.tile(speech(seed), 3)[: int(seconds * RATE)]
    with mmspec.load(tiny(seed), processor=tiny_processor()) as recogniser:
        asked: dict[str, Any] = {"sampling_rate": RATE, "language": "en", "timestamps": True}
        plain = recogniser.transcribe(samples, **asked)
        said = recogniser.transcribe(samples, **asked, word_timestamps=True, grounding=True)
    same_decoding(said, plain)
    check_times(said, seconds)
    assert said.grounding is not None
    assert len(said.grounding.drops) == len(said.ids)


@pytest.mark.parametrize("wrong", [-1, float("nan"), "much"])
def test_no_threshold(wrong: Any) -> None:
    recogniser = mmspec.load("sample", device="cpu")
    with pytest.raises(OptionError, match="grounding: found"):
        recogniser.transcribe(CLIP, grounding=wrong)


class TestCommandLine:
    def test_json(self, run: Here, tmp_path: Path) -> None:
        looks = ("--word-timestamps", "--grounding", "0.5")
        there = tmp_path / "out.json"
        done = run("transcribe", CLIP, "-t", "sample", *looks, "--json", there, "--table")
        assert done.code == 0
        document = json.loads(there.read_text())
        assert document["settings"]["word_timestamps"] is True
        assert document["settings"]["grounding"] == 0.5
        (entry,) = document["files"]
        words = [word for segment in entry["segments"] for word in segment["words"]]
        assert "".join(word["text"] for word in words).strip() == entry["text"]
        assert all(word["start"] <= word["end"] and word["ids"] for word in words)
        assert len(entry["token_times"]) == len(entry["ids"]) == len(entry["grounding"]["drops"])
        assert entry["grounding"]["threshold"] == 0.5
        shares = entry["report"]["by_class"]
        assert sum(share["tokens"] for share in shares.values()) == len(entry["ids"])
        assert re.search(r"grounded +\d+ tokens, accepted", done.err)

    def test_what_was_not_asked_for_is_not_there(self, run: Here, tmp_path: Path) -> None:
        there = tmp_path / "out.json"
        assert run("transcribe", CLIP, "-t", "sample", "--json", there, "--table").code == 0
        (entry,) = json.loads(there.read_text())["files"]
        assert not {"token_times", "grounding"} & set(entry)
        assert all("words" not in segment for segment in entry["segments"])
        assert entry["report"]["by_class"] is None

    def test_subtitles(self, run: Here) -> None:
        timed = run("transcribe", CLIP, "-t", "sample", "-f", "vtt", "--word-timestamps")
        plain = run("transcribe", CLIP, "-t", "sample", "-f", "vtt")
        assert timed.out.count("<00:00:0") > 8
        assert re.sub(r"<[\d:.]+>", "", timed.out) == plain.out

    def test_a_threshold_below_zero_is_one_line(self, run: Here) -> None:
        done = run("transcribe", CLIP, "-t", "sample", "--grounding", "-1")
        assert done.code == 2
        assert "--grounding" in done.err

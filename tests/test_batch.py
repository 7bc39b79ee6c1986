"""Recordings side by side: each is what it is alone; results stay in order; failures stay apart."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

import mmspec
from mmspec.engine import batching as together
from mmspec.errors import InputError, OptionError
from tests.cli_support import Here, Place, make_place
from tests.modalities.tiny import saved, speech, tiny
from tests.test_generation import Collecting

RATE = 16_000
SECONDS = (0.9, 0.3, 2.4, 0.05, 1.7)
"""Of the recordings; a tiny model hears one second at a time."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(saved(tmp_path_factory.mktemp("batch") / "target", tiny(5)))


def recordings() -> list[np.ndarray]:
    return [speech(seed, seconds) for seed, seconds in enumerate(SECONDS, 7)]


ASKED: list[dict[str, Any]] = [
    {},
    {"language": "en", "timestamps": True, "condition_on_prev_tokens": True},
    {"language": "en", "chunk_s": 0.8, "overlap_s": 0.2},
    {"language": "en", "temperature": 0.9, "seed": 4},
    {"language": "en", "temperature": (0.0, 0.6), "seed": 2, "logprob_threshold": -1.0},
]


@pytest.mark.parametrize(("draft", "batch"), [("none", 8), ("ngram", 2), ("early-exit:1", 3)])
@pytest.mark.parametrize("asked", ASKED)
def test_D5_each_is_what_it_is_alone(
    folder: str, draft: str, asked: dict[str, Any], batch: int
) -> None:
    with mmspec.load(folder, draft, gamma=3) as recogniser:
        alone = [
            recogniser.transcribe(audio, sampling_rate=RATE, **asked) for audio in recordings()
        ]
        together = recogniser.transcribe_batch(
            iter(recordings()), batch=batch, sampling_rate=RATE, **asked
        )
    for single, said in zip(alone, together, strict=True):
        assert said.ids == single.ids
        assert said.text == single.text
        assert said.segments == single.segments
        assert said.origins == single.origins
        assert said.report.rounds == single.report.rounds
        assert said.report.encoder_runs == single.report.encoder_runs
        assert not said.report.faults


def test_second_looks_are_each_recordings_own(folder: str) -> None:
    model = tiny(5, says={"alignment_heads": [[0, 0], [1, 1]]})
    with mmspec.load(model, processor=mmspec.load(folder).processor) as recogniser:
        asked: dict[str, Any] = {"sampling_rate": RATE, "language": "en"}
        asked |= {"word_timestamps": True, "grounding": True}
        alone = [recogniser.transcribe(audio, **asked) for audio in recordings()]
        together = recogniser.transcribe_batch(recordings(), batch=3, **asked)
    for single, said in zip(alone, together, strict=True):
        assert said.words == single.words
        assert said.token_times == single.token_times
        assert said.grounding is not None
        assert single.grounding is not None
        assert said.grounding.classes == single.grounding.classes
        assert said.grounding.drops == pytest.approx(single.grounding.drops, abs=1e-3)


def test_no_more_than_the_batch_are_alive(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    read, groups = [], []
    real = together._run_group

    def watched(works: Any) -> Any:
        groups.append(len(works))
        return real(works)

    def audios() -> Any:
        for number, audio in enumerate(recordings()):
            read.append(number)
            yield audio

    monkeypatch.setattr(together, "_run_group", watched)
    with mmspec.load(folder) as recogniser:
        requests = ({"audio": audio, "sampling_rate": RATE} for audio in audios())
        outcomes = recogniser.outcomes(requests, batch=2)
        next(outcomes)
        assert len(read) <= 3, "read when their turn comes"
        assert len(list(outcomes)) == 4
    assert max(groups) == 2
    assert groups.count(2) > groups.count(1), "and they do share passes"


def test_one_that_fails_is_alone_in_it(folder: str) -> None:
    audios = recordings()
    audios[1] = np.full(4000, np.nan)
    with mmspec.load(folder) as recogniser:
        requests = [{"audio": audio, "sampling_rate": RATE, "language": "en"} for audio in audios]
        outcomes = dict(recogniser.outcomes(requests, batch=3))
        assert isinstance(outcomes[1], InputError)
        for number in (0, 2, 3, 4):
            said: Any = outcomes[number]
            assert said.ids == recogniser.transcribe(**requests[number]).ids
        with pytest.raises(InputError, match="finite"):
            recogniser.transcribe_batch(audios, sampling_rate=RATE)


def test_what_no_batch_can_do_is_one_line(folder: str) -> None:
    with mmspec.load(folder) as recogniser:
        with pytest.raises(OptionError, match="batch: found 0"):
            recogniser.transcribe_batch(recordings(), batch=0, sampling_rate=RATE)
        with pytest.raises(OptionError, match="streamer"):
            recogniser.transcribe_batch(recordings(), sampling_rate=RATE, streamer=Collecting())
        assert recogniser.transcribe_batch([]) == []


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return make_place(tmp_path_factory.mktemp("place"))


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Here:
    return Here(capsys)


class TestCommandLine:
    def test_the_same_lines_in_the_same_order(
        self, run: Here, place: Place, tmp_path: Path
    ) -> None:
        long = tmp_path / "long.wav"
        soundfile.write(long, speech(3, 2.6), RATE)
        files = [long, *place.files, tmp_path / "missing.wav", *place.files[:1]]
        common = ("transcribe", *files, "--target", place.target, "--language", "en")
        one, two = tmp_path / "one.json", tmp_path / "two.json"
        alone = run(*common, "--json", one, "--no-table")
        together = run(*common, "--json", two, "--no-table", "--batch", "3")
        assert together.out == alone.out
        assert together.code == alone.code == 2
        assert "missing.wav" in together.err
        entries = [json.loads(path.read_text())["files"] for path in (one, two)]
        for mine, theirs in zip(*entries, strict=True):
            assert mine.get("ids") == theirs.get("ids")
            assert mine["path"] == theirs["path"]

    @pytest.mark.parametrize("other", [("--compare", "plain"), ("--stream",)])
    def test_one_at_a_time_options_are_refused(
        self, run: Here, place: Place, other: tuple[str, ...]
    ) -> None:
        done = run("transcribe", *place.files, "-t", place.target, "--batch", "2", *other)
        assert done.code == 2
        assert f"--batch 2: expected no {other[0]}" in done.err


class TestOneFilesFault:
    def test_a_long_recording_without_times_costs_one_line(
        self, run: Here, place: Place, tmp_path: Path
    ) -> None:
        long = tmp_path / "long.wav"
        soundfile.write(long, speech(3, 2.6), RATE)
        files = [place.files[0], long, place.files[1]]
        done = run("transcribe", *files, "-t", place.target, "--no-timestamps", "--no-table")
        assert done.code == 2
        assert done.out.splitlines()[1] == ""
        assert all(done.out.splitlines()[number] for number in (0, 2))
        assert "long.wav: the audio is longer than the 1 s" in done.complaints[0]

    def test_word_times_that_nobody_would_see_are_not_looked_for(
        self, run: Here, place: Place
    ) -> None:
        done = run("transcribe", *place.files, "-t", place.target, "--word-timestamps")
        assert done.code == 2
        assert "--format txt has no place for them" in done.err

    def test_one_file_for_two_things_is_refused(
        self, run: Here, place: Place, tmp_path: Path
    ) -> None:
        both = tmp_path / "both"
        done = run("transcribe", *place.files, "--json", both, "--report", both)
        assert done.code == 2
        assert "--json, --report: found" in done.err

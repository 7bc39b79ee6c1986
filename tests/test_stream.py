"""Live streams from end to end: sources, what is shown, and `mmspec transcribe --stream`."""

from __future__ import annotations

import io
import json
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from rich.console import Console

import mmspec
from mmspec.cli.live import OnTerminal
from mmspec.cli.sources import in_background, paced, raw
from mmspec.loading import sample_path
from mmspec.modalities.media.audio import load_audio
from mmspec.modalities.whisper.stream import SpeechStream
from tests.cli_support import Done, Here, Place, make_place
from tests.modalities.tiny import speech

RATE = 16_000


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return make_place(tmp_path_factory.mktemp("place"))


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Here:
    return Here(capsys)


def committed(place: Place, samples: np.ndarray, step_s: float = 1.0) -> tuple[list[str], Any]:
    """What a session says, piece by piece."""
    size = round(step_s * RATE)
    chunks = [samples[start : start + size] for start in range(0, len(samples), size)]
    with mmspec.load(place.target) as recogniser:
        session = recogniser.live(step_s=step_s, language="en")
        updates = list(session.run(chunks))
    return [update.new.strip() for update in updates if update.new.strip()], session


class TestSources:
    def test_a_pace_is_kept_and_makes_up_for_lost_time(self) -> None:
        now, waits = [100.0], list[float]()

        def sleep(seconds: float) -> None:
            waits.append(round(seconds, 6))
            now[0] += seconds

        pieces = paced(np.arange(4_800), 2.0, lambda: now[0], sleep)
        got = [next(pieces)]
        now[0] += 0.08  # whoever hears is slow: the next piece is late, the one after it isn't
        got += pieces
        assert waits == [0.05, 0.02]
        assert [len(piece) for piece in got] == [1_600] * 3

    @pytest.mark.parametrize(("kind", "dtype"), [("s16le", "<i2"), ("f32le", "<f4")])
    def test_raw_samples_that_are_cut_anywhere(self, kind: str, dtype: str) -> None:
        class Dribble(io.BytesIO):
            def read1(self, size: int = -1) -> bytes:
                return super().read1(3)

        samples = np.arange(50).astype(dtype)
        got = np.concatenate(list(raw(Dribble(samples.tobytes() + b"\1"), kind)))
        assert got.tolist() == samples.tolist()
        assert list(raw(io.BytesIO(), kind)) == []

    def test_what_came_meanwhile_is_one_chunk_and_nothing_is_lost(self) -> None:
        whole = [np.full(1, number) for number in range(50)]
        chunks = list(in_background(whole, waiting=8))
        assert np.concatenate(chunks).tolist() == list(range(50))
        assert max(map(len, chunks)) <= 9

    def test_a_source_that_is_ahead_waits(self) -> None:
        given, enough = list[int](), threading.Event()

        def source() -> Any:
            for number in range(100):
                given.append(number)
                if number == 3:
                    enough.set()
                yield np.full(1, number)

        chunks = in_background(source(), waiting=2)
        first = next(chunks)
        assert enough.wait(10)
        assert len(given) <= len(first) + 4  # those that wait, and one in the hand
        chunks.close()  # type: ignore[attr-defined]

    def test_an_error_of_the_source_comes_behind_its_samples(self) -> None:
        def source() -> Any:
            yield np.zeros(3)
            raise OSError("unplugged")

        heard = []
        with pytest.raises(OSError, match="unplugged"):
            heard += in_background(source())
        left = in_background(source())
        assert len(next(left)) == 3


class TestDisplay:
    def test_tentative_text_is_dimmed_and_goes_away_committed_text_stays(self) -> None:
        out = io.StringIO()
        console = Console(file=out, force_terminal=True, width=20, height=9, _environ={})
        steps = [("", "a red"), ("a red", " house"), (" house on the hill and", " a [b]\x1b[2J")]
        with OnTerminal(console) as display:
            for new, tentative in steps:
                display.show(SimpleNamespace(new=new, tentative=tentative))
                if tentative == " house":
                    assert "a red\x1b[2m house" in out.getvalue()
        shown = out.getvalue()
        assert "\x1b[2J" not in shown
        assert "a red house on the\n" in shown
        assert shown.rstrip("\x1b[?25h\n\r").endswith("hill and")


class TestCommandLine:
    def test_a_line_for_each_piece_of_committed_text(self, run: Here, place: Place) -> None:
        options = ("-t", place.target, "-l", "en", "--stream", "--step", 0.2)
        done = run("transcribe", place.files[0], *options)
        pieces, _ = committed(place, load_audio(place.files[0]), 0.2)
        assert (done.code, done.err) == (0, "")
        assert done.out.splitlines() == pieces

    def test_a_paced_file_says_the_same_in_the_end(self, run: Here, place: Place) -> None:
        options = ("-t", place.target, "-l", "en", "--stream", "--step", 5)
        at_once = run("transcribe", place.files[0], *options)
        done = run("transcribe", place.files[0], *options, "--pace", 200)
        assert done.out == at_once.out

    @pytest.mark.parametrize("kind", ["s16le", "f32le"])
    def test_raw_samples_on_standard_input(
        self, run: Here, place: Place, kind: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        samples = (speech() * 9_000).astype("<i2")
        data = samples if kind == "s16le" else (samples / 32_768).astype("<f4")
        stdin = SimpleNamespace(buffer=io.BytesIO(data.tobytes()))
        monkeypatch.setattr("sys.stdin", stdin)
        done = run(
            "transcribe",
            "-",
            "-t",
            place.target,
            "-l",
            "en",
            "--stream",
            "--step",
            9,
            "--raw",
            kind,
        )
        pieces, _ = committed(place, samples, 9)
        assert (done.code, done.out.splitlines()) == (0, pieces)

    def test_spoilt_samples_cost_a_line_and_the_rest_is_heard(
        self, run: Here, place: Place, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        chunks = [speech(seconds=0.5), np.array([0.5, np.nan], np.float32), speech(seconds=0.3)]
        monkeypatch.setattr("mmspec.cli.live.LiveRun._chunks", lambda self: iter(chunks))
        done = run("transcribe", "-", "-t", place.target, "-l", "en", "--stream")
        pieces, _ = committed(place, np.concatenate([chunks[0], chunks[2]]))
        assert (done.code, done.out.splitlines()) == (2, pieces)
        assert "audio chunk: found 1 NaN or infinite sample" in done.complaints[0]
        assert done.complaints[0].endswith("it is left out")

    def test_json(self, run: Here, place: Place, tmp_path: Path) -> None:
        out = tmp_path / "out.json"
        options = ("-t", place.target, "-l", "en", "--stream", "--step", 0.2, "--json", out)
        run("transcribe", place.files[0], *options)
        document = json.loads(out.read_text())
        _, session = committed(place, load_audio(place.files[0]), 0.2)
        assert document["settings"]["step_s"] == 0.2
        (entry,) = document["files"]
        assert entry["text"] == session.text
        assert "".join(update["new"] for update in entry["stream"]["updates"]) == session.text
        assert [part["text"] for part in entry["segments"]] == [p.text for p in session.segments]
        assert entry["stream"]["decodes"] == session.totals.decodes
        assert entry["report"]["tokens"] == session.totals.report.tokens

    def test_the_table_says_what_was_encoded_again(self, run: Here, place: Place) -> None:
        options = ("-t", place.target, "--stream", "--step", 0.2, "--table")
        done = run("transcribe", place.files[0], *options)
        assert "of the audio encoded more than once" in " ".join(done.err.split())

    def test_interrupted_what_was_committed_is_there(
        self, run: Here, place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        whole = run("transcribe", place.files[0], "-t", place.target, "-l", "en", "--stream")
        feed, fed = SpeechStream.feed, list[int]()

        def interrupted(self: SpeechStream, *arguments: Any) -> Any:
            fed.append(1)
            if len(fed) == 4:
                raise KeyboardInterrupt
            return feed(self, *arguments)

        monkeypatch.setattr(SpeechStream, "feed", interrupted)
        out = tmp_path / "out.json"
        done: Done = run(
            *("transcribe", place.files[0], "-t", place.target, "-l", "en", "--stream"),
            *("--step", 0.2, "--json", out),
        )
        assert done.code == 130
        assert done.complaints == ["mmspec: interrupted after 0.6 s; what was committed is written"]
        (entry,) = json.loads(out.read_text())["files"]
        assert " ".join(done.out.split("\n")).strip() == " ".join(entry["text"].split())
        assert whole.code == 0

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            (["a.wav", "b.wav", "--stream"], "--stream: found 2 files, expected one"),
            (["a.wav", "--stream", "--compare", "hf"], "--stream: expected no --compare"),
            (["a.wav", "--stream", "--chunks", "5"], "--stream: expected no --chunks"),
            (["a.wav", "--stream", "--raw", "mp3"], "--raw: found 'mp3', expected s16le or f32le"),
            (["a.wav", "--stream", "--pace", "inf"], "--pace: found inf"),
            (["a.wav", "--stream", "-f", "srt"], "--stream: expected --format txt"),
            (["a.wav", "--pace", "1"], "--pace: only with --stream"),
            (["a.wav", "--step", "1"], "--step: only with --stream"),
            (["a.wav", "--raw", "f32le"], "--raw: only with --stream"),
            (["a.wav", "--stream", "-d", "hypothesis:x"], "--stream: expected no --draft hypoth"),
        ],
    )
    def test_options_that_dont_go_together(
        self, run: Here, place: Place, options: list[str], words: str
    ) -> None:
        done = run("transcribe", *options, "-t", place.target)
        assert (done.code, done.out) == (2, "")
        assert len(done.complaints) == 1
        assert words in done.complaints[0]

    @pytest.mark.parametrize("step", [0, "nan"])
    def test_a_step_that_is_none(self, run: Here, place: Place, step: Any) -> None:
        done = run("transcribe", place.files[0], "-t", place.target, "--stream", "--step", step)
        assert (done.code, len(done.complaints)) == (2, 1)
        assert "step_s: found" in done.complaints[0]

    def test_no_samples_and_no_file(
        self, run: Here, place: Place, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO()))
        done = run("transcribe", "-", "-t", place.target, "--stream")
        assert (done.code, done.out) == (2, "")
        assert "-: found no samples, expected raw s16le" in done.complaints[0]
        done = run("transcribe", "missing.wav", "-t", place.target, "--stream")
        assert (done.code, len(done.complaints)) == (2, 1)


class TestSample:
    """A trained model: what it says is stable, so most of each decode is accepted."""

    def test_most_of_a_decode_is_drafted_and_the_text_is_that_of_the_whole(self) -> None:
        samples = load_audio(sample_path("audio", "1-slt.flac"))
        with mmspec.load("sample") as sample:
            said = sample.transcribe(samples, sampling_rate=RATE, timestamps=True)
            session = sample.live(step_s=0.37)
            updates = list(session.run(np.array_split(samples, 41)))
            again = sample.live(step_s=0.37, trim_s=8.0)
            list(again.run([*np.array_split(samples, 41), np.zeros(RATE)]))
        assert session.text.split()[:5] == said.text.split()[:5]
        assert updates[-1].decode is not None
        assert updates[-1].decode.ids == said.ids or updates[-1].decode.start_s > 0
        assert again.totals.mean_acceptance_length > 2

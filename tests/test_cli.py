"""The command line: results on standard output, one line per fault, exit codes that say why."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

import mmspec
from mmspec.cli.running import Run
from mmspec.errors import MMSpecError
from mmspec.modalities.whisper.checkpoint import Whisper
from tests.cli_support import ROOT, Done, Here, Place, make_place, there
from tests.modalities.tiny import speech

HOSTILE = "[bold]a\x1b[31mred\x07\nsecond line --> <b>x</b> & \u202etrap"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return make_place(tmp_path_factory.mktemp("place"))


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Here:
    return Here(capsys)


def texts(place: Place, **options: Any) -> list[str]:
    with mmspec.load(place.target) as transcriber:
        return [transcriber.transcribe(file, **options).text for file in place.files]


class TestHelp:
    def test_help_is_quick_and_loads_no_models_code(self) -> None:
        code = (
            "import sys, mmspec.cli\n"
            "heavy = {'torch', 'transformers', 'numpy', 'soundfile'} & set(sys.modules)\n"
            "assert not heavy, heavy"
        )
        start = time.perf_counter()
        subprocess.run([sys.executable, "-P", "-c", code], check=True, cwd=ROOT)
        assert time.perf_counter() - start < 5  # about 0.2 s on an idle machine

    @pytest.mark.parametrize("command", [[], ["transcribe"], ["demo"], ["info"], ["bench", "asr"]])
    def test_every_command_has_help(self, run: Here, command: list[str]) -> None:
        done = run(*command, "--help")
        assert done.code == 0
        assert "Usage: mmspec" in done.out
        assert not done.err

    def test_module(self) -> None:
        command = [sys.executable, "-P", "-m", "mmspec", "--version"]
        done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
        assert done.stdout == f"mmspec {mmspec.__version__}\n"

    def test_version(self, run: Here) -> None:
        assert run("--version").out == f"mmspec {mmspec.__version__}\n"


class TestText:
    def test_one_line_per_file_in_order_and_nothing_else(self, run: Here, place: Place) -> None:
        done = run("transcribe", *place.files, "-t", place.target, "-l", "en")
        assert done.code == 0
        assert done.out.splitlines() == texts(place, language="en")
        assert done.err == ""

    @pytest.mark.parametrize("draft", ["ngram", "early-exit:1", "DRAFTER"])
    def test_drafters_change_nothing(self, run: Here, place: Place, draft: str) -> None:
        draft = draft.replace("DRAFTER", str(place.drafter))
        plain = run("transcribe", *place.files, "-t", place.target)
        drafted = run("transcribe", *place.files, "-t", place.target, "-d", draft, "--gamma", 3)
        assert drafted.out == plain.out

    def test_seeded_sampling_is_repeatable_whatever_drafts(self, run: Here, place: Place) -> None:
        options = ("-t", place.target, "--temperature", 0.8, "--seed", 3)
        plain = run("transcribe", *place.files, *options)
        drafted = run("transcribe", *place.files, *options, "-d", place.drafter, "--gamma", 2)
        assert drafted.out == plain.out

    def test_tables_go_to_standard_error(self, run: Here, place: Place) -> None:
        one = run("transcribe", place.files[0], "-t", place.target, "--table")
        assert "acceptance length" in one.err
        assert len(one.out.splitlines()) == 1
        more = run("transcribe", *place.files, "-t", place.target, "--table")
        assert "per round" in more.err
        assert run("transcribe", *place.files, "-t", place.target, "--table", "-q").err == ""


@pytest.fixture(scope="module")
def bad(tmp_path_factory: pytest.TempPathFactory, place: Place) -> dict[Path, str]:
    folder = tmp_path_factory.mktemp("bad")
    good = place.files[0].read_bytes()
    spoilt = speech()
    spoilt[5:8] = np.nan
    arrays = {
        "silent.wav": (np.zeros(4_000), "all 4000 samples are zero"),
        "single.wav": (np.ones(1), "1 sample"),
        "spoilt.wav": (spoilt, "3 NaN or infinite samples"),
        "nothing.wav": (np.zeros(0), "empty audio"),
    }
    data = {
        "text.wav": (b"hello\n" * 99, "a text file"),
        "cut.wav": (good[: len(good) // 2], "truncated"),
        "zero.wav": (b"", "0 bytes"),
    }
    found = {folder: "a directory", folder / "missing.wav": "no such file"}
    for name, (samples, words) in arrays.items():
        soundfile.write(folder / name, samples, 16_000, subtype="FLOAT")
        found[folder / name] = words
    for name, (content, words) in data.items():
        (folder / name).write_bytes(content)
        found[folder / name] = words
    return found


class TestBadFiles:
    """The issue's list: a line for each, the others done, an empty line, exit code 2."""

    def test_each_costs_one_line_and_the_others_are_done(
        self, run: Here, place: Place, bad: dict[Path, str], tmp_path: Path
    ) -> None:
        files = [place.files[0], *bad, place.files[1]]
        out = tmp_path / "out.json"
        done = run("transcribe", *files, "-t", place.target, "--json", out)
        assert done.code == 2
        assert len(done.err.splitlines()) == len(done.complaints) == len(bad)
        for line, (path, words) in zip(done.complaints, bad.items(), strict=True):
            assert line.startswith(f"mmspec: {path}: ")
            assert words in line
        expected = texts(place)
        assert done.out.splitlines() == [expected[0], *[""] * len(bad), expected[1]]
        entries = json.loads(out.read_text())["files"]
        assert [entry["path"] for entry in entries] == [str(file) for file in files]
        assert [("error" in entry) for entry in entries] == [False, *[True] * len(bad), False]

    def test_a_name_that_would_steer_the_terminal(self, run: Here, place: Place) -> None:
        done = run("transcribe", "a\x1b[2J\nb.wav", "-t", place.target)
        assert len(done.err.splitlines()) == 1
        assert "\x1b" not in done.err


class TestFormats:
    def test_json_has_the_documented_schema(self, run: Here, place: Place) -> None:
        done = run("transcribe", *place.files, "-t", place.target, "-d", "ngram", "-f", "json")
        document = json.loads(done.out)
        assert document["version"] == 1
        assert document["settings"]["draft"] == "ngram"
        assert [entry["text"] for entry in document["files"]] == texts(place)
        wanted = "tokens rounds target_forwards proposed accepted mean_acceptance_length"
        wanted += " acceptance_by_offset encoder_runs seconds"
        for entry in document["files"]:
            assert {"path", "text", "ids", "report"} <= set(entry)
            assert set(wanted.split()) <= set(entry["report"])

    def test_json_file_beside_lines(self, run: Here, place: Place, tmp_path: Path) -> None:
        out = tmp_path / "deep" / "out.json"
        done = run("transcribe", *place.files, "-t", place.target, "--json", out)
        document = json.loads(out.read_text())
        assert [entry["text"] for entry in document["files"]] == done.out.splitlines()

    def test_subtitles(self, run: Here, place: Place, tmp_path: Path) -> None:
        one = run("transcribe", place.files[0], "-t", place.target, "-f", "vtt")
        assert one.out.startswith("WEBVTT\n\n")
        options = ("-t", place.target, "-f", "srt", "-o", tmp_path / "subtitles")
        done = run("transcribe", *place.files, *options)
        assert (done.code, done.out) == (0, "")
        names = sorted(file.name for file in (tmp_path / "subtitles").iterdir())
        assert names == ["clip0.srt", "clip1.srt", "clip2.srt"]

    def test_names_match_inputs_also_behind_a_bad_one(
        self, run: Here, place: Place, tmp_path: Path
    ) -> None:
        run("transcribe", tmp_path / "no.wav", place.files[0], "-t", place.target, "-o", tmp_path)
        assert (tmp_path / "clip0.txt").read_text().strip() == texts(place)[0]
        assert not (tmp_path / "no.txt").exists()

    @pytest.mark.parametrize("form", ["txt", "json", "srt", "vtt"])
    def test_text_of_a_model_is_never_trusted(
        self, run: Here, place: Place, form: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(Whisper, "text", lambda self, ids: HOSTILE)
        done = run("transcribe", place.files[0], "-t", place.target, "-f", form, "--table")
        for output in (done.out, done.err):
            assert all(c.isprintable() or c == "\n" for c in output)
        assert "red" in done.out
        if form == "txt":
            assert len(done.out.splitlines()) == 1
        elif form == "json":
            assert json.loads(done.out)["files"][0]["text"] == HOSTILE
        else:
            assert done.out.count("-->") == done.out.count("red") > 0
        assert form != "vtt" or "<b>" not in done.out


class TestHypotheses:
    def test_lines_of_an_earlier_run(self, run: Here, place: Place, tmp_path: Path) -> None:
        rough = tmp_path / "rough.txt"
        first = run("transcribe", *place.files, "-t", place.target)
        rough.write_text(first.out)
        options = ("-t", place.target, "-d", f"hypothesis:{rough}", "-f", "json")
        entries = json.loads(run("transcribe", *place.files, *options).out)["files"]
        assert [entry["text"] for entry in entries] == first.out.splitlines()
        assert sum(entry["report"]["accepted"] for entry in entries) > 0

    def test_json_of_an_earlier_run(self, run: Here, place: Place, tmp_path: Path) -> None:
        earlier = tmp_path / "earlier.json"
        first = run("transcribe", *place.files, "-t", place.target, "--json", earlier)
        options = ("-t", place.target, "-d", f"hypothesis:{earlier}", "-f", "json")
        entries = json.loads(run("transcribe", *reversed(place.files), *options).out)["files"]
        assert [entry["text"] for entry in entries] == first.out.splitlines()[::-1]
        for entry in entries:  # the very ids: every drafted one is kept
            assert entry["report"]["accepted"] == entry["report"]["proposed"] > 0

    def test_an_empty_line_is_no_hypothesis(self, run: Here, place: Place, tmp_path: Path) -> None:
        (tmp_path / "h.txt").write_text("\n" * len(place.files))
        options = ("-t", place.target, "-d", f"hypothesis:{tmp_path / 'h.txt'}")
        done = run("transcribe", *place.files, *options)
        assert (done.code, done.out.splitlines()) == (0, texts(place))

    @pytest.mark.parametrize(
        "content",
        [
            '{"files": [1], "settings": {}}',
            '{"files": [{"path": "a", "ids": [1e999]}], "settings": {"target": "TARGET"}}',
        ],
    )
    def test_json_of_another_kind(
        self, run: Here, place: Place, tmp_path: Path, content: str
    ) -> None:
        (tmp_path / "h.json").write_text(content.replace("TARGET", str(place.target)))
        options = ("-t", place.target, "-d", f"hypothesis:{tmp_path / 'h.json'}")
        done = run("transcribe", *place.files, *options)
        assert (done.code, done.out) == (2, "")
        assert "found JSON of another kind" in done.complaints[0]

    def test_another_number_of_lines(self, run: Here, place: Place, tmp_path: Path) -> None:
        (tmp_path / "h.txt").write_text("a\n")
        options = ("-t", place.target, "-d", f"hypothesis:{tmp_path / 'h.txt'}")
        done = run("transcribe", *place.files, *options)
        assert (done.code, done.out) == (2, "")
        assert "found 1 lines, expected 3" in done.complaints[0]


class TestOptions:
    @pytest.mark.parametrize(
        ("options", "words"),
        [
            (["--gamma", "-1"], "--gamma: found '-1'"),
            (["--gamma", "many"], "--gamma: found 'many'"),
            (["--gamma", "++3"], "--gamma: found '++3'"),
            (["--format", "doc"], "--format: found 'doc', expected one of txt"),
            (["--format", "srt"], "expected --output-dir"),
            (["--compare", "hf,whisperx"], "--compare: found 'whisperx'"),
            (["--draft", "hypothesis"], "expected hypothesis:FILE"),
            (["--draft", "early-exit"], "expected early-exit:N"),
            (["--draft", "early-exit:9"], "the decoder has 3 layers"),
            (["--draft", "./nowhere"], "no such directory"),
            (["--target", "./nowhere"], "no such directory"),
            (["--task", "sing"], "--task: found 'sing'"),
            (["--language", "xx"], "language 'xx': this model knows de, en"),
            (["--prompt", "the cat sat " * 20], "decoder's 32 positions"),
            (["--max-new-tokens", "99"], "decoder's 32 positions"),
            (["--dtype", "int3"], "dtype 'int3'"),
            (["--json", "."], "--json .: found a directory"),
            (["--stream", "--format", "json"], "--stream: expected --format txt"),
            (["--json", "long" * 99], "found a place that can't be written"),
            (["--threads", "0"], "--threads"),
            (["--threads", "100000"], "--threads"),
            (["--wrong"], "--wrong"),
        ],
    )
    def test_one_line_and_exit_code_2(
        self, run: Here, place: Place, options: list[str], words: str
    ) -> None:
        done = run("transcribe", *place.files, "--target", place.target, *options)
        assert done.code == 2
        assert done.out == ""
        assert len(done.err.splitlines()) == len(done.complaints) == 1
        assert words in done.err

    def test_the_default_target_is_named_where_it_cannot_be_had(
        self, run: Here, place: Place, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        from mmspec import api
        from mmspec.errors import ModelError

        def unreachable(*_: Any, **__: Any) -> None:
            raise ModelError("target: x/y: the hub gave nothing; name a directory, or 'sample'")

        def no_network(*_: Any, **__: Any) -> None:
            raise OSError("no network")

        monkeypatch.setenv("HF_HUB_OFFLINE", "")  # so that it is as before afterwards
        monkeypatch.delenv("HF_HUB_OFFLINE")
        monkeypatch.setenv("HF_ENDPOINT", "https://hub.invalid")
        monkeypatch.setattr(socket, "getaddrinfo", no_network)
        monkeypatch.setattr(api, "load", unreachable)
        done = run("transcribe", place.files[0])
        assert done.code == 2
        assert "no --target given, so its default was tried: target: x/y" in done.err
        assert "'sample'" in done.err
        assert os.environ.get("HF_HUB_OFFLINE") == "1"  # else its client tries for half a minute

    def test_an_error_nobody_foresaw(
        self, run: Here, place: Place, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def broken(self: Run) -> int:
            raise RuntimeError("first\nsecond")

        monkeypatch.setattr(Run, "go", broken)
        done = run("transcribe", place.files[0], "-t", place.target)
        assert done.code == 1
        assert len(done.err.splitlines()) == 1
        assert "unexpected RuntimeError: first second (set MMSPEC_DEBUG=1" in done.err
        monkeypatch.setenv("MMSPEC_DEBUG", "1")
        with pytest.raises(RuntimeError, match="second"):
            run("transcribe", place.files[0], "-t", place.target)

    def test_an_error_nobody_foresaw_in_one_file(
        self, run: Here, place: Place, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        features, calls = Whisper.features, []

        def broken(self: Whisper, samples: Any) -> Any:
            calls.append(1)
            if len(calls) == 2:
                raise RuntimeError("out of luck")
            return features(self, samples)

        expected = texts(place)
        monkeypatch.setattr(Whisper, "features", broken)
        done = run("transcribe", *place.files, "-t", place.target)
        assert done.code == 1
        assert done.out.splitlines() == [expected[0], "", expected[2]]
        assert done.complaints[0].startswith(f"mmspec: {place.files[1]}: unexpected RuntimeError")


class TestPlaces:
    """Nothing that a run writes is written over what it reads, or over what else it writes."""

    def test_an_input_is_never_written_over(self, run: Here, place: Place) -> None:
        before = place.files[1].read_bytes()
        for option in ("--json", "--report"):
            done = run("transcribe", *place.files, "-t", place.target, option, place.files[1])
            assert (done.code, done.out, len(done.complaints)) == (2, "", 1)
            assert f"{option} {place.files[1]}: found an input" in done.err
        assert place.files[1].read_bytes() == before

    def test_a_result_is_never_written_over(self, run: Here, place: Place, tmp_path: Path) -> None:
        how = ("-t", place.target, "-f", "json", "-o", tmp_path, "--json", tmp_path / "clip1.json")
        done = run("transcribe", *place.files, *how)
        assert (done.code, len(done.complaints)) == (2, 1)
        assert "found an input or a result of this run" in done.err

    def test_two_names_of_one_file(
        self, run: Here, place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        how = ("-t", place.target, "--json", "a", "--report", tmp_path / "a")
        done = run("transcribe", place.files[0], *how)
        assert (done.code, len(done.complaints)) == (2, 1)
        assert "for both, expected two files" in done.err


class TestCompare:
    def test_peers_in_the_json_and_in_a_table(
        self, run: Here, place: Place, tmp_path: Path
    ) -> None:
        out = tmp_path / "out.json"
        peers = "plain,hf,hf-assisted"
        options = ("-t", place.target, "-d", "ngram", "-l", "en", "--json", out)
        done = run("transcribe", *place.files, *options, "--compare", peers)
        assert done.code == 0
        for entry in json.loads(out.read_text())["files"]:
            assert list(entry["compare"]) == peers.split(",")
            for peer in ("plain", "hf"):
                facts = entry["compare"][peer]
                assert facts["ids_equal"] is True
                assert facts["first_difference"] is None
                assert facts["end_to_end_ratio"] > 0
        assert "The peer's time over mmspec's" in done.err
        assert "3/3 equal" in done.err

    def test_a_peer_that_cannot_run_the_case_says_so(
        self, run: Here, place: Place, tmp_path: Path
    ) -> None:
        options = ("-t", place.target, "-d", "early-exit:1", "-f", "json")
        done = run("transcribe", place.files[0], *options, "--compare", "hf-assisted")
        facts = json.loads(done.out)["files"][0]["compare"]["hf-assisted"]
        assert facts["available"] is False
        assert "early-exit" in facts["why"]
        assert f"hf-assisted: {facts['why']}" in " ".join(done.err.split())


class TestInterruption:
    def test_ctrl_c_leaves_finished_files_written(self, place: Place, tmp_path: Path) -> None:
        out, files = tmp_path / "out.json", list(place.files) * 200
        process = there("transcribe", *files, "-t", place.target, "--json", out)
        assert process.stdout is not None
        first = [process.stdout.readline() for _ in range(3)]
        process.send_signal(signal.SIGINT)
        rest, err = process.communicate(timeout=60)
        assert process.returncode == 130
        assert len(err.splitlines()) == 1
        assert "interrupted after" in err
        entries = json.loads(out.read_text())["files"]
        lines = "".join([*first, rest]).splitlines()
        assert [entry["text"] for entry in entries][: len(lines)] == lines
        assert 3 <= len(lines) <= len(entries) <= len(lines) + 1 < len(files)
        assert [file.name for file in tmp_path.iterdir()] == ["out.json"]

    def test_an_end_from_outside_leaves_finished_files_written(
        self, run: Here, place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        features, calls, out = Whisper.features, [], tmp_path / "out.json"

        def ended(self: Whisper, samples: Any) -> Any:
            calls.append(1)
            if len(calls) == 2:
                os.kill(os.getpid(), signal.SIGTERM)
            return features(self, samples)

        monkeypatch.setattr(Whisper, "features", ended)
        others = signal.signal(signal.SIGTERM, signal.SIG_DFL)
        try:
            done = run("transcribe", *place.files, "-t", place.target, "--json", out)
            after = signal.getsignal(signal.SIGTERM)
        finally:
            signal.signal(signal.SIGTERM, others)
        assert done.code == 143
        assert after is signal.SIG_DFL
        assert [line.split("; ")[0] for line in done.err.splitlines()] == [
            "mmspec: interrupted after 1 of 3 files"
        ]
        entries = json.loads(out.read_text())["files"]
        assert [entry["text"] for entry in entries] == done.out.splitlines()

    def test_a_reader_of_the_help_that_goes_away(self) -> None:
        process = there("--help")
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.wait(timeout=60) == 141
        assert process.stderr.read() == ""
        process.stderr.close()

    def test_a_reader_that_goes_away(self, place: Place) -> None:
        process = there("transcribe", *place.files * 100, "-t", place.target)
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(timeout=60) == 141
        assert process.stderr.read() == ""
        process.stderr.close()


class TestInfo:
    def test_what_can_be_done(self, run: Here, place: Place) -> None:
        drafts = ("-d", place.drafter, "-d", "early-exit:2", "-d", "early-exit:3", "-d", "ngram")
        done = run("info", place.target, *drafts)
        assert done.code == 0
        for words in ("yes, recordings of up to 1 s", "de, en", "108 ids", "same vocabulary"):
            assert words in done.out
        assert "so 1 to 2" in " ".join(done.out.split())

    def test_why_not(self, run: Here, tmp_path: Path) -> None:
        (tmp_path / "config.json").write_text('{"model_type": "parrot"}')
        done = run("info", tmp_path)
        assert done.code == 0
        assert "no: " in done.out
        assert "parrot" in done.out
        assert run("info", tmp_path / "nowhere").code == 2


SAMPLE = ROOT / "samples" / "whisper-sample"


@pytest.mark.skipif(not (SAMPLE / "drafter").is_dir(), reason="the sample isn't trained yet")
def test_demo(run: Here) -> None:
    done = run("demo")
    assert done.code == 0
    assert "equal" in done.out
    assert "DIFFER" not in done.out
    assert "storm near the airport" in done.out


def _checkpoints() -> Path:
    folder = os.environ.get("MMSPEC_CHECKPOINTS")
    if not folder:
        pytest.skip("MMSPEC_CHECKPOINTS names no folder")
    return Path(folder)


@pytest.mark.checkpoint
@pytest.mark.parametrize("draft", ["none", "ngram", "early-exit:3", "TINY", "hypothesis:ROUGH"])
def test_real_speech_has_equal_ids(run: Here, tmp_path: Path, draft: str) -> None:
    models = _checkpoints()
    clip = ROOT / "samples" / "audio" / "austen-0880.wav"
    rough = tmp_path / "rough.txt"
    rough.write_text(run("transcribe", clip, "-t", models / "whisper-tiny.en").out)
    draft = draft.replace("TINY", str(models / "whisper-tiny.en")).replace("ROUGH", str(rough))
    options = ("-t", models / "whisper-base", "-d", draft, "-l", "en", "-f", "json")
    done: Done = run("transcribe", clip, *options, "--compare", "plain,hf,hf-assisted")
    assert done.code == 0
    for facts in json.loads(done.out)["files"][0]["compare"].values():
        assert facts.get("ids_equal", True), facts


def test_errors_share_a_base() -> None:
    with pytest.raises(MMSpecError, match="no such directory"):
        mmspec.load("./nowhere")

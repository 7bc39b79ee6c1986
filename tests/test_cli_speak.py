"""`mmspec speak`: sound and codes for each text, one line per fault, the rest done."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

import mmspec
from mmspec.cli import main
from mmspec.errors import InputError
from mmspec.tasks.tts.code_files import read_codes
from tests.cli_support import Here
from tests.speaking_support import FRAME_SAMPLES, RATE_HZ, SHORT, Voice, saved

TEXTS = ("a red cat", "five doors")
SPEECH = Path(__file__).parents[1] / "samples" / "whisper-sample" / "target"


@pytest.fixture(scope="module")
def voice(tmp_path_factory: pytest.TempPathFactory) -> Voice:
    return saved(tmp_path_factory.mktemp("voice"))


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Here:
    return Here(capsys)


@pytest.fixture(scope="module")
def said(voice: Voice) -> Mapping[str, Any]:
    """What Python says."""
    with mmspec.load(voice.target) as speaker:
        return {text: speaker.speak(text, seconds=0.2) for text in TEXTS}


def codes(*files: Path) -> list[Any]:
    return [read_codes(file).codes.tolist() for file in files]


class TestPlaces:
    def test_sound_and_its_codes(
        self, run: Here, voice: Voice, said: Mapping[str, Any], tmp_path: Path
    ) -> None:
        out = tmp_path / "said.wav"
        done = run("speak", TEXTS[0], "-t", voice.target, *SHORT, "--out", out)
        assert (done.code, done.out, done.err) == (0, f"{out}\n", "")
        found = read_codes(out)
        assert found.codes.tolist() == said[TEXTS[0]].codes.tolist()
        assert (found.family, found.rate_hz) == ("musicgen", RATE_HZ / FRAME_SAMPLES)
        samples, rate_hz = soundfile.read(out)
        assert rate_hz == RATE_HZ
        np.testing.assert_allclose(samples, said[TEXTS[0]].samples.clip(-1, 1), atol=1e-4)

    def test_a_name_that_nobody_gave_is_never_taken_twice(
        self, run: Here, voice: Voice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        how = ("speak", TEXTS[0], "-t", voice.target, *SHORT)
        assert run(*how).out == "speech.wav\n"
        before = Path("speech.wav").stat().st_mtime_ns
        done = run(*how)
        assert (done.code, done.out, len(done.complaints)) == (2, "", 1)
        assert "speech.wav: it is there already" in done.err
        assert Path("speech.wav").stat().st_mtime_ns == before
        assert run(*how, "--out", "speech.wav").code == 0
        assert Path("speech.wav").stat().st_mtime_ns > before

    def test_a_file_of_lines(
        self,
        run: Here,
        voice: Voice,
        said: Mapping[str, Any],
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        content = "\n".join(["", TEXTS[1], " ", f"  {TEXTS[0]} "])
        (tmp_path / "lines.txt").write_text(content)
        monkeypatch.setattr("sys.stdin", io.StringIO(content))
        how = ("-t", voice.target, *SHORT, "--format", "flac")
        for number, file in enumerate((tmp_path / "lines.txt", "-")):
            folder = tmp_path / str(number)
            done = run("speak", TEXTS[0], "--file", file, *how, "-o", folder)
            places = [folder / f"speech-{n}.flac" for n in (1, 2, 3)]
            assert done.out.splitlines() == list(map(str, places))
            wanted = [said[text].codes.tolist() for text in (TEXTS[0], TEXTS[1], TEXTS[0])]
            assert codes(*places) == wanted

    def test_numbers_sort(self, run: Here, voice: Voice, tmp_path: Path) -> None:
        done = run("speak", *["a"] * 10, "-t", voice.target, "--max-new-tokens", 6, "-o", tmp_path)
        names = [Path(line).name for line in done.out.splitlines()]
        assert names == sorted(names)
        assert (names[0], names[-1]) == ("speech-01.wav", "speech-10.wav")

    def test_codes_alone(
        self, run: Here, voice: Voice, said: Mapping[str, Any], tmp_path: Path
    ) -> None:
        how = ("speak", TEXTS[0], "-t", voice.target, *SHORT, "--codes-only")
        for place, written in (
            (("--out", tmp_path / "a.npz"), "a.npz"),
            (("--out", tmp_path / "b.wav"), "b.codes.npz"),
            (("-o", tmp_path / "c"), "c/speech-1.codes.npz"),
        ):
            assert run(*how, *place).out == f"{tmp_path / written}\n"
            assert codes(tmp_path / written) == [said[TEXTS[0]].codes.tolist()]
        assert not list(tmp_path.rglob("*.wav"))


class TestSaying:
    def test_drafters_and_company_change_nothing(
        self, run: Here, voice: Voice, said: Mapping[str, Any], tmp_path: Path
    ) -> None:
        wanted = [said[text].codes.tolist() for text in TEXTS]
        out = tmp_path / "out.json"
        for how in (
            ("-d", voice.drafter, "--gamma", 2),
            ("-d", f"heads:{voice.heads}", "--gamma", 2),
            ("-d", f"lookup+{voice.drafter}", "--batch", 2),
        ):
            options = ("-t", voice.target, *SHORT, "-o", tmp_path, "--json", out, *how)
            assert run("speak", *TEXTS, *options).code == 0
            assert codes(tmp_path / "speech-1.wav", tmp_path / "speech-2.wav") == wanted
            reports = [entry["report"] for entry in json.loads(out.read_text())["files"]]
            assert sum(report["proposed"] for report in reports) > 0

    def test_what_was_said_is_looked_up(self, run: Here, voice: Voice, tmp_path: Path) -> None:
        out = tmp_path / "out.json"
        how = ("-t", voice.target, *SHORT, "-d", "lookup", "--gamma", 3, "-o", tmp_path)
        run("speak", TEXTS[0], TEXTS[0], *how, "--json", out)
        first, second = (entry["report"] for entry in json.loads(out.read_text())["files"])
        assert second["accepted"] > first["accepted"]

    def test_a_seed_is_the_same_for_every_drafter(
        self, run: Here, voice: Voice, tmp_path: Path
    ) -> None:
        how = ("-t", voice.target, *SHORT, "--temperature", 1)
        for seed, draft in ((1, "none"), (1, voice.drafter), (2, "none")):
            place = tmp_path / f"{seed}{Path(draft).name}.wav"
            run("speak", TEXTS[0], *how, "--seed", seed, "-d", draft, "--out", place)
        names = ("1none.wav", "1drafter.wav", "2none.wav")
        plain, drafted, other = codes(*(tmp_path / name for name in names))
        assert plain == drafted != other

    def test_json(self, run: Here, voice: Voice, tmp_path: Path) -> None:
        out = tmp_path / "out.json"
        how = ("-t", voice.target, *SHORT, "--grounding", 1, "-o", tmp_path, "--json", out)
        assert run("speak", TEXTS[0], "no!", *how).code == 2
        document = json.loads(out.read_text())
        assert document["settings"]["seconds"] == 0.2
        one, other = document["files"]
        assert one["path"] == str(tmp_path / "speech-1.wav")
        assert one["codes_path"] == str(tmp_path / "speech-1.codes.npz")
        assert (one["text"], one["seconds"], len(one["codes"])) == (TEXTS[0], 0.2, 20)
        assert len(one["grounding"]["drops"]) == one["report"]["tokens"]
        assert (other["text"], other["name"]) == ("no!", "speech-2.wav")
        assert "the character '!'" in other["error"]

    def test_tables(self, run: Here, voice: Voice, tmp_path: Path) -> None:
        how = ("-t", voice.target, *SHORT, "-o", tmp_path, "--table", "-d", voice.drafter)
        one = run("speak", TEXTS[0], *how)
        assert "a token is a frame of 4 codes" in one.err
        assert "acceptance by codebook" in one.err
        more = run("speak", *TEXTS, *how)
        assert "A token is a frame of 4 codes" in more.err
        assert more.err.count("0.2 s") == 2
        assert "0.4 s" in more.err


def test_a_page(run: Here, voice: Voice, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    how = ("-t", voice.target, *SHORT, "-o", tmp_path, "--report", page, "-d", voice.drafter)
    assert run("speak", TEXTS[0], "no!", *how, "--compare", "plain").code == 2
    content = page.read_text()
    for words in (TEXTS[0], "speech-1.wav", "speech-2.wav", "the character &#39;!&#39;", "plain"):
        assert words in content


def test_peers_say_the_same(run: Here, voice: Voice, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    how = ("-d", voice.drafter, "--gamma", 2, "--compare", "plain,hf,hf-assisted")
    done = run("speak", *TEXTS, "-t", voice.target, *SHORT, *how, "-o", tmp_path, "--json", out)
    assert done.code == 0
    assert "The peer's time over mmspec's" in done.err
    for entry in json.loads(out.read_text())["files"]:
        for peer in ("plain", "hf"):
            assert entry["compare"][peer]["ids_equal"] is True
            assert entry["compare"][peer]["decode_ratio"] > 0
            assert entry["compare"][peer]["end_to_end_ratio"] > 0
        assert "isn't run for MusicGen" in entry["compare"]["hf-assisted"]["why"]


class TestStream:
    def test_samples_and_nothing_else(
        self,
        voice: Voice,
        said: Mapping[str, Any],
        capfdbinary: pytest.CaptureFixture[bytes],
    ) -> None:
        how = ("speak", *TEXTS, "-t", voice.target, *SHORT, "--stream", "-d", voice.drafter)
        with pytest.raises(SystemExit) as left:
            main([str(argument) for argument in how])
        out, err = capfdbinary.readouterr()
        assert (left.value.code, err) == (0, b"")
        whole = np.concatenate([said[text].samples for text in TEXTS]).clip(-1, 1)
        heard = np.frombuffer(out, "<i2")
        np.testing.assert_allclose(heard, whole * 32767, atol=2)

    def test_a_terminal_plays_nothing(
        self, run: Here, voice: Voice, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("sys.stdout.isatty", lambda: True)
        done = run("speak", TEXTS[0], "-t", voice.target, "--stream")
        assert (done.code, done.out, len(done.complaints)) == (2, "", 1)
        assert "expected a pipe or a file" in done.err

    @pytest.mark.parametrize(
        "how", [("--out", "a.wav"), ("--compare", "plain"), ("--json", "a.json"), ("--table",)]
    )
    def test_what_it_has_no_place_for(self, run: Here, voice: Voice, how: tuple[Any, ...]) -> None:
        done = run("speak", TEXTS[0], "-t", voice.target, "--stream", *how)
        assert (done.code, done.out, len(done.complaints)) == (2, "", 1)
        assert f"--stream: expected no {how[0]}" in done.err


class TestBadInputs:
    @pytest.mark.parametrize("batch", [1, 2])
    def test_each_is_one_line_and_the_rest_is_done(
        self, run: Here, voice: Voice, tmp_path: Path, batch: int
    ) -> None:
        texts = {
            "first": None,
            " ": "expected words to say",
            "wörter": "the character 'ö'",
            "x" * 30: "31 tokens, its encoder was made for 20",
            "last": None,
        }
        how = ("-t", voice.target, *SHORT, "-o", tmp_path, "--batch", batch)
        done = run("speak", *texts, *how)
        assert (done.code, len(done.err.splitlines())) == (2, 3)
        wrong = [(n, says) for n, says in enumerate(texts.values(), 1) if says]
        for line, (number, says) in zip(done.complaints, wrong, strict=True):
            assert line.startswith(f"mmspec: speech-{number}.wav: ")
            assert says in line
        assert [bool(line) for line in done.out.split("\n")[:5]] == [True, *[False] * 3, True]
        assert sorted(path.name for path in tmp_path.glob("*.wav")) == [
            "speech-1.wav",
            "speech-5.wav",
        ]

    @pytest.mark.parametrize(
        ("how", "says"),
        [
            (("--out", "a.mp3"), "found the suffix '.mp3', expected wav, flac, ogg"),
            (("--out", "a.npz"), "found the suffix '.npz'"),
            (("--out", "a.wav", "-o", "b"), "--out, --output-dir: found both"),
            (("more", "--out", "a.wav"), "found 2 texts for one file, expected --output-dir"),
            (("--format", "mp3"), "--format: found 'mp3', expected one of wav, flac, ogg"),
            (("--seconds", 1, "--max-new-tokens", 9), "found both, expected one of them"),
            (("--out", "a.wav", "--seconds", -1), "seconds: found -1.0"),
            (("--out", "a.wav", "--seconds", 0.01), "rows are too few"),
            (("--file", "nowhere.txt"), "nowhere.txt: found nothing readable"),
            (("--compare", "plain", "--batch", 2), "expected no --compare"),
            (("--compare", "plain", "--approximate", 0.9), "expected no --compare"),
            (("--out", "a.wav", "--draft", "nobody"), "draft: nobody: no such directory"),
            (("--out", "a.wav", "--draft", "heads:x"), "x: holds no heads"),
        ],
    )
    def test_an_option_that_nothing_can_be_said_with(
        self,
        run: Here,
        voice: Voice,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        how: tuple[Any, ...],
        says: str,
    ) -> None:
        monkeypatch.chdir(tmp_path)
        done = run("speak", TEXTS[0], "-t", voice.target, *how)
        assert (done.code, done.out, len(done.complaints)) == (2, "", 1)
        assert says in done.err
        assert not list(tmp_path.iterdir())

    def test_nothing_to_say(self, run: Here, voice: Voice, tmp_path: Path) -> None:
        assert "found no text" in run("speak", "-t", voice.target).err
        (tmp_path / "empty.txt").write_text("\n \n")
        done = run("speak", "--file", tmp_path / "empty.txt", "-t", voice.target)
        assert (done.code, len(done.complaints)) == (2, 1)
        assert "found nothing to say" in done.err

    def test_models_that_do_something_else(self, run: Here, voice: Voice, tmp_path: Path) -> None:
        done = run("speak", "a", "-t", SPEECH, "--out", tmp_path / "a.wav")
        assert done.code == 2
        assert "which listens: mmspec transcribe" in done.err
        soundfile.write(tmp_path / "a.wav", np.zeros(1600), RATE_HZ)
        for command in ("transcribe", "caption", "ocr"):
            done = run(command, tmp_path / "a.wav", "-t", voice.target)
            assert done.code == 2
            assert "which speaks: mmspec speak" in done.err


class TestNoCodec:
    """A checkpoint that only writes codes."""

    @pytest.fixture(autouse=True)
    def _without(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("mmspec.tasks.tts.speaker.codec_of", lambda target: None)

    def test_codes_alone_can_be_had(self, run: Here, voice: Voice, tmp_path: Path) -> None:
        how = ("speak", TEXTS[0], "-t", voice.target, "--max-new-tokens", 9)
        done = run(*how, "--out", tmp_path / "a.wav")
        assert (done.code, len(done.complaints)) == (2, 1)
        assert "no codec: --codes-only" in done.err
        assert run(*how, "--out", tmp_path / "a.npz", "--codes-only").code == 0
        assert len(codes(tmp_path / "a.npz")[0]) == 6

    def test_nothing_sounds(self, run: Here, voice: Voice) -> None:
        done = run("speak", TEXTS[0], "-t", voice.target, "--stream")
        assert (done.code, done.out, len(done.complaints)) == (2, "", 1)
        assert "no codec" in done.err


class TestInfo:
    def test_what_a_model_can_do(self, run: Here, voice: Voice) -> None:
        drafts = ("lookup", voice.drafter, f"heads:{voice.heads}", "nobody")
        done = run("info", voice.target, *(word for draft in drafts for word in ("-d", draft)))
        assert done.code == 0
        shown = " ".join(done.out.split())
        for words in (
            "4 codebooks of 32 codes",
            "its codebooks 0, 1, 2, 3 steps late",
            "EncodecModel: 1600 Hz, 100 frames per second, mono",
            "fits: the same codes, on the same text",
            "no: nobody: no such directory",
        ):
            assert words in shown

    def test_families_that_speak_are_listed(self, run: Here) -> None:
        lines = [line.split() for line in run("info").out.splitlines()]
        spoken = {line[0] for line in lines if line[-1:] == ["speak"]}
        assert spoken >= {"musicgen", "dia", "csm", "bark"}


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    from mmspec.cli.settings import SpeechSettings

    wanted = SpeechSettings(out=tmp_path / "a.wav")
    (tmp_path / "a.wav").mkdir()
    with pytest.raises(InputError, match="found a directory, expected a file"):
        wanted.check([])


def test_the_hub_client_waits_until_its_settings_are_made() -> None:
    code = (
        "import sys, mmspec.cli.speaking, mmspec.tasks.tts.code_files; "
        "print({'huggingface_hub', 'transformers'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True)
    assert done.stdout == "set()\n"

"""The benchmark of models that speak: sentences, all peers, codebooks, what a listener hears."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mmspec.bench.tables import to_markdown
from mmspec.errors import InputError, MMSpecError
from mmspec.tasks.tts.bench import Plan, read_sentences, run, sentences_file
from mmspec.tasks.tts.request import SpeechRequest
from tests.cli_support import Here
from tests.speaking_support import Voice, saved

LISTENER = str(Path(__file__).parents[1] / "samples" / "whisper-sample" / "target")
GREEDY = SpeechRequest(temperature=0.0)


@pytest.fixture(scope="module")
def voice(tmp_path_factory: pytest.TempPathFactory) -> Voice:
    return saved(tmp_path_factory.mktemp("voice"))


@pytest.fixture
def sentences(tmp_path: Path) -> Path:
    file = tmp_path / "sentences.txt"
    file.write_text("a red cat\t0.2\n\nfive doors\n")
    return file


class TestSentences:
    def test_a_line_says_how_long_it_takes(self, sentences: Path) -> None:
        cases = read_sentences(sentences, replace(GREEDY, seconds=0.3))
        assert [(case.subject, case.reference) for case in cases] == [
            ("a red cat", "a red cat"),
            ("five doors", "five doors"),
        ]
        assert [case.path.name for case in cases] == ["sentences.txt:1", "sentences.txt:3"]
        assert [case.request.seconds for case in cases] == [0.2, 0.3]
        assert len({case.sha256 for case in cases}) == 2

    @pytest.mark.parametrize(
        ("content", "says"),
        [
            (b"\n\n", "found no sentence"),
            (b"a\tlong\n", "sentences.txt:1: found 'long', expected seconds"),
            (b"\xff\xfe\x00", "it is no UTF-8 text"),
        ],
    )
    def test_files_that_hold_none(self, sentences: Path, content: bytes, says: str) -> None:
        sentences.write_bytes(content)
        with pytest.raises(InputError, match=says):
            read_sentences(sentences, GREEDY)
        assert sentences_file(sentences) == sentences


class TestWhole:
    def test_every_drafter_against_every_peer(self, voice: Voice, sentences: Path) -> None:
        drafts = ["none", str(voice.drafter), f"heads:{voice.heads}"]
        request = replace(GREEDY, seconds=0.2)
        plan = Plan(
            [sentences],
            str(voice.target),
            drafts,
            pairs=1,
            gamma="2",
            request=request,
            listener=LISTENER,
        )
        result = run(plan)
        document = json.loads(json.dumps(result.to_dict()))
        assert [ours["available"] for ours in document["mmspec"]] == [True] * 3
        assert {(pair["peer"], pair["ids_equal"]) for pair in document["versus"]} == {
            ("plain", True),
            ("hf", True),
        }
        assert all(pair["decode"]["median"] > 0 for pair in document["versus"])
        drafted = document["mmspec"][1]
        counts = drafted["report"]["by_codebook"]
        assert len(counts["shares"]) == 4
        assert counts["judged"][0] > 0
        assert drafted["tokens"] == 2 * (20 + 3)
        assert document["settings"]["token"] == "a frame of 4 codes"
        heard = document["word_error_rate"]
        assert heard["plain"] == heard["hf"] == drafted["word_error_rate"] > 0
        table = to_markdown(result)
        assert "acceptance by codebook" in table
        assert "word error rate" in table

    def test_command(
        self, voice: Voice, sentences: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        out = tmp_path / "out.json"
        options: tuple[Any, ...] = ("--texts", sentences, "-t", voice.target, "-d", "lookup")
        options += ("--pairs", 1, "--seconds", 0.2, "--compare", "hf", "--json", out)
        options += ("--report", tmp_path / "page.html")
        done = Here(capsys)("bench", "tts", *options)
        assert (done.code, done.err) == (0, "")
        assert "a token is a frame of 4 codes" in done.out
        document = json.loads(out.read_text())
        assert [case["seconds"] for case in document["files"]] == [0.2, 0.2]
        assert [pair["peer"] for pair in document["versus"]] == ["hf"]
        page = (tmp_path / "page.html").read_text()
        assert "sentences.txt:1, lookup" in page
        assert "sentences.txt:3, lookup" in page

    @pytest.mark.parametrize(
        ("changes", "says"),
        [
            ({"request": SpeechRequest(temperature=1.0)}, "expected greedy decoding"),
            ({"peers": ("espeak",)}, "expected names among"),
            ({"drafts": ["lookup", "lookup"]}, "expected each once"),
            ({"target": LISTENER}, "which says no codes"),
            ({"drafts": ["nobody"]}, "nobody: no such directory"),
            ({"listener": "voice"}, "--listener: found a model of type musicgen"),
        ],
    )
    def test_plans_that_cannot_be_meant(
        self, voice: Voice, sentences: Path, changes: dict[str, Any], says: str
    ) -> None:
        if "listener" in changes:
            changes = {"listener": str(voice.target)}
        facts = {"files": [sentences], "target": str(voice.target), "drafts": ["none"]}
        with pytest.raises(MMSpecError, match=says):
            run(Plan(**(facts | changes)))

    def test_benchmarks_of_other_models(
        self, voice: Voice, capsys: pytest.CaptureFixture[str]
    ) -> None:
        run = Here(capsys)
        assert "which speaks: mmspec bench tts" in run("bench", "vlm", "-t", voice.target).err
        assert "found a model of type musicgen" in run("bench", "asr", "-t", voice.target).err

    def test_lengths_said_twice(
        self, voice: Voice, sentences: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        how = ("--seconds", 1, "--max-new-tokens", 9)
        done = Here(capsys)("bench", "tts", "--texts", sentences, "-t", voice.target, *how)
        assert (done.code, len(done.complaints)) == (2, 1)
        assert "found both" in done.err

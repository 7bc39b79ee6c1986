"""The benchmark: interleaved and fair, every ratio both ways, losses printed like gains."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from mmspec.bench.cases import Case, load_cases, read_references, word_error_rate
from mmspec.bench.measured_run import short_names
from mmspec.bench.measuring import Measured, measure
from mmspec.bench.spread import Spread
from mmspec.bench.summary import achieved_over_bound, shares, versus
from mmspec.bench.tables import to_markdown
from mmspec.compare.peers import Outcome
from mmspec.errors import InputError, OptionError
from mmspec.modalities.whisper.request import TranscriptionRequest
from mmspec.report.report import Report
from mmspec.report.totals import total
from mmspec.tasks.asr.bench import Plan, run
from mmspec.tasks.asr.faster_whisper import FasterWhisperPeer
from tests.cli_support import Here, Place, make_place


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return make_place(tmp_path_factory.mktemp("place"))


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Here:
    return Here(capsys)


class Scripted:
    """A peer that takes as long as it is told, and writes down when it was called."""

    def __init__(self, name: str, seconds: float, log: list[str], ids: Any = (1, 2)) -> None:
        self.name = name
        self.why_not: str | None = None
        self.remark: str | None = None
        self._seconds, self._log, self._ids = seconds, log, ids
        self.fail_at: int | None = None

    def run(self, samples: Any, request: Any, hypothesis: Any = None) -> Outcome:
        self._log.append(self.name)
        if self.fail_at == self._log.count(self.name):
            raise ValueError("no more")
        return Outcome(tuple(self._ids), "a b", self._seconds, self._seconds + 1.0)


def cases(count: int) -> list[Case]:
    return [Case(Path(f"{n}.wav"), np.zeros(1), "", None, {}) for n in range(count)]


class TestMeasuring:
    def test_a_warm_up_then_interleaved_pairs_with_a_rotating_first(self) -> None:
        log: list[str] = []
        members = [Measured(Scripted(name, 1.0, log)) for name in "abc"]
        measure(members, cases(2), pairs=3)
        assert len(log) == (1 + 3) * 2 * 3
        rows = [log[i : i + 3] for i in range(0, len(log), 3)]
        assert all(sorted(row) == ["a", "b", "c"] for row in rows)
        assert {row[0] for row in rows[2:]} == {"a", "b", "c"}
        assert [len(run) for run in members[0].outcomes] == [2, 2, 2]

    def test_a_peer_that_raises_is_out_and_says_why(self) -> None:
        log: list[str] = []
        good, bad = Scripted("good", 1.0, log), Scripted("bad", 1.0, log)
        bad.fail_at = 4
        members = [Measured(good), Measured(bad)]
        measure(members, cases(2), pairs=3)
        assert members[1].why_not == "bad raised ValueError: no more"
        assert members[1].outcomes == []
        assert len(members[0].outcomes) == 3
        assert versus(members[0], members[1]).to_dict()["available"] is False


class TestRatios:
    def test_the_peers_time_over_ours(self) -> None:
        log: list[str] = []
        ours, peer = Measured(Scripted("ours", 2.0, log)), Measured(Scripted("peer", 1.0, log))
        measure([ours, peer], cases(3), pairs=5)
        found = versus(ours, peer)
        assert found.decode == Spread(0.5, 0.5, 0.5, 5)  # a loss is a ratio under 1
        assert found.end_to_end.median == pytest.approx(2 / 3)
        assert found.median_file.count == len(found.decode_by_file) == 3
        assert found.ids_equal is True

    def test_different_ids_are_seen(self) -> None:
        log: list[str] = []
        ours = Measured(Scripted("ours", 1.0, log))
        peer = Measured(Scripted("peer", 1.0, log, ids=(1, 3)))
        measure([ours, peer], cases(1), pairs=1)
        assert versus(ours, peer).ids_equal is False

    def test_a_peer_without_ids_or_decoding_time(self) -> None:
        log: list[str] = []
        ours = Measured(Scripted("ours", 1.0, log))
        peer = Measured(Scripted("peer", 0.0, log, ids=()))
        measure([ours, peer], cases(1), pairs=1)
        found = versus(ours, peer)
        assert found.ids_equal is None
        assert found.decode.median is None
        assert found.end_to_end.median == 0.5

    def test_even_and_missing(self) -> None:
        assert Spread.of([1.0, 2.0]).median == 1.5
        assert Spread.of([None]).count == 0


def report(**changes: Any) -> Report:
    seconds = {"encode": 1.0, "prefill": 0.5, "post": 0.0}
    facts: dict[str, Any] = {
        "tokens": 10,
        "rounds": 5,
        "target_forwards": 6,
        "drafter_forwards": 8,
        "proposed": 8,
        "accepted": 5,
        "recovered": 3,
        "bonus": 2,
        "accepted_length_histogram": {1: 5},
        "acceptance_by_offset": (0.75, 0.5),
        "proposed_by_offset": (4, 2),
        "drafters": {},
        "encoder_runs": 1,
        "drafter_encoder_runs": 0,
        "seconds": seconds | {"draft": 1.0, "verify": 2.0, "reconcile": 1.0},
        "parity": "L0",
        "finish_reason": "stop",
        "predicted_speedup": 2.0,
    }
    return Report(**(facts | changes))


class TestSummary:
    def test_shares_and_the_bound(self) -> None:
        assert shares(report()) == {"draft": 0.25, "verify": 0.5, "reconcile": 0.25}
        assert achieved_over_bound(report()) == 0.75

    def test_reports_add_up(self) -> None:
        other = report(
            acceptance_by_offset=(0.0, 0.0, 1.0),
            proposed_by_offset=(4, 2, 1),
            finish_reason="length",
            predicted_speedup=None,
            faults=("x",),
        )
        both = total([report(), other])
        assert (both.tokens, both.rounds, both.bonus) == (20, 10, 4)
        assert both.acceptance_by_offset == (3 / 8, 1 / 4, 1.0)
        assert both.finish_reason == "stop, length"
        assert both.predicted_speedup == 2.0
        assert both.accepted_length_histogram == {1: 10}
        assert both.decode_seconds == 8.0
        with pytest.raises(ValueError, match="no reports"):
            total([])


class TestCases:
    def test_references_beside_the_files_or_named(self, place: Place, tmp_path: Path) -> None:
        assert read_references(None, place.files) == {}
        table = tmp_path / "said.tsv"
        table.write_text("file\ttext\nx/clip0.wav\tthe cat\n")
        assert read_references(table, place.files) == {"clip0.wav": "the cat"}
        found = load_cases(place.files, {"clip0.wav": "the cat"}, {"h": ["a", None, "c"]})
        assert [case.reference for case in found] == ["the cat", None, None]
        assert [case.hypotheses["h"] for case in found] == ["a", None, "c"]
        assert len({case.sha256 for case in found}) == 3

    def test_no_table_of_references(self, place: Place, tmp_path: Path) -> None:
        (tmp_path / "said.tsv").write_text("a\tb\n1\t2\n")
        for table in (tmp_path / "said.tsv", tmp_path / "none.tsv"):
            with pytest.raises(InputError, match="found no table of references"):
                read_references(table, place.files)

    def test_word_error_rate(self) -> None:
        assert word_error_rate([("He was Not!", "he was not")]) == 0
        assert word_error_rate([("one two", "one"), ("three", "three")]) == pytest.approx(1 / 3)


class TestWhole:
    def test_every_drafter_against_every_peer(self, place: Place, tmp_path: Path) -> None:
        rough = tmp_path / "rough.txt"
        rough.write_text("the cat\n\nhe is\n")
        drafts = ["none", "ngram", "early-exit:1", str(place.drafter), f"hypothesis:{rough}"]
        request = TranscriptionRequest(language="en")
        plan = Plan(place.files, str(place.target), drafts, pairs=1, request=request)
        result = run(plan)
        document = json.loads(json.dumps(result.to_dict()))
        assert [ours["available"] for ours in document["mmspec"]] == [True] * 5
        for pair in document["versus"]:
            if pair["peer"] in ("plain", "hf"):
                assert pair["ids_equal"] is True
                assert pair["decode"]["count"] == pair["end_to_end"]["count"] == 1
        named = {pair["ours"]: pair for pair in document["versus"] if pair.get("why")}
        assert set(named) == {"mmspec none", "mmspec early-exit:1", "mmspec hypothesis:rough.txt"}
        wanted = "target drafts pairs gamma device dtype attention threads versions request"
        assert set(wanted.split()) <= set(document["settings"])
        assert document["settings"]["prompt_tokens"] == 4
        ours = document["mmspec"][1]
        for fact in ("mean_acceptance_length", "target_forwards_per_token", "achieved_over_bound"):
            assert ours[fact] > 0
        assert sum(ours["shares"].values()) == pytest.approx(1)
        page = to_markdown(result)
        assert "| ngram | hf | equal |" in page
        assert page.count("\n| ") > 20

    def test_command(self, command: Here, place: Place, tmp_path: Path) -> None:
        table, out, page = (tmp_path / name for name in ("said.tsv", "out.json", "page.md"))
        table.write_text("file\ttext\nclip0.wav\tthe cat\n")
        options = ("-t", place.target, "-l", "en", "--pairs", 1, "--reference", table)
        places = ("--json", out, "--markdown", page)
        done = command("bench", "asr", *place.files[:1], *options, *places, "-d", "early-exit:1")
        assert (done.code, done.err) == (0, "")
        assert "The peer's time over mmspec's: median of 1 pairs" in done.out
        assert "transformers has no early-exit drafting" in " ".join(done.out.split())
        document = json.loads(out.read_text())
        assert document["word_error_rate"]["plain"] is not None
        assert page.read_text().startswith("| drafter |")

    def test_plans_that_cannot_be_meant(self, place: Place) -> None:
        for changes, words in (
            ({"files": []}, "found no files"),
            ({"drafts": ["ngram", "ngram"]}, "expected each once"),
            ({"request": TranscriptionRequest(temperature=1.0)}, "expected greedy"),
            ({"gamma": "-3"}, "--gamma"),
        ):
            facts: dict[str, Any] = {
                "files": place.files,
                "target": str(place.target),
                "drafts": ["none"],
            }
            with pytest.raises(OptionError, match=words):
                run(Plan(**(facts | changes)))

    def test_names(self) -> None:
        assert short_names(["a/x", "b/x"]) == ["a/x", "b/x"]

    def test_faster_whisper_that_is_not_there(self, tmp_path: Path) -> None:
        peer = FasterWhisperPeer(tmp_path, "float32", 1)
        assert "faster-whisper" in str(peer.why_not)


class TestPlaces:
    """What takes minutes to measure has somewhere to go."""

    @pytest.mark.parametrize("option", ["--json", "--markdown"])
    @pytest.mark.parametrize("kind", ["asr", "vlm", "tts"])
    def test_a_place_is_looked_at_first(
        self, command: Here, tmp_path: Path, kind: str, option: str
    ) -> None:
        # No such target: were that found out first, the place would be looked at too late.
        done = command("bench", kind, "-t", "./nowhere", option, tmp_path)
        assert (done.code, done.out, len(done.complaints)) == (2, "", 1)
        assert f"{option} {tmp_path}: found a directory, expected a file" in done.err

    def test_two_files_are_two(self, command: Here, tmp_path: Path) -> None:
        how = ("--json", tmp_path / "a", "--markdown", tmp_path / "a")
        done = command("bench", "asr", "-t", "./nowhere", *how)
        assert (done.code, len(done.complaints)) == (2, 1)
        assert "--json, --markdown: found" in done.err

    def test_a_reader_that_goes_away_costs_no_file(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from mmspec.bench import tables
        from mmspec.cli import bench

        def broken(_: Any) -> Any:
            raise BrokenPipeError

        monkeypatch.setattr(tables, "result_tables", broken)
        result = SimpleNamespace(to_dict=lambda: {"measured": True}, settings={})
        with pytest.raises(BrokenPipeError):
            bench._write(result, tmp_path / "a.json", None)
        assert json.loads((tmp_path / "a.json").read_text()) == {"measured": True}


@pytest.mark.parametrize(
    ("option", "says"),
    [
        (("--task", "sing"), "--task: found 'sing', expected transcribe or translate"),
        (("--language", "zz"), "Unsupported language: zz"),
    ],
)
def test_what_the_target_does_not_know(
    command: Here, place: Place, option: tuple[str, str], says: str
) -> None:
    done = command("bench", "asr", place.files[0], "-t", place.target, *option)
    assert (done.code, done.out, len(done.complaints)) == (2, "", 1)
    assert says in done.err

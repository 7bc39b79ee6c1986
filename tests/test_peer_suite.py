"""The peer's suite counts right: calls judged on toys, and its plugin on a suite of three tests."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from mmspec.errors import OptionError

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT))  # the benchmarks are no part of what is installed
judging: Any = importlib.import_module("benchmarks.peer.judging")
Judge, Ours, VERDICTS = judging.Judge, judging.Ours, judging.VERDICTS
differences, tally = judging.differences, judging.tally

IDS = torch.tensor([[3, 1, 4]])


def result(**changed: Any) -> dict[str, Any]:
    return {"sequences": IDS, "scores": (torch.tensor([[0.5, -1.0]]),), **changed}


def raising(error: Exception) -> Callable[[], Any]:
    def make() -> Any:
        raise error

    return make


def decoded(value: Any, rows: int = 1, ordinary: str | None = None) -> Callable[[], Any]:
    return lambda: Ours(value, rows, ordinary)


CASES: dict[str, tuple[Callable[[], Any], Callable[[], Any], str]] = {
    "equal": (result, decoded(result()), "passed"),
    "left to theirs": (result, decoded(result(), 0, "a padded prompt"), "passed"),
    "refused": (result, raising(OptionError("num_beams")), "refused"),
    "refused by both": (raising(ValueError()), raising(OptionError("num_beams")), "passed"),
    "broken alike": (raising(KeyError()), raising(KeyError()), "passed"),
    "another id": (result, decoded(result(sequences=torch.tensor([[3, 1, 5]]))), "other ids"),
    "a column more": (result, decoded(result(sequences=torch.zeros(1, 4).long())), "other ids"),
    "another score": (
        result,
        decoded(result(scores=(torch.tensor([[0.5, -1.01]]),))),
        "other result",
    ),
    "a field less": (result, decoded({"sequences": IDS}), "other result"),
    "another type": (result, decoded(result(scores=None)), "other result"),
    "taken where theirs raises": (raising(TypeError()), decoded(result()), "other result"),
    "a raw error": (result, raising(KeyError("encoder_outputs")), "raw error"),
    "another raw error": (raising(TypeError()), raising(KeyError()), "raw error"),
}


def judged(folder: Path) -> list[dict[str, Any]]:
    """Records of all cases, a test each."""
    judge = Judge(folder / "log")
    for name, (theirs, ours, _) in CASES.items():
        judge.call(name, "toys", theirs, ours, going_on=True)
    return [json.loads(line) for line in (folder / "log").read_text().splitlines()]


def test_every_kind_of_call_is_counted_as_what_it_is(tmp_path: Path) -> None:
    records = judged(tmp_path)
    assert {r["test"]: r["verdict"] for r in records} == {n: case[2] for n, case in CASES.items()}
    count = tally(records)["toys"]
    kinds = [kind for _, _, kind in CASES.values()]
    assert count.tests == {kind: kinds.count(kind) for kind in VERDICTS}
    assert (count.calls, count.ours) == (len(CASES), 6)


def test_a_refused_call_goes_on_with_theirs_and_a_broken_one_raises(tmp_path: Path) -> None:
    judge = Judge(tmp_path / "log")
    assert judge.call("a", "toys", result, raising(OptionError("no")))["sequences"] is IDS
    with pytest.raises(ValueError, match="theirs"):
        judge.call("a", "toys", raising(ValueError("theirs")), raising(OptionError("no")))
    with pytest.raises(KeyError):
        judge.call("a", "toys", result, raising(KeyError()))


def test_both_sides_draw_from_one_state(tmp_path: Path) -> None:
    judge, draw = Judge(tmp_path / "log"), lambda: torch.randint(99, (1, 8))
    drawn = judge.call("a", "toys", draw, lambda: Ours(draw(), 1))
    assert not torch.equal(draw(), drawn)
    assert json.loads((tmp_path / "log").read_text())["verdict"] == "passed"


def test_of_samples_only_the_kind_is_compared() -> None:
    assert differences(IDS, IDS + 1, sampled=True) == []
    assert differences(IDS, IDS[:, :2], sampled=True) == []
    assert differences(IDS, IDS[:, :2].repeat(2, 1), sampled=True) != []
    assert differences(IDS, IDS.float(), sampled=True) != []
    assert differences(result(), {"sequences": IDS}, sampled=True) == ["scores: missing"]


def test_a_test_is_its_worst_call_and_only_known_tests_count() -> None:
    def call(test: str, verdict: str) -> dict[str, Any]:
        return {"what": "call", "test": test, "family": "toys", "verdict": verdict, "ours": 1}

    def ended(test: str, outcome: str) -> dict[str, Any]:
        return {"what": "test", "test": test, "outcome": outcome}

    records = [
        *(call("a", verdict) for verdict in ("passed", "other ids", "refused")),
        *(call("b", "passed"), ended("b", "failed")),  # by what it asserts of an equal result
        *(call("c", "raw error"), ended("c", "failed")),
        *(call("d", "passed"), ended("d", "passed")),
        *(call("unknown", "raw error"), ended("unknown", "failed")),
    ]
    count = tally(records, known="abcd")["toys"]
    assert count.tests == {"other ids": 1, "other result": 1, "raw error": 1, "passed": 1}
    assert (count.calls, count.ours) == (6, 6)


TEXT_ONLY: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "compares nothing": lambda patch: patch.setattr(judging, "differences", lambda *a, **k: []),
    "takes any gap": lambda patch: patch.setattr(judging, "TOLERANCE", 1e9),
    "takes errors for refusals": lambda patch: patch.setattr(judging, "MMSpecError", Exception),
    "knows no refusal": lambda patch: patch.setattr(judging, "MMSpecError", OSError),
}


@pytest.mark.parametrize("mutant", TEXT_ONLY)
def test_a_blind_judge_is_seen(
    mutant: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    TEXT_ONLY[mutant](monkeypatch)
    found = {record["test"]: record["verdict"] for record in judged(tmp_path)}
    assert found != {name: kind for name, (_, _, kind) in CASES.items()}


SUITE = """
import torch
from tests.modalities.tiny_prefix import inputs, tiny

MODEL = tiny("llava")
GIVEN = inputs("llava", MODEL, "image")
ASKED = {"max_new_tokens": 6, "do_sample": False}

def test_greedy():
    assert len(MODEL.generate(**GIVEN, **ASKED)) == 1

def test_beams():
    MODEL.generate(**GIVEN, **ASKED, num_beams=2)

def test_without_generate():
    pass
"""


def test_calls_of_a_suite_go_through_our_loop(tmp_path: Path) -> None:
    folder, log = tmp_path / "tiny", tmp_path / "log"
    folder.mkdir()
    (folder / "test_it.py").write_text(SUITE)
    told = ("--peer-mode", "as-is", "--peer-draft", "ngram", "--peer-log", str(log))
    plugin = ("-p", "benchmarks.peer.plugin", "-p", "no:cacheprovider", "-q")
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", *plugin, *told, f"--rootdir={tmp_path}", str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout
    records = [json.loads(line) for line in log.read_text().splitlines()]
    calls = {r["test"].partition("::")[2]: r for r in records if r["what"] == "call"}
    assert calls.keys() == {"test_greedy", "test_beams"}
    assert calls["test_greedy"]["ours"] == 1
    assert calls["test_beams"]["verdict"] == "refused"
    assert len([r for r in records if r["what"] == "test"]) == 3

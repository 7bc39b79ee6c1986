"""What `tests.house` counts, as far as no model is needed, and that it sees what it looks for."""

from __future__ import annotations

import ast

import pytest

from tests import house
from tests.test_architecture import ROOT


def test_what_the_redesign_did_away_with_stays_away() -> None:
    counted = {what: count() for what, (count, _) in house.ROWS.items() if what in GONE}
    assert counted == GONE


GONE = {
    "imports of vlm by speech": 0,
    "files that begin with whisper_": 0,
    "functions that only tests name, with their lines": {},
    "private names used by other modules": 0,
}


@pytest.mark.parametrize("what", ["forms of a transcription", "forms of a transcription's request"])
def test_a_form_is_itself_at_least(what: str) -> None:
    found = house.ROWS[what][0]()
    assert {"Transcription", "TranscriptionRequest"} & set(found)


def test_a_class_of_two_modules_and_an_unused_function_are_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    code = "class Twin:\n    a: int\n\ndef nobody_calls_this():\n    pass\n"
    path = ROOT / "tests" / "house.py"
    trees = {path: ast.parse(code), path.with_name("toys.py"): ast.parse(code)}
    monkeypatch.setattr(house, "TREES", trees)
    monkeypatch.setattr(house, "files", lambda folder: [])
    assert house.several_meanings() == {"Twin": 2}
    path_text = {"nobody_calls_this": 1, "Twin": 2}
    monkeypatch.setattr(house, "words_of", lambda paths: path_text)
    assert house.only_tested() == {"nobody_calls_this": 2}

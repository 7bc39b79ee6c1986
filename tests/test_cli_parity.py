"""`mmspec parity codec`: exit codes, the lines it writes, its JSON."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from mmspec.compare.code_parity import when_decided
from mmspec.factorizations import Codebook, DelayedFrames
from mmspec.tasks.tts.code_files import write_codes, write_sound
from tests.cli_support import Here

GRID = np.random.default_rng(0).integers(0, 16, (12, 4))


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Here:
    monkeypatch.setenv("COLUMNS", "200")
    return Here(capsys)


def other(*cells: tuple[int, int]) -> np.ndarray:
    changed = GRID.copy()
    for cell in cells:
        changed[cell] = (changed[cell] + 1) % 16
    return changed


def test_equal_codes_are_0(run: Here, tmp_path: Path) -> None:
    mine = write_codes(tmp_path / "mine.npz", GRID, family="musicgen")
    np.save(tmp_path / "theirs.npy", GRID.astype(np.int64))
    done = run("parity", "codec", mine, tmp_path / "theirs.npy")
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines()[0] == "equal: every code of every codebook"
    assert "12 frames × 4 codebooks, written by musicgen" in done.out
    for codebook in range(4):
        assert f"codebook {codebook}   12 of 12 codes equal" in done.out


def test_different_codes_are_1_and_have_a_place(run: Here, tmp_path: Path) -> None:
    first = write_codes(tmp_path / "a.npz", GRID)
    second = write_codes(tmp_path / "b.npz", other((5, 2), (7, 0)))
    done = run("parity", "codec", first, second)
    assert (done.code, done.err) == (1, "")
    assert done.out.startswith("different, and nobody wrote down how close the scores were\n")
    code = GRID[5, 2]
    place = f"frame 5, codebook 2: {code} in A, {(code + 1) % 16} in B"
    assert place in done.out
    assert "equal before       5 frames" in done.out
    assert "codebook 2         11 of 12 codes equal" in done.out
    assert "decided first" not in done.out


@pytest.mark.parametrize(
    ("gap", "sentence"),
    [
        (0.0004, "different, as a numerical tie explains: the scores were less than 0.001 apart"),
        (0.25, "different, by more than a tie (0.001)"),
    ],
)
def test_a_tie_is_said_and_still_1(run: Here, tmp_path: Path, gap: float, sentence: str) -> None:
    gaps = np.ones(GRID.shape)
    gaps[5, 2] = gap
    first = write_codes(tmp_path / "a.npz", GRID, gaps=gaps)
    second = write_codes(tmp_path / "b.npz", other((5, 2)))
    done = run("parity", "codec", first, second)
    assert done.code == 1
    assert done.out.splitlines()[0] == sentence
    assert f"the two best scores were {gap:.2g} apart" in done.out


@pytest.mark.parametrize("beside", ["a", "b"])
def test_delayed_codes_part_where_the_earlier_step_was(
    run: Here, tmp_path: Path, beside: str
) -> None:
    book = Codebook(17, 16, start=16, pad=16)
    numbers = when_decided(DelayedFrames((book,) * 4, (0, 1, 2, 3)), 12)
    facts = {beside: {"decided_at": numbers}}
    first = write_codes(tmp_path / "a.npz", GRID, **facts.get("a", {}))
    second = write_codes(tmp_path / "b.npz", other((5, 3), (6, 0)), **facts.get("b", {}))
    done = run("parity", "codec", first, second)
    lines = {line[:18].strip(): line for line in done.out.splitlines()}
    assert "frame 5, codebook 3" in lines["first difference"]
    assert "frame 6, codebook 0" in lines["decided first"]


def test_one_that_goes_on_or_has_more_codebooks(run: Here, tmp_path: Path) -> None:
    whole = write_codes(tmp_path / "a.npz", GRID)
    done = run("parity", "codec", whole, write_codes(tmp_path / "b.npz", GRID[:7]))
    assert done.code == 1
    assert done.out.startswith("different: equal as far as both go, 12 frames in A, 7 in B\n")
    assert "codebook 0     7 of 12 codes equal" in done.out
    done = run("parity", "codec", whole, write_codes(tmp_path / "b.npz", GRID[:, :3]))
    assert done.code == 1
    assert done.out.startswith("different: 4 codebooks in A, 3 in B\n")


def test_sounds_are_compared_by_the_codes_beside_them(run: Here, tmp_path: Path) -> None:
    files = [tmp_path / "plain.wav", tmp_path / "speculative.wav"]
    for number, path in enumerate(files):
        write_sound(path, np.full(100, number / 10), 16_000)
        write_codes(path, GRID)
    assert run("parity", "codec", *files).code == 0
    (tmp_path / "plain.codes.npz").unlink()
    done = run("parity", "codec", *files)
    assert done.code == 2
    assert len(done.complaints) == 1
    assert "plain.codes.npz: found nothing there" in done.complaints[0]


def test_json(run: Here, tmp_path: Path) -> None:
    first = write_codes(tmp_path / "a.npz", GRID, gaps=np.full(GRID.shape, 1e-5))
    second = write_codes(tmp_path / "b.npz", other((5, 2)))
    done = run("parity", "codec", first, second, "--json", tmp_path / "out.json")
    assert done.code == 1
    written = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))
    assert (written["first"], written["second"]) == (str(first), str(second))
    assert written["verdict"] == "tie"
    assert written["equal"] is False
    assert written["first_shape"] == written["second_shape"] == [12, 4]
    assert written["equal_codes"] == [12, 12, 11, 12]
    assert written["matches"] == pytest.approx([1, 1, 11 / 12, 1])
    assert written["equal_frames"] == 5
    assert (written["difference"]["frame"], written["difference"]["codebook"]) == (5, 2)
    assert written["parted"] == [written["difference"]]


def test_bad_input_is_2_and_one_line(run: Here, tmp_path: Path) -> None:
    good = write_codes(tmp_path / "good.npz", GRID)
    (tmp_path / "notes.npz").write_text("0 1 2\n")
    np.savez(tmp_path / "gap.npz", codes=np.array([[0, 1], [2, -1]]))
    for bad, message in (
        ("missing.npz", "nothing there"),
        ("notes.npz", "found another kind of file"),
        ("gap.npz", "frame 1, codebook 1: -1 is no code"),
        (".", "found a directory"),
    ):
        for files in ((good, tmp_path / bad), (tmp_path / bad, good)):
            done = run("parity", "codec", *files)
            assert (done.code, done.out) == (2, "")
            (line,) = done.complaints
            assert message in line
    assert run("parity", "codec", good).code == 2
    done = run("parity", "codec", good, good, "--json", good / "out.json")
    assert done.code == 2
    assert "can't be written" in done.complaints[0]


def test_names_steer_nothing(run: Here, tmp_path: Path) -> None:
    hostile = tmp_path / "[bold]a\x1b[31mred\x07.npz"
    done = run("parity", "codec", write_codes(hostile, GRID), hostile)
    assert done.code == 0
    assert "\x1b" not in done.out
    assert "[bold]a" in done.out


def test_help_names_its_parts(run: Here) -> None:
    for arguments in (("parity", "--help"), ("parity", "codec", "--help")):
        done = run(*arguments)
        assert done.code == 0
        assert "codec" in done.out
        assert not done.err

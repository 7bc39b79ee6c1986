"""The command line where it is cut short: interrupted at once, unread, writing to a dash."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from mmspec import __main__ as entry

CLIP = Path(__file__).parents[1] / "samples" / "audio" / "2-slt.flac"


def test_an_interruption_during_the_imports_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Interrupted:
        def find_spec(self, name: str, *_: object) -> None:
            if name == "mmspec.cli":
                raise KeyboardInterrupt

    for name in [name for name in sys.modules if name.partition(".cli")[0] == "mmspec"]:
        if name.startswith("mmspec.cli"):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [Interrupted(), *sys.meta_path])
    with pytest.raises(SystemExit) as left:
        entry.main()
    assert left.value.code == 130
    assert capsys.readouterr().err == "mmspec: interrupted\n"


def test_a_closed_standard_output_is_no_fault() -> None:
    command = f"'{sys.executable}' -P -m mmspec info >&-"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("more", [[], ["--output-dir", "texts"]])
def test_json_to_a_dash_is_json_on_standard_output(
    more: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from mmspec.cli import main

    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as left:
        main(["transcribe", str(CLIP), "-t", "sample", "-q", "--json", "-", *more])
    assert left.value.code == 0
    (entry,) = json.loads(capsys.readouterr().out)["files"]
    assert entry["text"]
    assert not (tmp_path / "-").exists()
    assert [path.name for path in tmp_path.iterdir()] == (["texts"] if more else [])


def test_a_dash_is_refused_where_standard_output_has_other_results(
    capsys: pytest.CaptureFixture[str],
) -> None:
    from mmspec.cli import main

    with pytest.raises(SystemExit) as left:
        main(["speak", "hello", "--json", "-"])
    assert left.value.code == 2
    assert "--json: found -, expected a file" in capsys.readouterr().err

"""Options as data: what a dataclass holds is what its command takes, and Python knows the same."""

import subprocess
import sys
import typing
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Annotated, Any

import pytest
from cyclopts import App, CycloptsError

from mmspec.cli import app, main
from mmspec.cli.groups import Only, given, grouped
from mmspec.modalities.base.options import Request, option
from mmspec.modalities.vlm.request import VisionOptions, VisionRequest
from mmspec.modalities.whisper.request import TranscriptionOptions, TranscriptionRequest
from mmspec.tasks.tts.request import SpeechOptions, SpeechRequest

COMMANDS = ["transcribe", "caption", "ocr", "speak", "demo", "info"]
COMMANDS += ["bench asr", "bench vlm", "bench tts", "parity codec"]


def command_of(name: str) -> Any:
    found = app
    for part in name.split():
        found = found[part]
    return found


@dataclass(frozen=True)
class Made:
    """What a command is given.

    Attributes:
        width: How wide it is, `none` for
            a guess.
        sure: Whether it is.
    """

    width: int | None = option(None, short="-w", metavar="N", least=1, most=9)
    sure: bool | None = option(None, negative=True)
    share: float = option(0.5, least=0)
    drafts: list[str] | None = option(None, name="--draft")
    hidden: Any = None


def parsed(*arguments: str) -> Any:
    """What a command of these options is called with."""

    @grouped
    def command(*, models: Made, count: Annotated[int, given("How many.", 1, kind=int)] = 1) -> Any:
        return models, count

    made = App(help_format="rich", result_action="return_value")
    made.default(command)
    return made(list(arguments), exit_on_error=False, print_error=False)


class TestGroups:
    def test_the_dataclass_comes_back(self) -> None:
        models, count = parsed("-w", "3", "--no-sure", "--draft", "a", "--draft", "b", "--count=2")
        assert isinstance(models, Made)
        assert (models.width, models.sure, models.drafts, count) == (3, False, ["a", "b"], 2)
        assert asdict(parsed()[0]) == asdict(Made())

    def test_the_last_one_holds(self) -> None:
        assert parsed("--width", "3", "-w", "4")[0].width == 4

    def test_a_value_may_begin_with_a_dash(self) -> None:
        assert parsed("--draft", "-x")[0].drafts == ["-x"]

    @pytest.mark.parametrize(
        "arguments",
        [
            ["--width", "0"],
            ["--width", "10"],
            ["--width", "1.5"],
            ["--count", "1.5"],
            ["--share", "-1"],
            ["--share", "much"],
            ["--hidden", "1"],
            ["--no-share", "1"],
            ["--width"],
        ],
    )
    def test_what_is_not_taken(self, arguments: list[str]) -> None:
        with pytest.raises(CycloptsError, match=arguments[0]):
            parsed(*arguments)

    def test_only_some_of_them(self) -> None:
        @grouped
        def command(*, models: Annotated[Made, Only("sure")]) -> Made:
            return models

        made = App(result_action="return_value")
        made.default(command)
        shown = [one for one in made.assemble_argument_collection() if one.show]
        names = {name for one in shown for name in one.names}
        assert names == {"--sure", "--no-sure"}

    def test_help_is_the_docstrings(self, capsys: pytest.CaptureFixture[str]) -> None:
        parsed("--help")
        shown = " ".join(capsys.readouterr().out.split())
        assert "How wide it is, none for a guess." in shown
        assert "N [1<=x<=9]" in shown


class TestRequests:
    @pytest.mark.parametrize(
        ("request_class", "keywords"),
        [
            (TranscriptionRequest, TranscriptionOptions),
            (VisionRequest, VisionOptions),
            (SpeechRequest, SpeechOptions),
        ],
    )
    def test_keywords_are_its_attributes(self, request_class: Any, keywords: Any) -> None:
        known, named = typing.get_type_hints(request_class), typing.get_type_hints(keywords)
        asked = {of.name for of in fields(request_class)} - {"further"}
        assert asked <= named.keys()
        assert {name: named[name] for name in asked} == {name: known[name] for name in asked}

    def test_what_it_does_not_know_is_one_of_generates(self) -> None:
        request = TranscriptionRequest().having({"seed": 1, "top_k": 3})
        assert (request.seed, request.further) == (1, {"top_k": 3})
        again = request.having({"top_p": 0.5, "max_new_tokens": 2})
        assert again.generate_options == {"top_k": 3, "top_p": 0.5, "max_new_tokens": 2}

    def test_json_tells_of_every_option(self) -> None:
        told = SpeechRequest().to_dict()
        offered = {of.name for of in fields(SpeechRequest) if of.metadata}
        assert told.keys() == offered
        assert not told.keys() & {of.name for of in fields(Request)}


class TestCommands:
    def test_lists_have_the_docstrings_first_lines(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("COLUMNS", "200")
        for several in ([], ["bench"], ["parity"]):
            with pytest.raises(SystemExit):
                main([*several, "--help"])
        shown = " ".join(capsys.readouterr().out.replace("│", " ").split())  # however wide it is
        for name in COMMANDS:
            assert command_of(name).default_command.__doc__.splitlines()[0] in shown

    @pytest.mark.parametrize("name", COMMANDS)
    def test_every_option_says_what_it_is_for(self, name: str) -> None:
        for one in command_of(name).assemble_argument_collection():
            assert not one.show or one.parameter.help, one.name

    def test_an_unknown_option_is_no_file(self, capsys: pytest.CaptureFixture[str]) -> None:
        for arguments in (["--bogus"], ["a.wav", "--bogus=1"], ["-", "--bogus", "--", "--bogus"]):
            with pytest.raises(SystemExit, match="2"):
                main(["transcribe", *arguments, "-t", "sample"])
            assert "Unknown option: --bogus" in capsys.readouterr().err

    def test_a_file_may_begin_with_a_dash(
        self, capsys: pytest.CaptureFixture[str], tmp_path: Path
    ) -> None:
        for arguments, named in ((["-"], "-"), (["--", "-x.wav"], "-x.wav")):
            with pytest.raises(SystemExit, match="2"):
                main(["parity", "codec", str(tmp_path / "a.npz"), *arguments])
            assert "Unknown option" not in capsys.readouterr().err, named

    def test_help_imports_no_model(self) -> None:
        code = (
            "import sys\nfrom mmspec.cli import main\n"
            "try:\n    main([*sys.argv[1:], '--help'])\n"
            "except SystemExit:\n    assert 'torch' not in sys.modules\n"
        )
        for name in ("transcribe", "ocr", "speak"):
            done = subprocess.run([sys.executable, "-c", code, name], capture_output=True)
            assert done.returncode == 0, done.stderr

"""Faults of options and requests, planted in production code and caught."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Mapping
from typing import Annotated, Any

from cyclopts import App, CycloptsError

import mmspec
from mmspec import cli
from mmspec.cli import groups
from mmspec.errors import OptionError
from mmspec.modalities.vlm.request import VisionRequest
from mmspec.modalities.whisper.request import TranscriptionRequest
from mmspec.tasks.vlm import viewer
from tests.modalities.tiny import speech, tiny, tiny_processor

from .catching import (
    Check,
    Mutant,
    Patch,
    expect,
)
from .catching import (
    test_every_check_catches_something as test_every_check_catches_something,
)
from .catching import (
    test_the_mutant_is_caught as test_the_mutant_is_caught,
)
from .catching import (
    test_the_real_code_passes as test_the_real_code_passes,
)


def an_unknown_option_is_named() -> None:
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.suppress(SystemExit):
        cli.main(["transcribe", "missing.wav", "--bogus", "--task", "sing"])
    expect("Unknown option: --bogus" in said.getvalue(), "an unknown option was taken for a file")


def a_part_is_no_whole_number() -> None:
    @groups.grouped
    def command(*, count: Annotated[int, groups.given("How many.", 1, kind=int)] = 1) -> int:
        return count

    made = App(result_action="return_value")
    made.default(command)
    try:
        found = made(["--count", "1.5"], exit_on_error=False, print_error=False)
    except CycloptsError:
        return
    expect(False, f"1.5 was taken for {found}")


def a_method_says_it_once() -> None:
    try:
        viewer.asking({"task": "read"}, task="caption")
    except OptionError:
        return
    expect(False, "one of two tasks was dropped")


def a_stream_drops_no_wish() -> None:
    with mmspec.load(tiny(1), processor=tiny_processor()) as recogniser:
        pieces = recogniser.stream(speech(seconds=0.2), sampling_rate=16_000, word_timestamps=True)
        try:
            list(pieces)
        except OptionError:
            return
    expect(False, "a stream never said when words were spoken")


CHECKS: list[Check] = [
    an_unknown_option_is_named,
    a_part_is_no_whole_number,
    a_method_says_it_once,
    a_stream_drops_no_wish,
]


def _asking(options: Mapping[str, Any], **said: Any) -> VisionRequest:
    return VisionRequest().having({**options, **said})


def knows_every_option(patch: Patch) -> None:
    patch.setattr(cli, "check_known", lambda *_: None)


def rounds_numbers(patch: Patch) -> None:
    patch.setattr(groups, "_number", lambda *_: lambda _, tokens: int(float(tokens[0].value)))


def lets_the_method_win(patch: Patch) -> None:
    patch.setattr(viewer, "asking", _asking)


def streams_whatever_is_asked(patch: Patch) -> None:
    patch.setattr(TranscriptionRequest, "check_in_sequence", lambda *_: None)


MUTANTS: list[Mutant] = [
    (knows_every_option, an_unknown_option_is_named, "taken for a file"),
    (rounds_numbers, a_part_is_no_whole_number, "was taken for 1"),
    (lets_the_method_win, a_method_says_it_once, "was dropped"),
    (streams_whatever_is_asked, a_stream_drops_no_wish, "never said"),
]

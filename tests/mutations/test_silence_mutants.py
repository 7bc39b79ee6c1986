"""Faults of saying nothing, planted in production code and caught: success that gives no reason."""

from __future__ import annotations

import contextlib
import io
import os
import tempfile
from pathlib import Path
from typing import Any

import soundfile
from transformers import WhisperConfig

import mmspec
from mmspec import cli, loading
from mmspec.cli import output
from mmspec.cli.files import FilesRun
from mmspec.engine.stats import RequestStats
from mmspec.errors import ModelError, OptionError
from mmspec.modalities.whisper import stream
from mmspec.proposals.model import ModelDrafter
from tests.modalities.speech import bed_orpheus
from tests.modalities.tiny import features, saved, speech, tiny, tiny_decoder, tiny_processor

from .catching import Check, Mutant, Patch, expect
from .catching import (
    test_every_check_catches_something as test_every_check_catches_something,
)
from .catching import (
    test_the_mutant_is_caught as test_the_mutant_is_caught,
)
from .catching import (
    test_the_real_code_passes as test_the_real_code_passes,
)

SILENT: dict[str, Any] = {"no_speech_threshold": 0.0, "logprob_threshold": 0.0}
"""Options with which every window of the tiny model counts as silence."""


def run(*arguments: object) -> tuple[str, str]:
    """Both outputs of a command."""
    out, err = io.StringIO(), io.StringIO()
    quiet = contextlib.suppress(SystemExit)
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), quiet:
        cli.main([str(argument) for argument in arguments])
    return out.getvalue(), err.getvalue()


# The checks.


def an_empty_transcript_says_why() -> None:
    with mmspec.load(tiny(), processor=tiny_processor()) as recogniser:
        said = recogniser.transcribe(speech(), sampling_rate=16_000, language="en", **SILENT)
    expect(any("nothing was said" in note for note in said.report.notes), "an empty transcript")


def an_output_without_a_frame_says_why() -> None:
    with mmspec.load(bed_orpheus.made(), family=bed_orpheus.LENIENT) as speaker:
        said = speaker.speak("", inputs=bed_orpheus.inputs(), max_new_tokens=3, sound=False)
    expect(any("no whole frame" in note for note in said.report.notes), "no frame, no reason")


def a_drafter_says_that_it_is_full() -> None:
    loop = mmspec.custom_generate(tiny_decoder(context=12), gamma=3)
    tiny().generate(features(), language="en", custom_generate=loop)
    expect(any("own limit" in note for note in loop.report.notes), "a full drafter kept quiet")


def the_command_line_says_why() -> None:
    with tempfile.TemporaryDirectory() as folder:
        target, clip = saved(Path(folder) / "target", tiny()), Path(folder) / "clip.wav"
        soundfile.write(clip, speech(), 16_000)
        out, err = run("transcribe", clip, "-t", target, "--no-speech", 0.0, "-q")
    expect(out == "\n", f"standard output changed: {out!r}")
    expect("nothing was said" in err, "nobody was told why the line is empty")


def weights_that_are_missing_are_named() -> None:
    with tempfile.TemporaryDirectory() as folder:
        target = saved(Path(folder) / "target", tiny())
        config = WhisperConfig.from_pretrained(target)
        config.decoder_layers += 1
        config.save_pretrained(target)
        try:
            with contextlib.redirect_stderr(io.StringIO()):
                mmspec.load(str(target)).close()
        except ModelError:
            return
    expect(False, "a layer of random weights decoded")


def a_dash_is_no_file() -> None:
    clip = Path(mmspec.__file__).parents[1] / "samples" / "audio" / "4-rms.flac"
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            run("transcribe", clip, "-t", "sample", "-q", "--format", "srt", "--output-dir", "o")
            run("transcribe", clip, "-t", "sample", "-q", "--json", "-", "--output-dir", "o")
        finally:
            os.chdir(before)
        expect(not (Path(folder) / "-").exists(), "a file is called -")


def a_word_is_no_number() -> None:
    with mmspec.load(tiny(1), processor=tiny_processor()) as recogniser:
        try:
            recogniser.live(step_s="soon")
        except OptionError:
            return
        except Exception as error:
            expect(False, f"a raw {type(error).__name__}")
    expect(False, "a word was taken for seconds")


CHECKS: list[Check] = [
    an_empty_transcript_says_why,
    an_output_without_a_frame_says_why,
    a_drafter_says_that_it_is_full,
    the_command_line_says_why,
    weights_that_are_missing_are_named,
    a_dash_is_no_file,
    a_word_is_no_number,
]


# The mutants.


def notes_are_dropped(patch: Patch) -> None:
    patch.setattr(RequestStats, "note", lambda self, what: None)


def a_full_drafter_is_quiet(patch: Patch) -> None:
    patch.setattr(ModelDrafter, "note", property(lambda self: None))


def the_shell_is_quiet(patch: Patch) -> None:
    patch.setattr(FilesRun, "_say_about", lambda self, name, report, empty: None)


def whatever_weights_there_are(patch: Patch) -> None:
    def drawn(kind: Any, source: str, dtype: Any, code: dict[str, Any]) -> Any:
        return kind.from_pretrained(source, dtype=dtype, use_safetensors=True, **code)

    patch.setattr(loading, "whole_model", drawn)


def a_dash_is_a_name(patch: Patch) -> None:
    patch.setattr(output, "STDOUT", None)


def numbers_are_believed(patch: Patch) -> None:
    patch.setattr(stream, "check_numbers", lambda options: None)


MUTANTS: list[Mutant] = [
    (notes_are_dropped, an_empty_transcript_says_why, "an empty transcript"),
    (notes_are_dropped, an_output_without_a_frame_says_why, "no frame, no reason"),
    (a_full_drafter_is_quiet, a_drafter_says_that_it_is_full, "kept quiet"),
    (the_shell_is_quiet, the_command_line_says_why, "nobody was told"),
    (whatever_weights_there_are, weights_that_are_missing_are_named, "random weights"),
    (a_dash_is_a_name, a_dash_is_no_file, "a file is called -"),
    (numbers_are_believed, a_word_is_no_number, "raw|taken for seconds"),
]

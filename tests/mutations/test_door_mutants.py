"""Sound that vanishes and errors that come through a door raw, planted and caught.

Every check passes on the real code and raises `Caught` on the mutant that it is named for.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from mmspec.errors import InputError
from mmspec.modalities.media import audio, audio_files
from mmspec.modalities.media import audio_buffer as incoming
from mmspec.modalities.media import containers as _containers
from tests.modalities.test_audio_files import RATE, SECONDS, sound, with_size, written

from .catching import Check, Mutant, Patch, expect
from .catching import test_every_check_catches_something as test_every_check_catches_something
from .catching import test_the_mutant_is_caught as test_the_mutant_is_caught
from .catching import test_the_real_code_passes as test_the_real_code_passes

VOICE = (sound(RATE) * 20_000).astype(np.int32)


def refuses(load: Callable[[], Any]) -> bool:
    try:
        load()
    except InputError:
        return True
    except Exception:
        return False
    return False


def an_mp3_is_heard_to_its_end() -> None:
    with tempfile.TemporaryDirectory() as place:
        heard = audio.load_audio(written(Path(place), "vbr.mp3"))
    expect(abs(len(heard) / RATE - SECONDS) < 0.2, "a part of an mp3 wasn't heard")


def a_cut_file_is_refused() -> None:
    with tempfile.TemporaryDirectory() as place:
        path = written(Path(place), "a.flac")
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
        expect(refuses(lambda: audio.load_audio(path)), "half a file was heard as a whole one")


def cut(kind: str) -> None:
    with tempfile.TemporaryDirectory() as place:
        path = written(Path(place), kind)
        data = path.read_bytes()
        for size in range(len(data) // 5, len(data) * 9 // 10, 499):
            path.write_bytes(data[:size])
            expect(refuses(lambda: audio.load_audio(path)), f"a part of {kind} was heard as whole")


def a_cut_matroska_is_refused() -> None:
    cut("a.mka")


def a_cut_file_of_chunks_is_refused() -> None:
    cut("a.caf")


def a_cut_film_is_refused() -> None:
    cut("a.avi")


def a_cut_wma_is_refused() -> None:
    cut("a.wma")


def two_in_a_file_are_named() -> None:
    with tempfile.TemporaryDirectory() as place:
        path = written(Path(place), "a.m4a")
        path.write_bytes(path.read_bytes() * 2)
        expect(refuses(lambda: audio.load_audio(path)), "the second recording wasn't heard")


def samples_behind_the_samples_are_named() -> None:
    with tempfile.TemporaryDirectory() as place:
        path = written(Path(place), "a.wav")
        with_size(path, 32_000)
        expect(refuses(lambda: audio.load_audio(path)), "two thirds of a file weren't heard")


def a_chain_is_heard_whole() -> None:
    with tempfile.TemporaryDirectory() as place:
        path = written(Path(place), "a.ogg")
        path.write_bytes(path.read_bytes() * 2)
        heard = len(audio.load_audio(path))
    expect(heard > 1.8 * RATE * SECONDS, "a part of a chain wasn't heard")


def sixteen_bits_in_thirty_two_are_refused() -> None:
    expect(refuses(lambda: audio.load_audio(VOICE, RATE)), "silence was heard")


def a_stream_of_sixteen_bits_in_thirty_two_is_refused() -> None:
    stream = incoming.AudioBuffer()
    expect(refuses(lambda: [stream.add(VOICE[:RATE], RATE) for _ in "ab"]), "silence was heard")


def sixteen_bits_in_floats_are_refused() -> None:
    samples = VOICE.astype(np.float32)
    expect(refuses(lambda: audio.load_audio(samples, RATE)), "noise was heard")


def whatever_a_library_raises_is_ours() -> None:
    def raise_() -> None:
        with audio_files.door("x", str, "y"):
            _ = 1 // 0

    expect(refuses(raise_), "a raw error came through")


CHECKS: list[Check] = [
    an_mp3_is_heard_to_its_end,
    a_cut_file_is_refused,
    a_cut_matroska_is_refused,
    a_cut_file_of_chunks_is_refused,
    a_cut_film_is_refused,
    a_cut_wma_is_refused,
    two_in_a_file_are_named,
    samples_behind_the_samples_are_named,
    a_chain_is_heard_whole,
    sixteen_bits_in_thirty_two_are_refused,
    a_stream_of_sixteen_bits_in_thirty_two_is_refused,
    sixteen_bits_in_floats_are_refused,
    whatever_a_library_raises_is_ours,
]


def an_estimate_is_a_promise(patch: Patch) -> None:
    real = audio_files._decoded

    def believing(container: Any, stream: Any) -> Any:
        heard = real(container, stream)
        if "mp3" in container.format.name:
            most = float(stream.duration * stream.time_base) / 4
            heard.frames = [frame for frame in heard.frames if frame.time < most]
        return heard

    patch.setattr(audio_files, "_decoded", believing)


def nothing_is_promised(patch: Patch) -> None:
    patch.setattr(audio_files, "PROMISES", frozenset())
    patch.setattr(audio_files, "TAGS", (b"",))


def matroska_promises_nothing(patch: Patch) -> None:
    patch.setattr(audio_files, "says_duration", lambda path: False)


def no_chunks_in_a_caf(patch: Patch) -> None:
    patch.delitem(_containers.LAYOUTS, b"caff")


def a_film_is_never_cut(patch: Patch) -> None:
    patch.setattr(_containers, "_missing_of_riffs", lambda data: None)


def wma_is_never_cut(patch: Patch) -> None:
    patch.setattr(_containers, "_missing_of_asf", lambda data: None)


def nothing_begins_again(patch: Patch) -> None:
    patch.setattr(audio_files, "begins_again", lambda path, end: False)


def nobody_looks_behind(patch: Patch) -> None:
    patch.setattr(_containers, "_behind_samples", lambda data: None)


def every_ogg_is_single(patch: Patch) -> None:
    patch.setattr(audio_files, "is_single_ogg", lambda path: path.suffix == ".ogg")


def types_tell_the_scale(patch: Patch) -> None:
    patch.setattr(audio, "is_small_for_its_type", lambda samples: False)


def chunks_types_tell_the_scale(patch: Patch) -> None:
    patch.setattr(incoming, "is_small_for_its_type", lambda samples: False)


def floats_are_on_their_scale(patch: Patch) -> None:
    patch.setattr(audio, "LOUDEST", float("inf"))


def a_door_for_some_errors_only(patch: Patch) -> None:
    @contextlib.contextmanager
    def narrow(name: str, found: Any, expected: str) -> Iterator[None]:
        try:
            yield
        except (OSError, ValueError, RuntimeError):
            raise InputError(name) from None

    patch.setattr(audio_files, "door", narrow)


MUTANTS: list[Mutant] = [
    (an_estimate_is_a_promise, an_mp3_is_heard_to_its_end, "wasn't heard"),
    (nothing_is_promised, a_cut_file_is_refused, "as a whole one"),
    (matroska_promises_nothing, a_cut_matroska_is_refused, "as whole"),
    (no_chunks_in_a_caf, a_cut_file_of_chunks_is_refused, "as whole"),
    (a_film_is_never_cut, a_cut_film_is_refused, "as whole"),
    (wma_is_never_cut, a_cut_wma_is_refused, "as whole"),
    (nothing_begins_again, two_in_a_file_are_named, "wasn't heard"),
    (nobody_looks_behind, samples_behind_the_samples_are_named, "weren't heard"),
    (every_ogg_is_single, a_chain_is_heard_whole, "wasn't heard"),
    (types_tell_the_scale, sixteen_bits_in_thirty_two_are_refused, "silence"),
    (chunks_types_tell_the_scale, a_stream_of_sixteen_bits_in_thirty_two_is_refused, "silence"),
    (floats_are_on_their_scale, sixteen_bits_in_floats_are_refused, "noise"),
    (a_door_for_some_errors_only, whatever_a_library_raises_is_ours, "raw error"),
]

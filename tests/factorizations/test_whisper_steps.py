"""Whisper's prompts, times and segments, without a model."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mmspec.factorizations import Segment, WhisperSteps
from tests.factorizations.test_text import WHISPER

ENGLISH = WhisperSteps(
    vocab_size=60, context=16, start=50, stop_tokens=frozenset({49}), no_timestamps=56
)
T0 = WHISPER.timestamp_begin


@pytest.mark.parametrize(
    ("language", "task", "timestamps", "expected"),
    [
        (51, "transcribe", False, (50, 51, 53, 56)),
        (52, "translate", False, (50, 52, 54, 56)),
        (51, "transcribe", True, (50, 51, 53)),
        (None, None, False, (50, 56)),
        (None, None, True, (50,)),
    ],
)
def test_the_prompt_says_what_to_do(
    language: int | None, task: str | None, timestamps: bool, expected: tuple[int, ...]
) -> None:
    assert WHISPER.prompt(language=language, task=task, timestamps=timestamps) == expected


def test_previous_text_comes_first() -> None:
    prompt = ENGLISH.prompt(language=None, task=None, timestamps=False, previous=(55, 1, 2))
    assert prompt == (55, 1, 2, 50, 56)


@pytest.mark.parametrize(
    ("forced", "language", "task", "expected"),
    [
        ((51, 53, 56), None, None, (50, 51, 53, 56)),
        ((None, 53), 52, None, (50, 52, 53, 56)),
        ((51, 53), 52, "translate", (50, 52, 53)),
    ],
)
def test_tokens_that_an_older_checkpoint_forces(
    forced: tuple[int | None, ...],
    language: int | None,
    task: str | None,
    expected: tuple[int, ...],
) -> None:
    steps = replace(WHISPER, forced=forced)
    prompt = steps.prompt(language=language, task=task, timestamps=False, use_forced=True)
    if task is None:
        assert prompt == expected
    else:
        assert prompt.count(54) == 1
        assert 53 not in prompt, "one task, not two"


def test_a_task_that_the_checkpoint_lacks() -> None:
    with pytest.raises(ValueError, match=r"unknown task 'sing': this model knows \['transcribe'"):
        WHISPER.prompt(language=51, task="sing", timestamps=False)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"start": 60}, r"WhisperSteps has token 60, outside the vocabulary of 60"),
        ({"stop_tokens": frozenset({99})}, r"WhisperSteps has token 99"),
        ({"languages": (("<|en|>", 70),)}, r"WhisperSteps has token 70"),
        ({"tasks": (("transcribe", -2),)}, r"WhisperSteps has token -2"),
        ({"no_timestamps": 61}, r"WhisperSteps has token 61"),
        ({"forced": (None, 64)}, r"WhisperSteps has token 64"),
        ({"context": 1}, r"context must hold a prompt and a token, got 1"),
    ],
)
def test_layouts_that_cant_be(change: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(WHISPER, **change)  # type: ignore[arg-type]


def test_prompt_marks_are_reserved_and_times_begin_behind_them() -> None:
    assert WHISPER.reserved == frozenset({50, 51, 52, 53, 54, 55, 56})
    assert T0 == 57
    assert not WHISPER.is_timestamp(56)
    assert WHISPER.is_timestamp(57)
    assert WHISPER.seconds(T0 + 50) == pytest.approx(1.0)
    without = replace(WHISPER, no_timestamps=None)
    assert without.timestamp_begin == without.vocab_size, "beyond: there are none"


def wide() -> WhisperSteps:
    return WhisperSteps(
        vocab_size=2000, context=448, start=1, stop_tokens=frozenset({0}), no_timestamps=99
    )


def test_D_segments_as_the_reference_implementation_cuts_them() -> None:
    steps, begin = wide(), 100
    # No pair of times: one segment, over the whole window unless a time says otherwise.
    assert steps.split([7, 8], 0.0, 30.0) == ([Segment(0.0, 30.0, (7, 8))], 30.0)
    assert steps.split([begin, 7, begin + 50], 3.0, 30.0) == (
        [Segment(3.0, 4.0, (begin, 7, begin + 50))],
        30.0,
    )
    # A pair inside, a single time at the end: all of the window is done with.
    ids = [begin, 7, begin + 50, begin + 50, 8, begin + 100]
    segments, done = steps.split(ids, 10.0, 30.0)
    assert done == 30.0
    assert segments == [
        Segment(10.0, 11.0, (begin, 7, begin + 50)),
        Segment(11.0, 12.0, (begin + 50, 8, begin + 100)),
    ]
    # A pair at the end: speech goes on behind it.
    segments, done = steps.split([*ids, begin + 100], 10.0, 30.0)
    assert done == pytest.approx(2.0)
    assert [segment.end_s for segment in segments] == pytest.approx([11.0, 12.0])
    # Units behind the last pair belong to the next window.
    segments, done = steps.split([begin, 7, begin + 50, begin + 50, 8], 0.0, 30.0)
    assert done == pytest.approx(1.0)
    assert len(segments) == 1
    assert steps.split([], 0.0, 30.0) == ([Segment(0.0, 30.0, ())], 30.0)

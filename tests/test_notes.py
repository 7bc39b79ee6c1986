"""A report says why there is nothing, or why somebody stopped: success isn't silent about it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import LogitsProcessor

import mmspec
from tests.modalities.speech import bed_orpheus
from tests.modalities.tiny import EOS, features, speech, tiny, tiny_decoder, tiny_processor

OPTIONS: dict[str, Any] = {"sampling_rate": 16_000, "language": "en"}


def notes_of(model: Any, draft: Any = "none", **options: Any) -> tuple[str, ...]:
    with mmspec.load(model, draft, processor=tiny_processor(), gamma=3) as recogniser:
        return recogniser.transcribe(speech(), **OPTIONS, **options).report.notes


class OnlyTheEnd(LogitsProcessor):
    """Whatever the target says, it ends."""

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        ends = torch.full_like(scores, -torch.inf)
        ends[:, EOS] = 0
        return ends


def test_an_empty_transcript_says_why() -> None:
    assert notes_of(tiny()) == ()
    (note,) = notes_of(tiny(), logits_processor=[OnlyTheEnd()])
    assert note == "nothing was said: the target ended its output before any text"


def test_a_window_taken_for_silence_says_so() -> None:
    options = {"no_speech_threshold": 0.0, "logprob_threshold": 0.0}
    (note,) = notes_of(tiny(), **options)
    assert note.startswith("nothing was said: every window was taken for silence")


def test_a_drafter_that_reaches_its_own_limit_says_so() -> None:
    model, short = tiny(), tiny_decoder(context=12)
    loop = mmspec.custom_generate(short, gamma=3)
    model.generate(features(), language="en", custom_generate=loop)
    (note,) = loop.report.notes
    assert "stopped at its own limit of 12 positions" in note
    loop = mmspec.custom_generate("early-exit:1", gamma=3)
    model.generate(features(), language="en", custom_generate=loop)
    assert loop.report.notes == (), "its limit is the target's"


@pytest.mark.parametrize(("steps", "empty"), [(3, True), (40, False)])
def test_an_output_without_a_whole_frame_says_why(steps: int, empty: bool) -> None:
    model = bed_orpheus.made()
    with mmspec.load(model, family=bed_orpheus.LENIENT) as speaker:
        said = speaker.speak("", inputs=bed_orpheus.inputs(), max_new_tokens=steps, sound=False)
    assert (len(said.codes) == 0) == empty
    assert ("no whole frame in an output of 3 tokens" in " ".join(said.report.notes)) == empty

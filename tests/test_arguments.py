"""Arguments of a wrong type are one line that names them, in Python too."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import make_dataclass
from typing import Any

import numpy as np
import pytest
from PIL import Image

import mmspec
from mmspec.modalities.base.options import check_numbers
from mmspec.modalities.media.documents import pages
from mmspec.modalities.whisper.request import TranscriptionRequest
from tests.modalities.tiny import shared, speech, tiny_processor

HEAR: dict[str, Any] = {"audio": speech(), "sampling_rate": 16_000}
WRONG: dict[str, Callable[[Any], Any]] = {
    "step_s": lambda whole: whole.live(step_s="1"),
    "trim_s": lambda whole: whole.live(trim_s="1"),
    "chunk_s": lambda whole: whole.transcribe(**HEAR, chunk_s="5"),
    "batch": lambda whole: whole.transcribe_batch([HEAR["audio"]], batch="2"),
    "max_new_tokens": lambda whole: whole.transcribe(**HEAR, max_new_tokens="5"),
    "timestamps": lambda whole: whole.transcribe(**HEAR, timestamps="yes"),
    "streamer": lambda whole: whole.transcribe(**HEAR, streamer=5),
    "dpi": lambda whole: pages(Image.new("RGB", (3, 2)), dpi="200"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_type_is_one_line_that_names_the_argument(name: str) -> None:
    with (
        mmspec.load(shared(), processor=tiny_processor()) as whole,
        pytest.raises(mmspec.MMSpecError, match=rf"^{name}.*expected") as error,
    ):
        WRONG[name](whole)
    assert "\n" not in str(error.value)


def test_a_command_lines_class_may_be_given_what_python_takes() -> None:
    """Its temperature is one number in a shell; with fallback the request has several."""
    shell = make_dataclass(
        "Shell", [("temperature", float, 0.0)], bases=(TranscriptionRequest,), frozen=True
    )
    check_numbers(shell().with_fallback)


def test_numpys_numbers_are_numbers() -> None:
    given = {"chunk_s": np.float32(5), "seed": np.int64(3), "batch": np.int32(2)}
    check_numbers(TranscriptionRequest(**given))  # type: ignore[arg-type]

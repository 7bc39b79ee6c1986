"""A streamer gets what `generate` gives one: the prompt, tokens, the end; wherever it was given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers.generation.streamers import BaseStreamer

import mmspec
from mmspec.errors import OptionError

from . import crossing_runs as crossing
from . import prefix_runs as prefix
from .tiny import features, shared

HEARD = {"language": "en"}
HIDDEN = {"return_dict_in_generate": True, "output_hidden_states": True}
REQUESTS: dict[str, tuple[Callable[[], Any], Callable[[], dict[str, Any]]]] = {
    "llava": (
        lambda: prefix.model_of("llava"),
        lambda: {**prefix.given("llava"), "max_new_tokens": 6},
    ),
    "blip": (
        lambda: crossing.model_of("blip"),
        lambda: {**crossing.given("blip"), "max_new_tokens": 6},
    ),
    "vit-gpt2": (
        lambda: crossing.model_of("vit-gpt2"),
        lambda: {**crossing.given("vit-gpt2"), "max_new_tokens": 6},
    ),
    "whisper": (shared, lambda: {"input_features": features(), **HEARD}),
    "whisper in goes": (
        lambda: shared(5),
        lambda: {"input_features": features(), **HEARD, "return_timestamps": True},
    ),
    "by the library's loop": (shared, lambda: {"input_features": features(), **HEARD, **HIDDEN}),
}
SEVERAL: dict[str, tuple[Callable[[], Any], Callable[[], dict[str, Any]]]] = {
    "llava": (
        lambda: prefix.model_of("llava"),
        lambda: {
            **prefix.inputs("llava", prefix.model_of("llava"), ["image", "middle"]),
            "max_new_tokens": 6,
        },
    ),
    "whisper": (shared, lambda: {"input_features": features(rows=2), **HEARD}),
}


class Notes(BaseStreamer):
    """Everything that a streamer was called with."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def put(self, value: Tensor) -> None:
        self.calls.append(value.tolist())

    def end(self) -> None:
        self.calls.append("end")


def asked(request: tuple[Callable[[], Any], Callable[[], dict[str, Any]]], **more: Any) -> None:
    make, options = request
    make().generate(**{**options(), **more})


def expected(request: Any) -> list[Any]:
    notes = Notes()
    asked(request, streamer=notes)
    return notes.calls


@pytest.mark.parametrize("name", REQUESTS)
def test_wherever_it_was_given(name: str) -> None:
    want = expected(REQUESTS[name])
    assert want.count("end") == (1 if name != "whisper in goes" else 3)
    for draft in ("ngram", "early-exit:1"):
        for theirs, mine in ((Notes(), None), (None, Notes()), (Notes(), Notes()), 2 * (Notes(),)):
            loop = mmspec.custom_generate(draft, gamma=3, streamer=mine)
            asked(REQUESTS[name], streamer=theirs, custom_generate=loop)
            assert all(notes.calls == want for notes in (theirs, mine) if notes is not None)


@pytest.mark.parametrize("name", ["llava", "blip", "whisper", "whisper in goes"])
def test_of_our_own_generate(name: str) -> None:
    make, options = REQUESTS[name]
    given, notes = options(), Notes()
    told = {
        key: given.pop(key)
        for key in ("max_new_tokens", *HEARD, "return_timestamps")
        if key in given
    }
    mmspec.generate(make(), given, "ngram", gamma=3, streamer=notes, **told)
    assert notes.calls == expected(REQUESTS[name])


@pytest.mark.parametrize("name", SEVERAL)
def test_of_several_rows(name: str) -> None:
    """It gets a token of every row at once, which is the library's business."""
    want, make_options = expected(SEVERAL[name]), SEVERAL[name][1]
    theirs, mine = Notes(), Notes()
    loop = mmspec.custom_generate("ngram", streamer=mine)
    asked(SEVERAL[name], streamer=theirs, custom_generate=loop)
    assert theirs.calls == mine.calls == want
    assert "streamer" in str(loop.ordinary)
    given, notes = make_options(), Notes()
    told = {key: given.pop(key) for key in ("max_new_tokens", *HEARD) if key in given}
    made = mmspec.generate(SEVERAL[name][0](), given, "ngram", streamer=notes, **told)
    assert notes.calls == want
    assert made.reports == ()
    with pytest.raises(OptionError, match=r"seed can't be kept.*streamer"):
        mmspec.generate(
            SEVERAL[name][0](),
            given,
            streamer=Notes(),
            temperature=1.0,
            do_sample=True,
            seed=1,
            **told,
        )


def test_a_loop_that_nobody_generates_with_has_its_own_only() -> None:
    assert mmspec.compat.streamer_of_generate() is None
    assert torch.is_tensor(shared().generate(features(), **HEARD))

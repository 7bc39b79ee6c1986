"""Tiny models of the families that transformers' generation tests don't reach, and how to ask them.

Voices: their own tests start from prompts without delays, from codecs that don't fit, or never call
`generate`. Some that look: BLIP's call `generate` in slow tests only, and pairs of an encoder and a
decoder only on batches. The models are the ones that our tests use: small, random, whole.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

import mmspec
from benchmarks.peer.judging import Ours
from mmspec.drafting import draft_for
from mmspec.modalities.speech import bark, higgs_audio, valle
from tests.modalities import tiny_crossing
from tests.modalities.speech import (
    bed_bark,
    bed_csm,
    bed_dia,
    bed_higgs_audio,
    bed_musicgen,
    bed_orpheus,
    bed_valle,
)
from tests.modalities.speech.chain_runs import said_by

Given = dict[str, Any]
Options = dict[str, Any]
GAMMA = 3

PLAIN = "plain"
"""The prompt that every question is asked about; the others are asked for what they say."""


@dataclass(frozen=True)
class Bed:
    """A family's tiny model, and the two sides of a call.

    Attributes:
        make: the model.
        prompts: makers of its inputs, by name; one is `PLAIN`.
        theirs: (model, inputs, options) to the library's result.
        ours: (model, inputs, options, draft) to ours.
        options: under all questions.
        ids_only: whether only ids are compared, whatever `generate` is asked to return.
    """

    make: Callable[[], Any]
    prompts: Mapping[str, Callable[[], Given]]
    theirs: Callable[[Any, Given, Options], Any]
    ours: Callable[[Any, Given, Options, Any], Ours]
    options: Mapping[str, Any] = field(default_factory=dict)
    ids_only: bool = False


def of_generate(model: Any, given: Given, options: Options) -> Any:
    """What the library's `generate` returns; of an output object, its ids or sound."""
    made = model.generate(**given, **options)
    if isinstance(made, Tensor):
        return made
    return made["sequences"] if "sequences" in made else made["audio"]


def by_mmspec(model: Any, given: Given, options: Options, draft: Any) -> Ours:
    """The same by `mmspec.generate`."""
    made = mmspec.generate(model, given, draft, gamma=GAMMA, **options)
    return Ours(made.sequences, len(made.reports))


def by_loop(model: Any, given: Given, options: Options, draft: Any) -> Ours:
    """The same by `custom_generate=`."""
    loop = mmspec.custom_generate(draft, gamma=GAMMA)
    if isinstance(draft, torch.nn.Module):
        loop.inputs = {key: value.clone() for key, value in given.items()}  # BLIP writes into them
    result = model.generate(**given, custom_generate=loop, **options)
    return Ours(result, len(loop.history), loop.ordinary)


def step_kind_of(family: Any) -> Callable[[Any, Given, Options, Any], Ours]:
    """All units that a family says where `mmspec.generate` can't stand for its `generate`."""

    def say(model: Any, given: Given, options: Options, draft: Any) -> Ours:
        said, _, _ = said_by(
            family,
            model,
            given,
            lambda target: draft_for(draft, target, trust_remote_code=False),
            GAMMA,
            **options,
        )
        return Ours(said, 1)

    return say


def _with(read: Callable[[Any], Any], say: Callable[..., Ours], books: int = 1) -> Any:
    """What is read off what was said, `[n, books]`."""

    def ours(model: Any, given: Given, options: Options, draft: Any) -> Ours:
        said = say(model, given, options, draft)
        return Ours(_table(read(said.result), books), said.rows)

    return ours


def _tokens(library: Callable[..., Any], books: int = 1) -> Any:
    return lambda model, given, options: _table(library(model, given, **options), books)


def _table(tokens: Any, books: int) -> Tensor:
    return torch.tensor(tokens, dtype=torch.long).reshape(len(tokens), books)


def padded(given: Callable[[], Given], by: int = 2) -> Callable[[], Given]:
    """One prompt, padded on the left."""

    def make() -> Given:
        told = dict(given())
        told.setdefault("attention_mask", torch.ones_like(told["input_ids"]))
        for key in ("input_ids", "attention_mask"):
            told[key] = torch.nn.functional.pad(told[key], (by, 0))
        return told

    return make


def _words_twice() -> Given:
    """Two texts in one batch, the second padded on the left."""
    long, short = bed_musicgen.text(3, 4, 5), padded(lambda: bed_musicgen.text(6, 7), 1)()
    return {key: torch.cat([long[key], short[key]]) for key in long}


def _music(make: Callable[[], Any]) -> Bed:
    prompts = {
        PLAIN: bed_musicgen.text,
        "codes to go on from": lambda: {
            **bed_musicgen.text(),
            "decoder_input_ids": bed_musicgen.prompt_codes(5),
        },
        "left padding": padded(bed_musicgen.text),
        "two prompts": _words_twice,
        "no text": dict,
    }
    return Bed(make, prompts, of_generate, by_mmspec, {"max_new_tokens": 18}, ids_only=True)


def _dia() -> Bed:
    prompts = {
        PLAIN: lambda: bed_dia.inputs("[S1] so"),
        "a voice to go on from": lambda: bed_dia.inputs("[S1] so", 6),
        "left padding": padded(lambda: bed_dia.inputs("[S1] so")),
    }
    return Bed(
        lambda: bed_dia.tiny(0),
        prompts,
        of_generate,
        by_mmspec,
        {"max_new_tokens": 14},
        ids_only=True,
    )


def _csm() -> Bed:
    def theirs(model: Any, given: Given, options: Options) -> Any:
        made = bed_csm.library(model, given, **options)
        return made if isinstance(made, Tensor) else made["sequences"]

    prompts = {
        PLAIN: bed_csm.text,
        "a voice": bed_csm.voiced,
        "a conversation": lambda: bed_csm.voiced((3, 5), 1),
        "left padding": padded(bed_csm.text),
        "two prompts": lambda: bed_csm.batch([bed_csm.text(), bed_csm.text(6, 1)]),
    }
    return Bed(bed_csm.tiny, prompts, theirs, by_mmspec, {"max_new_tokens": 6}, ids_only=True)


def _higgs() -> Bed:
    prompts = {
        PLAIN: bed_higgs_audio.inputs,
        "a voice": lambda: bed_higgs_audio.inputs(voice=5),
        "left padding": padded(bed_higgs_audio.inputs),
    }
    return Bed(
        bed_higgs_audio.tiny,
        prompts,
        _tokens(bed_higgs_audio.library_rows, bed_higgs_audio.BOOKS),
        _with(lambda said: said.sequence, step_kind_of(higgs_audio.FAMILY), bed_higgs_audio.BOOKS),
        {"max_new_tokens": 14},
        ids_only=True,
    )


def _bark() -> Bed:
    prompts = {
        PLAIN: bed_bark.inputs,
        "a voice": lambda: {**bed_bark.inputs(), "history_prompt": bed_bark.voice()},
    }
    return Bed(
        lambda: bed_bark.tiny(1),
        prompts,
        _tokens(bed_bark.library_codes, bed_bark.BOOKS),
        _with(lambda said: said.grid, step_kind_of(bark.FAMILY), bed_bark.BOOKS),
        ids_only=True,
    )


def _orpheus() -> Bed:
    return Bed(
        bed_orpheus.made,
        {PLAIN: bed_orpheus.inputs, "left padding": padded(bed_orpheus.inputs)},
        _tokens(bed_orpheus.library_ids),
        _with(bed_orpheus.behind, step_kind_of(bed_orpheus.STRICT)),
        {"max_new_tokens": bed_orpheus.LENGTH, "eos_token_id": bed_orpheus.END},
        ids_only=True,
    )


def _valle() -> Bed:
    return Bed(
        bed_valle.made,
        {PLAIN: bed_valle.inputs, "codes to go on from": lambda: bed_valle.inputs(frames=4)},
        _tokens(bed_valle.library_codes, bed_valle.BOOKS),
        _with(lambda said: said.grid, step_kind_of(valle.FAMILY), bed_valle.BOOKS),
        {"max_new_tokens": bed_valle.LENGTH},
        ids_only=True,
    )


def _looking(name: str) -> Bed:
    """One row goes through `custom_generate=`, several through `mmspec.generate`."""

    def make(**how: Any) -> Callable[[], Given]:
        return lambda: tiny_crossing.inputs(name, model, case, **how)

    def ours(model: Any, given: Given, options: Options, draft: Any) -> Ours:
        alone = len(next(iter(given.values()))) == 1
        return (by_loop if alone else by_mmspec)(model, given, options, draft)

    model, case = tiny_crossing.tiny(name), tiny_crossing.FAMILIES[name].cases[-1]
    return Bed(
        lambda: tiny_crossing.tiny(name),
        {
            PLAIN: make(),
            "two prompts": make(rows=2),
            "uneven prompts": make(rows=2, ragged=True),
        },
        lambda model, given, options: model.generate(**given, **options),
        ours,
        {"max_new_tokens": 11},
    )


def beds() -> dict[str, Bed]:
    """All of them, by family."""
    return {
        "bark": _bark(),
        "csm": _csm(),
        "dia": _dia(),
        "higgs_audio_v2": _higgs(),
        "musicgen": _music(bed_musicgen.tiny),
        "musicgen_melody": _music(bed_musicgen.tiny_melody),
        "orpheus": _orpheus(),
        "valle": _valle(),
        **{name: _looking(name) for name in ("blip", "blip-vqa", "trocr", "donut", "vit-gpt2")},
    }

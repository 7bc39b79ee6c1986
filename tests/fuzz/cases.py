"""A case: a question, and a way to ask mmspec. Both are functions of a seed and a number."""

from __future__ import annotations

import copy
import functools
from dataclasses import dataclass
from random import Random
from typing import Any

import torch
from torch import Tensor

from tests.modalities import tiny as whisper

from .kinds import CHANGES, KINDS, Inputs, model_of
from .options import CONFIG_CHANCE, STREAM_CHANCE, drawn

WAYS = 3
"""Cases that share a question, and so what transformers answers."""

DRAFTS = {
    "prefix": ("none", "ngram", "early-exit:1", "copy", "noisy", "other", "hypothesis"),
    "voice": ("none", "ngram", "repeat", "copy", "noisy", "other"),
}
DRAFTS |= {group: DRAFTS["prefix"] for group in ("crossing", "whisper", "unknown")}
MODELS = ("copy", "noisy", "other")


@dataclass(frozen=True, eq=False)
class Question:
    """What `generate` is asked.

    Attributes:
        kind: of the model.
        change: what was done to it.
        inputs: its prompt.
        mode: "greedy", "cold" or "keyed".
        options: of `generate`.
        streams: whether a streamer listens.
        as_config: whether what a generation config can hold is given in one.
    """

    kind: str
    change: str | None
    inputs: Inputs
    mode: str
    options: dict[str, Any]
    streams: bool
    as_config: bool

    @property
    def group(self) -> str:
        return KINDS[self.kind].group

    @property
    def model(self) -> Any:
        return model_of(self.kind, "target", self.change)

    def given(self, *, without: tuple[str, ...] = ()) -> tuple[Inputs, dict[str, Any]]:
        """Inputs and options, new ones at every call: a call may write into them."""
        inputs, options = copy.deepcopy((self.inputs, self.options))
        options = {name: value for name, value in options.items() if name not in without}
        if self.as_config:
            config = copy.deepcopy(self.model.generation_config)
            moved = {name: options.pop(name) for name in [*options] if hasattr(config, name)}
            for name, value in moved.items():
                setattr(config, name, value)
            options["generation_config"] = config
        return inputs, options


@dataclass(frozen=True)
class Way:
    """How mmspec is asked.

    Attributes:
        door: "generate" (`mmspec.generate`) or "loop" (`custom_generate=`).
        draft: a drafter's name, or a role of `model_of`.
        gamma: how many are drafted.
        packed: whether layers run packed.
        seed: of sampling.
        twice: whether a loop has done the same call before.
    """

    door: str
    draft: str
    gamma: int | str
    packed: bool
    seed: int | None
    twice: bool


def _prompt(inputs: Inputs) -> int:
    """Positions of the prompt."""
    ids = inputs.get("decoder_input_ids", inputs.get("input_ids"))
    return ids.shape[1] if isinstance(ids, Tensor) else 1


def _rows(inputs: Inputs) -> int:
    ids = inputs.get("input_ids")
    return len(ids if isinstance(ids, Tensor) else next(iter(_media(inputs)), [0]))


def _media(inputs: Inputs) -> list[Tensor]:
    names = ("input_features", "pixel_values", "flattened_patches", "inputs_embeds")
    return [inputs[name] for name in names if name in inputs]


def _is_long(inputs: Inputs) -> bool:
    """Whether a Whisper needs several windows."""
    features = inputs.get("input_features")
    return features is not None and features.dim() == 3 and features.shape[2] > whisper.FRAMES


@functools.lru_cache(2)
def question(seed: int, number: int, kinds: tuple[str, ...] = ()) -> Question:
    """A question."""
    random = Random(f"question {seed}/{number}")
    names = [*KINDS]
    chosen = random.choices(names, [KINDS[name].chance for name in names])[0]
    if kinds:
        chosen = kinds[random.randrange(len(kinds))]
    kind = KINDS[chosen]
    change = random.choice(CHANGES) if random.random() < 0.15 and kind.group != "voice" else None
    inputs = kind.inputs(random, model_of(chosen))
    if change in ("float64", "bfloat16"):
        dtype = getattr(torch, change)
        inputs = {
            name: value.to(dtype)
            if isinstance(value, Tensor) and value.is_floating_point()
            else value
            for name, value in inputs.items()
        }
    mode, options = drawn(random, chosen, kind, _prompt(inputs))
    rows, several = _rows(inputs), options.get("num_return_sequences", 1) > 1
    if rows > 1 or several:
        options.pop("prompt_lookup_num_tokens", None)  # the library's own speculation takes one row
    if several and any(len(value) > rows for value in _media(inputs)):
        # Some families deal the sounds of one row out among its sequences.
        del options["num_return_sequences"]
    if _is_long(inputs) and random.random() < 0.9:
        options["return_timestamps"] = True  # else transformers refuses it
    streams = random.random() < STREAM_CHANCE and mode != "keyed"
    return Question(chosen, change, inputs, mode, options, streams, random.random() < CONFIG_CHANCE)


def way(seed: int, number: int, asked: Question) -> Way:
    """A way to ask it."""
    random = Random(f"way {seed}/{number}")
    door = "generate" if asked.group == "voice" or random.random() < 0.5 else "loop"
    seeded = asked.mode == "keyed" or (asked.mode == "cold" and random.random() < 0.5)
    return Way(
        door,
        random.choice(DRAFTS[asked.group]),
        random.choice([1, 3, 7, 40, "adaptive"]),
        random.random() < 0.5,
        random.choice([0, 5]) if seeded else None,
        door == "loop" and random.random() < 0.2,
    )


def reference(asked: Way) -> Way:
    """The way whose answer a seeded one has to give: nothing is drafted."""
    return Way(asked.door, "none", 1, False, asked.seed, False)

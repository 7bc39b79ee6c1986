"""What is asked: tiny models of every kind, as they are and changed, and prompts for them."""

from __future__ import annotations

import copy
import functools
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

import torch
from torch import Tensor

from mmspec.compat import quiet
from tests.modalities import tiny as whisper
from tests.modalities import tiny_crossing as crossing
from tests.modalities import tiny_prefix as prefix

from . import voices

Inputs = dict[str, Any]

CHANGES = ("eager", "float64", "bfloat16", "peft", "peft-task", "int8")
"""What may have been done to a model before it is asked."""


@dataclass(frozen=True)
class Kind:
    """One kind of model.

    Attributes:
        make: a model by seed and layers; None: as many as the family's builder gives it.
        inputs: a prompt for a model.
        words: ids that options may speak of, from and to.
        end: its end.
        group: how it is spoken to: "prefix", "crossing", "whisper", "voice", "unknown".
        chance: how often it is asked, against the others.
    """

    make: Callable[[int, int | None], Any]
    inputs: Callable[[Random, Any], Inputs]
    words: tuple[int, int]
    end: int
    group: str
    chance: float = 1.0


def _per_position(inputs: Inputs) -> list[str]:
    """Names of the inputs that say something of every position of a prompt."""
    shape = inputs["input_ids"].shape
    return [
        name
        for name, value in inputs.items()
        if isinstance(value, Tensor) and value.shape[:2] == shape and value.dim() == 2
    ]


def _cut(inputs: Inputs, end: int) -> None:
    """Leave out what stands behind a position."""
    for name in _per_position(inputs):
        inputs[name] = inputs[name][:, :end]


def _with_columns(inputs: Inputs, count: int, *, left: bool) -> None:
    """Padding that no row would need."""
    sides = (count, 0) if left else (0, count)
    for name in _per_position(inputs):
        fill = -100 if name == "labels" else prefix.PAD
        inputs[name] = torch.nn.functional.pad(inputs[name], sides, value=fill)


def _to_the_right(inputs: Inputs) -> None:
    """Padding behind the prompts, in place of in front."""
    for row, there in enumerate(inputs["attention_mask"]):
        for name in _per_position(inputs):
            if name != "attention_mask":
                inputs[name][row] = inputs[name][row].roll(-int((there == 0).sum()))
    inputs["attention_mask"] = inputs["attention_mask"].flip(1)


def _of_prefix(name: str, random: Random, model: Any) -> Inputs:
    rows = random.choices([1, 2, 3], [7, 2, 1])[0]
    cases = [random.choice([*prefix.CASES]) for _ in range(rows)]
    if random.random() < 0.5:
        cases = cases[:1] * rows
    inputs = prefix.inputs(name, model, cases, seed=random.randrange(50))
    ids = inputs["input_ids"]
    seen = (ids[0] >= prefix.TILE).nonzero()
    if rows == 1 and len(seen) and random.random() < 0.25:  # the prompt ends with an image
        _cut(inputs, int(seen[-1]) + 1)
    elif rows == 1 and not len(seen) and random.random() < 0.3:
        _cut(inputs, random.choice([1, 2]))
    if random.random() < 0.2:
        _with_columns(inputs, random.choice([1, 3]), left=random.random() < 0.8)
    elif rows > 1 and random.random() < 0.1:
        _to_the_right(inputs)
    _masked(inputs, random)
    if not len(seen) and rows == 1 and random.random() < 0.15:
        words = inputs["input_ids"] if random.random() < 0.7 else inputs.pop("input_ids")
        inputs["inputs_embeds"] = model.get_input_embeddings()(words).detach()
    return inputs


def _masked(inputs: Inputs, random: Random) -> None:
    """A mask that hides some of a prompt, or none at all."""
    chance = random.random()
    if chance < 0.05:
        del inputs["attention_mask"]
    elif chance < 0.1:
        hidden = random.randrange(inputs["input_ids"].shape[1])
        inputs["attention_mask"][random.randrange(len(inputs["input_ids"])), hidden] = 0
    elif chance < 0.12:
        inputs["attention_mask"] = inputs["attention_mask"].bool()


def _of_crossing(name: str, random: Random, model: Any) -> Inputs:
    family = crossing.FAMILIES[name]
    rows = random.choices([1, 2, 3], [7, 2, 1])[0]
    case, ragged = random.choice(family.cases), random.random() < 0.5
    inputs = crossing.inputs(name, model, case, rows, seed=random.randrange(50), ragged=ragged)
    chance = random.random()
    if chance < 0.1 and "decoder_input_ids" in inputs:
        inputs["decoder_attention_mask"] = torch.ones_like(inputs["decoder_input_ids"])
    elif chance < 0.15 and "input_ids" in inputs and "attention_mask" in inputs:
        hidden = random.randrange(inputs["input_ids"].shape[1])
        inputs["attention_mask"][random.randrange(rows), hidden] = 0
    elif chance < 0.25 and _family_of_pairs(name):
        with torch.no_grad():
            inputs["encoder_outputs"] = model.get_encoder()(inputs.pop("pixel_values"))
    return inputs


def _family_of_pairs(name: str) -> bool:
    return name in ("trocr", "donut", "vit-gpt2")


def _of_whisper(random: Random, model: Any) -> Inputs:
    rows = random.choices([1, 2, 3], [6, 3, 1])[0]
    frames = random.choices([whisper.FRAMES, 150, 220], [7, 2, 1])[0]
    features = whisper.features(random.randrange(50), rows, frames=frames)
    inputs: Inputs = {"input_features": features}
    if frames > whisper.FRAMES or random.random() < 0.1:
        ends = [frames] + [random.randint(frames // 3, frames) for _ in range(rows - 1)]
        inputs["attention_mask"] = (torch.arange(frames) < torch.tensor(ends)[:, None]).long()
    if frames == whisper.FRAMES and random.random() < 0.1:
        with torch.no_grad():
            inputs["encoder_outputs"] = model.get_encoder()(inputs.pop("input_features"))
    return inputs


def _of_decoder(random: Random, model: Any) -> Inputs:
    ids = [[random.randrange(whisper.EOS) for _ in range(random.choice([1, 4]))]]
    return {"input_ids": torch.tensor(ids)}


def _decoder_only(seed: int, layers: int | None) -> Any:
    more: Any = {"suppress_tokens": None, "begin_suppress_tokens": None}  # beyond its ids
    return whisper.tiny_decoder(seed, layers=layers or 3, **more)


def _whisper(seed: int, layers: int | None) -> Any:
    return whisper.tiny(1 + seed, layers=layers or 3)


def _english(seed: int, layers: int | None) -> Any:
    return whisper.english_only(1 + seed, layers=layers or 3)


def _prefix(name: str, seed: int, layers: int | None) -> Any:
    return prefix.tiny(name, seed, layers or 3)


def _crossing(name: str, seed: int, layers: int | None) -> Any:
    return crossing.tiny(name, seed, layers=layers or 2)


def _kinds() -> dict[str, Kind]:
    part, words = functools.partial, (prefix.WORDS[0], prefix.WORDS[-1])
    found = {
        name: Kind(part(_prefix, name), part(_of_prefix, name), words, prefix.EOS, "prefix")
        for name in prefix.NAMES
    }
    for name, family in crossing.FAMILIES.items():
        end = family.ids["eos_token_id"]
        made, inputs = part(_crossing, name), part(_of_crossing, name)
        found[name] = Kind(made, inputs, crossing.WORDS, end, "crossing")
    tokens = (0, whisper.EOS - 1)
    found |= {
        "whisper": Kind(_whisper, _of_whisper, tokens, whisper.EOS, "whisper", 8),
        "whisper-english": Kind(_english, _of_whisper, tokens, whisper.EOS, "whisper", 2),
        "whisper-decoder": Kind(_decoder_only, _of_decoder, tokens, whisper.EOS, "unknown", 0.5),
    }
    for name, voice in voices.VOICES.items():
        group, chance = ("voice", 1.0) if voice.supported else ("unknown", 0.2)
        found[name] = Kind(voice.make, voice.inputs, voice.words, voice.end, group, chance)
    return found


KINDS = _kinds()


@functools.cache
def model_of(kind: str, role: str = "target", change: str | None = None) -> Any:
    """A model of a kind, made once.

    Args:
        kind: one of `KINDS`.
        role: "target"; "copy": the same weights once more; "noisy": nearly the same; "other".
        change: one of `CHANGES`; None: as it was built.
    """
    if change is not None:
        with quiet(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return _changed(copy.deepcopy(model_of(kind, role)), change)
    if role == "copy":
        return copy.deepcopy(model_of(kind))
    if role == "noisy":
        return _noisy(copy.deepcopy(model_of(kind)))
    return KINDS[kind].make(*((1, 1) if role == "other" else (0, None)))


def _noisy(model: Any) -> Any:
    drawn = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() > 1:
                weight += 0.05 * weight.std() * torch.randn(weight.shape, generator=drawn)
    return model


def _changed(model: Any, change: str) -> Any:
    if change == "eager":
        model.set_attn_implementation("eager")
        return model
    if change in ("float64", "bfloat16"):
        return model.to(getattr(torch, change))
    if change == "int8":
        kind = {torch.nn.Linear}
        return torch.ao.quantization.quantize_dynamic(model, kind, dtype=torch.qint8)
    from peft import LoraConfig, get_peft_model

    task = "SEQ_2_SEQ_LM" if model.config.is_encoder_decoder else "CAUSAL_LM"
    config = LoraConfig(
        r=2,
        target_modules="all-linear",
        init_lora_weights=False,
        task_type=task if change == "peft-task" else None,
    )
    with torch.random.fork_rng():
        torch.manual_seed(7)
        return get_peft_model(model, config).eval()

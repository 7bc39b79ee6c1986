"""From a name to a loaded checkpoint: the sample, a directory, a hub id, or a model object."""

from __future__ import annotations

import contextlib
import importlib
import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel

from mmspec.errors import MMSpecError, ModelError, OptionError
from mmspec.modalities import ADAPTERS, adapter_for
from mmspec.modalities import task_of as task_of_type
from mmspec.modalities.base.causal import TEXT_MODEL, check_text_model
from mmspec.modalities.base.checkpoint import Checkpoint
from mmspec.modalities.base.layers import seen_through
from mmspec.modalities.base.weights import whole_model
from mmspec.modalities.speech.checkpoint import SpeechCheckpoint
from mmspec.modalities.whisper.checkpoint import Whisper

DEFAULT_TARGET = "openai/whisper-base"
"""What is transcribed with where no target is named: small, multilingual, on the hub."""

SAMPLES = Path(__file__).parent / "samples"
CHECKOUT_SAMPLES = Path(__file__).parents[1] / "samples"


def sample_path(*parts: str) -> Path:
    """A file or folder among the samples, installed or in a checkout.

    Raises:
        ModelError: this installation came without samples.
    """
    for root in (SAMPLES, CHECKOUT_SAMPLES):
        if (path := root.joinpath(*parts)).exists():
            return path
    raise ModelError(f"the samples aren't installed: {'/'.join(parts)} is missing")


SAMPLE_FOLDERS = {
    "sample": "whisper-sample",
    "vision-sample": "vision-sample",
    "voice-sample": "voice-sample",
}
"""The models that come with mmspec, by name: one that listens, one that looks, one that speaks."""


def resolve(name: Any, role: str = "target") -> Any:
    """Where a model's files are: a directory for a sample, else the name as it is."""
    if isinstance(name, str) and name in SAMPLE_FOLDERS:
        return sample_path(SAMPLE_FOLDERS[name], "target" if role == "target" else "drafter")
    return name


LAYOUTS = {"orpheus": "mmspec.modalities.speech.orpheus"}
"""Layouts of codes over plain language models, by the word that stands before a model's name."""

Loadable = Whisper | Checkpoint | SpeechCheckpoint
"""What `load_model` gives: a model that transcribes, looks or speaks."""

KINDS: dict[str, type[Loadable]] = {"asr": Whisper, "vlm": Checkpoint, "tts": SpeechCheckpoint}
"""How a model is described, by its task."""


def load_model(
    name: Any,
    device: str | None = None,
    dtype: Any = None,
    packed: bool = True,
    trust_remote_code: bool = False,
    processor: Any = None,
    role: str = "target",
    family: Any = None,
) -> Loadable:
    """Load a checkpoint with its processor, from safetensors only.

    Args:
        name: "sample", "vision-sample", "voice-sample", a directory, a hub id, or a loaded model;
            "orpheus:" before a directory or a hub id says that a plain language model writes codes.
        device: "cpu", "cuda", ...; None: CUDA where there is one.
        dtype: a torch dtype or its name; None: float32 on a CPU; on CUDA float16 for Whisper and
            bfloat16 for others, whose activations leave float16's range.
        packed: packed linear layers where they pay.
        trust_remote_code: let a checkpoint bring Python code of its own.
        processor: of a loaded model, where there is one.
        role: "target" or "draft": which of a sample's two models is meant; a drafter may also be
            a plain language model.
        family: of a plain language model that writes codes: "orpheus", or a family made for it.

    Raises:
        ModelError: not found, of a family that no adapter knows, or not in safetensors.
    """
    family, name = _layout_of(family, seen_through(name))
    if isinstance(name, PreTrainedModel) and family is not None:
        return SpeechCheckpoint.of(name, processor, packed=packed, family=family)
    if isinstance(name, PreTrainedModel):
        _check_kind(name.config.model_type, role)
        return _described(name, processor, packed)
    where = resolve(name, role)
    if not isinstance(where, (str, Path)):
        raise ModelError(f"expected a name, a directory or a model, got {type(name).__name__}")
    _check_directory(where, role if family is None else "draft")
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    source, code = str(where), {"trust_remote_code": trust_remote_code}
    from transformers import AutoConfig

    with _one_line(source):
        config = AutoConfig.from_pretrained(source, **code)
        if family is None:
            _check_kind(config.model_type, role)
            read = _reader(config.model_type)
        else:
            read = partial(_read_voice, family=family)
        model, processor = read(source, config, device, dtype, code)
        _check_tokenizer(source, processor)
        model = model.to(device)
    if family is not None:
        return SpeechCheckpoint.of(model.eval(), processor, packed=packed, family=family)
    return _described(model.eval(), processor, packed)


def _layout_of(family: Any, name: Any) -> tuple[Any, Any]:
    """(the family of a plain language model that writes codes, None for others; its name)."""
    if family is None and isinstance(name, str) and name.partition(":")[0] in LAYOUTS:
        family, _, name = name.partition(":")
    if isinstance(family, str):
        if family not in LAYOUTS:
            raise ModelError(f"family: found {family!r}, expected {' or '.join(LAYOUTS)}")
        family = importlib.import_module(LAYOUTS[family]).FAMILY
    return family, name


def load_drafter(name: Any, target: SpeechCheckpoint, trust_remote_code: bool = False) -> Any:
    """A drafting model for one that speaks: transformers' object, where the target is.

    Args:
        name: "voice-sample", a directory, a hub id, or a loaded model. It may be a part of what a
            target is: the language model of codes without encoder and codec.
        target: whom it drafts for.
        trust_remote_code: let a checkpoint bring Python code of its own.

    Raises:
        ModelError: not found, of another family, or not in safetensors.
    """
    name = seen_through(name)
    if isinstance(name, SpeechCheckpoint):
        return name.model
    if isinstance(name, PreTrainedModel):
        return name
    where = resolve(name, "draft")
    if not isinstance(where, (str, Path)):
        raise ModelError(f"expected a name, a directory or a model, got {type(name).__name__}")
    _check_directory(where, "draft")
    source, code = str(where), {"trust_remote_code": trust_remote_code}
    import transformers

    with _one_line(source):
        config = transformers.AutoConfig.from_pretrained(source, **code)
        kind = target.family.drafters.get(config.model_type)
        if kind is None:
            known = ", ".join(sorted(target.family.drafters))
            raise ModelError(f"{source}: found a {config.model_type}, expected one of {known}")
        model = whole_model(getattr(transformers, kind), source, target.model.dtype, code)
    return model.to(target.device).eval()


def load_whisper(*arguments: Any, **options: Any) -> Whisper:
    """Load a Whisper checkpoint: `load_model`, for those who need one that transcribes.

    Raises:
        ModelError: as `load_model`, or a model that is no Whisper.
    """
    model = load_model(*arguments, **options)
    if not isinstance(model, Whisper):
        raise ModelError(f"expected a Whisper, found a model of type {kind_of(model)}")
    return model


def kind_of(model: Loadable) -> str:
    """What transformers calls its family."""
    return str(model.model.config.model_type)


def _check_kind(model_type: str, role: str) -> None:
    """Whatever has an adapter may be a target; a drafter may also be a plain language model."""
    if role == "target":
        adapter_for(model_type)


def task_of(loaded: Loadable) -> str:
    """What a loaded model is for: the name of a task's room."""
    return next(task for task, kind in KINDS.items() if isinstance(loaded, kind))


def _reader(model_type: str) -> Callable[..., tuple[Any, Any]]:
    return READERS[task_of_type(model_type)]


def _read_voice(
    source: str,
    config: Any,
    device: str,
    dtype: Any,
    code: dict[str, Any],
    family: Any = None,
) -> tuple[Any, Any]:
    import transformers

    family = family or adapter_for(config.model_type).FAMILY
    dtype = _dtype(dtype, device, half=torch.bfloat16)
    kind = getattr(transformers, family.loads)
    model = whole_model(kind, source, dtype, code)
    return model, family.load_processor(source, **code)


def _read_text_model(
    source: str, config: Any, device: str, dtype: Any, code: dict[str, Any]
) -> tuple[Any, Any]:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    dtype = _dtype(dtype, device, half=torch.bfloat16)
    model = whole_model(AutoModelForCausalLM, source, dtype, code)
    return model, AutoTokenizer.from_pretrained(source, **code)


def _read_whisper(
    source: str, config: Any, device: str, dtype: Any, code: dict[str, Any]
) -> tuple[Any, Any]:
    from transformers import WhisperForConditionalGeneration, WhisperProcessor

    dtype = _dtype(dtype, device, half=torch.float16)
    model = whole_model(WhisperForConditionalGeneration, source, dtype, code)
    return model, WhisperProcessor.from_pretrained(source, **code)


def _read_checkpoint(
    source: str, config: Any, device: str, dtype: Any, code: dict[str, Any]
) -> tuple[Any, Any]:
    import transformers

    from mmspec.modalities.base.processors import load_processor

    family = adapter_for(config.model_type).FAMILY
    dtype = _dtype(dtype, device, half=torch.bfloat16)
    model = whole_model(getattr(transformers, family.class_for(config)), source, dtype, code)
    return model, load_processor(source, config, **code)


READERS: dict[str | None, Callable[..., tuple[Any, Any]]] = {
    "asr": _read_whisper,
    "vlm": _read_checkpoint,
    "tts": _read_voice,
    None: _read_text_model,
}
"""What reads a model and its processor, by task; a model without one is a plain language model."""


def _described(model: Any, processor: Any, packed: bool) -> Loadable:
    task = task_of_type(model.config.model_type)
    if task is not None:
        return KINDS[task].of(model, processor, packed=packed)
    check_text_model(model)
    return Checkpoint.of(model, processor, packed=packed, family=TEXT_MODEL)


def _check_directory(where: str | Path, role: str) -> None:
    """Say what is missing in a local directory, before transformers takes it for a hub id.

    Raises:
        ModelError: no such directory, or no checkpoint in it.
    """
    if where == "":
        raise ModelError("found an empty name, expected a directory or a hub id")
    path = Path(where)
    looks_local = isinstance(where, Path) or path.is_absolute() or str(where).startswith(".")
    if not path.exists():
        if looks_local or str(where).count("/") != 1:
            raise ModelError(f"{where}: no such directory (and no hub id like {DEFAULT_TARGET})")
        return
    if not path.is_dir():
        raise ModelError(f"{where}: expected a directory with a checkpoint, found a file")
    if not (path / "config.json").is_file():
        raise ModelError(f"{where}: no config.json in this directory, so no checkpoint")
    try:
        kind = json.loads((path / "config.json").read_text())["model_type"]
    except (ValueError, KeyError, TypeError):
        raise ModelError(f"{where}/config.json: names no model_type") from None
    if not isinstance(kind, str):
        raise ModelError(f"{where}/config.json: names no model_type, found {kind!r}")
    if kind in ADAPTERS:
        adapter_for(kind)  # a family of our own tells transformers of its classes
    _check_kind(kind, role)
    if not any(path.glob("*.safetensors")):
        raise ModelError(
            f"{where}: no *.safetensors; mmspec doesn't load pickled weights "
            "(save_pretrained(..., safe_serialization=True) converts them)"
        )


def _check_tokenizer(source: str, processor: Any) -> None:
    """Say that a vocabulary is missing: transformers makes a tokenizer without one, and no noise.

    Raises:
        ModelError: it knows no token but special ones.
    """
    tokenizer = getattr(processor, "tokenizer", processor)
    if getattr(tokenizer, "vocab_size", None) == 0:
        raise ModelError(
            f"{source}: found a tokenizer without a vocabulary, expected tokenizer.json or "
            "vocab.json beside the weights"
        )


@contextlib.contextmanager
def _one_line(source: str) -> Iterator[None]:
    """Turn what transformers and the hub client raise into one line that says how to go on."""
    try:
        yield
    except MMSpecError:
        raise
    except Exception as error:  # a zoo: OSError, ValueError, safetensors' and the hub client's own
        reason = next((line for line in str(error).splitlines() if line.strip()), "no reason given")
        kind = type(error).__name__
        if Path(source).exists():
            raise ModelError(f"{source}: can't be loaded ({kind}: {reason})") from error
        raise ModelError(
            f"{source}: not in the local cache and the hub gave nothing ({kind}: {reason}); "
            "name a local directory, or 'sample' for the model that comes with mmspec"
        ) from error


def _dtype(dtype: Any, device: str, half: torch.dtype) -> torch.dtype:
    if dtype is None:
        return half if device.startswith("cuda") else torch.float32
    if isinstance(dtype, torch.dtype):
        return dtype
    found = getattr(torch, str(dtype), None)
    if not isinstance(found, torch.dtype) or not found.is_floating_point:
        raise OptionError(f"dtype {dtype!r}: expected float32, float16 or bfloat16")
    return found

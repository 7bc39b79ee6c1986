"""What a run was asked to do, checked as far as that goes without loading anything."""

from __future__ import annotations

import platform
from dataclasses import asdict, dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Any, ClassVar

from mmspec.errors import ModelError, OptionError
from mmspec.tasks.registry import TASKS

SPEECH_TASKS = ("transcribe", "translate")

THRESHOLDS = {
    "compression_ratio_threshold": 1.35,
    "logprob_threshold": -1.0,
    "no_speech_threshold": 0.6,
}
"""What temperature fallback usually goes with: Whisper's own; the ratio, which transformers takes
of token ids and not of the text, as transformers recommends it."""

WARMER, WARMEST = 0.2, 1.0
"""By how much the temperature rises from one try at a window to the next, and how far."""


def retries(temperature: float) -> tuple[float, ...]:
    """The temperatures that a window is tried at, as in Whisper's reference implementation.

    Example:
        >>> retries(0.0), retries(0.7), retries(1.5)
        ((0.0, 0.2, 0.4, 0.6, 0.8, 1.0), (0.7, 0.9), (1.5,))
    """
    further = max(0, int((WARMEST - temperature) / WARMER + 1e-6))
    return tuple(round(temperature + WARMER * step, 6) for step in range(further + 1))


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """Which models, and where they run. `target` None is the default hub checkpoint.

    Attributes:
        task: what the target is to do, see `registry.TASKS`.
    """

    task: ClassVar[str] = "asr"

    target: str | None
    draft: str
    gamma: str = "adaptive"
    device: str | None = None
    dtype: str | None = None
    packed: bool = True
    threads: int | None = None
    trust_remote_code: bool = False

    @property
    def draft_kind(self) -> str:
        """The draft as `mmspec.load` takes it: without the hypothesis file."""
        return "hypothesis" if self.hypothesis_file is not None else self.draft

    @property
    def hypothesis_file(self) -> Path | None:
        """The file of `hypothesis:FILE`, None for other drafts.

        Raises:
            OptionError: no file is named.
        """
        kind, _, file = self.draft.partition(":")
        if kind != "hypothesis":
            return None
        if not file:
            raise OptionError(f"--draft: found {self.draft!r}, expected hypothesis:FILE")
        return Path(file)

    def check(self) -> None:
        """Raise where an option can't be meant.

        Raises:
            OptionError: names the option, what was found and what was expected.
        """
        adaptive = self.gamma == "adaptive"
        if not adaptive and not self.gamma.removeprefix("+").isdecimal():
            raise OptionError(
                f"--gamma: found {self.gamma!r}, expected adaptive or a number, 0 or more"
            )
        _ = self.hypothesis_file

    def load(self) -> Any:
        """The transcriber, viewer or speaker.

        Raises:
            MMSpecError: a model that can't be found or used, or that does something else.
        """
        import torch

        from mmspec import api

        if self.threads is not None:
            torch.set_num_threads(self.threads)
        loaded = self._load(api)
        if loaded.task != self.task:
            kind, other = loaded.model.config.model_type, TASKS[loaded.task]
            raise ModelError(
                f"--target: found a model of type {kind}, which {other.verb}: {other.commands}"
            )
        return loaded

    def _load(self, api: Any) -> Any:
        try:
            return api.load(
                api.DEFAULT_TARGET if self.target is None else self.target,
                self.draft_kind,
                device=self.device,
                dtype=self.dtype,
                gamma=self.gamma if self.gamma == "adaptive" else int(self.gamma),
                packed=self.packed,
                trust_remote_code=self.trust_remote_code,
            )
        except Exception as error:
            if self.target is None and isinstance(error, api.MMSpecError):
                raise type(error)(f"no --target given, so its default was tried: {error}") from None
            raise


@dataclass(frozen=True, slots=True)
class LookingSettings(ModelSettings):
    """The same for models that look. "sample" means the sample that does."""

    task: ClassVar[str] = "vlm"

    @property
    def hypothesis_file(self) -> Path | None:
        """The file of `hypothesis:FILE`, None for other drafts."""
        kind, _, file = self.draft.partition(":")
        return Path(file) if kind == "hypothesis" and file else None

    def _load(self, api: Any) -> Any:
        target = "vision-sample" if self.target == "sample" else self.target
        named = replace(self, target=target)
        return ModelSettings._load(named, api)


@dataclass(frozen=True, slots=True)
class SpeakingSettings(ModelSettings):
    """The same for models that speak. "sample" means the sample that does."""

    task: ClassVar[str] = "tts"

    @property
    def hypothesis_file(self) -> Path | None:
        """None: nobody expects codes."""
        return None

    @property
    def draft_kind(self) -> str:
        """The draft as `mmspec.load` takes it; the heads of the sample may be called heads:sample.

        Raises:
            ModelError: they aren't installed.
        """
        if "heads:sample" not in self.draft.split("+"):
            return self.draft
        from mmspec.loading import sample_path

        heads = f"heads:{sample_path('voice-sample', 'heads')}"
        return "+".join(heads if one == "heads:sample" else one for one in self.draft.split("+"))

    def _load(self, api: Any) -> Any:
        target = "voice-sample" if self.target == "sample" else self.target
        return ModelSettings._load(replace(self, target=target), api)


def describe_machine(loaded: Any) -> dict[str, Any]:
    """What a result depends on beside the options: device, threads, library versions."""
    import torch

    names = ("mmspec", "torch", "transformers", "numpy")
    return {
        "device": str(loaded.model.device),
        "dtype": str(loaded.model.dtype).removeprefix("torch."),
        "attention": loaded.model.config._attn_implementation,
        "threads": torch.get_num_threads(),
        "machine": platform.machine(),
        "versions": {"python": platform.python_version()}
        | {name: metadata.version(name) for name in names},
    }


def as_json(settings: Any) -> dict[str, Any]:
    """A settings value as plain data."""
    return {name: str(v) if isinstance(v, Path) else v for name, v in asdict(settings).items()}

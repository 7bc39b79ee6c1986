"""What a run was asked to do, checked as far as that goes without loading anything."""

from __future__ import annotations

import platform
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, ClassVar

from mmspec.errors import ModelError, OptionError
from mmspec.modalities.base.options import option
from mmspec.tasks.registry import TASKS, Task

MOST_THREADS = 1024
"""OpenMP ends the process where the system gives it no more threads."""


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """Which models, and where they run.

    Attributes:
        target: Whose output it is: a directory, a hub id, or `sample` (comes with mmspec). Without
            it a small checkpoint is taken from the hub.
        draft: Who proposes: `none`, `ngram` (repetitions), `hypothesis:FILE` (a transcript that is
            nearly right: a line per recording, or the JSON of an earlier run), `overlap` (what the
            chunk before said, with --chunks), `early-exit:N` (the target's first N layers), or
            another model. It decides how fast, never what.
        gamma: Tokens drafted per round. Adaptive: measured costs decide, down to none.
        device: cpu, cuda, cuda:1, ...; CUDA where there is one.
        dtype: float32, float16 or bfloat16; float32 on a CPU, float16 on CUDA.
        packed: On a CPU, keep weights in the layout that small blocks want.
        threads: CPU threads.
        trust_remote_code: Let a checkpoint run its own code.
        task: what the target is to do, see `registry.TASKS`.
    """

    task: ClassVar[str] = "asr"

    target: str | None = option(None, short="-t", metavar="MODEL")
    draft: str = option("none", short="-d", metavar="DRAFT")
    gamma: str = option("adaptive", metavar="adaptive|N", panel="Decoding")
    device: str | None = option(None, metavar="D", panel="Machine")
    dtype: str | None = option(None, metavar="T", panel="Machine")
    packed: bool = option(True, negative=True, panel="Machine")
    threads: int | None = option(None, metavar="N", least=1, most=MOST_THREADS, panel="Machine")
    trust_remote_code: bool = option(False)

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

    def _named(self, task: Task) -> str:
        """The target as `mmspec.load` knows it: each task has a sample of its own."""
        if self.target is None:
            return task.default
        return task.sample if self.target == "sample" else self.target

    def _load(self, api: Any) -> Any:
        try:
            return api.load(
                self._named(TASKS[self.task]),
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
    """The same for models that look. "sample" means the sample that does.

    Attributes:
        target: Whose output it is: a directory, a hub id, or `sample` (comes with mmspec). Without
            it a small checkpoint is taken from the hub.
        draft: Who proposes: `none`, `ngram` (repetitions), `hypothesis` (a text that is nearly
            right), `early-exit:N` (the target's first N layers), another model, `text-only:MODEL`
            (it isn't shown the image) or `pruned:0.25:MODEL` (a part of it). Several take turns:
            a+b. It decides how fast, never what.
    """

    task: ClassVar[str] = "vlm"

    target: str | None = option(None, short="-t", metavar="MODEL")

    @property
    def hypothesis_file(self) -> Path | None:
        """The file of `hypothesis:FILE`, None for other drafts."""
        kind, _, file = self.draft.partition(":")
        return Path(file) if kind == "hypothesis" and file else None


@dataclass(frozen=True, slots=True)
class SpeakingSettings(ModelSettings):
    """The same for models that speak. "sample" means the sample that does.

    Attributes:
        target: Whose voice it is: a directory, a hub id, or `sample` (comes with mmspec). Of
            families that mmspec takes: MusicGen and Melody, Dia, CSM, Higgs-Audio v2, Bark, and
            `orpheus:MODEL` for language models of that layout.
        draft: Who proposes: `none`, `lookup` (what was said before), `repeat` (the last frame once
            more), `heads:DIR` (trained on the target's states) or a smaller model. Several take
            turns: a+b. It decides how fast, never what.
    """

    task: ClassVar[str] = "tts"

    target: str | None = option("sample", short="-t", metavar="MODEL")

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

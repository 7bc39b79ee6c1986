"""What is frozen before a benchmark runs, whatever it is about."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

from mmspec.compare.peers import LOOKUP_TOKENS
from mmspec.errors import OptionError
from mmspec.output.hypotheses import read_hypotheses
from mmspec.tasks.settings import ModelSettings, describe_machine

FEWEST_PAIRS = 5


@dataclass(frozen=True)
class Plan:
    """Everything that is frozen before the run.

    Attributes:
        name: of the benchmark.
        reference: a table of what is really there.
    """

    name: ClassVar[str]
    settings_class: ClassVar[type[ModelSettings]] = ModelSettings

    files: Sequence[Path]
    target: str
    drafts: Sequence[str]
    pairs: int = FEWEST_PAIRS
    gamma: str = "adaptive"
    packed: bool = True
    device: str | None = None
    dtype: str | None = None
    threads: int | None = None
    reference: Path | None = None
    trust_remote_code: bool = False

    def models(self, draft: str) -> ModelSettings:
        """The models of one drafter's runs."""
        return self.settings_class(
            self.target,
            draft,
            self.gamma,
            self.device,
            self.dtype,
            self.packed,
            self.threads,
            self.trust_remote_code,
        )

    def has_file(self, draft: str) -> bool:
        """Whether a draft comes from a file of hypotheses."""
        return self.models(draft).hypothesis_file is not None

    def check(self) -> None:
        """Raise where an option can't be meant.

        Raises:
            OptionError: names the option.
        """
        if not self.files:
            raise OptionError(f"bench {self.name}: found no files, expected one or more")
        if len(set(self.drafts)) != len(self.drafts):
            raise OptionError(f"--draft: found {', '.join(self.drafts)}, expected each once")
        for draft in self.drafts:
            self.models(draft).check()

    def begin(self) -> None:
        """Check, and set what holds for the whole process.

        Raises:
            OptionError: an option that can't be meant.
        """
        self.check()
        if self.threads is not None:
            import torch

            torch.set_num_threads(self.threads)

    def hypotheses(self) -> dict[str, Any]:
        """By draft, a hypothesis for each file, of those drafts that name a file of them.

        Raises:
            InputError: a file of hypotheses that can't be read.
        """
        return {
            draft: read_hypotheses(file, self.files, self.target)
            for draft in self.drafts
            if (file := self.models(draft).hypothesis_file) is not None
        }

    def settings(self, ours: Any) -> dict[str, Any]:
        """What stands in the result file.

        Args:
            ours: the first transcriber or viewer.
        """
        facts = asdict(self) | {"files": len(self.files)}
        facts = {name: str(v) if isinstance(v, Path) else v for name, v in facts.items()}
        return {
            **facts,
            "revision": getattr(ours.model.config, "_commit_hash", None),
            "prompt_lookup_num_tokens": LOOKUP_TOKENS,
            "batch": 1,
            "warm_up_passes": 1,
            **describe_machine(ours),
            "processor": processor_name(),
            "load_average": os.getloadavg()[0],
        }


def processor_name() -> str | None:
    """The CPU's name, where the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return None
    return next((line.split(":", 1)[1].strip() for line in lines if "model name" in line), None)

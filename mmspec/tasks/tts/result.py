"""What a model said aloud: codes, and the sound that a codec makes of them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mmspec.errors import OptionError
from mmspec.report.grounding import Grounding
from mmspec.report.report import Report
from mmspec.report.trace import Origin, Round
from mmspec.tasks.tts.code_files import write_codes, write_sound


@dataclass(frozen=True, slots=True, eq=False)
class Speech:
    """What was said.

    Attributes:
        text: what was to be said.
        codes: int64 `[frames, codebooks]`: what parity compares.
        samples: float32 `[n]`, or `[channels, n]`; None where there is no codec to decode with.
        sample_rate_hz: of the samples.
        frame_rate_hz: frames per second.
        codebook_sizes: how many codes each codebook has.
        family: transformers' name of the model's family.
        report: how it was obtained. Its counts are of steps; of codes, see `report.by_codebook`.
        origins: how each step came about: drafted and accepted, or the target's own.
        trace: every round of the run; an origin names its round.
        decided_at: int32 `[frames, codebooks]`: the step of the run that decided each code; -1
            where a code was given, or is not autoregressive; None where nobody knows.
        decision: the same as parity counts decisions: codes of a chain have one each.
        sequence: tokens or frames as the model sees them, given ones included.
        grounding: what each step owes to the text; None where that wasn't asked for.
        filled: what of it is not autoregressive; "" where everything is.
    """

    text: str
    codes: np.ndarray
    samples: np.ndarray | None
    sample_rate_hz: int | None
    frame_rate_hz: float | None
    codebook_sizes: tuple[int, ...]
    family: str
    report: Report
    origins: tuple[Origin, ...]
    trace: tuple[Round, ...]
    decided_at: np.ndarray | None
    decision: np.ndarray | None
    sequence: tuple[Any, ...] = ()
    grounding: Grounding | None = None
    filled: str = ""

    @property
    def finish_reason(self) -> str:
        """Why it ended: "stop" or "length"."""
        return self.report.finish_reason

    @property
    def seconds(self) -> float | None:
        """How long it sounds; None where nobody knows the frame rate."""
        return None if self.frame_rate_hz is None else len(self.codes) / self.frame_rate_hz

    def save(self, path: Path | str) -> Path:
        """Write the sound, and beside it the codes that it was made of.

        Args:
            path: its suffix says which format: wav, flac or ogg.

        Returns:
            Where the codes are.

        Raises:
            OptionError: there is no sound to write.
            InputError: a place that can't be written to, or another suffix.
        """
        if self.samples is None or self.sample_rate_hz is None:
            raise OptionError(f"{path}: there is no sound to write, the model has no codec")
        write_sound(path, self.samples, self.sample_rate_hz)
        return self.save_codes(path)

    def save_codes(self, path: Path | str) -> Path:
        """Write the codes to an `.npz`, or beside the sound file of this name."""
        return write_codes(
            path,
            self.codes,
            decided_at=self.decision,
            family=self.family,
            rate_hz=self.frame_rate_hz,
            codebook_sizes=self.codebook_sizes,
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON, without the sound."""
        data: dict[str, Any] = {
            "text": self.text,
            "family": self.family,
            "seconds": self.seconds,
            "sample_rate_hz": self.sample_rate_hz,
            "frame_rate_hz": self.frame_rate_hz,
            "codebook_sizes": list(self.codebook_sizes),
            "codes": self.codes.tolist(),
            "finish_reason": self.finish_reason,
            "filled": self.filled,
        }
        if self.grounding is not None:
            data["grounding"] = self.grounding.to_dict()
        return {**data, "report": self.report.to_dict()}

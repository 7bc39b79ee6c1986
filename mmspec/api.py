"""The Python face for recordings: `load` a recogniser."""

from __future__ import annotations

from typing import Any

from mmspec.drafting import draft_for
from mmspec.errors import MMSpecError
from mmspec.loading import DEFAULT_TARGET, load_whisper
from mmspec.transcriber import Transcriber


def load(
    target: Any = DEFAULT_TARGET,
    draft: Any = "none",
    *,
    device: str | None = None,
    dtype: Any = None,
    gamma: int | str = "adaptive",
    packed: bool = True,
    trust_remote_code: bool = False,
    processor: Any = None,
) -> Transcriber:
    """Load a recogniser.

    Args:
        target: a hub id, a local directory, "sample" (the small model that comes with mmspec),
            or a loaded `WhisperForConditionalGeneration` (then with its `processor`).
        draft: "none", "ngram", "hypothesis", "overlap" (for chunks), "early-exit:N", or a drafting
            model named as the target is.
        device: "cpu", "cuda", ...; None: CUDA where there is one.
        dtype: a torch dtype or its name; None: float32 on a CPU, float16 on CUDA.
        gamma: units drafted per round: a number, or "adaptive" (measured costs decide).
        packed: use packed linear layers on a CPU.
        trust_remote_code: let a checkpoint bring Python code of its own.
        processor: of a loaded model; a checkpoint that is named brings its own.

    Raises:
        MMSpecError: a model that can't be found or used, in one line.
    """
    try:
        whisper = load_whisper(target, device, dtype, packed, trust_remote_code, processor)
    except MMSpecError as error:
        raise type(error)(f"target: {error}") from None
    kind = draft_for(draft, whisper, trust_remote_code)
    return Transcriber(whisper, kind, gamma)

"""The Python face: `load` a model that transcribes, looks at images or speaks."""

from __future__ import annotations

from typing import Any

from mmspec.drafting import draft_for
from mmspec.errors import MMSpecError
from mmspec.loading import DEFAULT_TARGET, load_model, task_of
from mmspec.tasks.registry import face_of


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
    family: Any = None,
) -> Any:
    """Load a model with its kind of drafter.

    Args:
        target: a hub id, a local directory, "sample", "vision-sample" or "voice-sample" (the small
            models that come with mmspec), or a loaded transformers model (then with its
            `processor`).
        draft: "none", "ngram", "hypothesis", "overlap" (for chunks of recordings),
            "early-exit:N", "lookup", "repeat" and "heads:DIR" (for codes), or a drafting model
            named as the target is.
        device: "cpu", "cuda", ...; None: CUDA where there is one.
        dtype: a torch dtype or its name; None: float32 on a CPU; on CUDA float16 for Whisper,
            bfloat16 for others.
        gamma: tokens drafted per round: a number, or "adaptive" (measured costs decide).
        packed: use packed linear layers on a CPU.
        trust_remote_code: let a checkpoint bring Python code of its own.
        processor: of a loaded model; a checkpoint that is named brings its own.
        family: of a plain language model that writes codes: "orpheus", or a family of your own.

    Returns:
        A `Transcriber` where the target is a Whisper, a `Viewer` where it looks at images, a
        `Speaker` where it says codec tokens.

    Raises:
        MMSpecError: a model that can't be found or used, in one line.
    """
    try:
        loaded = load_model(
            target, device, dtype, packed, trust_remote_code, processor, family=family
        )
    except MMSpecError as error:
        raise type(error)(f"target: {error}") from None
    face = face_of(task_of(loaded))
    return face(loaded, draft_for(draft, loaded, trust_remote_code), gamma)
